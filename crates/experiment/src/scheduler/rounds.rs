//! Rounds of an experiment that runs by itself: which containers jump to the round's end, which get a slice, and when the next
//! round may begin.

use std::time::{Duration, Instant};

use lorentz_clock::{saturate, Rate, Span, VirtualInstant};

use super::{take_out, ContainerSlot, Round, Scheduler};
use crate::container::ExperimentContainer;
use crate::cpus::Cpus;
use crate::workers::Job;

impl Scheduler {
    /// Begins a round: moves idle containers to its end, and gives the others to the workers.
    pub(super) fn begin_round(&mut self) {
        let begun = Instant::now();
        self.forget_ended();
        self.look_at_tasks();
        let now = self.now;
        self.containers_mut().for_each(|container| container.allow_sends_up_to(now));
        let end = self.end_of_round();
        let tasks = self.tasks();
        let mut jobs = Vec::new();
        for slot in &mut self.slots {
            let ContainerSlot::Present(container) = slot else { continue };
            if container.is_idle_until(end) {
                container.clock.stand(end);
            } else {
                jobs.extend(take_out(slot).map(|container| Job { container, end }));
            }
        }
        if let [only] = &jobs[..] {
            // All other containers stand at the round's end already.
            only.container.clock.allow_sends_until(end);
        } else {
            hold_until_their_slices(&mut jobs);
        }
        let left = jobs.len();
        self.round = Some(Round { end, begun, handed_out: Instant::now(), left });
        jobs.into_iter().for_each(|job| self.workers.give(job, tasks));
        if left == 0 {
            self.end_round();
        }
    }

    /// Continues slices that a send broke off (send ordering), one at a time: always that of the container furthest behind. No
    /// other container can have sent anything that this one must still see first.
    pub(super) fn go_on_or_end_round(&mut self) {
        let Some(Round { end, .. }) = self.round else { return };
        while let Some((at, slot)) = self.furthest_behind_to_send() {
            let tasks = self.tasks();
            let others = self.containers().filter(|container| container.group as usize != slot);
            let others = others.map(|container| container.clock.now()).min().unwrap_or(end);
            let ContainerSlot::Present(container) = &mut self.slots[slot] else { return };
            if !container.resume_sends(others.max(at)) {
                // No thread waited: it was killed in its wait.
                container.clock.stand(end);
                continue;
            }
            if let (Some(container), Some(round)) =
                (take_out(&mut self.slots[slot]), &mut self.round)
            {
                round.left = 1;
                self.workers.give(Job { container, end }, tasks);
                return;
            }
        }
        self.end_round();
    }

    fn furthest_behind_to_send(&self) -> Option<(VirtualInstant, usize)> {
        let waits_to_send = self.containers().filter(|container| container.waits_to_send);
        waits_to_send.map(|container| (container.clock.now(), container.group as usize)).min()
    }

    /// Returns the virtual end of the round that begins now: one timeslice further. If no container has anything to do and idle
    /// time is skipped, as many timeslices further as lie before the first deadline.
    fn end_of_round(&mut self) -> VirtualInstant {
        let (now, slice) = (self.now, self.settings.timeslice);
        if self.settings.as_fast_as_possible
            && self.containers().all(ExperimentContainer::is_at_rest)
        {
            let next = self.containers().filter_map(ExperimentContainer::next_deadline).min();
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
        self.working += round.handed_out.elapsed();
        self.keep_pace(round.begun, advance);
    }

    /// Sets the begin of the next round, so that time does not run faster than the slowest container's clock would by itself.
    fn keep_pace(&mut self, begun: Instant, advance: Span) {
        /// Number of rounds of delay that later rounds may make up for.
        const MAX_CATCH_UP_ROUNDS: u32 = 10;
        let anything_to_come = self.containers().any(ExperimentContainer::awake_or_waiting);
        if self.settings.as_fast_as_possible && anything_to_come {
            self.not_before = begun;
            return;
        }
        let slowest =
            self.containers().map(|container| container.rate).min_by(slower).unwrap_or(Rate::ONE);
        let real = i128::from(advance.0) * i128::from(slowest.den()) / i128::from(slowest.num());
        let real = Duration::from_nanos(saturate(real).max(0) as u64);
        let earliest = begun.checked_sub(real.saturating_mul(MAX_CATCH_UP_ROUNDS)).unwrap_or(begun);
        self.not_before = self.not_before.max(earliest) + real;
    }
}

/// Stops the tasks of containers that wait for their slices while another container has its slice on one of their processors.
fn hold_until_their_slices(jobs: &mut [Job]) {
    let mut taken: Vec<Cpus> = Vec::new();
    for Job { container, .. } in jobs {
        if !taken.iter().any(|cpus| cpus.overlaps(&container.cpus)) {
            taken.push(container.cpus.clone());
        } else if container.tasks.awake && !container.stopped && container.stop_tasks().is_err() {
            // Its control group is gone, and its tasks with the group.
            container.stopped = false;
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
