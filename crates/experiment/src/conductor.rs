//! The scheduler: the one thread that keeps the state of an experiment and decides how far each container goes.
//!
//! It takes requests and finished slices from one queue. A round begins when the previous one is over; between rounds the scheduler
//! answers requests. The workers of [`crate::stage`] give the slices, one worker for each processor of the experiment. During a
//! slice its worker owns the container. So the timelines of a simulator do not wait for each other.

mod rounds;

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use lorentz_clock::{Rate, Span, VirtualInstant};
use lorentz_container::StateDir;

use crate::cpus::Cpus;
use crate::fault::Refusal;
use crate::member::Member;
use crate::message::Message;
use crate::phase::{Manner, Phase, Step};
use crate::protocol::{Answer, Request};
use crate::settings::Settings;
use crate::stage::{Job, Stage};
use crate::watch::Watch;

/// A slot for a container. A container keeps its slot while a worker has it (`OnStage`).
pub(crate) enum Place {
    Here(Box<Member>),
    OnStage,
    Free,
}

/// A client that waits for a timeline to arrive, with the number of containers still under way.
struct Waiting {
    timeline: u32,
    left: usize,
    begun: Instant,
    staged: Instant,
    answer: Sender<Answer>,
}

/// The scheduler's state.
pub struct Conductor {
    pub(crate) name: String,
    pub(crate) settings: Settings,
    pub(crate) phase: Phase,
    pub(crate) places: Vec<Place>,
    pub(crate) watch: Arc<Watch>,
    state: StateDir,
    stage: Stage,
    inbox: Receiver<Message>,
    /// Virtual time at which all containers stand between rounds, if the experiment runs by itself.
    pub(crate) now: VirtualInstant,
    pub(crate) synchronized_at: VirtualInstant,
    waiting: Vec<Waiting>,
    round: Option<Round>,
    pub(crate) rounds: u64,
    pub(crate) real: Duration,
    pub(crate) working: Duration,
    /// Real time up to which `real` and `working` are counted, if a simulator moves timelines.
    counted_until: Instant,
    /// Earliest begin of the next round: it keeps time from running faster than the clocks' rates.
    not_before: Instant,
    added: usize,
    /// Each container's slot in `places`, by name.
    index: HashMap<String, usize>,
    free: Vec<usize>,
    ended: Option<Sender<Answer>>,
}

/// The round under way. `left` is the number of containers still with workers.
struct Round {
    end: VirtualInstant,
    begun: Instant,
    staged: Instant,
    left: usize,
}

impl Conductor {
    /// Makes a scheduler, with its workers. `outbox` is the sending end of `inbox`.
    pub fn new(
        name: &str,
        settings: Settings,
        state: StateDir,
        inbox: Receiver<Message>,
        outbox: &Sender<Message>,
    ) -> anyhow::Result<Conductor> {
        let watch = Arc::new(Watch::new(settings.most));
        let spare = Cpus::usable()?.without(&settings.cpus);
        let stage = Stage::new(&settings.cpus, &spare, &watch, outbox)?;
        spare.keep(0)?;
        Ok(Conductor {
            name: name.to_string(),
            settings,
            phase: Phase::SettingUp,
            places: Vec::new(),
            watch,
            state,
            stage,
            inbox,
            now: VirtualInstant(0),
            synchronized_at: VirtualInstant(0),
            waiting: Vec::new(),
            round: None,
            rounds: 0,
            real: Duration::ZERO,
            working: Duration::ZERO,
            counted_until: Instant::now(),
            not_before: Instant::now(),
            added: 0,
            index: HashMap::new(),
            free: Vec::new(),
            ended: None,
        })
    }

    /// Serves requests until one asks for the end. Returns the channel of that request: its client still waits for the answer.
    pub fn conduct(mut self) -> Option<Sender<Answer>> {
        while self.ended.is_none() {
            let message = match self.round {
                None if self.phase == Phase::Running => match self.inbox.try_recv() {
                    Err(TryRecvError::Empty) => self.before_the_next_round(),
                    Err(TryRecvError::Disconnected) => return None,
                    Ok(message) => Some(message),
                },
                _ => self.inbox.recv().ok(),
            };
            match message {
                Some(Message::Request(request, answer)) => self.serve(request, answer),
                Some(Message::Done(member)) => self.take_back(member),
                None => {}
            }
        }
        self.ended
    }

    /// Begins a round if it is time for one. Else waits for a message until then.
    fn before_the_next_round(&mut self) -> Option<Message> {
        let early = self.not_before.saturating_duration_since(Instant::now());
        if early > Duration::ZERO {
            return self.inbox.recv_timeout(early).ok();
        }
        self.begin_round();
        None
    }

