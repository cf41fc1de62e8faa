//! The scheduler keeps the state of an experiment and decides how far each container goes.
//!
//! Its thread takes requests and finished slices from one queue. A round begins when the previous one is over; between rounds the
//! scheduler answers requests. While nothing is under way, the thread of a caller may use it too ([`SharedScheduler`]). The workers of [`crate::workers`] give the slices, one worker for each processor of the experiment. During a
//! slice its worker owns the container. So the timelines of a simulator do not wait for each other.

mod clocks;
mod members;
mod moves;
mod rounds;
mod shared;

pub use shared::SharedScheduler;

use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lorentz_clock::{Rate, Span, VirtualInstant};
use lorentz_container::StateDir;

use crate::container::ExperimentContainer;
use crate::cpus::Cpus;
use crate::error::ExperimentRefusal;
use crate::message::SchedulerMessage;
use crate::phase::{AdvanceMode, Phase, Transition};
use crate::protocol::{ExperimentAnswer, ExperimentRequest};
use crate::settings::ExperimentSettings;
use crate::watch::TaskWatch;
use crate::workers::{Job, Workers};

/// A slot for a container. A container keeps its slot while a worker has it (`WithWorker`).
pub(crate) enum ContainerSlot {
    Present(Box<ExperimentContainer>),
    WithWorker,
    Free,
}

/// A client that waits for containers of these timelines to arrive, with the number of those still under way.
struct PendingMove {
    timelines: Vec<u32>,
    left: usize,
    /// One of its containers has stopped before its instant.
    behind: bool,
    /// Where they go, if the client is to be told.
    to: Option<VirtualInstant>,
    begun: Instant,
    handed_out: Instant,
    answer: Sender<ExperimentAnswer>,
}

/// The scheduler's state.
pub struct Scheduler {
    pub(crate) name: String,
    pub(crate) settings: ExperimentSettings,
    pub(crate) phase: Phase,
    pub(crate) slots: Vec<ContainerSlot>,
    pub(crate) watch: Arc<TaskWatch>,
    state: StateDir,
    workers: Workers,
    /// Virtual time at which all containers stand between rounds, if the experiment runs by itself.
    pub(crate) now: VirtualInstant,
    pub(crate) synchronized_at: VirtualInstant,
    pending: Vec<PendingMove>,
    /// When the move began that is being handed out.
    move_begun: Instant,
    round: Option<Round>,
    pub(crate) rounds: u64,
    pub(crate) real: Duration,
    pub(crate) working: Duration,
    /// Real time up to which `real` and `working` are counted, if a simulator moves timelines.
    counted_until: Instant,
    /// Earliest begin of the next round: it keeps time from running faster than the clocks' rates.
    not_before: Instant,
    added: usize,
    /// Number of processors that containers got so far: the next container gets the next ones.
    processors_given: usize,
    /// Each container's slot in `slots`, by name.
    index: HashMap<String, usize>,
    free: Vec<usize>,
    ended: Option<Sender<ExperimentAnswer>>,
}

/// The round under way. `left` is the number of containers still with workers.
struct Round {
    end: VirtualInstant,
    begun: Instant,
    handed_out: Instant,
    left: usize,
}

impl Scheduler {
    /// Makes a scheduler, with its workers, which send to `outbox`.
    pub fn new(
        name: &str,
        settings: ExperimentSettings,
        state: StateDir,
        outbox: &Sender<SchedulerMessage>,
    ) -> anyhow::Result<Scheduler> {
        let watch = Arc::new(TaskWatch::new(settings.most));
        let spare = Cpus::usable()?.without(&settings.cpus);
        let workers = Workers::new(&settings.cpus, &spare, &watch, outbox)?;
        spare.set_affinity(0)?;
        Ok(Scheduler {
            name: name.to_string(),
            settings,
            phase: Phase::SettingUp,
            slots: Vec::new(),
            watch,
            state,
            workers,
            now: VirtualInstant(0),
            synchronized_at: VirtualInstant(0),
            pending: Vec::new(),
            move_begun: Instant::now(),
            round: None,
            rounds: 0,
            real: Duration::ZERO,
            working: Duration::ZERO,
            counted_until: Instant::now(),
            not_before: Instant::now(),
            added: 0,
            processors_given: 0,
            index: HashMap::new(),
            free: Vec::new(),
            ended: None,
        })
    }

    /// Begins a round if it is time for one. Else waits for a message until then.
    fn await_next_round(&mut self, inbox: &Receiver<SchedulerMessage>) -> Option<SchedulerMessage> {
        let early = self.not_before.saturating_duration_since(Instant::now());
        if early > Duration::ZERO {
            return inbox.recv_timeout(early).ok();
        }
        self.begin_round();
        None
    }

