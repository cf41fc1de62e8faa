//! The emulator's part in rounds: it begins and ends them, and hands frames and scheduled changes over between two of them.

use lorentz_clock::{Span, VirtualInstant};
use lorentz_emulator::{Frame, StationId};

use super::rounds::{RoundProgress, Rounds, SentFrame};
use super::EventLoop;
use crate::capture::CaptureDirection;
use crate::directory::container_of;
use crate::plan::ClockChangePlan;

impl EventLoop {
    /// Begins a round if it is time for one.
    pub(super) fn begin_round(&mut self) -> anyhow::Result<()> {
        let look = self.clock.look();
        if !self.rounds.as_ref().is_some_and(|rounds| rounds.are_due(&look)) {
            return Ok(());
        }
        let least_delay = self.emulator.least_delay();
        if self.rounds.as_ref().is_some_and(|rounds| look.now() > rounds.now.plus(least_delay)) {
            // The round may be a longer one. A kernel has answered frames at once, or has sent them on by another interface.
            self.read_all_frames()?;
        }
        let change = self.next_change();
        let Some(rounds) = &mut self.rounds else { return Ok(()) };
        let event = [self.emulator.next_delivery(), change].into_iter().flatten().min();
        // A frame on its way to a switch has another link before it.
        let under_way = self.emulator.next_due().map(|due| due.plus(least_delay));
        let may_go = under_way.map_or(look.now(), |due| due.min(look.now()));
        rounds.begin(least_delay, event, may_go);
        Ok(())
    }

    /// Handles the end of a round: sends on the frames that nodes have sent, and delivers the frames that are due now.
    pub(super) fn end_round(&mut self) -> anyhow::Result<()> {
        let Some(rounds) = &mut self.rounds else { return Ok(()) };
        let progress = rounds.progress();
        if progress == RoundProgress::NoMoreRounds {
            return Ok(rounds.stop_listening(&self.poll)?);
        }
        for station in 0..self.receivers.ports.len() {
            while self.read_frames(StationId(station))? {}
        }
        if progress == RoundProgress::Behind {
            self.rounds.as_mut().into_iter().for_each(Rounds::continue_round);
            return Ok(());
        }
        let Some(round) = self.rounds.as_mut().and_then(Rounds::finish) else { return Ok(()) };
        let mut sent = round.sent.into_iter().peekable();
        while let Some(SentFrame { at, station, frame }) = sent.next_if(|one| one.at < round.end) {
            self.deliver(at);
            self.send_on(station, frame, at);
        }
        // A change comes before the frames of its instant, as it does without rounds. No round goes beyond one.
        self.advance(round.end);
        for SentFrame { at, station, frame } in sent {
            self.send_on(station, frame, at);
        }
        self.deliver(round.end);
        for (token, change) in round.changes {
            let answer = self.carry_out(&change, round.end);
            self.send_answer(token, &answer);
        }
        Ok(())
    }

    /// Sends on a frame that a node has sent at `at`.
    fn send_on(&mut self, station: StationId, frame: Frame, at: VirtualInstant) {
        let look = self.clock.look();
        self.receivers.capture(station, CaptureDirection::Out, at, &look, &frame);
        self.emulator.send(station, frame, at);
    }

    /// Makes the changes of nodes' clocks that are due `at` so long after the start, while all nodes stand.
    pub(super) fn change_clocks(&mut self, at: Span) {
        while self.clock_schedule.front().is_some_and(|change| change.at <= at) {
            let Some(ClockChangePlan { node, change, .. }) = self.clock_schedule.pop_front() else {
                break;
            };
            if !self.nodes.iter().any(|one| one.name == node) {
                // It has been removed.
                continue;
            }
            let container = container_of(&self.plan.name, &node);
            let found = self.state.container(&container).map_err(anyhow::Error::from);
            if let Err(error) = found.and_then(|found| found.change_clock_error(change)) {
                self.changes_refused.push(format!("at {at}: clock of {node}: {error:#}"));
            }
        }
    }
}
