//! Changes of a clock: publish the new piece, then signal the threads that have to follow and those with timers.
//!
//! ```text
//! controller                         clock page          processes on the clock
//!   lock (flock)
//!   [a change that makes deadlines later, where timers are set:
//!    hold: timers due after T -------> hold ..............> those timers are set for a second later]
//!   publish: piece, version, start -> new version ......> readers switch at its start
//!   notify: signal 64 --------------------------------->  waits compute anew, timers are set anew
//!   notified = state
//!   [the piece was to come: sleep until it begins, refresh, signal timers again]
//!   unlock
//! ```
//!
//! Race: a kernel timer is set by the old piece. A change makes its deadline later. The timer goes off before its process has set
//! it anew: too early. Therefore, where timers are set, each process holds them back before the controller publishes such a change
//! ([`lorentz_clock::HOLD_DELAY`]). The change begins [`HOLD_LEAD`] after the command, so that no timer is late either: by then each
//! process has set its timers by both pieces.
//!
//! Race: no timer is set, so that the change begins at once, and a thread sets one while the controller publishes. Therefore the
//! hold begins before the controller looks for timers. A thread that sets a timer later holds it back, and sets it anew when it
//! finds the change, or when its process is notified.
//!
//! A controller that dies in between leaves a clock that every reader can read. `notified` says whether threads are still to be
//! signalled. A controller holds a pipe open during a change, so that monitors notice its death ([`crate::change_pipe`]) and call
//! [`Clock::supervise`].

use std::io;
use std::time::Duration;

use lorentz_clock::{
    failpoint, Change, Deadline, Failpoint, Pace, Piece, Published, Rate, RealInstant, SkipMode,
    Span,
};

use crate::file_timestamps::{host_wall_ahead, FileTimestamps};
use crate::host_time::{self, sleep_until};
use crate::lock::ClockLock;
use crate::notifier::{ChangeCounts, Moved};
use crate::Clock;

/// Time from the command to the start of a change that makes deadlines later, where timers are set.
const HOLD_LEAD: Span = Span(2_000_000);
/// All timers are to be held back so long before such a change begins. Otherwise the controller waits on: a timer that is due meanwhile
/// is late. Each wait is [`HOLD_WAIT_FACTOR`] times as long as the one before, ...
const HOLD_MARGIN: Span = Span(500_000);
const HOLD_WAIT_FACTOR: i64 = 4;
/// ... and the last one longer than this.
const MAX_HOLD_WAIT: Span = Span(90_000_000);
/// A change announced for so far ahead needs no hold: processes set their timers by both pieces long before.
const HOLD_HORIZON: Span = Span(1_000_000_000);
/// The notifier signals timers at the latest so long before an announced change begins. From then on processes set them for one
/// expiry at a time.
const NOTIFY_BEFORE: Span = Span(3_000_000);
/// A controller that has the lock so long before an announced change begins keeps it until then.
const NEAR_CHANGE: Span = Span(5_000_000);
/// Longest tick of the host. A file's timestamp is at most so much older than its writing.
const MAX_TICK: Span = Span(10_000_000);

/// A change of a clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClockChange {
    /// Sets the rate. For a frozen clock, sets the rate after the freeze.
    Dilate(Rate),
    /// Stops time. The tasks run on: [`crate::stop_tasks`] stops them.
    Freeze,
    /// Lets time run again.
    Unfreeze,
    /// Moves all clocks forward.
    Leap(Span),
    /// Moves the wall clock alone.
    Step(Span),
}

impl ClockChange {
    pub(crate) fn apply(self, change: &mut Change) {
        match self {
            ClockChange::Dilate(rate) => {
                change.rate = rate;
                if change.pace != Pace::Frozen {
                    change.pace = Pace::Running(rate);
                }
            }
            ClockChange::Freeze => change.pace = Pace::Frozen,
            ClockChange::Unfreeze => change.pace = Pace::Running(change.rate),
            ClockChange::Leap(by) => change.leap = by,
            ClockChange::Step(by) => change.wall = change.wall.plus(by),
        }
    }

    /// The deadlines that the change moves.
    fn moved(self) -> Moved {
        match self {
            ClockChange::Step(_) => Moved::Offset,
            _ => Moved::All,
        }
    }
}