    /// Whether no container is on its way, and none will be without a request.
    fn is_at_rest(&self) -> bool {
        let runs = self.phase == Phase::Running || self.round.is_some();
        !runs && !self.any_with_worker() && self.ended.is_none()
    }

    fn handle(
        &mut self,
        request: ExperimentRequest,
        answer: Sender<ExperimentAnswer>,
        inbox: &Receiver<SchedulerMessage>,
    ) {
        let mut waiting = VecDeque::from([(request, answer)]);
        while let Some((request, answer)) = waiting.pop_front() {
            // All requests but moves see all containers: those that workers have are waited for.
            if !request.is_move() {
                self.workers.set_request_waits(true);
                while self.any_with_worker() {
                    match inbox.recv() {
                        Ok(SchedulerMessage::Done(container)) => self.take_back(container),
                        Ok(SchedulerMessage::Request(other, answer)) => {
                            waiting.push_back((other, answer));
                        }
                        Err(_) => return,
                    }
                }
                self.workers.set_request_waits(false);
            }
            if request == ExperimentRequest::End {
                // The experiment ends even if its containers cannot be released.
                let _ = self.stop();
                self.ended = Some(answer);
                return;
            }
            self.carry_out_or_begin(request, &answer);
            self.continue_interrupted();
        }
    }

    /// Carries a request out and answers it. The answer to a move comes when its containers have arrived.
    fn carry_out_or_begin(
        &mut self,
        request: ExperimentRequest,
        answer: &Sender<ExperimentAnswer>,
    ) {
        let done = match request {
            ExperimentRequest::Progress { timeline, intervals } => {
                self.progress(timeline, &intervals, answer).map(|()| None)
            }
            ExperimentRequest::Advance { timeline, to, steps, idle } => {
                self.advance(timeline, VirtualInstant(to), steps, idle, answer).map(|()| None)
            }
            ExperimentRequest::Step { moves } => self.step(&moves, answer).map(|()| None),
            other => self.carry_out(other).map(Some),
        };
        if let Some(done) = done.unwrap_or_else(|error| Some(refusal(&error))) {
            // A client that has gone needs no answer.
            let _ = answer.send(done);
        }
    }

    fn carry_out(&mut self, request: ExperimentRequest) -> anyhow::Result<ExperimentAnswer> {
        match request {
            ExperimentRequest::Add { container, tdf, timeline, own_wall, parallel, compute } => {
                self.add(&container, tdf, timeline, parallel, compute)?;
                self.container(&container)?.own_wall = own_wall;
            }
            ExperimentRequest::Remove { container } => self.remove(&container)?,
            ExperimentRequest::Dilate { container, tdf } => {
                let rate = rate_of(tdf)?;
                self.container(&container)?.rate = rate;
                if self.phase == Phase::SettingUp {
                    self.container(&container)?.let_go();
                }
            }
            ExperimentRequest::Synchronize { at } => self.synchronize(at.map(VirtualInstant))?,
            ExperimentRequest::Start => {
                self.change_phase(Transition::Start)?;
                self.watch.set_switch_events(true);
                self.not_before = Instant::now();
            }
            ExperimentRequest::Pause => self.change_phase(Transition::Pause)?,
            ExperimentRequest::Stop => self.stop()?,
            ExperimentRequest::Interval { container, timeline, nanos } => {
                self.set_interval(&container, timeline, nanos)?;
            }
            ExperimentRequest::Progress { .. }
            | ExperimentRequest::Advance { .. }
            | ExperimentRequest::Step { .. }
            | ExperimentRequest::End => {}
            ExperimentRequest::Reset { timeline } => {
                self.change_phase_by_timeline(timeline, Transition::Reset)?;
                let on =
                    |container: &&mut ExperimentContainer| container.timeline == Some(timeline);
                self.containers_mut().filter(on).for_each(|container| container.interval = None);
            }
            ExperimentRequest::TruthAt { own } => {
                return Ok(ExperimentAnswer::Truth(self.truth_at(own)));
            }
            ExperimentRequest::Clock(request) => {
                return self.carry_out_on_clock(request).map(ExperimentAnswer::Clock);
            }
            ExperimentRequest::Status => {
                self.look_at_tasks();
                self.forget_ended();
                return Ok(ExperimentAnswer::Status(Box::new(self.status())));
            }
        }
        Ok(ExperimentAnswer::Done)
    }

    fn change_phase(&mut self, transition: Transition) -> anyhow::Result<()> {
        self.phase = self.phase.after(transition, self.mode())?;
        Ok(())
    }

    /// Changes the phase by a request for a timeline. Nothing changes if no container follows the timeline.
    fn change_phase_by_timeline(
        &mut self,
        timeline: u32,
        transition: Transition,
    ) -> anyhow::Result<()> {
        let phase = self.phase.after(transition, self.mode())?;
        self.check_timeline(timeline)?;
        self.phase = phase;
        Ok(())
    }

