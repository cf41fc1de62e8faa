//! Changing a clock: publish the new piece, then tell the threads and timers that have to follow.
//!
//! ```text
//! controller                         clock page          processes on the clock
//!   lock (flock)
//!   [a change that makes deadlines later, where timers are set:
//!    hold: timers due after T -------> hold ..............> those timers are set for a second later]
//!   publish: piece, version, start -> new version ......> readers switch at its start
//!   tell: signal 64 ----------------------------------->  waits compute anew, timers are set anew
//!   notified = state
//!   [the piece was to come: sleep until it begins, refresh, tell timers again]
//!   unlock
//! ```
//!
//! Race: a timer of the kernel's is set by the old piece. A change makes its deadline later. The timer goes off before its process
//! has set it anew: too early. Therefore, where timers are set, each process holds them back before such a change is published
//! ([`lorentz_clock::HELD_FOR`]). It begins [`LEAD`] after the command, so that no timer is late either: by then each process has
//! set its timers by both pieces.
//!
//! Whoever dies in between leaves a clock that every reader can read. `notified` says whether somebody is still to be told;
//! monitors hear of the death by the pipe that a controller holds open meanwhile ([`crate::watchkeeping`]) and call
//! [`Clock::care`].

use std::io;
use std::time::Duration;

use lorentz_clock::{
    failpoint, Change, Deadline, Failpoint, Pace, Piece, Published, Rate, RealInstant, SkipMode,
    Span,
};

use crate::file_stamps::{host_wall_ahead, FileStamps};
use crate::followers::Moved;
use crate::host_time::{self, sleep_until};
use crate::lock::ClockLock;
use crate::Clock;

/// A change that makes deadlines later begins so long after the command, where timers are set.
const LEAD: Span = Span(2_000_000);
/// All timers are to be held back so long before such a change begins, else it is put off, ...
const MARGIN: Span = Span(500_000);
/// ... at the longest by this.
const LONGEST_LEAD: Span = Span(128_000_000);
/// A change that was announced for so far ahead needs no hold: its timers are set by both pieces long before.
const SOON: Span = Span(1_000_000_000);
/// Timers are told of an announced change so long before it begins at the latest: then they are set for one expiry at a time.
const TOLD_BEFORE: Span = Span(3_000_000);
/// Whoever has the lock so long before an announced change begins keeps it until then.
const NEAR: Span = Span(5_000_000);
/// A tick of the host, at most: stamps of files are no older.
const TICK: Span = Span(10_000_000);

/// A change of a clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClockChange {
    /// Sets the rate; for a frozen clock, the one to go on with.
    Dilate(Rate),
    /// Stops time. The tasks go on: [`crate::freeze()`] stops them too.
    Freeze,
    /// Lets time go on.
    Unfreeze,
    /// Moves all clocks forward.
    Leap(Span),
    /// Moves the wall clock alone.
    Step(Span),
}

/// How much had to follow a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Followed {
    /// Waits that were told.
    pub waits: usize,
    /// Timers that were set again.
    pub timers: usize,
    /// Changes that were announced for later, and that this one has overtaken.
    pub dropped: usize,
}

impl ClockChange {
    fn apply(self, change: &mut Change) {
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

    /// Whose deadlines it moves.
    fn moved(self) -> Moved {
        match self {
            ClockChange::Step(_) => Moved::Wall,
            _ => Moved::All,
        }
    }
}

impl Clock {
    /// Changes the clock: at once, or when the host's CLOCK_MONOTONIC shows `at`. A change at once has reached everybody when this
    /// returns, but for the tasks of a frozen container, which follow when they run again.
    ///
    /// # Errors
    ///
    /// Where the file is gone; `TimedOut` where another process keeps the clock's lock; `WouldBlock` where too many changes are
    /// to come.
    pub fn change(&self, what: ClockChange, at: Option<RealInstant>) -> io::Result<Followed> {
        let _lock = ClockLock::take(self.path())?;
        let (followed, moved) =
            self.change_locked(what.moved(), at, |change| what.apply(change))?;
        if at.is_none() && !self.is_frozen() {
            self.followers().settle(moved);
        }
        Ok(followed)
    }

    /// [`ClockChange::Dilate`], at once.
    ///
    /// # Errors
    ///
    /// As [`Clock::change`].
    pub fn dilate(&self, rate: Rate) -> io::Result<Followed> {
        self.change(ClockChange::Dilate(rate), None)
    }

    /// [`ClockChange::Freeze`], at once.
    ///
    /// # Errors
    ///
    /// As [`Clock::change`].
    pub fn freeze(&self) -> io::Result<Followed> {
        self.change(ClockChange::Freeze, None)
    }

