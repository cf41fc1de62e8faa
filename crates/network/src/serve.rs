//! The emulator's process: takes frames from the interfaces of nodes and delivers frames to them, on the network's clock.
//!
//! One thread does everything, so a change of a link is atomic for every frame. The thread sleeps until shortly before an event is
//! due, and polls from then on. Frames that come in between get their right times too. The emulator watches the clock's file with
//! inotify: every controller closes the file, which is its lock too, after a change.

mod desk;
mod rounds;

use std::collections::{HashMap, VecDeque};
use std::ffi::CString;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

use lorentz_clock::{Pace, Snapshot, Span, VirtualInstant};
use lorentz_container::Clock;
use lorentz_experiment::Experiment;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use crate::capture::{self, Way};
use crate::emulator::{Emulator, LinkId, Side, StationId};
use crate::lateness::Histogram;
use crate::plan::{sides, ChangePlan, Plan};
use crate::protocol::{Answer, DirectionStatus, LinkStatus, NodeStatus, Request, Setting, Status};
use crate::timers::Timers;

pub(crate) use desk::Port;
use desk::{Caller, Desk};
use rounds::{Rounds, Sent};
pub(crate) use rounds::{Source, TIMELINE};

/// Time before an event from which on the thread polls instead of sleeping: a wake-up is rarely later than this.
const SPIN: Span = Span(60_000);
/// Longest sleep, real time. A clock that leaps over idle time sends no notification, so the thread looks at it so often.
const LOOK_AGAIN: Span = Span(10_000_000);
/// Most frames taken from one interface before the others have their turn.
const TURN: usize = 64;
/// Longest frame: the greatest MTU and its header.
const LONGEST: usize = 65_600;

const LISTENER: u64 = 0;
const CLOCK: u64 = 1;
const EXPERIMENT: u64 = 2;
const STATIONS: u64 = 3;
const CALLERS: u64 = 1 << 32;

/// A network at work.
pub(crate) struct Server {
    pub plan: Plan,
    pub nodes: Vec<NodeStatus>,
    pub emulator: Emulator,
    pub ports: Vec<Port>,
    pub timers: Timers,
    pub clock: Clock,
    pub clock_path: std::path::PathBuf,
    pub listener: UnixListener,
    /// In rounds: the experiment that moves the nodes, and for each port the source of the instants at which its frames were sent.
    pub rounds: Option<(Experiment, Vec<Source>)>,
}

struct Loop {
    plan: Plan,
    nodes: Vec<NodeStatus>,
    emulator: Emulator,
    timers: Timers,
    clock: Clock,
    started: VirtualInstant,
    rounds: Option<Rounds>,
    schedule: VecDeque<ChangePlan>,
    changes_refused: Vec<String>,
    desk: Desk,
    poll: Epoll,
    listener: UnixListener,
    clock_changes: OwnedFd,
    callers_so_far: u64,
    buffer: Vec<u8>,
}

impl Server {
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
        poll.add(&self.listener, readable(LISTENER))?;
        poll.add(&clock_changes, readable(CLOCK))?;
        for (station, port) in self.ports.iter().enumerate() {
            // SAFETY: the device is open as long as the loop runs.
            let fd = unsafe { BorrowedFd::borrow_raw(port.tap.fd()) };
            poll.add(fd, readable(STATIONS + station as u64))?;
        }
        let started = self.clock.look().now();
        let mut work = Loop {
            schedule: self.plan.schedule.iter().cloned().collect(),
            plan: self.plan,
            nodes: self.nodes,
            emulator: self.emulator,
            timers: self.timers,
            clock: self.clock,
            started,
            rounds: self
                .rounds
                .map(|(experiment, sources)| Rounds::new(experiment, sources, started)),
            changes_refused: Vec::new(),
            desk: Desk {
                ports: self.ports,
                callers: HashMap::new(),
                lateness: Histogram::default(),
            },
            poll,
            listener: self.listener,
            clock_changes,
            callers_so_far: 0,
            buffer: vec![0; LONGEST],
        };
        for link in 0..work.plan.links.len() {
            work.set_up(link, work.plan.links[link].is_up);
        }
        if let Some(rounds) = &work.rounds {
            rounds.listen(&work.poll, EXPERIMENT)?;
        }
        ready()?;
        lorentz_timers::os::least_timer_slack();
        work.run()
    }
}