    fn mode(&self) -> AdvanceMode {
        let mut mode = AdvanceMode::Empty;
        for container in self.containers() {
            let own = match container.timeline {
                None => AdvanceMode::ByItself,
                Some(_) => AdvanceMode::Stepwise,
            };
            mode = match mode {
                AdvanceMode::Empty => own,
                same if same == own => own,
                _ => AdvanceMode::Mixed,
            };
        }
        mode
    }

    /// Sets all clocks to `at`, or to the latest of their virtual times if that is later. There they stand. All wall clocks show the same date, except those
    /// that keep their own.
    fn synchronize(&mut self, at: Option<VirtualInstant>) -> anyhow::Result<()> {
        let mode = self.mode();
        self.phase.after(Transition::Synchronize, mode)?;
        let stepwise = mode == AdvanceMode::Stepwise;
        self.give_up_interrupted();
        self.forget_ended();
        // Each clock stops where it is, so that none runs past the common time.
        for container in self.containers_mut() {
            container.clock.stand(VirtualInstant(0));
        }
        for container in self.containers_mut() {
            container.stop_tasks()?;
        }
        let times = self.containers().map(|container| container.clock.now());
        let at = times.chain(at).max().unwrap_or_default();
        let wall_of = |container: &ExperimentContainer| {
            let ahead = match container.has_not_begun {
                true => Span::ZERO,
                false => at.since(container.clock.now()),
            };
            container.clock.wall().plus(ahead)
        };
        let shared = self.containers().filter(|container| !container.own_wall);
        let wall = shared.map(wall_of).max().unwrap_or_default();
        for container in self.containers_mut() {
            let wall = if container.own_wall { wall_of(container) } else { wall };
            container.clock.stand_with_wall(at, wall);
            container.has_not_begun = false;
            container.reset_statistics();
            container.interval = None;
            // A simulator decides when others see a packet; without one, all containers stand at `at`.
            container.clock.allow_sends_until(if stepwise { VirtualInstant::NEVER } else { at });
        }
        (self.now, self.synchronized_at) = (at, at);
        (self.rounds, self.real, self.working) = (0, Duration::ZERO, Duration::ZERO);
        self.change_phase(Transition::Synchronize)
    }

    fn stop(&mut self) -> anyhow::Result<()> {
        self.change_phase(Transition::Stop)?;
        self.give_up_interrupted();
        self.watch.set_switch_events(false);
        self.containers_mut().for_each(ExperimentContainer::release);
        self.slots.clear();
        self.index.clear();
        self.free.clear();
        Ok(())
    }

    fn take_back(&mut self, container: Box<ExperimentContainer>) {
        let timeline = container.timeline;
        let slot = container.group as usize;
        let (behind, interrupted) = (container.is_behind, container.interrupted_slice.is_some());
        self.slots[slot] = ContainerSlot::Present(container);
        if interrupted {
            return;
        }
        self.count_arrival(timeline, behind);
    }

    /// Counts that a container on `timeline` has come to the end of its slice, or will not any more. If it is the last one, ends the
    /// round, or answers the client that moves the timeline. `behind` says that it stopped before the end.
    fn count_arrival(&mut self, timeline: Option<u32>, behind: bool) {
        if let Some(round) = &mut self.round {
            round.left -= 1;
            if round.left == 0 {
                self.go_on_or_end_round();
            }
            return;
        }
        for pending in &mut self.pending {
            if timeline.is_some_and(|one| pending.timelines.contains(&one)) {
                pending.left -= 1;
                pending.behind |= behind;
            }
        }
        self.answer_finished_moves();
    }

    /// Answers the clients whose containers have all arrived.
    fn answer_finished_moves(&mut self) {
        let mut moved = Vec::new();
        self.pending.retain(|pending| {
            if pending.left > 0 {
                return true;
            }
            moved.push((pending.begun, pending.handed_out));
            let _ = pending.answer.send(moved_to(pending.to, pending.behind));
            false
        });
        moved.into_iter().for_each(|(begun, handed_out)| self.count_time(begun, handed_out));
    }

    /// Continues the slices that a request has interrupted. No worker has a container that was with one at the request.
    fn continue_interrupted(&mut self) {
        let tasks = self.tasks();
        let mut jobs = Vec::new();
        for slot in &mut self.slots {
            let ContainerSlot::Present(container) = slot else { continue };
            if let Some(end) = container.interrupted_slice.take() {
                jobs.extend(take_out(slot).map(|container| Job { container, end }));
            }
        }
        jobs.into_iter().for_each(|job| self.workers.give(job, tasks));
    }