    fn serve(&mut self, request: Request, answer: Sender<Answer>) {
        let moved = match request {
            Request::Progress { timeline } => Some((timeline, None)),
            Request::Advance { timeline, to } => Some((timeline, Some(VirtualInstant(to)))),
            _ => None,
        };
        if let Some((timeline, to)) = moved {
            if let Err(error) = self.progress(timeline, to, &answer) {
                let _ = answer.send(refusal(&error));
            }
            return;
        }
        // Wait for the containers that workers have: a request sees all containers.
        while self.places.iter().any(|place| matches!(place, Place::OnStage)) {
            match self.inbox.recv() {
                Ok(Message::Done(member)) => self.take_back(member),
                Ok(Message::Request(other, answer)) => self.serve(other, answer),
                Err(_) => return,
            }
        }
        if request == Request::End {
            // The experiment ends even if its containers cannot be released.
            let _ = self.stop();
            self.ended = Some(answer);
            return;
        }
        let done = self.perform(request);
        // A client that has gone needs no answer.
        let _ = answer.send(done.unwrap_or_else(|error| refusal(&error)));
    }

    fn perform(&mut self, request: Request) -> anyhow::Result<Answer> {
        match request {
            Request::Add { container, tdf, timeline, own_wall } => {
                self.add(&container, tdf, timeline)?;
                self.member(&container)?.own_wall = own_wall;
            }
            Request::Remove { container } => self.remove(&container)?,
            Request::Dilate { container, tdf } => {
                let rate = rate_of(tdf)?;
                self.member(&container)?.rate = rate;
                if self.phase == Phase::SettingUp {
                    self.member(&container)?.let_go();
                }
            }
            Request::Synchronize => self.synchronize()?,
            Request::Start => {
                self.step(Step::Start)?;
                self.watch.be_told(true);
                self.not_before = Instant::now();
            }
            Request::Pause => self.step(Step::Pause)?,
            Request::Stop => self.stop()?,
            Request::Interval { container, timeline, nanos } => {
                self.set_interval(&container, timeline, nanos)?;
            }
            Request::Progress { .. } | Request::Advance { .. } | Request::End => {}
            Request::Reset { timeline } => {
                self.step_on(timeline, Step::Reset)?;
                let on = |member: &&mut Member| member.timeline == Some(timeline);
                self.members_mut().filter(on).for_each(|member| member.interval = None);
            }
            Request::Status => {
                self.look();
                self.forget_the_ended();
                return Ok(Answer::Status(Box::new(self.status())));
            }
        }
        Ok(Answer::Done)
    }

    fn step(&mut self, step: Step) -> anyhow::Result<()> {
        self.phase = self.phase.after(step, self.manner())?;
        Ok(())
    }

    /// Changes the phase by a step of a timeline. Nothing changes if no container follows the timeline.
    fn step_on(&mut self, timeline: u32, step: Step) -> anyhow::Result<()> {
        let phase = self.phase.after(step, self.manner())?;
        self.check_timeline(timeline)?;
        self.phase = phase;
        Ok(())
    }

    fn manner(&self) -> Manner {
        let mut manner = Manner::Empty;
        for member in self.members() {
            let own = match member.timeline {
                None => Manner::ByItself,
                Some(_) => Manner::Stepwise,
            };
            manner = match manner {
                Manner::Empty => own,
                same if same == own => own,
                _ => Manner::Mixed,
            };
        }
        manner
    }

    fn add(
        &mut self,
        container: &str,
        tdf: (u64, u64),
        timeline: Option<u32>,
    ) -> anyhow::Result<()> {
        let rate = rate_of(tdf)?;
        let found = self.state.container(container)?;
        if let Ok(member) = self.member(container) {
            if member.container().is_same(&found) {
                return Err(Refusal::Twice(container.to_string()).into());
            }
            // The container known by this name has ended, and a new one has the name.
            let place = member.group as usize;
            self.forget(place);
        }
        self.phase.joined_by(timeline.is_some(), self.manner())?;
        let group = self.free.last().copied().unwrap_or(self.places.len());
        if group >= self.settings.most as usize {
            return Err(Refusal::Full(self.settings.most).into());
        }
        let cpu = self.settings.cpus.only(self.added);
        let found_frozen = found.clock()?.is_frozen();
        let mut member = Member::new(found, group as u32, rate, timeline, cpu)
            .with_context(|| container.to_string())?;
        let name = self.name.clone();
        member.container().clone().set_experiment(Some(&name))?;
        member.watch_who_came(&self.watch);
        member.count_from_here();
        match self.phase {
            Phase::SettingUp if !found_frozen => member.let_go(),
            // The user froze it before; it begins with the others.
            Phase::SettingUp => member.stop_tasks()?,
            _ => {
                let at = self.joining_at(timeline);
                member.stop_at(at)?;
                member.clock.set_turn(if timeline.is_some() { VirtualInstant::NEVER } else { at });
            }
        }
        self.added += 1;
        if self.free.pop().is_none() {
            self.places.push(Place::Free);
        }
        self.index.insert(container.to_string(), group);
        self.places[group] = Place::Here(Box::new(member));
        Ok(())
    }

