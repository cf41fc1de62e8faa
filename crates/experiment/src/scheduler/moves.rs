//! Moves that a simulator asks for: by the intervals of a timeline, to an instant, or by a time for each container.

use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc::Sender;
use std::time::Instant;

use lorentz_clock::{Span, VirtualInstant};

use super::{moved_to, take_out, ContainerSlot, PendingMove, Scheduler};
use crate::compute::ComputeTime;
use crate::container::ExperimentContainer;
use crate::error::ExperimentRefusal;
use crate::phase::{Phase, Transition};
use crate::protocol::{ExperimentAnswer, IdleAdvance};
use crate::workers::Job;

impl Scheduler {
    /// Sets how far a container goes with each progress. If `timeline` is given, the container must follow it.
    pub(super) fn set_interval(
        &mut self,
        name: &str,
        timeline: Option<u32>,
        nanos: i64,
    ) -> anyhow::Result<()> {
        let phase = self.phase.after(Transition::Interval, self.mode())?;
        let interval = above_zero(nanos)?;
        self.container_on(name, timeline)?.interval = Some(interval);
        self.phase = phase;
        Ok(())
    }

    /// Moves the containers of a timeline by their intervals, of which `intervals` are set before. `answer` gets the result when
    /// all have arrived.
    pub(super) fn progress(
        &mut self,
        timeline: u32,
        intervals: &BTreeMap<String, i64>,
        answer: &Sender<ExperimentAnswer>,
    ) -> anyhow::Result<()> {
        let phase = self.check_move(timeline)?;
        for (name, nanos) in intervals {
            above_zero(*nanos)?;
            self.container_on(name, Some(timeline))?;
        }
        self.phase = phase;
        for (name, nanos) in intervals {
            self.container(name)?.interval = Some(Span(*nanos));
        }
        self.begin_move();
        self.move_containers(Move::of(vec![timeline]), answer, |container| {
            let interval = container.interval.filter(|_| container.timeline == Some(timeline))?;
            Some(container.clock.now().plus(interval))
        });
        Ok(())
    }

    /// Moves the containers of a timeline to the instant `to`, as [`Scheduler::progress`] does, with at most `steps` jumps of each
    /// clock; further, as `idle` says, if all of them are idle.
    pub(super) fn advance(
        &mut self,
        timeline: u32,
        to: VirtualInstant,
        steps: Option<u32>,
        idle: Option<IdleAdvance>,
        answer: &Sender<ExperimentAnswer>,
    ) -> anyhow::Result<()> {
        self.phase = self.check_move(timeline)?;
        self.begin_move();
        let told = idle.map(|idle| self.end_if_idle(timeline, to, idle));
        let to = told.unwrap_or(to);
        let timelines = vec![timeline];
        self.move_containers(Move { timelines, steps, told }, answer, |container| {
            (container.timeline == Some(timeline)).then_some(to)
        });
        Ok(())
    }

    /// Returns how far the containers of a timeline go: to `to` if one of them has something to do before, else as `idle` says.
    fn end_if_idle(&self, timeline: u32, to: VirtualInstant, idle: IdleAdvance) -> VirtualInstant {
        let mut first = VirtualInstant::NEVER;
        for container in self.containers().filter(|one| one.timeline == Some(timeline)) {
            first = match container.is_at_rest() {
                true => container.next_deadline().map_or(first, |next| next.min(first)),
                false => return to,
            };
            if first <= to {
                return to;
            }
        }
        let end = first.plus(Span(idle.beyond_deadline)).min(VirtualInstant(idle.at_most));
        end.max(to)
    }

    /// Moves each container of `moves` by its own number of ns, as [`Scheduler::progress`] does.
    pub(super) fn step(
        &mut self,
        moves: &BTreeMap<String, i64>,
        answer: &Sender<ExperimentAnswer>,
    ) -> anyhow::Result<()> {
        let phase = match self.any_with_worker() {
            true => self.phase,
            false => self.phase.after(Transition::Step, self.mode())?,
        };
        let (mut ends, mut timelines) = (HashMap::new(), Vec::new());
        for (name, nanos) in moves {
            let interval = above_zero(*nanos)?;
            let container = self.container_on(name, None)?;
            ends.insert(container.group, container.clock.now().plus(interval));
            timelines.extend(container.timeline.filter(|one| !timelines.contains(one)));
        }
        timelines.iter().try_for_each(|timeline| self.check_at_rest(*timeline))?;
        self.phase = phase;
        self.begin_move();
        self.move_containers(Move::of(timelines), answer, |container| {
            ends.get(&container.group).copied()
        });
        Ok(())
    }