impl Loop {
    fn run(&mut self) -> anyhow::Result<()> {
        let mut events = [EpollEvent::empty(); 64];
        loop {
            match self.rounds {
                Some(_) => self.begin_round(),
                None => self.advance(self.clock.look().now()),
            }
            // Sends captured frames to their readers now: the next event may be far away.
            self.desk.flush(&self.poll);
            let count = wait(&self.poll, &mut events, self.left())?;
            for event in &events[..count] {
                self.handle(event.data())?;
            }
        }
    }

    /// Real time until there is something to do. `None` if there is nothing to come.
    fn left(&self) -> Option<Span> {
        if let Some(rounds) = &self.rounds {
            let left = rounds.until_next(&self.clock.look())?;
            return Some(Span(left.0.clamp(0, LOOK_AGAIN.0)));
        }
        let change = self.schedule.front().map(|change| self.started.plus(change.at));
        let next = [self.emulator.next_due(), change].into_iter().flatten().min()?;
        let look = self.clock.look();
        // If a change of the clock was announced, the rest is computed after its start.
        let left = look.real_at(next).min(look.until).since(look.real);
        Some(Span((left.0 - SPIN.0).clamp(0, LOOK_AGAIN.0)))
    }

    /// Handles all events that are due, with scheduled changes at their exact instants.
    fn advance(&mut self, now: VirtualInstant) {
        while let Some(change) = self.schedule.front() {
            let at = self.started.plus(change.at);
            if at > now {
                break;
            }
            self.deliver(at);
            let Some(ChangePlan { at, end, both, set, is_up }) = self.schedule.pop_front() else {
                break;
            };
            if let Err(why) = self.set(&Setting { end, both, set, is_up }) {
                self.changes_refused.push(format!("at {at}: {why}"));
            }
        }
        self.deliver(now);
    }

    fn deliver(&mut self, now: VirtualInstant) {
        if self.emulator.next_due().is_none_or(|due| due > now) {
            return;
        }
        let (desk, clock, rounds) = (&mut self.desk, &self.clock, &self.rounds);
        self.emulator.advance(now, &mut |station, due, frame| {
            let look = clock.look();
            desk.capture(station, Way::In, due, &look, &frame);
            let now = rounds.as_ref().map_or_else(|| look.now(), |rounds| rounds.now);
            desk.lateness.add(now.since(due).0);
            let port = &mut desk.ports[station.0];
            if port.tap.write(&frame).is_err() {
                port.refused += 1;
            }
        });
    }

    /// Begins a round if it is time for one.
    fn begin_round(&mut self) {
        let look = self.clock.look();
        let Some(rounds) = self.rounds.as_mut().filter(|rounds| rounds.are_due(&look)) else {
            return;
        };
        let change = self.schedule.front().map(|change| self.started.plus(change.at));
        let event = [self.emulator.next_delivery(), change].into_iter().flatten().min();
        rounds.begin(self.emulator.least_delay(), event);
    }

    /// Handles the end of a round: sends on the frames that nodes have sent, and delivers the frames that are due now.
    fn end_round(&mut self) -> anyhow::Result<()> {
        let Some(rounds) = &mut self.rounds else { return Ok(()) };
        if !rounds.have_advanced() {
            return Ok(rounds.stop_listening(&self.poll)?);
        }
        for station in 0..self.desk.ports.len() {
            while self.take_from(StationId(station))? {}
        }
        let Some(round) = self.rounds.as_mut().and_then(Rounds::finish) else { return Ok(()) };
        for Sent { at, station, frame } in round.sent {
            self.deliver(at);
            self.emulator.send(station, frame, at);
        }
        self.advance(round.end);
        for (token, setting) in round.settings {
            let answer = self.set(&setting).map_or_else(Answer::Refused, |()| Answer::Done);
            self.tell(token, &answer);
        }
        Ok(())
    }

