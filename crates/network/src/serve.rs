//! The emulator's process: takes frames from the interfaces of nodes and delivers frames to them, on the network's clock.
//!
//! One thread does everything, so a change of a link is atomic for every frame. The thread sleeps until shortly before an event is
//! due, and polls from then on. Frames that come in between get their right times too. The emulator watches the clock's file with
//! inotify: every controller closes the file, which is its lock too, after a change.

mod clients;
mod edits;
mod positions;
mod round_loop;
mod rounds;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::CString;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

use lorentz_clock::{Pace, Snapshot, Span, VirtualInstant};
use lorentz_container::StateDir;
use lorentz_control::Clock;
use lorentz_emulator::{Emulator, LinkId, Side, StationId, SwitchId, SwitchKind};
use lorentz_experiment::Experiment;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use crate::capture::{self, CaptureDirection};
use crate::directory::NetworkDir;
use crate::kernel_timers::KernelTimers;
use crate::lateness::Histogram;
use crate::mobility::Motion;
use crate::plan::{directions_at, ChangePlan, ClockChangePlan, NetworkPlan};
use crate::protocol::{
    DirectionStatus, LinkChange, LinkStatus, NetworkAnswer, NetworkRequest, NetworkStatus,
    NodeStatus, ScheduledChange,
};

pub(crate) use clients::Port;
use clients::{ConnectedClient, Receivers, FIRST_STATION_TOKEN};
pub(crate) use rounds::SendTimes;
use rounds::{Deferred, Rounds};

/// Time before an event from which on the thread polls instead of sleeping: a wake-up is rarely later than this.
const SPIN_TIME: Span = Span(60_000);
/// Longest sleep, real time. A clock that leaps over idle time sends no notification, so the thread looks at it so often.
const MAX_SLEEP: Span = Span(10_000_000);
/// Most frames taken from one interface before the others have their turn.
const MAX_FRAMES_AT_ONCE: usize = 64;
/// Longest frame: the greatest MTU and its header.
const MAX_FRAME_LEN: usize = 65_600;

const LISTENER_TOKEN: u64 = 0;
const CLOCK_TOKEN: u64 = 1;
const EXPERIMENT_TOKEN: u64 = 2;
const FIRST_CLIENT_TOKEN: u64 = 1 << 32;

/// A network at work.
pub(crate) struct EmulatorServer {
    pub plan: NetworkPlan,
    pub nodes: Vec<NodeStatus>,
    pub emulator: Emulator,
    pub ports: Vec<Port>,
    pub timers: KernelTimers,
    pub clock: Clock,
    pub clock_path: std::path::PathBuf,
    pub listener: UnixListener,
    pub state: StateDir,
    pub directory: NetworkDir,
    /// In rounds: the experiment that moves the nodes, and for each port the instants at which its frames were sent.
    pub rounds: Option<(Experiment, Vec<SendTimes>)>,
}

struct EventLoop {
    state: StateDir,
    directory: NetworkDir,
    /// Links that were removed stay in it, without names: the emulator numbers links.
    plan: NetworkPlan,
    /// The emulator's numbers of switches.
    switches: BTreeMap<String, SwitchId>,
    nodes: Vec<NodeStatus>,
    emulator: Emulator,
    timers: KernelTimers,
    clock: Clock,
    started: VirtualInstant,
    rounds: Option<Rounds>,
    schedule: VecDeque<ChangePlan>,
    clock_schedule: VecDeque<ClockChangePlan>,
    motion: Motion,
    changes_refused: Vec<String>,
    receivers: Receivers,
    poll: Epoll,
    listener: UnixListener,
    clock_changes: OwnedFd,
    clients_so_far: u64,
    buffer: Vec<u8>,
}

