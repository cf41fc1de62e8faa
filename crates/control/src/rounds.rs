//! A clock that moves in rounds: one experiment holds it, and sets how far it may go.
//!
//! Between rounds the clock stands at its limit, whatever its tasks do. No program sees a later time, however late its tasks are
//! stopped. A round publishes a new piece, from where the clock stands to the end of the round. It signals only threads whose
//! deadlines lie in that piece. While the clock is held, no other process changes it.
//!
//! A change here makes no deadline later: the old piece ends at its limit, and the new one begins there or later. Therefore the
//! change begins at once, even if timers are set.
//!
//! The holder moves all its clocks by the truth. A clock that errs (`discipline`) shows another time of its own: every instant that
//! comes in or goes out here is the truth, and [`ErrorLine`] leads from one to the other.

use std::cell::RefCell;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use lorentz_clock::{Change, Pace, Piece, Rate, Registry, Span, VirtualInstant, WallTime};

use crate::discipline::ErrorLine;
use crate::freeze::InterruptedCalls;
use crate::host_time::{self, sleep, HostMoment};
use crate::notifier::Moved;
use crate::Clock;

/// A clock that only its holder changes.
///
/// The mapping keeps the locked file open, and with it the lock. With a descriptor for each clock, a large experiment would need
/// more descriptors than a process may have open.
pub struct HeldClock {
    pub(crate) clock: Clock,
    /// The way from its own time to the truth; `None` while they are the same.
    pub(crate) error: RefCell<Option<ErrorLine>>,
}

impl Clock {
    /// Holds this clock until the result is dropped. If a command is changing the clock at this moment, the call waits for it, at
    /// most 100 ms.
    ///
    /// Block signals in every thread that changes the clock: only SIGKILL may end a thread in the middle of a change.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if another process holds the clock; or a file of it is gone or damaged.
    pub fn hold(self) -> io::Result<HeldClock> {
        /// A change takes some 10 us, or 2 ms if it waits for timers.
        const HOLD_TIMEOUT: Duration = Duration::from_millis(100);
        const RETRY_INTERVAL: Duration = Duration::from_micros(200);
        let file = OpenOptions::new().read(true).write(true).open(self.path())?;
        let begun = HostMoment::now();
        loop {
            // SAFETY: no memory is involved.
            match unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } {
                0 => return HeldClock::of(Clock::map(self.path(), &file)?),
                _ if begun.elapsed() > HOLD_TIMEOUT => return Err(io::ErrorKind::WouldBlock.into()),
                _ => sleep(RETRY_INTERVAL),
            }
        }
    }
}

impl HeldClock {
    /// Virtual time now.
    pub fn now(&self) -> VirtualInstant {
        self.truth_at(self.clock.look().now())
    }

    /// The rate in force, without an error.
    pub fn rate(&self) -> Rate {
        self.rate_without_error().unwrap_or_else(|| self.clock.look().rate)
    }

    /// The time on the wall clock, without its error.
    pub fn wall(&self) -> WallTime {
        let look = self.clock.look();
        let now = look.now();
        self.true_wall_at(now).unwrap_or_else(|| look.segment.wall_at(now))
    }

    /// Stops time at `at`, earlier or later than the present time. Only for a clock that no program has been on yet.
    pub fn begin_at(&self, at: VirtualInstant) {
        /// A leap so far back that the piece begins at its floor, `at`.
        const FAR_BACK: Span = Span(i64::MIN / 2);
        let at = self.leap(at, None);
        self.publish(|_, change| (change.leap, change.floor, change.limit) = (FAR_BACK, at, at));
    }

    /// Stops time at `at`, or at the present time if that is later.
    pub fn stand(&self, at: VirtualInstant) {
        let at = self.own_at(at);
        self.publish(|_, change| (change.floor, change.limit) = (at, at));
    }

    /// As [`HeldClock::stand`], and sets the wall clock to `wall` at that time.
    pub fn stand_with_wall(&self, at: VirtualInstant, wall: WallTime) {
        let at = self.leap(at, Some(wall));
        self.publish(|now, change| {
            (change.floor, change.limit) = (at, at);
            change.wall = WallTime::from_nanos(wall.as_nanos() - i128::from(now.max(at).0));
            // A clock that errs has this in its error's state.
            self.clock.page().set_true_wall(change.wall);
        });
        self.store_error();
    }

    /// Runs time from `from`, or from the present time if that is later, until `to`, at `rate`.
    pub fn run(&self, from: VirtualInstant, to: VirtualInstant, rate: Rate) {
        let (from, to) = (self.own_at(from), self.own_at(to));
        self.publish(|_, change| {
            (change.floor, change.limit) = (from, to);
            (change.pace, change.rate) = (Pace::Running(rate), rate);
        });
    }

    /// Sets whether time moves only while all tasks sleep. Readers know it from the next change on.
    pub fn set_stands_while_tasks_run(&self, stands: bool) {
        self.clock.page().set_stands_while_tasks_run(stands);
    }

    /// Runs time without a limit, at `rate`, also while tasks run, and signals all waiting threads.
    pub fn let_go(&self, rate: Rate) {
        self.set_stands_while_tasks_run(false);
        let rate = self.erring_rate(rate);
        self.publish(|_, change| {
            (change.floor, change.limit) = (VirtualInstant(i64::MIN), VirtualInstant::NEVER);
            (change.pace, change.rate) = (Pace::Running(rate), rate);
        });
        self.let_error_go();
        self.clock.notifier().notify(Moved::All);
    }

