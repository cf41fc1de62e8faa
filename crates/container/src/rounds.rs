//! A clock that moves in rounds: one experiment holds it, and says how far it may go.
//!
//! Between rounds the clock stands at its limit, whatever its tasks do; nobody can see a later time, however late the tasks
//! are stopped. A round gives it a new piece, from where it stands to the round's end, and tells those whose deadlines lie
//! in that piece; the others need not know. As long as it is held nobody else changes it.
//!
//! No change here needs [`lorentz_clock::SETTLE`]. That is for a reader who takes the host's time a moment too late by
//! the old piece and would see more than a reader by the new one. Here the old piece ends at its limit, and the new one
//! begins there or later.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

use lorentz_clock::{Pace, Rate, Registry, Segment, Span, VirtualInstant, WallTime};

use crate::control::host_now;
use crate::followers::{BrokenOff, Moved};
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
    /// may end one in the midst of that.
    ///
    /// # Errors
    ///
    /// Where somebody else holds it (`WouldBlock`), or the file is gone.
    pub fn hold(self) -> io::Result<HeldClock> {
        let file = OpenOptions::new().read(true).write(true).open(self.path())?;
        // SAFETY: no memory is involved.
        match unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } {
            0 => Ok(HeldClock { clock: Clock::map(self.path(), &file)? }),
            _ => Err(io::Error::last_os_error()),
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
        self.clock.page().rate()
    }

    /// What the wall clock shows.
    pub fn wall(&self) -> WallTime {
        let look = self.clock.look();
        look.segment.wall_at(look.now())
    }

    /// Lets time stand still at `at`, earlier or later than it is. For a clock that no program has been on yet.
    pub fn begin_at(&self, at: VirtualInstant) {
        let change = self.clock.page().change();
        let begin = Segment { virt: at, real: host_now(), ..change.current() };
        change.set_limit(at);
        change.publish(&begin);
    }

    /// Lets time stand still at `at`, or where it is if that is later.
    pub fn stand(&self, at: VirtualInstant) {
        self.publish(at, at, None, None);
    }

    /// The same, with the wall clock showing `wall` then.
    pub fn stand_with_wall(&self, at: VirtualInstant, wall: WallTime) {
        self.publish(at, at, None, Some(wall));
    }

    /// Lets time run from `from`, or from where it is if that is later, until `to`, at `rate`.
    pub fn run(&self, from: VirtualInstant, to: VirtualInstant, rate: Rate) {
        self.publish(from, to, Some(rate), None);
    }

    /// Lets time run on without an end, at `rate`, and tells everybody.
    pub fn let_go(&self, rate: Rate) {
        self.publish(VirtualInstant(0), VirtualInstant::NEVER, Some(rate), None);
        self.clock.followers().tell(Moved::All);
    }

    fn publish(
        &self,
        from: VirtualInstant,
        to: VirtualInstant,
        rate: Option<Rate>,
        wall: Option<WallTime>,
    ) {
        let change = self.clock.page().change();
        let mut segment = change.current();
        let real = host_now();
        let now = segment.virtual_at(real).min(change.limit());
        segment.virt = now.max(from);
        segment.real = real;
        segment.pace = Pace::Running(rate.unwrap_or_else(|| self.clock.page().rate()));
        if let Some(wall) = wall {
            let shown = segment.wall_at(segment.virt);
            let ahead = wall.as_nanos() - shown.as_nanos();
            segment.wall = WallTime::from_nanos(segment.wall.as_nanos() + ahead);
        }
        change.set_limit(to.max(segment.virt));
        if let Some(rate) = rate {
            change.set_rate(rate);
        }
        change.publish(&segment);
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
        self.clock.registry().in_line.load(Ordering::Relaxed) > 0
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
        assert!((0..50).all(|number| busy(hold(number))));
        drop(held);
        assert!((0..50).all(|number| hold(number).is_ok()));
    }
}