    /// The virtual time at which a container begins that joins now: that of the container furthest behind on its timeline, or of
    /// the experiment.
    fn joining_at(&self, timeline: Option<u32>) -> VirtualInstant {
        let same =
            self.members().filter(|member| timeline.is_some() && member.timeline == timeline);
        same.map(|member| member.clock.now()).min().unwrap_or(self.now)
    }

    fn remove(&mut self, container: &str) -> anyhow::Result<()> {
        dismiss(self.member(container)?);
        if let Some(place) = self.index.get(container).copied() {
            self.forget(place);
        }
        Ok(())
    }

    /// Sets all clocks to the latest of their virtual times, where they stand. All wall clocks show the same date, except those
    /// that keep their own.
    fn synchronize(&mut self) -> anyhow::Result<()> {
        let manner = self.manner();
        self.phase.after(Step::Synchronize, manner)?;
        let stepwise = manner == Manner::Stepwise;
        self.forget_the_ended();
        // Each clock stops where it is, so that none runs past the common time.
        for member in self.members_mut() {
            member.clock.stand(VirtualInstant(0));
        }
        for member in self.members_mut() {
            member.stop_tasks()?;
        }
        let at = self.members().map(|member| member.clock.now()).max().unwrap_or_default();
        let wall_of = |member: &Member| member.clock.wall().plus(at.since(member.clock.now()));
        let shared = self.members().filter(|member| !member.own_wall);
        let wall = shared.map(wall_of).max().unwrap_or_default();
        for member in self.members_mut() {
            let wall = if member.own_wall { wall_of(member) } else { wall };
            member.clock.stand_with_wall(at, wall);
            member.count_from_here();
            member.interval = None;
            // A simulator decides when others see a packet; without one, all containers stand at `at`.
            member.clock.set_turn(if stepwise { VirtualInstant::NEVER } else { at });
        }
        (self.now, self.synchronized_at) = (at, at);
        (self.rounds, self.real, self.working) = (0, Duration::ZERO, Duration::ZERO);
        self.step(Step::Synchronize)
    }

    fn stop(&mut self) -> anyhow::Result<()> {
        self.step(Step::Stop)?;
        self.watch.be_told(false);
        self.members_mut().for_each(dismiss);
        self.places.clear();
        self.index.clear();
        self.free.clear();
        Ok(())
    }

    fn set_interval(
        &mut self,
        container: &str,
        timeline: Option<u32>,
        nanos: i64,
    ) -> anyhow::Result<()> {
        let phase = self.phase.after(Step::Interval, self.manner())?;
        let member = self.member(container)?;
        if let Some(given) = timeline.filter(|given| member.timeline != Some(*given)) {
            return Err(Refusal::OtherTimeline(container.to_string(), given).into());
        }
        if nanos <= 0 {
            return Err(Refusal::Interval(Span(nanos)).into());
        }
        member.interval = Some(Span(nanos));
        self.phase = phase;
        Ok(())
    }

    fn check_timeline(&self, timeline: u32) -> anyhow::Result<()> {
        let mut timelines = self.members().map(|member| member.timeline);
        match timelines.any(|one| one == Some(timeline)) || self.is_on_stage() {
            true => Ok(()),
            false => Err(Refusal::NoTimeline(timeline).into()),
        }
    }

    fn is_on_stage(&self) -> bool {
        self.places.iter().any(|place| matches!(place, Place::OnStage))
    }

    /// Moves the containers of a timeline by their intervals, or to the instant `to` if given. `answer` gets the result when all
    /// have arrived.
    fn progress(
        &mut self,
        timeline: u32,
        to: Option<VirtualInstant>,
        answer: &Sender<Answer>,
    ) -> anyhow::Result<()> {
        if self.waiting.iter().any(|waiting| waiting.timeline == timeline) {
            return Err(Refusal::UnderWay(timeline).into());
        }
        if self.is_on_stage() {
            self.check_timeline(timeline)?;
        } else {
            self.step_on(timeline, Step::Progress)?;
            self.forget_the_ended();
        }
        let begun = Instant::now();
        self.look();
        let tasks = self.tasks();
        let mut jobs = Vec::new();
        for place in &mut self.places {
            let Place::Here(member) = place else { continue };
            let by_interval = || Some(member.clock.now().plus(member.interval?));
            let end = to.or_else(by_interval).filter(|_| member.timeline == Some(timeline));
            let Some(end) = end else { continue };
            if member.has_nothing_before(end) {
                member.clock.stand(end);
            } else {
                jobs.extend(take(place).map(|member| Job { member, end }));
            }
        }
        self.rounds += 1;
        let left = jobs.len();
        let staged = Instant::now();
        jobs.into_iter().for_each(|job| self.stage.play(job, tasks));
        if left == 0 {
            self.count_time(begun, Instant::now());
            let _ = answer.send(Answer::Done);
            return Ok(());
        }
        self.waiting.push(Waiting { timeline, left, begun, staged, answer: answer.clone() });
        Ok(())
    }