    /// Publishes a piece that begins where the last one has come to. `change` receives that instant and the piece, which runs at
    /// its old rate unless `change` says otherwise. The limit of a piece is never before its beginning.
    fn publish(&self, change: impl FnOnce(VirtualInstant, &mut Change)) {
        let (page, registry) = (self.clock.page(), self.clock.registry());
        let look = page.snapshot(registry, &host_time::now);
        let Piece { rate, .. } = look.piece();
        let mut new = Change { pace: Pace::Running(rate), ..Change::of(&look.piece()) };
        change(look.now(), &mut new);
        if let Some(offsets) = self.offsets_from(look.now().plus(new.leap).max(new.floor)) {
            (new.wall, new.boot) = offsets;
        }
        // Cannot fail: a change that begins at once always has room.
        if let Ok(published) = page.publish(registry, &host_time::now, &new) {
            // The holder of the clock signals the threads whose deadlines come.
            page.set_notified(published.state);
        }
    }

    /// Real time until the clock stands at its limit, in nanoseconds; 0 if it stands there.
    pub fn until_limit(&self) -> Span {
        let look = self.clock.look();
        Span(look.real_at(look.limit).since(look.real).0.max(0))
    }

    /// Real time since the clock came to its limit, in nanoseconds; 0 if it has not come there.
    pub fn since_limit(&self) -> Span {
        let look = self.clock.look();
        Span(look.real.since(look.real_at(look.limit)).0.max(0))
    }

    /// The next instant to come for which a thread waits. The caller must know that all tasks sleep.
    pub fn next_deadline(&self) -> Option<VirtualInstant> {
        let look = self.clock.look();
        let next = self.clock.notifier().next_deadline_after(look.now(), &look);
        next.map(|own| self.truth_at(own))
    }

    /// Signals the threads whose deadlines come before the limit and were computed from an earlier state. `known` are processes
    /// known to be on the clock.
    pub fn notify_due(&self, known: &[u32]) {
        let look = self.clock.look();
        self.clock.notifier_with(known).notify_due(look.limit, &look);
    }

    /// Signals the threads whose deadlines lie after `since` and up to `until`. Returns false if there are none. Some of these
    /// threads may have been signalled before, and wake at any moment.
    pub fn notify_between(
        &self,
        since: VirtualInstant,
        until: VirtualInstant,
        known: &[u32],
    ) -> bool {
        let look = self.clock.look();
        // The first time of the clock that is later than `since`, less the least step: two instants of the truth may be one of the clock.
        let since = match self.errs() {
            true => self.own_at(since.plus(Span(1))).plus(Span(-1)),
            false => since,
        };
        self.clock.notifier_with(known).notify_between(since, self.own_at(until), &look)
    }

    /// Whether there is a wait that has ended after `since` and has not been left. Its thread is about to leave it, or has left it
    /// by a jump.
    pub fn has_overdue_wait(&self, since: VirtualInstant) -> bool {
        let look = self.clock.look();
        self.clock.notifier().has_overdue_wait(self.own_at(since), look.now(), &look)
    }

    /// Signals every thread that waits.
    pub fn notify_all(&self, known: &[u32]) {
        self.clock.notifier_with(known).notify(Moved::All);
    }

    /// Makes the tasks of processes `pids` repeat, when they run, the calls that the stop has broken off. Call this when all of
    /// them have stopped: a stopped thread shows in which call it was.
    pub fn repeat_interrupted_calls(&self, pids: &[u32]) {
        InterruptedCalls::look(pids, &self.clock.waiting_threads()).repeat();
    }

    /// Lets programs on this clock send while their time is not later than `others`, to which all other clocks have come. Returns
    /// the number of threads that waited for this.
    pub fn allow_sends_until(&self, others: VirtualInstant) -> usize {
        const FUTEX_WAKE: i32 = 1;
        let others = self.own_at(others);
        let page = self.clock.page();
        page.set_send_order(others);
        // SAFETY: wakes the threads that wait for the word; the kernel writes nothing.
        let woken = unsafe {
            libc::syscall(libc::SYS_futex, page.send_order_word().as_ptr(), FUTEX_WAKE, i32::MAX)
        };
        usize::try_from(woken).unwrap_or(0)
    }

    /// Whether a thread waits in the send ordering. The caller must know that all tasks sleep.
    pub fn has_waiting_sender(&self) -> bool {
        self.clock.notifier().has_waiting_sender()
    }

    /// Number of programs that have been brought onto the clock so far.
    pub fn entries(&self) -> u32 {
        self.clock.entries()
    }

    /// The registry of waits and timers.
    pub fn registry(&self) -> &Registry {
        self.clock.registry()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClockOptions, HostNow};

    fn open_files() -> usize {
        std::fs::read_dir("/proc/self/fd").unwrap().count()
    }

    #[test]
    fn clocks_are_held_without_descriptors() {
        let folder = tempfile::tempdir().unwrap();
        let settings = ClockOptions::default().settings(&HostNow::read().unwrap()).unwrap();
        let path = |number: usize| folder.path().join(number.to_string());
        let hold = |number| Clock::open(&path(number)).unwrap().hold();
        let before = open_files();
        let held: Vec<HeldClock> = (0..50)
            .map(|number| Clock::create(&path(number), &settings).unwrap().hold().unwrap())
            .collect();
        // Other tests open files at the same time, but fewer.
        assert!(open_files() < before + 40);
        let busy = |other: io::Result<HeldClock>| {
            other.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        };
        assert!((0..5).all(|number| busy(hold(number))));
        drop(held);
        assert!((0..50).all(|number| hold(number).is_ok()));
    }
}