impl Clock {
    /// Changes the clock: at once, or when the host's CLOCK_MONOTONIC shows `at`. After a change at once, waits until all waits and
    /// timers have followed it, at most 100 ms. Those of a frozen container follow when its tasks run again.
    ///
    /// # Errors
    ///
    /// If the file is gone. `TimedOut` if another process keeps the clock's lock. `WouldBlock` if too many changes are to come.
    pub fn change(&self, what: ClockChange, at: Option<RealInstant>) -> io::Result<ChangeCounts> {
        let _lock = ClockLock::take(self.path())?;
        match (what, at) {
            (ClockChange::Dilate(rate), _) if self.has_error() => {
                return self.dilate_with_error(rate, at);
            }
            (ClockChange::Step(by), None) if self.has_error() => return self.step_with_error(by),
            _ => {}
        }
        let (followed, moved) =
            self.change_locked(what.moved(), at, |change, _| what.apply(change))?;
        if at.is_none() && !self.is_frozen() {
            self.notifier().quiesce(moved);
        }
        Ok(followed)
    }

    /// Does [`ClockChange::Dilate`] at once.
    ///
    /// # Errors
    ///
    /// As [`Clock::change`].
    pub fn dilate(&self, rate: Rate) -> io::Result<ChangeCounts> {
        self.change(ClockChange::Dilate(rate), None)
    }

    /// Does [`ClockChange::Freeze`] at once.
    ///
    /// # Errors
    ///
    /// As [`Clock::change`].
    pub fn freeze(&self) -> io::Result<ChangeCounts> {
        self.change(ClockChange::Freeze, None)
    }

    /// Does [`ClockChange::Unfreeze`] at once.
    ///
    /// # Errors
    ///
    /// As [`Clock::change`].
    pub fn unfreeze(&self) -> io::Result<ChangeCounts> {
        let _lock = ClockLock::take(self.path())?;
        // Its tasks are still stopped. They follow when they run.
        let (followed, _) =
            self.change_locked(Moved::All, None, |change, _| ClockChange::Unfreeze.apply(change))?;
        Ok(followed)
    }

    /// Does [`ClockChange::Leap`] at once.
    ///
    /// # Errors
    ///
    /// As [`Clock::change`].
    pub fn leap(&self, by: Span) -> io::Result<ChangeCounts> {
        self.change(ClockChange::Leap(by), None)
    }

    /// Does [`ClockChange::Step`] at once.
    ///
    /// # Errors
    ///
    /// As [`Clock::change`].
    pub fn step(&self, by: Span) -> io::Result<ChangeCounts> {
        self.change(ClockChange::Step(by), None)
    }

    /// Sets how the clock treats idle time: the mode, and the cost of a clock read.
    ///
    /// # Errors
    ///
    /// As [`Clock::change`].
    pub fn set_skipping(&self, mode: SkipMode, read_cost: Span) -> io::Result<()> {
        let _lock = ClockLock::take(self.path())?;
        self.complete_locked();
        let page = self.page();
        if mode == SkipMode::Off {
            page.set_skipping(mode, read_cost);
        } else {
            page.enable_leaps();
        }
        failpoint(self.registry(), Failpoint::LeapsEnabled);
        // Readers of the old state would not add leaps. So nothing leaps before all have followed.
        page.renew(self.registry(), &host_time::now);
        failpoint(self.registry(), Failpoint::BeforeNotify);
        self.notifier().notify(Moved::All);
        page.set_notified(page.state());
        failpoint(self.registry(), Failpoint::AfterNotify);
        page.set_skipping(mode, read_cost);
        Ok(())
    }