    /// [`ClockChange::Unfreeze`], at once.
    ///
    /// # Errors
    ///
    /// As [`Clock::change`].
    pub fn unfreeze(&self) -> io::Result<Followed> {
        let _lock = ClockLock::take(self.path())?;
        // Its tasks are still stopped, and follow when they run.
        let (followed, _) =
            self.change_locked(Moved::All, None, |change| ClockChange::Unfreeze.apply(change))?;
        Ok(followed)
    }

    /// [`ClockChange::Leap`], at once.
    ///
    /// # Errors
    ///
    /// As [`Clock::change`].
    pub fn leap(&self, by: Span) -> io::Result<Followed> {
        self.change(ClockChange::Leap(by), None)
    }

    /// [`ClockChange::Step`], at once.
    ///
    /// # Errors
    ///
    /// As [`Clock::change`].
    pub fn step(&self, by: Span) -> io::Result<Followed> {
        self.change(ClockChange::Step(by), None)
    }

    /// Sets how the clock treats idle time.
    ///
    /// # Errors
    ///
    /// As [`Clock::change`].
    pub fn set_skipping(&self, mode: SkipMode, read_cost: Span) -> io::Result<()> {
        let _lock = ClockLock::take(self.path())?;
        self.care_locked();
        let page = self.page();
        if mode == SkipMode::Off {
            page.set_skipping(mode, read_cost);
        } else {
            page.believe_leaps();
        }
        failpoint(self.registry(), Failpoint::SkippingBelieved);
        // Readers of the state before would not add leaps: nobody leaps before it is over.
        page.renew(self.registry(), &host_time::now);
        failpoint(self.registry(), Failpoint::BeforeTell);
        self.followers().tell(Moved::All);
        page.set_notified(page.state());
        failpoint(self.registry(), Failpoint::AfterTell);
        page.set_skipping(mode, read_cost);
        Ok(())
    }

    /// Publishes a change of the piece in force at its start, and tells those who have to follow. One that begins in a moment has
    /// begun when this returns. Gives whose deadlines it has moved beside.
    fn change_locked(
        &self,
        moved: Moved,
        at: Option<RealInstant>,
        change: impl Fn(&mut Change),
    ) -> io::Result<(Followed, Moved)> {
        self.care_locked();
        self.await_near_change();
        let (page, registry) = (self.page(), self.registry());
        let now = host_time::now();
        let to_come = self.starts_to_come();
        // What was announced for before it is in force by then.
        let from = at.unwrap_or(now).max(now);
        // Waits and timers of every kind have been computed by a change that is dropped now.
        let drops = to_come.iter().any(|start| *start >= from);
        let mut moved = if drops { Moved::All } else { moved };
        let change_of = |before: &Piece| {
            let mut new = Change::of(before);
            change(&mut new);
            new
        };
        let before = page.snapshot(registry, &|| from).piece();
        let mut new = change_of(&before);
        let soon = at.is_none_or(|at| at < now.plus(SOON));
        if soon && (drops || makes_later(&before, &new)) && self.has_timers_set(moved) {
            let begins = self.hold_timers(at.unwrap_or(now));
            // Those of all clocks were held back.
            moved = Moved::All;
            // Changes that were announced for the time until then come.
            new = change_of(&page.snapshot(registry, &|| begins).piece());
            new.at = begins;
        } else if let Some(at) = at {
            new.at = at;
        }
        new.line = Some(self.draw_line(at));
        let published = page.publish(registry, &host_time::now, &new);
        page.let_timers_go();
        failpoint(registry, Failpoint::BeforeTell);
        let told = self.followers().tell(moved);
        let published = published.map_err(|_| too_many())?;
        failpoint(registry, Failpoint::AfterTell);
        page.set_notified(published.state);
        if at.is_none() || published.begins.since(host_time::now()) <= NEAR {
            self.begin(&published);
        }
        let dropped = to_come.iter().filter(|start| **start >= published.begins).count();
        Ok((Followed { dropped, ..told }, moved))
    }

    /// Has every process hold back its timers that are due after an instant, `at` or a moment from now, and gives that instant:
    /// the change begins there. A process that is stopped is not waited for longer than [`LONGEST_LEAD`].
    fn hold_timers(&self, at: RealInstant) -> RealInstant {
        let (page, registry) = (self.page(), self.registry());
        let mut lead = LEAD;
        loop {
            let from = host_time::now().plus(lead).max(at);
            page.hold_timers(from);
            failpoint(registry, Failpoint::HoldBegun);
            self.followers().tell_timers();
            let follow = self.followers().set_timers_before(from.plus(Span(-MARGIN.0)));
            lead = Span(lead.0 * 4);
            if follow || lead > LONGEST_LEAD {
                failpoint(registry, Failpoint::HoldFollowed);
                return from;
            }
            failpoint(registry, Failpoint::PutOff);
        }
    }

