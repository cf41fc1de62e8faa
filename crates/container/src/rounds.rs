//! A clock that moves in rounds: one experiment holds it, and says how far it may go.
//!
//! Between rounds the clock stands at its limit, whatever its tasks do; nobody can see a later time, however late the tasks
//! are stopped. A round gives it a new piece, from where it stands to the round's end, and tells those whose deadlines lie
//! in that piece; the others need not know. As long as it is held nobody else changes it.
//!
//! A change here makes no deadline later: the old piece ends at its limit, and the new one begins there or later. So it begins at
//! once, whatever timers are set.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use lorentz_clock::{Change, Pace, Piece, Rate, Registry, Span, VirtualInstant, WallTime};

use crate::followers::{BrokenOff, Moved};
use crate::host_time::{self, sleep, Moment};
use crate::Clock;

/// A clock that only its holder changes.
///
/// Its mapping keeps the locked file open, and with it the lock: a descriptor for each would be more than a process may have
/// open, where an experiment is large.
pub struct HeldClock {
    clock: Clock,
}

impl Clock {
    /// Holds this clock until the result is dropped. Signals must be blocked in every thread that changes it: only SIGKILL
    /// may end one in the midst of that. A command that changes it at this moment is waited for.
    ///
    /// # Errors
    ///
    /// Where somebody else holds it (`WouldBlock`), or the file is gone.
    pub fn hold(self) -> io::Result<HeldClock> {
        /// A change takes some 10 us, and 2 ms where it waits for timers.
        const PATIENCE: Duration = Duration::from_millis(100);
        const RETRY_INTERVAL: Duration = Duration::from_micros(200);
        let file = OpenOptions::new().read(true).write(true).open(self.path())?;
        let begun = Moment::now();
        loop {
            // SAFETY: no memory is involved.
            match unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } {
                0 => return Ok(HeldClock { clock: Clock::map(self.path(), &file)? }),
                _ if begun.elapsed() > PATIENCE => return Err(io::ErrorKind::WouldBlock.into()),
                _ => sleep(RETRY_INTERVAL),
            }
        }
    }
}

impl HeldClock {
    /// Virtual time now.
    pub fn now(&self) -> VirtualInstant {
        self.clock.look().now()
    }

    /// The rate in force.
    pub fn rate(&self) -> Rate {
        self.clock.look().rate
    }

    /// What the wall clock shows.
    pub fn wall(&self) -> WallTime {
        let look = self.clock.look();
        look.segment.wall_at(look.now())
    }

    /// Lets time stand still at `at`, earlier or later than it is. For a clock that no program has been on yet.
    pub fn begin_at(&self, at: VirtualInstant) {
        /// Wherever it stands: before `at`.
        const FAR_BACK: Span = Span(i64::MIN / 2);
        self.publish(|_, change| (change.leap, change.floor, change.limit) = (FAR_BACK, at, at));
    }

    /// Lets time stand still at `at`, or where it is if that is later.
    pub fn stand(&self, at: VirtualInstant) {
        self.publish(|_, change| (change.floor, change.limit) = (at, at));
    }

    /// The same, with the wall clock showing `wall` then.
    pub fn stand_with_wall(&self, at: VirtualInstant, wall: WallTime) {
        self.publish(|now, change| {
            (change.floor, change.limit) = (at, at);
            change.wall = WallTime::from_nanos(wall.as_nanos() - i128::from(now.max(at).0));
        });
    }

    /// Lets time run from `from`, or from where it is if that is later, until `to`, at `rate`.
    pub fn run(&self, from: VirtualInstant, to: VirtualInstant, rate: Rate) {
        self.publish(|_, change| {
            (change.floor, change.limit) = (from, to);
            (change.pace, change.rate) = (Pace::Running(rate), rate);
        });
    }

    /// Lets time run on without an end, at `rate`, and tells everybody.
    pub fn let_go(&self, rate: Rate) {
        self.run(VirtualInstant(i64::MIN), VirtualInstant::NEVER, rate);
        self.clock.followers().tell(Moved::All);
    }

