//! A network in rounds: the emulator as the simulator of a synchronized experiment.
//!
//! Every node has a clock of its own, which the experiment moves. In a round all clocks go to one instant. The emulator takes the
//! frames that nodes send in the round, each with the instant at which it was sent by the sender's clock. No round is longer than
//! the shortest delay, counted from the first instant at which a node has something to do, so no frame arrives in the round in which it
//! was sent. No round goes beyond the instant at which the next frame is due. The emulator delivers frames between two rounds, while
//! all clocks stand at just that instant.
//!
//! In rounds no node uses the network's own clock. That clock only paces the rounds: no round begins before it has come to where
//! the nodes stand, and none while it is frozen.

use std::collections::BTreeMap;
use std::io;

use anyhow::Context;
use lorentz_clock::{Pace, Snapshot, Span, VirtualInstant};
use lorentz_container::StateDir;
use lorentz_control::Clock;
use lorentz_emulator::{Frame, StationId};
use lorentz_experiment::{Advanced, Experiment, IdleAdvance};
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};

use crate::directory::container_of;
use crate::node::TIMELINE;
use crate::plan::Endpoint;
use crate::protocol::{LinkChange, Replacement, RoundsStatus};
use crate::tap::Tap;
use crate::timestamps::FrameTimestamps;

/// Greatest number of jumps that a node's clock makes before the emulator takes the node's frames. The clock page remembers some 50
/// pieces; from those the emulator computes when a frame was sent.
const MAX_JUMPS: u32 = 40;

/// The instants at which an interface sends frames.
pub(crate) struct SendTimes {
    /// Its node's container.
    container: String,
    /// Its node's clock.
    clock: Clock,
    /// The host's time of each frame.
    timestamps: FrameTimestamps,
}

/// A frame that was sent in the round under way, and its instant: by the clock of its node until the round is over.
pub(super) struct SentFrame {
    pub at: VirtualInstant,
    pub station: StationId,
    pub frame: Frame,
}

impl SendTimes {
    /// Those of the interface `end` of a node of `network`, which is the device `tap`.
    pub fn of(
        state: &StateDir,
        network: &str,
        end: &Endpoint,
        tap: &Tap,
    ) -> anyhow::Result<SendTimes> {
        let node = state.container(&container_of(network, &end.node))?;
        let timestamps =
            FrameTimestamps::of(tap).context("rounds need BPF programs at interfaces")?;
        let container = node.name().to_string();
        Ok(SendTimes { container, clock: node.clock()?, timestamps })
    }
}

/// A change that waits for the end of the round.
pub(super) enum Deferred {
    /// Of a link.
    Link(Box<LinkChange>),
    /// To another topology.
    Topology(Box<Replacement>),
}

/// A round that is over.
pub(super) struct FinishedRound {
    /// The instant at which all nodes stand.
    pub end: VirtualInstant,
    /// The frames that nodes have sent, in the order of their instants.
    pub sent: Vec<SentFrame>,
    /// Changes that clients have asked for, each with its client.
    pub changes: Vec<(u64, Deferred)>,
}

/// Progress of the round under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RoundProgress {
    /// All nodes stand at its end.
    AtEnd,
    /// Some node's clock has made [`MAX_JUMPS`] jumps, and stands before the end.
    Behind,
    /// There are no more rounds.
    NoMoreRounds,
}

/// State of the rounds.
pub(super) struct Rounds {
    experiment: Experiment,
    send_times: Vec<SendTimes>,
    /// The instant at which all nodes stand, or from which they have gone on in the round under way.
    pub now: VirtualInstant,
    /// The end of the round under way; `None` between rounds.
    end: Option<VirtualInstant>,
    /// How far nodes may go in it if none has anything to do, until the round has begun.
    idle: Option<IdleAdvance>,
    /// The shortest delay when it began.
    least_delay: Span,
    sent: Vec<SentFrame>,
    /// Changes that clients have asked for since the round began.
    changes: Vec<(u64, Deferred)>,
    count: u64,
    /// The reason why there are no more rounds; `None` while there are.
    ended: Option<String>,
}

impl Rounds {
    /// Begins rounds for nodes that stand at `now`.
    pub fn new(experiment: Experiment, send_times: Vec<SendTimes>, now: VirtualInstant) -> Rounds {
        Rounds {
            experiment,
            send_times,
            now,
            end: None,
            idle: None,
            least_delay: Span::ZERO,
            sent: Vec::new(),
            changes: Vec::new(),
            count: 0,
            ended: None,
        }
    }

    /// Adds an interface, the next station of the emulator.
    pub fn add(&mut self, interface: SendTimes) {
        self.send_times.push(interface);
    }

    /// Takes a frame that `station` has sent.
    pub fn take(&mut self, station: StationId, frame: &[u8]) {
        let send_times = &self.send_times[station.0];
        let real = send_times.timestamps.next();
        let sent = real.and_then(|real| send_times.clock.virtual_of(real));
        let at = sent.unwrap_or_else(|| send_times.clock.look().now());
        self.sent.push(SentFrame { at, station, frame: frame.into() });
    }

    /// Keeps a change for the end of the round if one is under way; else gives it back.
    pub fn defer(&mut self, token: u64, change: Deferred) -> Option<Deferred> {
        if self.end.is_none() {
            return Some(change);
        }
        self.changes.push((token, change));
        None
    }

    /// Whether all nodes stand still, between two rounds.
    pub fn stand(&self) -> bool {
        self.end.is_none()
    }