    /// From which stamp on files are written after a change. One that is to come has its line a tick before it.
    fn draw_line(&self, at: Option<RealInstant>) -> RealInstant {
        let host_wall = host_wall_ahead(self.page().host_wall());
        let draw = || FileStamps::new()?.draw_line(host_wall);
        match at {
            None => draw().unwrap_or(host_time::now().plus(Span(-TICK.0))),
            Some(at) => at.plus(Span(-TICK.0)),
        }
    }

    /// Waits until a change has begun, and tells the timers again: those that repeat are set for one expiry until then.
    fn begin(&self, published: &Published) {
        let told = published.begins.plus(Span(-TOLD_BEFORE.0));
        if host_time::now() < told {
            // So far ahead, timers that repeat are not set for one expiry yet.
            sleep_until(told);
            self.page().renew(self.registry(), &host_time::now);
            self.followers().tell_timers();
            self.page().set_notified(self.page().state());
        }
        sleep_until(published.begins);
        failpoint(self.registry(), Failpoint::BeforeRefresh);
        if self.page().refresh(self.registry(), &host_time::now) {
            self.followers().tell_timers();
            self.page().set_notified(self.page().state());
        }
    }

    fn starts_to_come(&self) -> Vec<RealInstant> {
        let look = self.look();
        let pieces = self.page().to_come(self.registry(), &look);
        pieces.map(|(piece, _)| piece.segment.real).collect()
    }

    /// Whether a timer is set that a change for `moved` concerns, or is being set.
    fn has_timers_set(&self, moved: Moved) -> bool {
        self.registry().timers().any(|timer| {
            let deadline = timer.setting().deadline;
            let concerned = match deadline {
                Deadline::Never => false,
                Deadline::Wall(_) => true,
                Deadline::Virtual(_) => moved == Moved::All,
            };
            timer.is_held() || (concerned && timer.armed().at != RealInstant::NEVER)
        })
    }

    /// Goes on with what a writer has left, where one died in the midst of a change, and with changes that were announced and begin
    /// about now. Gives the time until somebody is to take care again.
    ///
    /// # Errors
    ///
    /// Where the file is gone. Where another process has the lock, that one takes care.
    pub fn care(&self) -> io::Result<Option<Duration>> {
        let soon = |clock: &Clock| {
            let due = clock.page().care_due(host_time::now())?;
            Some(due.since(host_time::now()).0.saturating_sub(TOLD_BEFORE.0).max(0) as u64)
        };
        while soon(self) == Some(0) {
            let Some(_lock) = ClockLock::try_take(self.path())? else { return Ok(None) };
            self.care_locked();
            self.await_near_change();
        }
        Ok(soon(self).map(Duration::from_nanos))
    }

    /// Brings everybody through a change that was announced for a moment from now.
    fn await_near_change(&self) {
        let look = self.look();
        if look.until.since(look.real) > NEAR {
            return;
        }
        let (page, registry) = (self.page(), self.registry());
        page.renew(registry, &host_time::now);
        self.followers().tell_timers();
        page.set_notified(page.state());
        sleep_until(look.until);
        self.care_locked();
    }

    fn care_locked(&self) {
        let (page, registry) = (self.page(), self.registry());
        page.complete(registry, &host_time::now);
        let begun = page.refresh(registry, &host_time::now);
        let held = page.timers_held().is_some();
        page.let_timers_go();
        let state = page.state();
        if begun || page.notified() != state {
            self.followers().tell(Moved::All);
            page.set_notified(state);
        } else if held {
            self.followers().tell_timers();
        }
    }

    /// Waits until all that were told of the last change have followed it, at most a tenth of a second: a stopped
    /// thread follows when it runs again.
    pub fn settle(&self) {
        self.followers().settle(Moved::All);
    }
}

/// Whether a change makes deadlines later: then a timer that is set by the piece before it may go off too early.
fn makes_later(before: &Piece, new: &Change) -> bool {
    let slower = match (before.segment.pace, new.pace) {
        (Pace::Frozen, _) => false,
        (_, Pace::Frozen) => true,
        (Pace::Running(before), Pace::Running(new)) => {
            u128::from(new.num()) * u128::from(before.den())
                < u128::from(before.num()) * u128::from(new.den())
        }
    };
    slower || new.wall < before.segment.wall || new.limit < before.limit
}

fn too_many() -> io::Error {
    io::Error::new(
        io::ErrorKind::WouldBlock,
        format!(
            "too many changes are to come: at most {} at once, and 40 since the last one took effect",
            lorentz_clock::TO_COME
        ),
    )
}