impl EmulatorServer {
    /// Serves for ever. Calls `ready` when it begins to take frames. The network's time starts at the present time of its clock.
    ///
    /// # Errors
    ///
    /// If the emulator can do nothing but end.
    pub fn serve(self, ready: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
        let clock_changes = watch(&self.clock_path)?;
        let poll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let readable = |token| EpollEvent::new(EpollFlags::EPOLLIN, token);
        self.listener.set_nonblocking(true)?;
        poll.add(&self.listener, readable(LISTENER_TOKEN))?;
        poll.add(&clock_changes, readable(CLOCK_TOKEN))?;
        for (station, port) in self.ports.iter().enumerate() {
            port.listen(&poll, FIRST_STATION_TOKEN + station as u64)?;
        }
        let started = self.clock.look().now();
        let mut event_loop = EventLoop {
            schedule: self.plan.schedule.iter().cloned().collect(),
            clock_schedule: self.plan.clock_schedule.iter().cloned().collect(),
            motion: positions::motion_of(&self.plan),
            switches: edits::numbered(&self.plan),
            state: self.state,
            directory: self.directory,
            plan: self.plan,
            nodes: self.nodes,
            emulator: self.emulator,
            timers: self.timers,
            clock: self.clock,
            started,
            rounds: self
                .rounds
                .map(|(experiment, send_times)| Rounds::new(experiment, send_times, started)),
            changes_refused: Vec::new(),
            receivers: Receivers {
                ports: self.ports,
                clients: HashMap::new(),
                lateness: Histogram::default(),
            },
            poll,
            listener: self.listener,
            clock_changes,
            clients_so_far: 0,
            buffer: vec![0; MAX_FRAME_LEN],
        };
        for link in 0..event_loop.plan.links.len() {
            event_loop.set_up(link, event_loop.plan.links[link].is_up, started);
        }
        let EventLoop { motion, receivers, emulator, .. } = &mut event_loop;
        positions::place_all(motion, &receivers.ports, emulator);
        event_loop.emulator.start(started);
        if let Some(rounds) = &event_loop.rounds {
            rounds.listen(&event_loop.poll, EXPERIMENT_TOKEN)?;
        }
        ready()?;
        lorentz_timers::os::least_timer_slack();
        event_loop.run()
    }
}

impl EventLoop {
    fn run(&mut self) -> anyhow::Result<()> {
        let mut events = [EpollEvent::empty(); 64];
        loop {
            match self.rounds {
                Some(_) => self.begin_round()?,
                None => self.advance(self.clock.look().now()),
            }
            // Sends captured frames to their readers now: the next event may be far away.
            self.receivers.flush(&self.poll);
            let count = wait(&self.poll, &mut events, self.time_left())?;
            for event in &events[..count] {
                self.handle(event.data())?;
            }
        }
    }

    /// Real time until there is something to do. `None` if there is nothing to come.
    fn time_left(&self) -> Option<Span> {
        if let Some(rounds) = &self.rounds {
            let left = rounds.until_next(&self.clock.look())?;
            return Some(Span(left.0.clamp(0, MAX_SLEEP.0)));
        }
        let next = [self.emulator.next_due(), self.next_change()].into_iter().flatten().min()?;
        let look = self.clock.look();
        // If a change of the clock was announced, the rest is computed after its start.
        let left = look.real_at(next).min(look.until).since(look.real);
        Some(Span((left.0 - SPIN_TIME.0).clamp(0, MAX_SLEEP.0)))
    }

    /// The instant of the next change of a link, a position or a clock. `None` if there is none.
    fn next_change(&self) -> Option<VirtualInstant> {
        let link = self.schedule.front().map(|change| change.at);
        let clock = self.clock_schedule.front().map(|change| change.at);
        let next = [link, clock, self.motion.next_due()].into_iter().flatten().min()?;
        Some(self.started.plus(next))
    }

    /// Handles all events that are due, with changes at their exact instants.
    fn advance(&mut self, now: VirtualInstant) {
        while let Some(due) = self.next_change().filter(|due| *due <= now) {
            self.deliver(due);
            let at = due.since(self.started);
            let Self { motion, receivers, emulator, .. } = self;
            positions::move_nodes(motion, at, &receivers.ports, emulator);
            while self.schedule.front().is_some_and(|change| change.at <= at) {
                let Some(ChangePlan { at, end, both, set, is_up }) = self.schedule.pop_front()
                else {
                    break;
                };
                if let Err(why) = self.set(&LinkChange { end, both, set, is_up }, due) {
                    self.changes_refused.push(format!("at {at}: {why}"));
                }
            }
            self.change_clocks(at);
        }
        self.deliver(now);
    }

    fn deliver(&mut self, now: VirtualInstant) {
        if self.emulator.next_due().is_none_or(|due| due > now) {
            return;
        }
        let Self { receivers, clock, rounds, .. } = self;
        self.emulator.advance(now, &mut |station, due, frame| {
            let look = clock.look();
            receivers.capture(station, CaptureDirection::In, due, &look, &frame);
            let now = rounds.as_ref().map_or_else(|| look.now(), |rounds| rounds.now);
            receivers.lateness.add(now.since(due).0);
            let port = &mut receivers.ports[station.0];
            if port.tap().and_then(|tap| tap.write(&frame)).is_err() {
                port.refused += 1;
            }
        });
    }