    /// Gives up the slices that a request has interrupted: their containers stay where they are.
    fn give_up_interrupted(&mut self) {
        let interrupted = |container: &mut ExperimentContainer| {
            container.interrupted_slice.take().map(|_| container.timeline)
        };
        let given_up: Vec<Option<u32>> = self.containers_mut().filter_map(interrupted).collect();
        given_up.into_iter().for_each(|timeline| self.count_arrival(timeline, false));
    }

    /// Counts the real time that a timeline took since `begun`, and its containers since `handed_out`. Time in which several
    /// timelines were under way counts once.
    fn count_time(&mut self, begun: Instant, handed_out: Instant) {
        let (now, before) = (Instant::now(), self.counted_until);
        self.real += now - begun.max(before);
        self.working += now - handed_out.max(before);
        self.counted_until = now;
    }

    /// Reads the state of all tasks of the containers that no worker has.
    fn look_at_tasks(&mut self) {
        for slot in &mut self.slots {
            if let ContainerSlot::Present(container) = slot {
                container.observe_new_processes(&self.watch);
                container.tasks.clear();
            }
        }
        let groups = self.containers().map(|container| (container.group, &container.cgroup));
        for task in self.watch.look_at_all(groups) {
            if let Some(ContainerSlot::Present(container)) = self.slots.get_mut(task.group as usize)
            {
                container.tasks.add(&task);
            }
        }
        for slot in &mut self.slots {
            if let ContainerSlot::Present(container) = slot {
                container.note_starting_programs(&self.watch);
            }
        }
    }

    fn forget_ended(&mut self) {
        let ended = |slot: &ContainerSlot| match slot {
            ContainerSlot::Present(container) => {
                container.tasks.count == 0 && container.has_ended()
            }
            _ => false,
        };
        let ended: Vec<usize> =
            (0..self.slots.len()).filter(|slot| ended(&self.slots[*slot])).collect();
        ended.into_iter().for_each(|slot| self.forget(slot));
    }

    fn forget(&mut self, slot: usize) {
        if let ContainerSlot::Present(container) =
            std::mem::replace(&mut self.slots[slot], ContainerSlot::Free)
        {
            self.index.remove(&container.name);
            self.free.push(slot);
            if container.interrupted_slice.is_some() {
                self.count_arrival(container.timeline, false);
            }
        }
    }

    /// Returns the number of tasks of the containers that no worker has.
    fn tasks(&self) -> usize {
        self.containers().map(|container| container.tasks.count as usize).sum()
    }

    /// Iterates over the containers that no worker has.
    pub(crate) fn containers(&self) -> impl Iterator<Item = &ExperimentContainer> {
        self.slots.iter().filter_map(|slot| match slot {
            ContainerSlot::Present(container) => Some(&**container),
            _ => None,
        })
    }

    fn containers_mut(&mut self) -> impl Iterator<Item = &mut ExperimentContainer> {
        self.slots.iter_mut().filter_map(|slot| match slot {
            ContainerSlot::Present(container) => Some(&mut **container),
            _ => None,
        })
    }

    fn container(&mut self, name: &str) -> anyhow::Result<&mut ExperimentContainer> {
        let slot = self.index.get(name).and_then(|slot| self.slots.get_mut(*slot));
        match slot {
            Some(ContainerSlot::Present(container)) => Ok(container),
            _ => Err(ExperimentRefusal::NotIn(name.to_string()).into()),
        }
    }
}

/// The answer to a move that is over. `to` is where the containers went, if the client is to be told.
fn moved_to(to: Option<VirtualInstant>, behind: bool) -> ExperimentAnswer {
    match to {
        Some(to) => ExperimentAnswer::Advanced { to: to.0, behind },
        None if behind => ExperimentAnswer::Behind,
        None => ExperimentAnswer::Done,
    }
}

fn take_out(slot: &mut ContainerSlot) -> Option<Box<ExperimentContainer>> {
    match std::mem::replace(slot, ContainerSlot::WithWorker) {
        ContainerSlot::Present(container) => Some(container),
        other => {
            *slot = other;
            None
        }
    }
}

fn rate_of((num, den): (u64, u64)) -> anyhow::Result<Rate> {
    Rate::new(den, num).ok_or_else(|| ExperimentRefusal::Tdf(num, den).into())
}

fn refusal(error: &anyhow::Error) -> ExperimentAnswer {
    let wrong_input = error.is::<ExperimentRefusal>()
        || error.is::<crate::phase::PhaseError>()
        || error
            .downcast_ref::<lorentz_container::StateError>()
            .is_some_and(lorentz_container::StateError::is_wrong_input);
    ExperimentAnswer::Refused { why: format!("{error:#}"), wrong_input }
}