    /// Returns the state of the rounds. `shown` is the time on the network's own clock.
    pub fn status(&self, shown: VirtualInstant) -> RoundsStatus {
        RoundsStatus {
            count: self.count,
            behind_ns: shown.since(self.now).0.max(0),
            ended: self.ended.clone(),
        }
    }

    /// Adds the experiment, which reports the end of rounds, to the poll.
    pub fn listen(&self, poll: &Epoll, token: u64) -> io::Result<()> {
        Ok(poll.add(&self.experiment, EpollEvent::new(EpollFlags::EPOLLIN, token))?)
    }

    /// Whether it is time to begin a round. `look` is at the network's clock.
    pub fn are_due(&self, look: &Snapshot) -> bool {
        let is_time = look.segment.pace != Pace::Frozen && look.now() >= self.now;
        is_time && self.end.is_none() && self.ended.is_none()
    }

    /// Whether a frame waits for the end of the round to come.
    pub fn has_frames(&self) -> bool {
        !self.sent.is_empty()
    }

    /// Begins a round. It ends after `least_delay`, or at the next event if that comes sooner. If no node has anything to do in it, it
    /// ends `least_delay` after the first that has: no task sends before. But it does not go beyond `may_go` then. If that is later than
    /// `least_delay` from now, the caller has taken the frames that kernels of nodes have sent between two rounds.
    pub fn begin(
        &mut self,
        least_delay: Span,
        event: Option<VirtualInstant>,
        may_go: VirtualInstant,
    ) {
        let longest = self.now.plus(least_delay);
        let end = event.map_or(longest, |event| event.min(longest));
        let at_most = event.map_or(may_go, |event| event.min(may_go));
        let may_skip = at_most > end && !self.has_frames();
        let idle = IdleAdvance { beyond_deadline: least_delay.0, at_most: at_most.0 };
        self.idle = may_skip.then_some(idle);
        self.least_delay = least_delay;
        self.end = Some(end);
        self.advance_nodes(end);
    }

    fn advance_nodes(&mut self, end: VirtualInstant) {
        // If the experiment's process has ended, its socket is readable now, and the read reports the end.
        let idle = self.idle.take();
        let _ = self.experiment.advance(TIMELINE, end, Some(MAX_JUMPS), idle);
    }

    /// Continues the round under way: some node's clock stands before its end.
    pub fn continue_round(&mut self) {
        if let Some(end) = self.end {
            self.advance_nodes(end);
        }
    }

    /// Real time until the next round may begin. `None` while one is under way. `look` is at the network's clock.
    pub fn until_next(&self, look: &Snapshot) -> Option<Span> {
        if self.end.is_some() || self.ended.is_some() {
            return None;
        }
        Some(look.real_at(self.now).since(look.real))
    }

    /// Reads how far the nodes have come.
    pub fn progress(&mut self) -> RoundProgress {
        let error = match self.experiment.has_advanced() {
            Ok(Advanced { to, is_behind }) => {
                self.end = to.or(self.end);
                return if is_behind { RoundProgress::Behind } else { RoundProgress::AtEnd };
            }
            Err(error) => error,
        };
        let nobody = self.experiment.status().is_ok_and(|all| all.containers.is_empty());
        self.ended =
            Some(if nobody { "all nodes have ended".into() } else { format!("{error:#}") });
        self.end = None;
        RoundProgress::NoMoreRounds
    }

    /// Removes the experiment from the poll.
    pub fn stop_listening(&self, poll: &Epoll) -> io::Result<()> {
        Ok(poll.delete(&self.experiment)?)
    }

    /// Turns the instants of frames into those of the experiment, where a clock errs.
    fn by_the_truth(&mut self, sent: &mut [SentFrame]) {
        let errs = |frame: &&mut SentFrame| self.send_times[frame.station.0].clock.shows_own_time();
        let mut erring: Vec<&mut SentFrame> = sent.iter_mut().filter(errs).collect();
        if erring.is_empty() {
            return;
        }
        let mut own: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for frame in &erring {
            let container = &self.send_times[frame.station.0].container;
            own.entry(container.clone()).or_default().push(frame.at.0);
        }
        // If the experiment has ended, no further round begins.
        let mut truth = self.experiment.truth_at(own).unwrap_or_default();
        truth.values_mut().for_each(|times| times.reverse());
        for frame in &mut erring {
            let times = truth.get_mut(&self.send_times[frame.station.0].container);
            if let Some(at) = times.and_then(Vec::pop) {
                frame.at = VirtualInstant(at);
            }
        }
    }

    /// Ends the round under way, if there is one. All frames of its nodes have been taken.
    pub fn finish(&mut self) -> Option<FinishedRound> {
        let end = self.end.take()?;
        let begin = std::mem::replace(&mut self.now, end);
        self.count += 1;
        let changes = std::mem::take(&mut self.changes);
        let mut sent = std::mem::take(&mut self.sent);
        self.by_the_truth(&mut sent);
        // In a longer round tasks send only here. The kernel's own timers keep real time: no instant is theirs.
        let first = begin.max(end.plus(Span(-self.least_delay.0)));
        sent.iter_mut().for_each(|frame| frame.at = frame.at.clamp(first, end));
        // Frames of one instant in the order of their interfaces, not in that in which they were read.
        sent.sort_by_key(|one| (one.at, one.station));
        Some(FinishedRound { end, sent, changes })
    }
}
