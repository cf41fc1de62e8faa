//! Puts a clock's error into its page, and keeps it there.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use lorentz_clock::{
    Pace, Rate, RealInstant, Snapshot, Span, WallTime, MAX_SETTABLE_SECS, NANOS_PER_SEC,
};
use lorentz_syscalls::{Errno, Timex};
use serde::{Deserialize, Serialize};

use super::history;
use super::kernel::{self, Discipline};
use super::reading::ErrorReading;
use super::start_error::StartError;
use super::state::{Course, ErrorState, MAX_DRIFT, PARTS};
use crate::host_time;
use crate::lock::ClockLock;
use crate::notifier::{ChangeCounts, Moved};
use crate::Clock;

/// The file beside the clock's. A clock that has never erred has none. All that it says is told in virtual time, so it also holds after
/// a restore, at any host.
pub const FILE: &str = "discipline.json";
/// Changes of the clock that are published ahead.
const CHANGES_AHEAD: usize = 8;
/// After so long a monitor looks again at a clock that another process was changing.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A change of a clock's error by an operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClockErrorChange {
    /// The oscillator is too fast by this many parts in 10^12, for so long or for good.
    Drift(i64, #[serde(with = "nanos_or_none")] Option<Span>),
    /// The wall clock is moved: at once, or by a drift of all clocks that takes so long.
    Bump(#[serde(with = "nanos")] Span, #[serde(with = "nanos_or_none")] Option<Span>),
    /// The machine is suspended for so long: CLOCK_BOOTTIME and the wall clock go on by it at once. No error: the truth does too.
    Suspend(#[serde(with = "nanos")] Span),
    /// The status asks for a leap second at the end of the day: one more, one less, or none.
    LeapSecond(Option<bool>),
    /// No error any more: no drift, no discipline, and the wall clock is set to true time.
    Reset,
}

/// A span in JSON: nanoseconds.
mod nanos {
    use super::{Deserialize, Serialize, Span};

    pub fn serialize<S: serde::Serializer>(span: &Span, to: S) -> Result<S::Ok, S::Error> {
        span.0.serialize(to)
    }

    pub fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Span, D::Error> {
        i64::deserialize(from).map(Span)
    }
}

/// As [`nanos`], of a span that may be left out.
mod nanos_or_none {
    use super::{Deserialize, Serialize, Span};

    pub fn serialize<S: serde::Serializer>(span: &Option<Span>, to: S) -> Result<S::Ok, S::Error> {
        span.map(|span| span.0).serialize(to)
    }

    pub fn deserialize<'de, D: serde::Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Span>, D::Error> {
        Option::deserialize(from).map(|nanos| nanos.map(Span))
    }
}

impl ClockErrorChange {
    /// Checks the change of `clock`, whose wall clock is ahead of the truth by `offset` ns.
    pub(super) fn check(self, clock: &Clock, offset: i128) -> io::Result<()> {
        let (drift, step) = match self {
            ClockErrorChange::Drift(drift, _) => (drift, 0),
            ClockErrorChange::Bump(by, None) => (0, i128::from(by.0)),
            ClockErrorChange::Bump(by, Some(span)) => (drift_of(by, span), 0),
            ClockErrorChange::Suspend(length) => (0, i128::from(length.0)),
            ClockErrorChange::LeapSecond(_) => (0, 0),
            ClockErrorChange::Reset => (0, -offset),
        };
        if drift.abs() > MAX_DRIFT {
            return Err(wrong("expected a drift of at most 10 %"));
        }
        if step != 0 && !clock.may_step(step) {
            return Err(wrong("expected a time after 1970 and before 2232"));
        }
        Ok(())
    }

    pub(super) fn apply(self, state: &mut ErrorState) {
        match self {
            ClockErrorChange::Drift(drift, None) => state.drift = drift,
            ClockErrorChange::Drift(drift, Some(span)) => state.drift_for(drift, span),
            ClockErrorChange::Bump(by, Some(span)) => state.drift_for(drift_of(by, span), span),
            ClockErrorChange::Bump(by, None) => state.step(i128::from(by.0)),
            ClockErrorChange::Suspend(length) => state.suspend(length),
            ClockErrorChange::LeapSecond(insert) => state.kernel.ask_leap_second(insert),
            ClockErrorChange::Reset => state.reset(),
        }
    }
}

impl Clock {
    /// Carries adjtimex(2) out for a program of the container: `timex` becomes the answer. Returns the state of the clock. A step has
    /// been made by then; another frequency follows as soon as the clock's monitor refreshes the error, which the end of the lock has it
    /// do. The program need not wait until its own timers have been held back.
    ///
    /// # Errors
    ///
    /// The kernel's refusals; ENOSYS if the clock has several containers or is gone, ETIMEDOUT if another process keeps its lock.
    pub fn adjust(&self, timex: &mut Timex, may_set: bool) -> Result<i64, Errno> {
        timex.check(may_set)?;
        if kernel::step_of(timex).is_some_and(|by| !self.may_step(by)) {
            return Err(Errno::EINVAL);
        }
        self.adjust_checked(timex).map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => Errno::ETIMEDOUT,
            _ => Errno::ENOSYS,
        })
    }

    fn adjust_checked(&self, timex: &mut Timex) -> io::Result<i64> {
        let asked = *timex;
        self.check_owner()?;
        let host = self.hosts_discipline();
        let _lock = ClockLock::take(self.path())?;
        let mut carry_out = |state: &mut ErrorState| {
            state.kernel = host.unwrap_or(state.kernel);
            *timex = asked;
            state.adjust(timex)
        };
        let mut before = self.error_now()?;
        before.kernel = host.unwrap_or(before.kernel);
        let mut after = before.clone();
        let result = carry_out(&mut after);
        if asked.step().is_some() {
            return Ok(self.publish_error(carry_out)?.0);
        }
        if before != after {
            after.go_on_by(before.kernel);
            self.store_error(&after)?;
        }
        Ok(result)
    }

    /// Whether the kernel would let a program step the wall clock so far, ns: within the limits of clock_settime(2), and never earlier than
    /// CLOCK_MONOTONIC, which would mean that the machine had started before 1970.
    pub fn may_step(&self, by: i128) -> bool {
        let reading = self.reading();
        let end = i128::from(MAX_SETTABLE_SECS) * i128::from(NANOS_PER_SEC);
        (i128::from(reading.virt.0)..end).contains(&(reading.wall.as_nanos() + by))
    }

    /// Changes the clock's error.
    ///
    /// # Errors
    ///
    /// As [`Clock::change`]; `InvalidInput` for a drift beyond 10 %, or a wall clock before 1970.
    pub fn change_error(&self, change: ClockErrorChange) -> io::Result<ChangeCounts> {
        let _lock = ClockLock::take(self.path())?;
        change.check(self, self.error_now()?.offset())?;
        let (_, followed) = self.publish_error(|state| change.apply(state))?;
        self.quiesce();
        Ok(followed)
    }

    /// Reads the clock's error.
    ///
    /// # Errors
    ///
    /// If the file is damaged.
    pub fn error(&self) -> io::Result<ErrorReading> {
        Ok(ErrorReading::of(&self.state_of_error()?))
    }

    /// Publishes what is to come of a slew, and what a dead process has left out. A monitor calls it when the clock has changed, and
    /// when the time that this returns is over.
    ///
    /// # Errors
    ///
    /// If the file is gone.
    pub fn refresh_error(&self) -> io::Result<Option<Duration>> {
        if !self.has_error() {
            return Ok(None);
        }
        let Some(_lock) = ClockLock::try_take(self.path())? else { return Ok(Some(LOOK_AGAIN)) };
        let look = self.look();
        let state = self.error_at(&look)?;
        let course = state.course(CHANGES_AHEAD);
        if !self.has_course(&look, &course) {
            self.publish_error(|_| ())?;
        }
        if self.is_frozen() || course.len() < 2 {
            return Ok(None);
        }
        let at = self.newest_piece().real_at(course[course.len() / 2].from);
        let left = at.since(host_time::now()).0.max(LOOK_AGAIN.as_nanos() as i64);
        Ok(Some(Duration::from_nanos(left as u64)))
    }

    /// Whether the page, of which this is a look, has the course.
    fn has_course(&self, look: &Snapshot, course: &[Course]) -> bool {
        let in_force = course[0].is_in_force(look);
        let to_come = self.reading().to_come.len();
        let is_ahead = to_come + 1 >= course.len().min(CHANGES_AHEAD / 2);
        in_force && (look.segment.pace == Pace::Frozen || is_ahead)
    }

    fn error_path(&self) -> PathBuf {
        self.path().with_file_name(FILE)
    }

    /// Whether the clock has an error, or had one.
    pub fn has_error(&self) -> bool {
        self.error_path().exists()
    }

    /// The clock's error now. The caller has the lock, or only looks.
    fn error_now(&self) -> io::Result<ErrorState> {
        self.error_at(&self.look())
    }

    fn error_at(&self, look: &Snapshot) -> io::Result<ErrorState> {
        let (now, wall) = (look.now(), look.segment.wall);
        let mut state: ErrorState = match fs::read(self.error_path()) {
            Ok(text) => serde_json::from_slice(&text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let true_wall = self.page().true_wall();
                return Ok(ErrorState::new(now, wall, look.segment.boot, look.rate, true_wall));
            }
            Err(error) => return Err(error),
        };
        state.notice_boot(look.segment.boot);
        let before = state.wall();
        state.notice_rate(look.rate);
        state.advance(now);
        // A leap second may have been leapt over before it was in force.
        if wall != before {
            state.notice_wall(wall);
        }
        Ok(state)
    }

    /// The state of a clock that has never erred. The caller has no lock: inside a container, the monitor answers.
    fn hosts_discipline(&self) -> Option<Discipline> {
        (!self.has_error()).then(host_discipline)
    }

    /// Refuses a clock of several containers: each has its own directory, and an error has one owner.
    fn check_owner(&self) -> io::Result<()> {
        match fs::metadata(self.path())?.nlink() {
            1 => Ok(()),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Changes the clock's error: stores it, and publishes its course. `change` is called once more when the instant of the change is
    /// decided: until then the clock goes on as before.
    fn publish_error<T>(
        &self,
        mut change: impl FnMut(&mut ErrorState) -> T,
    ) -> io::Result<(T, ChangeCounts)> {
        self.check_owner()?;
        let before = self.error_now()?;
        let mut state = before.clone();
        change(&mut state);
        state.go_on_by(before.kernel);
        let first = state.course(0)[0];
        state.note_rate(first.rate, None);
        self.store_error(&state)?;
        let moved = if self.look().rate == first.rate { Moved::Offset } else { Moved::All };
        let (counts, _) = self.change_locked(moved, None, |change, _| put(change, &first))?;
        let begun = self.look();
        let mut state = before;
        state.advance(begun.segment.virt);
        let changed = change(&mut state);
        state.is_published();
        let course = state.course(CHANGES_AHEAD);
        for then in course.iter().chain([&first]) {
            state.note_rate(then.rate, None);
        }
        self.store_error(&state)?;
        if begun.segment.pace != Pace::Frozen {
            self.announce(&course)?;
        }
        Ok((changed, counts))
    }

    /// Publishes what of the course is to come. Its beginning is in force, unless what was announced before changed it meanwhile.
    fn announce(&self, course: &[Course]) -> io::Result<()> {
        let look = self.look();
        if !course[0].is_in_force(&look) {
            self.change_locked(Moved::All, None, |change, _| put(change, &course[0]))?;
        }
        for then in &course[1..] {
            let at = self.newest_piece().real_at(then.from);
            if at == RealInstant::NEVER {
                break;
            }
            self.change_locked(Moved::All, Some(at), |change, _| put(change, then))?;
        }
        Ok(())
    }

    /// The piece after all changes to come.
    fn newest_piece(&self) -> lorentz_clock::Piece {
        self.piece_at(RealInstant(i64::MAX - 1))
    }

    /// The clock's error now, or one to begin with, for a process that holds the clock.
    pub(super) fn erring_state(&self) -> io::Result<ErrorState> {
        let mut state = self.state_of_error()?;
        state.is_published();
        Ok(state)
    }

    pub(super) fn store_error(&self, state: &ErrorState) -> io::Result<()> {
        let path = self.error_path();
        let new = path.with_extension("json.new");
        fs::write(&new, serde_json::to_vec(state)?)?;
        fs::rename(new, path)?;
        history::append(self.path(), state)
    }

    /// The clock's error now, for a process that only looks.
    pub(super) fn state_of_error(&self) -> io::Result<ErrorState> {
        let mut state = self.error_now()?;
        state.kernel = self.hosts_discipline().unwrap_or(state.kernel);
        Ok(state)
    }

    /// As [`crate::ClockChange::Dilate`], of a clock with an error.
    pub(crate) fn dilate_with_error(
        &self,
        rate: Rate,
        at: Option<RealInstant>,
    ) -> io::Result<ChangeCounts> {
        if at.is_none() {
            return Ok(self.publish_error(|state| state.set_rate(rate))?.1);
        }
        let mut state = self.error_now()?;
        let mut then = state.clone();
        then.set_rate(rate);
        let with = then.rate();
        state.note_rate(with, Some(rate));
        self.store_error(&state)?;
        let put = |change: &mut lorentz_clock::Change, _: RealInstant| {
            crate::ClockChange::Dilate(with).apply(change);
        };
        Ok(self.change_locked(Moved::All, at, put)?.0)
    }

    /// As [`crate::ClockChange::Step`] at once, of a clock with an error.
    pub(crate) fn step_with_error(&self, by: Span) -> io::Result<ChangeCounts> {
        Ok(self.publish_error(|state| state.step(i128::from(by.0)))?.1)
    }

    /// Moves the wall clock, and true wall time with it: the clock's error stays as it is.
    ///
    /// # Errors
    ///
    /// As [`Clock::change`].
    pub fn step_with_truth(&self, by: Span) -> io::Result<ChangeCounts> {
        let counts = if self.has_error() {
            let _lock = ClockLock::take(self.path())?;
            self.publish_error(|state| state.step_with_truth(i128::from(by.0)))?.1
        } else {
            self.step(by)?
        };
        let true_wall = self.page().true_wall().as_nanos() + i128::from(by.0);
        self.page().set_true_wall(WallTime::from_nanos(true_wall));
        Ok(counts)
    }

    /// Gives a new clock its error from the start.
    pub(crate) fn begin_with_error(&self, error: StartError) -> io::Result<()> {
        let begin = |state: &mut ErrorState| {
            state.err_by(i128::from(error.offset.0));
            state.drift = error.drift;
            state.wander(error.wander, error.seed);
        };
        self.publish_error(begin).map(drop)
    }
}

/// The drift that takes a clock so far in so much of its time.
fn drift_of(by: Span, span: Span) -> i64 {
    let drift = i128::from(by.0) * i128::from(PARTS) / i128::from(span.0.max(1));
    lorentz_clock::saturate(drift)
}

fn wrong(expected: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, expected)
}

fn put(change: &mut lorentz_clock::Change, course: &Course) {
    change.rate = course.rate;
    if change.pace != Pace::Frozen {
        change.pace = Pace::Running(course.rate);
    }
    change.wall = course.wall;
    change.boot = course.boot;
}

/// The state of a container that has not changed it: whether the host's time can be relied on, and how far. Its clock goes with the
/// host's, so its own frequency is 0.
fn host_discipline() -> Discipline {
    match host_time::kernel_clock_state() {
        Ok(timex) => Discipline::of_host(
            timex.status as u32,
            timex.maxerror,
            timex.esterror,
            i64::from(timex.tai),
        ),
        Err(_) => Discipline::default(),
    }
}