    fn handle(&mut self, token: u64) -> anyhow::Result<()> {
        match token {
            LISTENER_TOKEN => self.accept_client(),
            EXPERIMENT_TOKEN => self.end_round(),
            CLOCK_TOKEN => {
                let mut events = [0; 4_096];
                // Only the fact of the change counts.
                let _ = nix::unistd::read(&self.clock_changes, &mut events);
                self.timers.follow_rate(&self.clock.look().segment);
                Ok(())
            }
            client if client >= FIRST_CLIENT_TOKEN => {
                self.read_request(client);
                Ok(())
            }
            station => self.read_frames(station_of(station)).map(drop),
        }
    }

    /// Takes all frames that nodes have sent so far.
    fn read_all_frames(&mut self) -> anyhow::Result<()> {
        let mut events = [EpollEvent::empty(); 64];
        loop {
            let count = wait(&self.poll, &mut events, Some(Span::ZERO))?;
            let mut any = false;
            for token in events[..count].iter().map(EpollEvent::data).filter(is_station) {
                any = true;
                while self.read_frames(station_of(token))? {}
            }
            if !any {
                return Ok(());
            }
        }
    }

    /// Takes frames that a node has sent. Returns false if there are no more.
    fn read_frames(&mut self, station: StationId) -> anyhow::Result<bool> {
        for _ in 0..MAX_FRAMES_AT_ONCE {
            let Ok(tap) = self.receivers.ports[station.0].tap() else { return Ok(false) };
            let size = match tap.read(&mut self.buffer) {
                Ok(Some(size)) => size,
                Ok(None) => return Ok(false),
                Err(_) => {
                    // The node has removed its interface. The link stays, with no receiver at that end.
                    self.receivers.ports[station.0].ignore(&self.poll);
                    return Ok(false);
                }
            };
            // The time is read after the frame, so the frame was sent before it.
            let look = self.clock.look();
            if let Some(rounds) = &mut self.rounds {
                rounds.take(station, &self.buffer[..size]);
                continue;
            }
            let now = look.now();
            self.advance(now);
            let frame = &self.buffer[..size];
            self.receivers.capture(station, CaptureDirection::Out, now, &look, frame);
            self.emulator.send(station, frame.into(), now);
            self.deliver(now);
        }
        Ok(true)
    }

    fn carry_out(&mut self, change: &Deferred, now: VirtualInstant) -> NetworkAnswer {
        let done = match change {
            Deferred::Link(change) => self.set(change, now),
            Deferred::Topology(replacement) => self.topology().replace(replacement, now),
        };
        done.map_or_else(NetworkAnswer::Refused, |()| NetworkAnswer::Done)
    }

    /// Carries out a change, in rounds between two of them. `None` if the answer comes then.
    fn change(&mut self, token: u64, change: Deferred) -> Option<NetworkAnswer> {
        let (change, now) = match &mut self.rounds {
            Some(rounds) => (rounds.defer(token, change)?, rounds.now),
            None => {
                let now = self.clock.look().now();
                self.advance(now);
                (change, now)
            }
        };
        Some(self.carry_out(&change, now))
    }

    fn set(&mut self, change: &LinkChange, now: VirtualInstant) -> Result<(), String> {
        let changes = directions_at(&self.plan.links, &change.end, change.both);
        let Some(&(link, _)) = changes.first() else {
            return Err(format!(
                "{}: no link ends there; expected an end of one of 'lorentz link show'",
                change.end
            ));
        };
        let impairments = |&(link, side): &(usize, usize)| {
            let impairments =
                self.emulator.pipe(LinkId(link), Side::BOTH[side]).impairments().with(&change.set);
            impairments.check()?;
            if self.rounds.is_some() {
                self.plan.check_for_rounds(&self.plan.links[link], side, &impairments)?;
            }
            Ok((LinkId(link), Side::BOTH[side], impairments))
        };
        // All or nothing.
        let checked = changes.iter().map(impairments).collect::<Result<Vec<_>, String>>()?;
        for (link, side, impairments) in checked {
            self.emulator.set(link, side, &impairments);
        }
        if let Some(is_up) = change.is_up {
            self.set_up(link, is_up, now);
        }
        Ok(())
    }

