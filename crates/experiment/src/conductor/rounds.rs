//! Rounds of an experiment that runs by itself: which containers jump to the round's end, which get a slice, and when the next
//! round may begin.

use std::time::{Duration, Instant};

use lorentz_clock::{saturate, Rate, Span, VirtualInstant};

use super::{take, Conductor, Place, Round};
use crate::member::Member;
use crate::stage::Job;

impl Conductor {
    /// Begins a round: moves idle containers to its end, and gives the others to the workers.
    pub(super) fn begin_round(&mut self) {
        let begun = Instant::now();
        self.forget_the_ended();
        self.look();
        let now = self.now;
        self.members_mut().for_each(|member| member.take_turn(now));
        let end = self.end_of_round();
        let tasks = self.tasks();
        let mut jobs = Vec::new();
        for place in &mut self.places {
            let Place::Here(member) = place else { continue };
            if member.has_nothing_before(end) {
                member.clock.stand(end);
            } else {
                jobs.extend(take(place).map(|member| Job { member, end }));
            }
        }
        if let [only] = &jobs[..] {
            // All other containers stand at the round's end already.
            only.member.clock.allow_sends_until(end);
        } else {
            hold_until_their_slices(&mut jobs);
        }
        let left = jobs.len();
        self.round = Some(Round { end, begun, staged: Instant::now(), left });
        jobs.into_iter().for_each(|job| self.stage.play(job, tasks));
        if left == 0 {
            self.end_round();
        }
    }

    /// Continues slices that a send broke off (send ordering), one at a time: always that of the container furthest behind. No
    /// other container can have sent anything that this one must still see first.
    pub(super) fn go_on_or_end_round(&mut self) {
        let Some(Round { end, .. }) = self.round else { return };
        while let Some((at, place)) = self.furthest_behind_in_line() {
            let tasks = self.tasks();
            let others = self.members().filter(|member| member.group as usize != place);
            let others = others.map(|member| member.clock.now()).min().unwrap_or(end);
            let Place::Here(member) = &mut self.places[place] else { return };
            if !member.go_on(others.max(at)) {
                // No thread waited: it was killed in its wait.
                member.clock.stand(end);
                continue;
            }
            if let (Some(member), Some(round)) = (take(&mut self.places[place]), &mut self.round) {
                round.left = 1;
                self.stage.play(Job { member, end }, tasks);
                return;
            }
        }
        self.end_round();
    }

    fn furthest_behind_in_line(&self) -> Option<(VirtualInstant, usize)> {
        let in_line = self.members().filter(|member| member.in_line);
        in_line.map(|member| (member.clock.now(), member.group as usize)).min()
    }

    /// Returns the virtual end of the round that begins now: one timeslice further. If no container has anything to do and idle
    /// time is skipped, as many timeslices further as lie before the first deadline.
    fn end_of_round(&mut self) -> VirtualInstant {
        let (now, slice) = (self.now, self.settings.timeslice);
        if self.settings.as_fast_as_possible
            && self.members().all(|member| !member.seen.awake && !member.stopped)
        {
            let next = self.members().filter_map(Member::next_deadline).min();
            if let Some(next) = next {
                let slices = (next.since(now).0 - 1).max(0) / slice.0;
                return now.plus(Span(slice.0.saturating_mul(slices + 1)));
            }
        }
        now.plus(slice)
    }

    fn end_round(&mut self) {
        let Some(round) = self.round.take() else { return };
        let advance = round.end.since(self.now);
        self.now = round.end;
        self.rounds += 1;
        self.real += round.begun.elapsed();
        self.working += round.staged.elapsed();
        self.keep_pace(round.begun, advance);
    }

    /// Sets the begin of the next round, so that time does not run faster than the slowest container's clock would by itself.
    fn keep_pace(&mut self, begun: Instant, advance: Span) {
        /// Number of rounds of delay that later rounds may make up for.
        const BEHIND: u32 = 10;
        let anything_to_come = self.members().any(Member::awake_or_waiting);
        if self.settings.as_fast_as_possible && anything_to_come {
            self.not_before = begun;
            return;
        }
        let slowest = self.members().map(|member| member.rate).min_by(slower).unwrap_or(Rate::ONE);
        let real = i128::from(advance.0) * i128::from(slowest.den()) / i128::from(slowest.num());
        let real = Duration::from_nanos(saturate(real).max(0) as u64);
        let earliest = begun.checked_sub(real.saturating_mul(BEHIND)).unwrap_or(begun);
        self.not_before = self.not_before.max(earliest) + real;
    }
}

/// Stops the tasks of containers that wait for their slices while another container has its slice on the same processor.
fn hold_until_their_slices(jobs: &mut [Job]) {
    let mut taken = Vec::new();
    for Job { member, .. } in jobs {
        if !taken.contains(&member.cpu) {
            taken.push(member.cpu.clone());
        } else if member.seen.awake && !member.stopped && member.stop_tasks().is_err() {
            // Its control group is gone, and its tasks with the group.
            member.stopped = false;
        }
    }
}

fn slower(one: &Rate, other: &Rate) -> std::cmp::Ordering {
    let (one, other) = (
        u128::from(one.num()) * u128::from(other.den()),
        u128::from(other.num()) * u128::from(one.den()),
    );
    one.cmp(&other)
}