    fn take_back(&mut self, member: Box<Member>) {
        let timeline = member.timeline;
        let place = member.group as usize;
        self.places[place] = Place::Here(member);
        if let Some(round) = &mut self.round {
            round.left -= 1;
            if round.left == 0 {
                self.go_on_or_end_round();
            }
            return;
        }
        let mut moved = Vec::new();
        for waiting in &mut self.waiting {
            if Some(waiting.timeline) == timeline {
                waiting.left -= 1;
                if waiting.left == 0 {
                    moved.push((waiting.begun, waiting.staged));
                    let _ = waiting.answer.send(Answer::Done);
                }
            }
        }
        self.waiting.retain(|waiting| waiting.left > 0);
        moved.into_iter().for_each(|(begun, staged)| self.count_time(begun, staged));
    }

    /// Counts the real time that a timeline took since `begun`, and its containers since `staged`. Time in which several timelines
    /// were under way counts once.
    fn count_time(&mut self, begun: Instant, staged: Instant) {
        let (now, before) = (Instant::now(), self.counted_until);
        self.real += now - begun.max(before);
        self.working += now - staged.max(before);
        self.counted_until = now;
    }

    /// Reads the state of all tasks of the containers that no worker has.
    fn look(&mut self) {
        for place in &mut self.places {
            if let Place::Here(member) = place {
                member.watch_who_came(&self.watch);
                member.seen.clear();
            }
        }
        let groups = self.members().map(|member| (member.group, &member.cgroup));
        for task in self.watch.all(groups) {
            if let Some(Place::Here(member)) = self.places.get_mut(task.group as usize) {
                member.seen.add(&task);
            }
        }
        for place in &mut self.places {
            if let Place::Here(member) = place {
                member.note_what_begins(&self.watch);
            }
        }
    }

    fn forget_the_ended(&mut self) {
        let ended = |place: &Place| match place {
            Place::Here(member) => member.seen.tasks == 0 && member.has_ended(),
            _ => false,
        };
        let ended: Vec<usize> =
            (0..self.places.len()).filter(|place| ended(&self.places[*place])).collect();
        ended.into_iter().for_each(|place| self.forget(place));
    }

    fn forget(&mut self, place: usize) {
        if let Place::Here(member) = std::mem::replace(&mut self.places[place], Place::Free) {
            self.index.remove(&member.name);
            self.free.push(place);
        }
    }

    /// Returns the number of tasks of the containers that no worker has.
    fn tasks(&self) -> usize {
        self.members().map(|member| member.seen.tasks as usize).sum()
    }

    /// Iterates over the containers that no worker has.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Member> {
        self.places.iter().filter_map(|place| match place {
            Place::Here(member) => Some(&**member),
            _ => None,
        })
    }

    fn members_mut(&mut self) -> impl Iterator<Item = &mut Member> {
        self.places.iter_mut().filter_map(|place| match place {
            Place::Here(member) => Some(&mut **member),
            _ => None,
        })
    }

    fn member(&mut self, name: &str) -> anyhow::Result<&mut Member> {
        let place = self.index.get(name).and_then(|place| self.places.get_mut(*place));
        match place {
            Some(Place::Here(member)) => Ok(member),
            _ => Err(Refusal::NotIn(name.to_string()).into()),
        }
    }
}

fn take(place: &mut Place) -> Option<Box<Member>> {
    match std::mem::replace(place, Place::OnStage) {
        Place::Here(member) => Some(member),
        other => {
            *place = other;
            None
        }
    }
}

/// Releases a container: it goes on by itself.
fn dismiss(member: &mut Member) {
    member.let_go();
    // A container that has ended has no record any more.
    let _ = member.container().clone().set_experiment(None);
}

fn rate_of((num, den): (u64, u64)) -> anyhow::Result<Rate> {
    Rate::new(den, num).ok_or_else(|| Refusal::Tdf(num, den).into())
}

fn refusal(error: &anyhow::Error) -> Answer {
    let wrong_input = error.is::<Refusal>()
        || error.is::<crate::phase::WrongOrder>()
        || error
            .downcast_ref::<lorentz_container::StateError>()
            .is_some_and(lorentz_container::StateError::is_wrong_input);
    Answer::Refused { why: format!("{error:#}"), wrong_input }
}