    fn set_up(&mut self, link: usize, is_up: bool, now: VirtualInstant) {
        let Self { plan, emulator, receivers, .. } = self;
        edits::set_up(plan, emulator, receivers, link, is_up, now);
    }

    fn topology(&mut self) -> edits::Topology<'_> {
        edits::Topology {
            state: &self.state,
            directory: &self.directory,
            poll: &self.poll,
            plan: &mut self.plan,
            nodes: &mut self.nodes,
            switches: &mut self.switches,
            emulator: &mut self.emulator,
            timers: &mut self.timers,
            receivers: &mut self.receivers,
            schedule: &mut self.schedule,
            clock_schedule: &mut self.clock_schedule,
            started: self.started,
            rounds: self.rounds.as_mut(),
        }
    }

    fn accept_client(&mut self) -> anyhow::Result<()> {
        let (stream, _) = match self.listener.accept() {
            Ok(accepted) => accepted,
            // The client has left again.
            Err(_) => return Ok(()),
        };
        stream.set_nonblocking(true)?;
        let token = FIRST_CLIENT_TOKEN + self.clients_so_far;
        self.clients_so_far += 1;
        self.poll.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, token))?;
        let client = ConnectedClient {
            stream,
            inbox: Vec::new(),
            outbox: VecDeque::new(),
            captures: None,
            waits: false,
            is_done: false,
        };
        self.receivers.clients.insert(token, client);
        Ok(())
    }

    fn read_request(&mut self, token: u64) {
        /// Limit for the length of a request, bytes.
        const MAX_REQUEST_LEN: usize = 64 * 1024;
        let Some(client) = self.receivers.clients.get_mut(&token) else { return };
        let mut some = [0; 4_096];
        match client.stream.read(&mut some) {
            Ok(0) => client.is_done = true,
            Ok(size) => client.inbox.extend(&some[..size]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => client.is_done = true,
        }
        client.is_done |= client.inbox.len() > MAX_REQUEST_LEN;
        let Some(end) = client.inbox.iter().position(|&byte| byte == b'\n') else { return };
        let line: Vec<u8> = client.inbox.drain(..=end).collect();
        let answer = match serde_json::from_slice(&line) {
            Ok(request) => self.answer(token, request),
            Err(error) => Some(NetworkAnswer::Refused(format!("not understood: {error}"))),
        };
        if let Some(answer) = answer {
            self.send_answer(token, &answer);
        }
    }

    /// Answers a client, if it is still there.
    fn send_answer(&mut self, token: u64, answer: &NetworkAnswer) {
        if let Some(client) = self.receivers.clients.get_mut(&token) {
            let text = serde_json::to_string(answer).unwrap_or_default();
            client.outbox.extend(text.as_bytes());
            client.outbox.push_back(b'\n');
        }
    }

    /// Returns the answer to `request`. `None` if the answer comes later, or if the connection carries a capture from here on.
    fn answer(&mut self, token: u64, request: NetworkRequest) -> Option<NetworkAnswer> {
        match request {
            NetworkRequest::Status => {
                // The answer is of one instant.
                let look = self.clock.look();
                if self.rounds.is_none() {
                    self.advance(look.now());
                }
                Some(NetworkAnswer::Status(Box::new(self.status(&look))))
            }
            NetworkRequest::Set(change) => self.change(token, Deferred::Link(change)),
            NetworkRequest::Replace(to) => self.change(token, Deferred::Topology(to)),
            NetworkRequest::Capture { end } => {
                let Some(station) = self.receivers.ports.iter().position(|port| port.end == end)
                else {
                    let what = format!(
                        "{end}: no such interface; expected one of a node, of 'lorentz link show'"
                    );
                    return Some(NetworkAnswer::Refused(what));
                };
                let client = self.receivers.clients.get_mut(&token)?;
                let done = serde_json::to_string(&NetworkAnswer::Done).unwrap_or_default();
                client.outbox.extend(format!("{done}\n").as_bytes());
                client.outbox.extend(capture::header(&end.to_string()));
                client.captures = Some(StationId(station));
                None
            }
        }
    }

    fn status(&self, look: &Snapshot) -> NetworkStatus {
        let kind = |kind| match kind {
            SwitchKind::Hub => "hub".to_string(),
            SwitchKind::Wlan { .. } => "wlan".to_string(),
            SwitchKind::Learning | SwitchKind::SpanningTree => "switch".to_string(),
        };
        NetworkStatus {
            name: self.plan.name.clone(),
            pid: std::process::id(),
            virtual_ns: self.now(look).since(self.started).0,
            rounds: self.rounds.as_ref().map(|rounds| rounds.status(look.now())),
            frozen: look.segment.pace == Pace::Frozen
                && self.rounds.as_ref().is_none_or(Rounds::stand),
            nodes: self.nodes.clone(),
            positions: positions::positions(&self.plan, &self.motion),
            wlans: positions::wlans(&self.plan, &self.receivers.ports, &self.emulator),
            switches: self
                .plan
                .switches
                .iter()
                .map(|(name, one)| (name.clone(), kind(*one)))
                .collect(),
            links: self.links().map(|link| self.link_status(link)).collect(),
            seed: self.plan.seed,
            started_ns: self.started.0,
            schedule: self.schedule.iter().take(NetworkStatus::SCHEDULE).map(scheduled).collect(),
            changes_to_come: self.schedule.len()
                + self.clock_schedule.len()
                + self.motion.waypoints_to_come(),
            changes_refused: self.changes_refused.clone(),
            timers_refused: self.timers.refused.clone(),
            lateness: self.receivers.lateness.summary(),
        }
    }

    /// The links that were not removed.
    fn links(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.plan.links.len()).filter(|link| !self.plan.links[*link].is_gone())
    }

    /// The virtual time of the nodes.
    fn now(&self, look: &Snapshot) -> VirtualInstant {
        self.rounds.as_ref().map_or_else(|| look.now(), |rounds| rounds.now)
    }

    fn link_status(&self, link: usize) -> LinkStatus {
        let plan = &self.plan.links[link];
        let direction = |side: Side| {
            let pipe = self.emulator.pipe(LinkId(link), side);
            let (from, to) = (&plan.ends[side as usize], &plan.ends[side.other() as usize]);
            let port = self.receivers.ports.iter().find(|port| port.end == *to);
            DirectionStatus {
                from: from.clone(),
                to: to.clone(),
                impairments: pipe.impairments().clone(),
                counts: pipe.counts(),
                queued: pipe.queued(),
                in_flight: pipe.in_flight(),
                refused: port.map_or(0, |port| port.refused),
            }
        };
        let up = self.emulator.pipe(LinkId(link), Side::First).is_up();
        LinkStatus { up, mtu: plan.mtu, directions: Side::BOTH.map(direction) }
    }
}