    fn handle(&mut self, token: u64) -> anyhow::Result<()> {
        match token {
            LISTENER => self.greet(),
            EXPERIMENT => self.end_round(),
            CLOCK => {
                let mut events = [0; 4_096];
                // Only the fact of the change counts.
                let _ = nix::unistd::read(&self.clock_changes, &mut events);
                self.timers.follow(&self.clock.look().segment);
                Ok(())
            }
            caller if caller >= CALLERS => {
                self.listen_to(caller);
                Ok(())
            }
            station => self.take_from(StationId((station - STATIONS) as usize)).map(drop),
        }
    }

    /// Takes frames that a node has sent. Returns false if there are no more.
    fn take_from(&mut self, station: StationId) -> anyhow::Result<bool> {
        for _ in 0..TURN {
            let size = match self.desk.ports[station.0].tap.read(&mut self.buffer) {
                Ok(Some(size)) => size,
                Ok(None) => return Ok(false),
                Err(_) => {
                    self.give_up(station);
                    return Ok(false);
                }
            };
            // The time is read after the frame, so the frame was sent before it.
            let look = self.clock.look();
            if let Some(rounds) = &mut self.rounds {
                let frame = &self.buffer[..size];
                let at = rounds.take(station, frame);
                self.desk.capture(station, Way::Out, at, &look, frame);
                continue;
            }
            let now = look.now();
            self.advance(now);
            let frame = &self.buffer[..size];
            self.desk.capture(station, Way::Out, now, &look, frame);
            self.emulator.send(station, frame.into(), now);
            self.deliver(now);
        }
        Ok(true)
    }

    /// Handles that the node has removed its interface. The link stays, with no receiver at that end.
    fn give_up(&mut self, station: StationId) {
        // SAFETY: the device is open as long as the loop runs.
        let fd = unsafe { BorrowedFd::borrow_raw(self.desk.ports[station.0].tap.fd()) };
        // An error means that this was done before.
        let _ = self.poll.delete(fd);
    }

    fn set(&mut self, setting: &Setting) -> Result<(), String> {
        let changes = sides(&self.plan.links, &setting.end, setting.both);
        let Some(&(link, _)) = changes.first() else {
            return Err(format!(
                "{}: no link ends there; expected an end of one of 'lorentz link show'",
                setting.end
            ));
        };
        let asked = |&(link, side): &(usize, usize)| {
            let asked =
                self.emulator.pipe(LinkId(link), Side::BOTH[side]).asked().with(&setting.set);
            asked.check()?;
            if self.rounds.is_some() {
                asked.check_for_rounds()?;
            }
            Ok((LinkId(link), Side::BOTH[side], asked))
        };
        // All or nothing.
        let checked = changes.iter().map(asked).collect::<Result<Vec<_>, String>>()?;
        for (link, side, asked) in checked {
            self.emulator.set(link, side, &asked);
        }
        if let Some(is_up) = setting.is_up {
            self.set_up(link, is_up);
        }
        Ok(())
    }

    fn set_up(&mut self, link: usize, is_up: bool) {
        self.emulator.set_up(LinkId(link), is_up);
        for port in &mut self.desk.ports {
            if self.plan.links[link].ends.contains(&port.end) {
                // An error means that the device is gone, which has no carrier.
                let _ = port.tap.set_carrier(is_up);
            }
        }
    }