    /// Publishes a change of the piece in force at its start, and signals the threads that have to follow. `change` receives the
    /// earliest instant at which the change begins; if `at` is given, this is the instant at which it begins. When this returns, a
    /// change that begins within [`NEAR_CHANGE`] has begun. Also returns the deadlines that the change has moved.
    pub(crate) fn change_locked(
        &self,
        moved: Moved,
        at: Option<RealInstant>,
        change: impl Fn(&mut Change, RealInstant),
    ) -> io::Result<(ChangeCounts, Moved)> {
        self.complete_locked();
        self.await_near_change();
        let (page, registry) = (self.page(), self.registry());
        let now = host_time::now();
        let to_come = self.starts_to_come();
        // Changes that were announced for an earlier time are in force by then.
        let from = at.unwrap_or(now).max(now);
        // Waits and timers of every kind were computed with a change that is dropped now.
        let drops = to_come.iter().any(|start| *start >= from);
        let mut moved = if drops { Moved::All } else { moved };
        let change_of = |before: &Piece, begins: RealInstant| {
            let mut new = Change::of(before);
            change(&mut new, begins);
            new
        };
        let before = page.snapshot(registry, &|| from).piece();
        let mut new = change_of(&before, from);
        let soon = at.is_none_or(|at| at < now.plus(HOLD_HORIZON));
        let holds = soon && (drops || makes_later(&before, &new));
        if holds {
            // A timer that is set by the old piece from here on is held back. Those set before are found.
            page.hold_timers(now);
        }
        if holds && self.has_timers_set(moved) {
            let begins = self.hold_timers(at.unwrap_or(now));
            // Timers of all clocks were held back.
            moved = Moved::All;
            // Changes that were announced for the time until then take effect.
            new = change_of(&page.snapshot(registry, &|| begins).piece(), begins);
            new.at = begins;
        } else if let Some(at) = at {
            new.at = at;
        }
        new.file_boundary = Some(self.file_stamp_line(at));
        let published = page.publish(registry, &host_time::now, &new);
        page.release_timers();
        failpoint(registry, Failpoint::BeforeNotify);
        let signalled = self.notifier().notify(moved);
        if holds && moved != Moved::All {
            // Timers of other clocks may have been held back.
            self.notifier().notify_timers();
        }
        let published = published.map_err(|_| too_many())?;
        failpoint(registry, Failpoint::AfterNotify);
        page.set_notified(published.state);
        if at.is_none() || published.begins.since(host_time::now()) <= NEAR_CHANGE {
            self.begin(&published);
        }
        let dropped = to_come.iter().filter(|start| **start >= published.begins).count();
        Ok((ChangeCounts { dropped, ..signalled }, moved))
    }

    /// Makes every process hold back its timers that are due after `at` or [`HOLD_LEAD`] from now, whichever is later. Returns when
    /// the change may begin: at that instant, or now if that is later. A stopped process delays it until [`MAX_HOLD_WAIT`] is over.
    fn hold_timers(&self, at: RealInstant) -> RealInstant {
        let registry = self.registry();
        let from = host_time::now().plus(HOLD_LEAD).max(at);
        self.page().hold_timers(from);
        failpoint(registry, Failpoint::HoldBegun);
        let mut wait = Span(HOLD_LEAD.0 - HOLD_MARGIN.0);
        loop {
            self.notifier().notify_timers();
            let follow = self.notifier().await_timers_until(host_time::now().plus(wait));
            if follow || wait > MAX_HOLD_WAIT {
                failpoint(registry, Failpoint::HoldFollowed);
                return from.max(host_time::now());
            }
            failpoint(registry, Failpoint::HoldExtended);
            wait = Span(wait.0 * HOLD_WAIT_FACTOR);
        }
    }

    /// Returns the timestamp from which on files count as written after the change. For a change to come it lies a tick before the
    /// change.
    fn file_stamp_line(&self, at: Option<RealInstant>) -> RealInstant {
        let host_wall = host_wall_ahead(self.page().host_wall());
        let draw = || FileTimestamps::new()?.draw_line(host_wall);
        match at {
            None => draw().unwrap_or(host_time::now().plus(Span(-MAX_TICK.0))),
            Some(at) => at.plus(Span(-MAX_TICK.0)),
        }
    }

    /// Waits until a change has begun, and signals the timers again: until then repeating timers are set for one expiry.
    fn begin(&self, published: &Published) {
        let renew_at = published.begins.plus(Span(-NOTIFY_BEFORE.0));
        if host_time::now() < renew_at {
            // Earlier than NOTIFY_BEFORE before a change, processes do not set repeating timers for one expiry yet.
            sleep_until(renew_at);
            self.page().renew(self.registry(), &host_time::now);
            self.notifier().notify_timers();
            self.page().set_notified(self.page().state());
        }
        sleep_until(published.begins);
        failpoint(self.registry(), Failpoint::BeforeRefresh);
        if self.page().refresh(self.registry(), &host_time::now) {
            self.notifier().notify_timers();
            self.page().set_notified(self.page().state());
        }
    }

