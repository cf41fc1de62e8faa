//! The error of a clock that an experiment holds: the experiment moves the truth, and the clock goes on by its own line.
//!
//! Inside a slice the clock runs at the container's rate, between two instants that the line gives: its frequency shows from one
//! slice to the next. A leap second steps the wall clock where the next piece begins.

use std::cell::RefCell;
use std::io;

use lorentz_clock::{Rate, Span, VirtualInstant, WallTime};
use lorentz_syscalls::{Errno, Timex};

use super::apply::ClockErrorChange;
use super::kernel::step_of;
use super::line::ErrorLine;
use super::state::ErrorState;
use crate::change_pipe;
use crate::rounds::HeldClock;
use crate::Clock;

impl HeldClock {
    /// The clock, whose lock the caller has.
    pub(crate) fn of(clock: Clock) -> io::Result<HeldClock> {
        let error = match clock.has_error() {
            true => Some(ErrorLine::new(clock.erring_state()?)),
            false => None,
        };
        clock.page().set_shows_own_time(error.is_some());
        Ok(HeldClock { clock, error: RefCell::new(error) })
    }

    /// Whether the clock shows another time than the truth, or may.
    pub(crate) fn errs(&self) -> bool {
        self.error.borrow().is_some()
    }

    /// Returns the truth when the clock shows `own`: the instant of the experiment.
    pub fn truth_at(&self, own: VirtualInstant) -> VirtualInstant {
        self.error.borrow_mut().as_mut().map_or(own, |line| line.truth_at(own))
    }

    pub(crate) fn own_at(&self, truth: VirtualInstant) -> VirtualInstant {
        self.error.borrow_mut().as_mut().map_or(truth, |line| line.own_at(truth))
    }

    pub(crate) fn true_wall_at(&self, own: VirtualInstant) -> Option<WallTime> {
        let mut error = self.error.borrow_mut();
        let line = error.as_mut()?;
        line.advance(own);
        Some(line.true_wall())
    }

    /// The truth leaps to `truth`, where true wall time shows `wall`. Returns where the clock's own time leaps to, and never back once a
    /// program has seen it.
    pub(crate) fn leap(&self, truth: VirtualInstant, wall: Option<WallTime>) -> VirtualInstant {
        let mut error = self.error.borrow_mut();
        let Some(line) = error.as_mut() else { return truth };
        let now = self.clock.look().now();
        line.advance(now);
        let truth = if wall.is_some() { truth.max(line.truth_at(now)) } else { truth };
        line.leap(truth, wall)
    }

    /// The offsets of the wall clock and of CLOCK_BOOTTIME in a piece that begins at `own`.
    pub(crate) fn offsets_from(&self, own: VirtualInstant) -> Option<(WallTime, Span)> {
        let mut error = self.error.borrow_mut();
        let line = error.as_mut()?;
        line.advance(own);
        Some((line.state().wall(), line.state().boot()))
    }

    /// The rate of the clock by itself, if the rate without error is `rate`.
    pub(crate) fn erring_rate(&self, rate: Rate) -> Rate {
        let mut error = self.error.borrow_mut();
        let Some(line) = error.as_mut() else { return rate };
        line.change(|state| {
            state.set_rate(rate);
            state.rate()
        })
    }

    /// Stores the error, and has the clock's monitor look after it: the clock goes on by itself.
    pub(crate) fn let_error_go(&self) {
        self.clock.page().set_shows_own_time(false);
        // It wakes the monitor when it is closed.
        let _pipe = self.errs().then(|| change_pipe::hold(self.clock.path()));
        self.store_error();
    }

    /// Stores the error, for commands that show it and for the clock's monitor.
    pub(crate) fn store_error(&self) {
        let mut error = self.error.borrow_mut();
        let Some(line) = error.as_mut() else { return };
        let look = self.clock.look();
        line.advance(look.now());
        let rate = line.state().rate_without_error();
        line.change(|state| {
            state.is_published();
            state.note_rate(look.rate, Some(rate));
        });
        // The directory may be deleted by now: nobody asks any more.
        let _ = self.clock.store_error(line.state());
    }

    /// Carries adjtimex(2) out for a program of the container, where its clock stands: `timex` becomes the answer. Returns the state of
    /// the clock.
    ///
    /// # Errors
    ///
    /// The kernel's refusals.
    pub fn adjust(&self, timex: &mut Timex, may_set: bool) -> Result<i64, Errno> {
        timex.check(may_set)?;
        if step_of(timex).is_some_and(|by| !self.clock.may_step(by)) {
            return Err(Errno::EINVAL);
        }
        self.change(|state| state.adjust(timex)).map_err(|_| Errno::ENOSYS)
    }

    /// Changes the clock's error where it stands.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a drift beyond 10 %, or a wall clock before 1970; or if the error cannot be read.
    pub fn change_error(&self, change: ClockErrorChange) -> io::Result<()> {
        let offset = self.error.borrow().as_ref().map_or(0, |line| line.state().offset());
        change.check(&self.clock, offset)?;
        self.change(|state| change.apply(state))
    }

    /// Changes the state of the clock's error, publishes what follows from it, and has all waits follow.
    fn change<T>(&self, change: impl FnOnce(&mut ErrorState) -> T) -> io::Result<T> {
        let (errs, line) = match self.error.take() {
            Some(line) => (true, line),
            None => (false, ErrorLine::new(self.clock.erring_state()?)),
        };
        let look = self.clock.look();
        let mut line = line;
        line.advance(look.now());
        let before = line.state().clone();
        let result = line.change(change);
        let is_changed = *line.state() != before;
        // A clock whose state has only been read goes on without one.
        self.error.replace((errs || is_changed).then_some(line));
        if !is_changed {
            return Ok(result);
        }
        if look.limit == VirtualInstant::NEVER {
            self.let_go(self.rate());
        } else {
            self.clock.page().set_shows_own_time(true);
            self.stand(VirtualInstant(i64::MIN));
            self.notify_all(&[]);
            self.store_error();
        }
        Ok(result)
    }

    /// The rate without error, if the clock errs.
    pub(crate) fn rate_without_error(&self) -> Option<Rate> {
        self.error.borrow().as_ref().map(|line| line.state().rate_without_error())
    }
}