    fn greet(&mut self) -> anyhow::Result<()> {
        let (stream, _) = match self.listener.accept() {
            Ok(accepted) => accepted,
            // The client has left again.
            Err(_) => return Ok(()),
        };
        stream.set_nonblocking(true)?;
        let token = CALLERS + self.callers_so_far;
        self.callers_so_far += 1;
        self.poll.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, token))?;
        let caller = Caller {
            stream,
            inbox: Vec::new(),
            outbox: VecDeque::new(),
            captures: None,
            waits: false,
            is_done: false,
        };
        self.desk.callers.insert(token, caller);
        Ok(())
    }

    fn listen_to(&mut self, token: u64) {
        /// A request is shorter.
        const LONGEST: usize = 64 * 1024;
        let Some(caller) = self.desk.callers.get_mut(&token) else { return };
        let mut some = [0; 4_096];
        match caller.stream.read(&mut some) {
            Ok(0) => caller.is_done = true,
            Ok(size) => caller.inbox.extend(&some[..size]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => caller.is_done = true,
        }
        caller.is_done |= caller.inbox.len() > LONGEST;
        let Some(end) = caller.inbox.iter().position(|&byte| byte == b'\n') else { return };
        let line: Vec<u8> = caller.inbox.drain(..=end).collect();
        let answer = match serde_json::from_slice(&line) {
            Ok(request) => self.answer(token, request),
            Err(error) => Some(Answer::Refused(format!("not understood: {error}"))),
        };
        if let Some(answer) = answer {
            self.tell(token, &answer);
        }
    }

    /// Answers a client, if it is still there.
    fn tell(&mut self, token: u64, answer: &Answer) {
        if let Some(caller) = self.desk.callers.get_mut(&token) {
            let text = serde_json::to_string(answer).unwrap_or_default();
            caller.outbox.extend(text.as_bytes());
            caller.outbox.push_back(b'\n');
        }
    }

    /// Returns the answer to `request`. `None` if the answer comes later, or if the connection carries a capture from here on.
    fn answer(&mut self, token: u64, request: Request) -> Option<Answer> {
        match request {
            Request::Status => Some(Answer::Status(Box::new(self.status()))),
            Request::Set(setting) => {
                let setting = match &mut self.rounds {
                    Some(rounds) => rounds.keep(token, setting)?,
                    None => {
                        self.advance(self.clock.look().now());
                        setting
                    }
                };
                Some(self.set(&setting).map_or_else(Answer::Refused, |()| Answer::Done))
            }
            Request::Capture { end } => {
                let Some(station) = self.desk.ports.iter().position(|port| port.end == end) else {
                    let what = format!(
                        "{end}: no such interface; expected one of a node, of 'lorentz link show'"
                    );
                    return Some(Answer::Refused(what));
                };
                let caller = self.desk.callers.get_mut(&token)?;
                let done = serde_json::to_string(&Answer::Done).unwrap_or_default();
                caller.outbox.extend(format!("{done}\n").as_bytes());
                caller.outbox.extend(capture::header(&end.to_string()));
                caller.captures = Some(StationId(station));
                None
            }
        }
    }

    fn status(&self) -> Status {
        let look = self.clock.look();
        let kind = |learns| if learns { "switch" } else { "hub" }.to_string();
        Status {
            name: self.plan.name.clone(),
            pid: std::process::id(),
            virtual_ns: self.now(&look).since(self.started).0,
            rounds: self.rounds.as_ref().map(|rounds| rounds.status(look.now())),
            frozen: look.segment.pace == Pace::Frozen
                && self.rounds.as_ref().is_none_or(Rounds::stand),
            nodes: self.nodes.clone(),
            positions: self.plan.positions.clone(),
            switches: self
                .plan
                .switches
                .iter()
                .map(|(name, learns)| (name.clone(), kind(*learns)))
                .collect(),
            links: (0..self.plan.links.len()).map(|link| self.link_status(link)).collect(),
            changes_to_come: self.schedule.len(),
            changes_refused: self.changes_refused.clone(),
            timers_refused: self.timers.refused.clone(),
            lateness: self.desk.lateness.summary(),
        }
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
            let port = self.desk.ports.iter().find(|port| port.end == *to);
            DirectionStatus {
                from: from.clone(),
                to: to.clone(),
                impairments: pipe.asked().clone(),
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