    fn starts_to_come(&self) -> Vec<RealInstant> {
        let look = self.look();
        let pieces = self.page().to_come(self.registry(), &look);
        pieces.map(|(piece, _)| piece.segment.real).collect()
    }

    /// Whether a timer is set that a change of `moved` concerns, or a thread is setting one.
    fn has_timers_set(&self, moved: Moved) -> bool {
        self.registry().timers().any(|timer| {
            let deadline = timer.setting().deadline;
            let concerned = match deadline {
                Deadline::Never => false,
                Deadline::Wall(_) | Deadline::Boot(_) => true,
                Deadline::Virtual(_) => moved == Moved::All,
            };
            timer.is_being_set() || (concerned && timer.armed().at != RealInstant::NEVER)
        })
    }

    /// Completes the change of a writer that died in the middle of it, and takes announced changes that begin about now through
    /// their start. Returns the time until the next call is due; `None` if none is, or if another process has the lock and takes
    /// care.
    ///
    /// # Errors
    ///
    /// If the file is gone.
    pub fn supervise(&self) -> io::Result<Option<Duration>> {
        let soon = |clock: &Clock| {
            let due = clock.page().supervision_due(host_time::now())?;
            Some(due.since(host_time::now()).0.saturating_sub(NOTIFY_BEFORE.0).max(0) as u64)
        };
        while soon(self) == Some(0) {
            let Some(_lock) = ClockLock::try_take(self.path())? else { return Ok(None) };
            self.complete_locked();
            self.await_near_change();
        }
        Ok(soon(self).map(Duration::from_nanos))
    }

    /// Takes all waits and timers through an announced change that begins within [`NEAR_CHANGE`].
    fn await_near_change(&self) {
        let look = self.look();
        if look.until.since(look.real) > NEAR_CHANGE {
            return;
        }
        let (page, registry) = (self.page(), self.registry());
        page.renew(registry, &host_time::now);
        self.notifier().notify_timers();
        page.set_notified(page.state());
        sleep_until(look.until);
        self.complete_locked();
    }

    fn complete_locked(&self) {
        let (page, registry) = (self.page(), self.registry());
        page.complete(registry, &host_time::now);
        let begun = page.refresh(registry, &host_time::now);
        let held = page.timers_held().is_some();
        page.release_timers();
        let state = page.state();
        if begun || page.notified() != state {
            self.notifier().notify(Moved::All);
            page.set_notified(state);
        } else if held {
            self.notifier().notify_timers();
        }
    }

    /// Waits until all threads that the last change signalled have followed, at most a tenth of a second. A stopped thread follows
    /// when it runs again.
    pub fn quiesce(&self) {
        self.notifier().quiesce(Moved::All);
    }
}

/// A rate that is lower by less than one part in this many makes no deadline later that is worth a hold: a timer that goes off before
/// its process has set it anew is early by that part of the time until then, a few microseconds at most. NTP daemons change rates
/// by less.
const SLIGHTLY: u128 = 1000;

/// Whether a change makes deadlines later. A timer that is set by the piece before it may then go off too early.
fn makes_later(before: &Piece, new: &Change) -> bool {
    let slower = match (before.segment.pace, new.pace) {
        (Pace::Frozen, _) => false,
        (_, Pace::Frozen) => true,
        (Pace::Running(before), Pace::Running(new)) => {
            let (new, before) = (
                u128::from(new.num()) * u128::from(before.den()),
                u128::from(before.num()) * u128::from(new.den()),
            );
            new < before - before / SLIGHTLY
        }
    };
    slower || new.wall < before.segment.wall || new.limit < before.limit
}

fn too_many() -> io::Error {
    io::Error::new(
        io::ErrorKind::WouldBlock,
        format!(
            "too many changes are to come: at most {} at once, and 40 since the last one took effect",
            lorentz_clock::MAX_CHANGES_AHEAD
        ),
    )
}
