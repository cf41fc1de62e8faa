//! A network in rounds: the emulator as the simulator of a synchronized experiment.
//!
//! Every node has a clock of its own, which the experiment moves. In a round all clocks go to one instant. The emulator takes the
//! frames that nodes send in the round, each with the instant at which it was sent by the sender's clock. No round is longer than
//! the shortest delay, so no frame arrives in the round in which it was sent. No round goes beyond the instant at which the next
//! frame is due. The emulator delivers frames between two rounds, while all clocks stand at just that instant.
//!
//! In rounds no node uses the network's own clock. That clock only paces the rounds: no round begins before it has come to where
//! the nodes stand, and none while it is frozen.

use std::io;

use anyhow::Context;
use lorentz_clock::{Pace, Snapshot, Span, VirtualInstant};
use lorentz_container::StateDir;
use lorentz_control::Clock;
use lorentz_emulator::{Frame, StationId};
use lorentz_experiment::Experiment;
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
    /// Its node's clock.
    pub clock: Clock,
    /// The host's time of each frame.
    pub timestamps: FrameTimestamps,
}

/// A frame that was sent in the round under way, and its instant.
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
        Ok(SendTimes { clock: node.clock()?, timestamps })
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
        let (sent, changes) = (Vec::new(), Vec::new());
        Rounds { experiment, send_times, now, end: None, sent, changes, count: 0, ended: None }
    }

    /// Adds an interface, the next station of the emulator.
    pub fn add(&mut self, interface: SendTimes) {
        self.send_times.push(interface);
    }

    /// Takes a frame that `station` has sent, and returns its instant.
    pub fn take(&mut self, station: StationId, frame: &[u8]) -> VirtualInstant {
        let send_times = &self.send_times[station.0];
        let real = send_times.timestamps.next();
        let sent = real.and_then(|real| send_times.clock.virtual_of(real)).unwrap_or(self.now);
        let at = sent.clamp(self.now, self.end.unwrap_or(sent).max(self.now));
        self.sent.push(SentFrame { at, station, frame: frame.into() });
        at
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

    /// Begins a round. It ends after `least_delay`, or at the next event if that comes sooner.
    pub fn begin(&mut self, least_delay: Span, event: Option<VirtualInstant>) {
        let longest = self.now.plus(least_delay);
        let end = event.map_or(longest, |event| event.min(longest));
        self.end = Some(end);
        self.advance_nodes(end);
    }

    fn advance_nodes(&mut self, end: VirtualInstant) {
        // If the experiment's process has ended, its socket is readable now, and the read reports the end.
        let _ = self.experiment.advance(TIMELINE, end, Some(MAX_JUMPS));
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
            Ok(true) => return RoundProgress::AtEnd,
            Ok(false) => return RoundProgress::Behind,
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

    /// Ends the round under way, if there is one. All frames of its nodes have been taken.
    pub fn finish(&mut self) -> Option<FinishedRound> {
        let end = self.end.take()?;
        self.now = end;
        self.count += 1;
        let changes = std::mem::take(&mut self.changes);
        let mut sent = std::mem::take(&mut self.sent);
        // Frames of one instant in the order of their interfaces, not in that in which they were read.
        sent.sort_by_key(|one| (one.at, one.station));
        Some(FinishedRound { end, sent, changes })
    }
}