fn scheduled(change: &ChangePlan) -> ScheduledChange {
    ScheduledChange {
        at_ns: change.at.0,
        end: change.end.clone(),
        both: change.both,
        set: change.set.clone(),
        up: change.is_up,
    }
}

fn is_station(token: &u64) -> bool {
    (FIRST_STATION_TOKEN..FIRST_CLIENT_TOKEN).contains(token)
}

fn station_of(token: u64) -> StationId {
    StationId((token - FIRST_STATION_TOKEN) as usize)
}

/// Waits for events, at most `limit` of real time, to the nanosecond. Returns the number of events.
fn wait(poll: &Epoll, events: &mut [EpollEvent], limit: Option<Span>) -> io::Result<usize> {
    let limit = limit.map(|span| libc::timespec {
        tv_sec: span.0 / lorentz_clock::NANOS_PER_SEC,
        tv_nsec: span.0 % lorentz_clock::NANOS_PER_SEC,
    });
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: an EpollEvent is an epoll_event, and the length is that of the slice.
    let count = unsafe {
        libc::epoll_pwait2(
            poll.0.as_raw_fd(),
            events.as_mut_ptr().cast(),
            events.len() as i32,
            limit,
            std::ptr::null(),
        )
    };
    match count {
        -1 => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            error => Err(error),
        },
        count => Ok(count as usize),
    }
}

/// Returns a descriptor that is readable when a process has closed the file at `path` after writing.
fn watch(path: &Path) -> io::Result<OwnedFd> {
    // SAFETY: a plain number in, a descriptor or -1 out.
    let fd = unsafe { libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: made here, and nobody else's.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a string of our own.
    match unsafe {
        libc::inotify_add_watch(fd.as_fd().as_raw_fd(), path.as_ptr(), libc::IN_CLOSE_WRITE)
    } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(fd),
    }
}