    /// Publishes a piece that goes on where the last one has come to. `change` gets that and the piece. A piece runs, at its rate,
    /// unless it is told otherwise; its limit is at least where it begins.
    fn publish(&self, change: impl FnOnce(VirtualInstant, &mut Change)) {
        let (page, registry) = (self.clock.page(), self.clock.registry());
        let look = page.snapshot(registry, &host_time::now);
        let Piece { rate, .. } = look.piece();
        let mut new = Change { pace: Pace::Running(rate), ..Change::of(&look.piece()) };
        change(look.now(), &mut new);
        // One that begins at once always has room.
        if let Ok(published) = page.publish(registry, &host_time::now, &new) {
            // Who holds the clock tells those whose deadlines come.
            page.set_notified(published.state);
        }
    }

    /// The real nanoseconds until the clock stands at its limit; 0 where it does.
    pub fn until_limit(&self) -> Span {
        let look = self.clock.look();
        Span(look.real_at(look.limit).since(look.real).0.max(0))
    }

    /// The real nanoseconds since the clock came to its limit; 0 where it has not.
    pub fn since_limit(&self) -> Span {
        let look = self.clock.look();
        Span(look.real.since(look.real_at(look.limit)).0.max(0))
    }

    /// The next instant that somebody waits for and that has not come, to whoever knows that all tasks sleep.
    pub fn next_deadline(&self) -> Option<VirtualInstant> {
        let look = self.clock.look();
        self.clock.followers().next_after(look.now(), &look)
    }

    /// Tells those whose deadlines come before the limit and who do not know it yet. `known` are the processes known to be
    /// on the clock.
    pub fn tell_due(&self, known: &[u32]) {
        let look = self.clock.look();
        self.clock.followers_with(known).tell_due(look.limit, &look);
    }

    /// Tells those who wait for something after `since` that has come by `until`; false where there are none. They may know,
    /// and be about to wake.
    pub fn tell_between(
        &self,
        since: VirtualInstant,
        until: VirtualInstant,
        known: &[u32],
    ) -> bool {
        let look = self.clock.look();
        self.clock.followers_with(known).tell_between(since, until, &look)
    }

    /// Whether somebody is still in a wait that has ended after `since`: about to leave it, or gone from it by a jump.
    pub fn is_overdue(&self, since: VirtualInstant) -> bool {
        let look = self.clock.look();
        self.clock.followers().is_overdue(since, look.now(), &look)
    }

    /// Tells everybody who waits.
    pub fn tell_all(&self, known: &[u32]) {
        self.clock.followers_with(known).tell(Moved::All);
    }

    /// Has the calls made again that stopping the tasks of processes `pids` has broken off, when they run. To be called when
    /// all of them have stopped: a stopped thread tells in which call it was.
    pub fn repeat_broken_off(&self, pids: &[u32]) {
        BrokenOff::look(pids, &self.clock.waiting()).tell();
    }

    /// Begins a turn: all other clocks have come as far as `others`, and what its programs have to send until then is sent.
    /// Returns how many threads have waited for that.
    pub fn set_turn(&self, others: VirtualInstant) -> usize {
        const FUTEX_WAKE: i32 = 1;
        let page = self.clock.page();
        page.set_turn(others);
        // SAFETY: wakes who waits for the word; nothing is written.
        let woken = unsafe {
            libc::syscall(libc::SYS_futex, page.turn_word().as_ptr(), FUTEX_WAKE, i32::MAX)
        };
        usize::try_from(woken).unwrap_or(0)
    }

    /// Whether a thread waits for its turn to send, to whoever knows that all tasks sleep.
    pub fn is_in_line(&self) -> bool {
        self.clock.followers().is_in_line()
    }

    /// Programs brought onto the clock so far.
    pub fn entries(&self) -> u32 {
        self.clock.entries()
    }

    /// The table of who waits.
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
        // Other tests open files meanwhile, but not as many.
        assert!(open_files() < before + 40);
        let busy = |other: io::Result<HeldClock>| {
            other.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        };
        assert!((0..5).all(|number| busy(hold(number))));
        drop(held);
        assert!((0..50).all(|number| hold(number).is_ok()));
    }
}
