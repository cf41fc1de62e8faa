//! A network in rounds: the emulator as the simulator of a synchronized experiment.
//!
//! Every node has a clock of its own, which the experiment moves. In a round all clocks go to one instant. The emulator takes the
//! frames that nodes send in the round, each with the instant at which it was sent by the sender's clock. No round is longer than
//! the shortest delay, so no frame arrives in the round in which it was sent. No round goes beyond the instant at which the next
//! frame is due. The emulator delivers frames between two rounds, while all clocks stand at just that instant.
//!
//! In rounds no node uses the network's own clock. That clock only paces the rounds: no round begins before it has come to where
//! the nodes stand, and none while it is frozen.

use lorentz_clock::{Pace, Span, VirtualInstant};
use lorentz_control::Clock;
use lorentz_experiment::Experiment;
use nix::sys::epoll::{EpollEvent, EpollFlags};

use super::{Loop, EXPERIMENT};
use crate::emulator::{Frame, StationId};
use crate::protocol::{Answer, RoundsStatus, Setting};
use crate::stamps::Stamps;

/// The timeline of all nodes.
pub(crate) const TIMELINE: u32 = 1;

/// The source of the instants at which an interface sends frames.
pub(crate) struct Source {
    /// Its node's clock.
    pub clock: Clock,
    /// The host's time of each frame.
    pub stamps: Stamps,
}

/// A frame that was sent in the round under way, and its instant.
struct Sent {
    at: VirtualInstant,
    station: StationId,
    frame: Frame,
}

/// State of the rounds.
pub(super) struct Rounds {
    experiment: Experiment,
    sources: Vec<Source>,
    /// The instant at which all nodes stand, or from which they have gone on in the round under way.
    pub now: VirtualInstant,
    /// The end of the round under way; `None` between rounds.
    end: Option<VirtualInstant>,
    sent: Vec<Sent>,
    /// Changes that clients have asked for since the round began.
    settings: Vec<(u64, Box<Setting>)>,
    count: u64,
    /// The reason why there are no more rounds; `None` while there are.
    ended: Option<String>,
}

impl Rounds {
    /// Begins rounds for nodes that stand at `now`.
    pub fn new(experiment: Experiment, sources: Vec<Source>, now: VirtualInstant) -> Rounds {
        let (sent, settings) = (Vec::new(), Vec::new());
        Rounds { experiment, sources, now, end: None, sent, settings, count: 0, ended: None }
    }

    /// Takes a frame that `station` has sent, and returns its instant.
    pub fn take(&mut self, station: StationId, frame: &[u8]) -> VirtualInstant {
        let source = &self.sources[station.0];
        let real = source.stamps.next();
        let sent = real.and_then(|real| source.clock.virtual_of(real)).unwrap_or(self.now);
        let at = sent.clamp(self.now, self.end.unwrap_or(sent).max(self.now));
        self.sent.push(Sent { at, station, frame: frame.into() });
        at
    }

    /// Keeps a change for the end of the round if one is under way; else gives it back.
    pub fn keep(&mut self, token: u64, setting: Box<Setting>) -> Option<Box<Setting>> {
        if self.end.is_none() {
            return Some(setting);
        }
        self.settings.push((token, setting));
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
}

impl Loop {
    /// Adds the experiment, which reports the end of rounds, to the poll.
    pub(super) fn listen_to_rounds(&self) -> anyhow::Result<()> {
        let readable = EpollEvent::new(EpollFlags::EPOLLIN, EXPERIMENT);
        match &self.rounds {
            Some(rounds) => Ok(self.poll.add(&rounds.experiment, readable)?),
            None => Ok(()),
        }
    }

    /// Begins a round if it is time for one.
    pub(super) fn begin_round(&mut self) {
        let look = self.clock.look();
        let Some(rounds) = &mut self.rounds else { return };
        let is_time = look.segment.pace != Pace::Frozen && look.now() >= rounds.now;
        if rounds.end.is_some() || rounds.ended.is_some() || !is_time {
            return;
        }
        let change = self.schedule.front().map(|change| self.started.plus(change.at));
        let longest = rounds.now.plus(self.emulator.least_delay());
        let events = [Some(longest), self.emulator.next_delivery(), change];
        let end = events.into_iter().flatten().min().unwrap_or(longest);
        rounds.end = Some(end);
        // If the experiment's process has ended, its socket is readable now, and the read reports the end.
        let _ = rounds.experiment.advance(TIMELINE, end);
    }

    /// Real time until the next round may begin. `None` while one is under way.
    pub(super) fn until_round(&self, rounds: &Rounds) -> Option<Span> {
        if rounds.end.is_some() || rounds.ended.is_some() {
            return None;
        }
        let look = self.clock.look();
        Some(look.real_at(rounds.now).since(look.real))
    }

    /// Handles the end of a round: sends on the frames that nodes have sent, and delivers the frames that are due now.
    pub(super) fn end_round(&mut self) -> anyhow::Result<()> {
        let Some(rounds) = &mut self.rounds else { return Ok(()) };
        if let Err(error) = rounds.experiment.has_advanced() {
            let nobody = rounds.experiment.status().is_ok_and(|all| all.containers.is_empty());
            rounds.ended =
                Some(if nobody { "all nodes have ended".into() } else { format!("{error:#}") });
            rounds.end = None;
            return Ok(self.poll.delete(&rounds.experiment)?);
        }
        for station in 0..rounds.sources.len() {
            while self.take_from(StationId(station))? {}
        }
        let Some(rounds) = &mut self.rounds else { return Ok(()) };
        let Some(end) = rounds.end.take() else { return Ok(()) };
        rounds.now = end;
        rounds.count += 1;
        let settings = std::mem::take(&mut rounds.settings);
        let mut sent = std::mem::take(&mut rounds.sent);
        sent.sort_by_key(|one| one.at);
        for Sent { at, station, frame } in sent {
            self.deliver(at);
            self.emulator.send(station, frame, at);
        }
        self.advance(end);
        for (token, setting) in settings {
            let answer = self.set(&setting).map_or_else(Answer::Refused, |()| Answer::Done);
            self.tell(token, &answer);
        }
        Ok(())
    }
}