    /// Checks that a timeline may be moved. Returns the phase of then.
    fn check_move(&mut self, timeline: u32) -> anyhow::Result<Phase> {
        self.check_at_rest(timeline)?;
        let phase = match self.any_with_worker() {
            true => self.phase,
            false => self.phase.after(Transition::Progress, self.mode())?,
        };
        self.check_timeline(timeline)?;
        if !self.any_with_worker() {
            self.forget_ended();
        }
        Ok(phase)
    }

    fn check_at_rest(&self, timeline: u32) -> anyhow::Result<()> {
        match self.pending.iter().any(|pending| pending.timelines.contains(&timeline)) {
            true => Err(ExperimentRefusal::UnderWay(timeline).into()),
            false => Ok(()),
        }
    }

    pub(super) fn check_timeline(&self, timeline: u32) -> anyhow::Result<()> {
        let mut timelines = self.containers().map(|container| container.timeline);
        match timelines.any(|one| one == Some(timeline)) || self.any_with_worker() {
            true => Ok(()),
            false => Err(ExperimentRefusal::NoTimeline(timeline).into()),
        }
    }

    pub(super) fn any_with_worker(&self) -> bool {
        self.slots.iter().any(|slot| matches!(slot, ContainerSlot::WithWorker))
    }

    /// Returns the container of this name, which follows `timeline` if that is given.
    fn container_on(
        &mut self,
        name: &str,
        timeline: Option<u32>,
    ) -> anyhow::Result<&mut ExperimentContainer> {
        let slot = self.index.get(name).and_then(|slot| self.slots.get(*slot));
        if matches!(slot, Some(ContainerSlot::WithWorker)) {
            return Err(ExperimentRefusal::Moving(name.to_string()).into());
        }
        let container = self.container(name)?;
        match timeline.filter(|given| container.timeline != Some(*given)) {
            Some(given) => Err(ExperimentRefusal::OtherTimeline(name.to_string(), given).into()),
            None => Ok(container),
        }
    }

    /// Looks at the tasks of all containers, before a move.
    fn begin_move(&mut self) {
        self.move_begun = Instant::now();
        self.look_at_tasks();
    }

    /// Moves containers to the instants that `end_of` gives them: idle ones at once, the others by the workers.
    fn move_containers(
        &mut self,
        Move { timelines, steps, told }: Move,
        answer: &Sender<ExperimentAnswer>,
        end_of: impl Fn(&ExperimentContainer) -> Option<VirtualInstant>,
    ) {
        let begun = self.move_begun;
        let tasks = self.tasks();
        let mut jobs = Vec::new();
        for slot in &mut self.slots {
            let ContainerSlot::Present(container) = slot else { continue };
            let Some(end) = end_of(container) else { continue };
            container.steps_left = steps;
            if container.is_idle_until(end) {
                container.clock.stand(end);
            } else {
                jobs.extend(take_out(slot).map(|container| Job { container, end }));
            }
        }
        if jobs.iter().any(|job| job.container.compute == ComputeTime::None) {
            // Only such slices end by the sleep of their tasks alone.
            self.watch.set_switch_events(true);
        }
        self.rounds += 1;
        let left = jobs.len();
        let handed_out = Instant::now();
        jobs.into_iter().for_each(|job| self.workers.give(job, tasks));
        if left == 0 {
            self.count_time(begun, handed_out);
            let _ = answer.send(moved_to(told, false));
            return;
        }
        let (answer, behind, to) = (answer.clone(), false, told);
        self.pending.push(PendingMove { timelines, left, behind, to, begun, handed_out, answer });
    }
}

/// A move of containers.
struct Move {
    timelines: Vec<u32>,
    /// Greatest number of jumps of each clock.
    steps: Option<u32>,
    /// Where they go, if the client is to be told.
    told: Option<VirtualInstant>,
}

impl Move {
    fn of(timelines: Vec<u32>) -> Move {
        Move { timelines, steps: None, told: None }
    }
}

fn above_zero(nanos: i64) -> Result<Span, ExperimentRefusal> {
    match nanos {
        1.. => Ok(Span(nanos)),
        _ => Err(ExperimentRefusal::Interval(Span(nanos))),
    }
}
