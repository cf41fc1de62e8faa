//! Changing a clock: the mapped file, its lock, and the threads that have to follow.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::time::Duration;

use lorentz_clock::{
    file, Change, ClockPage, Head, Pace, Policy, Rate, RealInstant, Registry, Segment, SkipMode,
    Skipping, Snapshot, Span, VirtualInstant, Waiter, WallTime, SETTLE,
};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{SigSet, SigmaskHow};

use crate::followers::{Followers, Moved};
use crate::numbers::Numbers;
use crate::options::clock_nanos;
use crate::processes::FileId;
use crate::{ClockSettings, HostNow};

/// An open clock. Any number of processes may have it open; one at a time changes it.
pub struct Clock {
    path: PathBuf,
    file: FileId,
    memory: NonNull<u8>,
    numbers: RefCell<Numbers>,
}

// SAFETY: the mapping belongs to the process, not to a thread; what lies in it is atomics.
unsafe impl Send for Clock {}

/// A consistent look: host and virtual side by side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reading {
    /// The host's CLOCK_MONOTONIC.
    pub real: RealInstant,
    /// The host's CLOCK_REALTIME.
    pub host_wall: WallTime,
    /// The host's CLOCK_BOOTTIME.
    pub host_boot: Span,
    /// The container's CLOCK_MONOTONIC.
    pub virt: VirtualInstant,
    /// The container's CLOCK_REALTIME.
    pub wall: WallTime,
    /// The container's CLOCK_BOOTTIME.
    pub boot: VirtualInstant,
    /// The rate in force, or to go on with while frozen.
    pub rate: Rate,
    /// Time stands still.
    pub frozen: bool,
    /// Virtual time shows nothing later.
    pub limit: Option<VirtualInstant>,
    /// The choices made when the clock was created.
    pub policy: Policy,
    /// How it goes about idle time.
    pub skipping: Skipping,
    /// How often it has leapt over idle time.
    pub leaps: i64,
    /// How much it has leapt over.
    pub leapt: Span,
    /// Waits under way.
    pub waits: usize,
    /// Timers that exist.
    pub timers: usize,
}

/// How much had to follow a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Followed {
    /// Waits told.
    pub waits: usize,
    /// Timers set again.
    pub timers: usize,
}

impl Clock {
    /// Makes a clock.
    ///
    /// # Errors
    ///
    /// A file system that refuses.
    pub fn create(path: &Path, settings: &ClockSettings) -> io::Result<Clock> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(path)?;
        file.set_len(file::LEN as u64)?;
        let clock = Clock::map(path, &file)?;
        let host = HostNow::read()?;
        let start = settings.segment(&host);
        clock.page().initialise(&start, settings.rate, settings.policy, host.wall_offset());
        if settings.skip != SkipMode::Off {
            clock.set_skipping(settings.skip, settings.read_cost)?;
        }
        Ok(clock)
    }

    /// Opens one.
    ///
    /// # Errors
    ///
    /// Where there is no file or it is no clock.
    pub fn open(path: &Path) -> io::Result<Clock> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let no_clock = || io::Error::new(io::ErrorKind::InvalidData, "not a clock");
        if file.metadata()?.len() != file::LEN as u64 {
            return Err(no_clock());
        }
        let clock = Clock::map(path, &file)?;
        let clock = clock.page().is_valid().then_some(clock).ok_or_else(no_clock)?;
        clock.end_broken_change()?;
        Ok(clock)
    }

    pub(crate) fn map(path: &Path, file: &File) -> io::Result<Clock> {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        let fd = file.as_raw_fd();
        // SAFETY: a fresh shared mapping of an open file.
        let mapped = unsafe { libc::mmap(std::ptr::null_mut(), file::LEN, access, kind, fd, 0) };
        match NonNull::new(mapped.cast()).filter(|_| mapped != libc::MAP_FAILED) {
            Some(memory) => Ok(Clock {
                path: path.to_path_buf(),
                file: FileId::of(path)?,
                memory,
                numbers: RefCell::default(),
            }),
            None => Err(io::Error::last_os_error()),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn page(&self) -> &ClockPage {
        // SAFETY: mapped as long as `self` lives; all of it is atomics.
        unsafe { self.memory.cast().as_ref() }
    }

    pub(crate) fn registry(&self) -> &Registry {
        // SAFETY: as above; the file is as long as both.
        unsafe { self.memory.add(file::REGISTRY_OFFSET).cast().as_ref() }
    }

    /// A consistent look.
    pub fn reading(&self) -> Reading {
        let host = HostNow::read().unwrap_or_default();
        let look = self.look();
        // The host's other clocks, at the very moment of the look.
        let since = look.real.since(host.real);
        let virt = look.now();
        let limited = look.limit != VirtualInstant::NEVER;
        Reading {
            real: look.real,
            host_wall: host.wall.plus(since),
            host_boot: Span(host.boot.0 + since.0),
            virt,
            wall: look.segment.wall_at(virt),
            boot: virt.plus(look.segment.boot),
            rate: self.page().rate(),
            frozen: look.segment.pace == Pace::Frozen,
            limit: limited.then_some(look.limit),
            policy: self.page().policy(),
            skipping: self.page().skipping(),
            leaps: self.registry().leaps.count(),
            leapt: self.registry().leaps.sum(),
            waits: self.registry().waiters().count(),
            timers: self.registry().timers().count(),
        }
    }

    /// What was chosen when the clock was made.
    pub fn policy(&self) -> Policy {
        self.page().policy()
    }

    /// The threads that wait, each as (process, thread), by their numbers here.
    pub fn waiting(&self) -> HashSet<(u32, u32)> {
        self.followers().waiting()
    }

    /// Whether time stands still.
    pub fn is_frozen(&self) -> bool {
        self.look().segment.pace == Pace::Frozen
    }

    /// The map in force, and the host's time at this look: all that is needed to say when the clock will show something.
    pub fn look(&self) -> Snapshot {
        self.page().look(&self.registry().leaps, host_now, |tries| {
            if tries > 64 {
                std::thread::yield_now();
            }
        })
    }

    /// What it showed when the host's monotonic clock showed `real`, exactly for its last changes; nothing where it was made
    /// later.
    pub fn virtual_of(&self, real: RealInstant) -> Option<VirtualInstant> {
        self.page().virtual_of(real)
    }

    /// Sets the rate; for a frozen clock, the one to go on with.
    ///
    /// # Errors
    ///
    /// Where the file is gone.
    pub fn dilate(&self, rate: Rate) -> io::Result<Followed> {
        self.change_and_settle(Moved::All, |segment, next_rate| {
            *next_rate = rate;
            if segment.pace != Pace::Frozen {
                segment.pace = Pace::Running(rate);
            }
        })
    }

    /// Stops time. The tasks go on; [`crate::freeze()`] stops them too.
    ///
    /// # Errors
    ///
    /// Where the file is gone.
    pub fn freeze(&self) -> io::Result<Followed> {
        self.change(Moved::All, |segment, _| segment.pace = Pace::Frozen)
    }

    /// Lets time go on. The tasks may still be stopped; [`crate::unfreeze()`] lets them go on too.
    ///
    /// # Errors
    ///
    /// Where the file is gone.
    pub fn unfreeze(&self) -> io::Result<Followed> {
        self.change(Moved::All, |segment, rate| segment.pace = Pace::Running(*rate))
    }

    /// Moves all clocks forward.
    ///
    /// # Errors
    ///
    /// Where the file is gone.
    pub fn leap(&self, by: Span) -> io::Result<Followed> {
        self.change_and_settle(Moved::All, |segment, _| segment.virt = segment.virt.plus(by))
    }

    /// Moves the wall clock alone.
    ///
    /// # Errors
    ///
    /// Where the file is gone.
    pub fn step(&self, by: Span) -> io::Result<Followed> {
        self.change_and_settle(Moved::Wall, |segment, _| segment.wall = segment.wall.plus(by))
    }

    /// Sets how the clock goes about idle time.
    ///
    /// # Errors
    ///
    /// Where the file is gone.
    pub fn set_skipping(&self, mode: SkipMode, read_cost: Span) -> io::Result<()> {
        let lock = self.lock()?;
        self.change_locked(Moved::All, |_, _, change| change.set_skipping(mode, read_cost));
        drop(lock);
        Ok(())
    }

    /// A change that has reached everybody when it returns; but for the tasks of a frozen container, which follow when
    /// they run again.
    fn change_and_settle(
        &self,
        moved: Moved,
        change: impl FnOnce(&mut Segment, &mut Rate),
    ) -> io::Result<Followed> {
        let followed = self.change(moved, change)?;
        if !self.is_frozen() {
            self.settle_after(moved);
        }
        Ok(followed)
    }

    /// Writes a new segment that begins now where the old one has come to, then tells who waits. `change` gets that
    /// segment and the rate to go on with.
    fn change(
        &self,
        moved: Moved,
        change: impl FnOnce(&mut Segment, &mut Rate),
    ) -> io::Result<Followed> {
        let _lock = self.lock()?;
        Ok(self.change_locked(moved, |segment, rate, _| change(segment, rate)))
    }

    /// Where a writer died in the middle of a change, readers wait for its end. It has changed nothing yet.
    fn end_broken_change(&self) -> io::Result<()> {
        const OFTEN: Duration = Duration::from_micros(100);
        let under_way = || self.page().sequence() & 1 != 0;
        while under_way() {
            // Whoever has the lock may be at it, and may keep it: an experiment does.
            if let Some(_lock) = self.try_lock()? {
                if under_way() {
                    self.change_locked(Moved::All, |_, _, _| ());
                }
            }
            std::thread::sleep(OFTEN);
        }
        Ok(())
    }

    fn try_lock(&self) -> io::Result<Option<(Flock<File>, SignalsBlocked)>> {
        let file = OpenOptions::new().write(true).open(&self.path)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Some((lock, SignalsBlocked::new()?))),
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => Ok(None),
            Err((_, error)) => Err(error.into()),
        }
    }

    /// The right to change the clock; until it is dropped no signal but SIGKILL ends this process.
    fn lock(&self) -> io::Result<(Flock<File>, SignalsBlocked)> {
        let file = OpenOptions::new().write(true).open(&self.path)?;
        let lock = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, e)| e)?;
        Ok((lock, SignalsBlocked::new()?))
    }

    fn change_locked(
        &self,
        moved: Moved,
        change: impl FnOnce(&mut Segment, &mut Rate, &Change),
    ) -> Followed {
        let page = self.page();
        let under_way = page.change();
        let followers = self.followers();
        if under_way.current().pace != Pace::Frozen {
            followers.hold_timers();
        }
        let settled = host_now().plus(SETTLE);
        while host_now() < settled {
            std::hint::spin_loop();
        }
        let mut segment = under_way.current();
        let real = host_now();
        segment.virt = segment.virtual_at(real).min(under_way.limit());
        segment.real = real;
        let mut rate = page.rate();
        change(&mut segment, &mut rate, &under_way);
        under_way.set_rate(rate);
        under_way.publish(&segment);
        followers.tell(moved)
    }

    /// Waits until all that was told of the last change has followed it, at most a tenth of a second: a stopped
    /// thread follows when it runs again.
    pub fn settle(&self) {
        self.settle_after(Moved::All);
    }

    fn settle_after(&self, moved: Moved) {
        self.followers().settle(moved);
    }

    pub(crate) fn followers(&self) -> Followers<'_> {
        self.followers_with(&[])
    }

    pub(crate) fn followers_with<'a>(&'a self, known: &'a [u32]) -> Followers<'a> {
        Followers {
            page: self.page(),
            registry: self.registry(),
            clock: &self.file,
            known,
            numbers: &self.numbers,
        }
    }

    /// Whether time runs, and so can leap.
    pub fn can_leap(&self) -> bool {
        self.look().segment.pace != Pace::Frozen
    }

    /// How it goes about idle time.
    pub fn skipping(&self) -> Skipping {
        self.page().skipping()
    }

    /// How many programs have been brought onto the clock so far.
    pub fn entries(&self) -> u32 {
        self.registry().population.entries()
    }

    /// Who has come so far.
    pub fn population(&self) -> Head {
        self.registry().population.head()
    }

    /// Whether [`Clock::vouch_alone`] would say something new.
    pub fn may_vouch(&self, head: Head) -> bool {
        self.policy().counts_births && !self.registry().population.is_vouched_for(head)
    }

    /// Vouches for the only thread on the clock, found alone after [`Clock::population`] was `head`: until somebody comes it
    /// leaps by itself.
    pub fn vouch_alone(&self, head: Head) {
        let mut waiting = self.registry().waiters().filter_map(Waiter::owner);
        if let (Some(alone), None) = (waiting.next(), waiting.next()) {
            self.registry().population.vouch(alone, head);
        }
    }

    /// Whether somebody on the clock waits who is not among the threads `known`.
    pub fn has_strangers(&self, known: &HashSet<u32>) -> bool {
        self.followers().has_strangers(known)
    }

    /// Whether anybody waits for a moment to come.
    pub fn has_deadlines(&self) -> bool {
        self.followers().earliest(&self.look()).is_some()
    }

    /// Leaps to the earliest deadline and wakes whose it is, if that is far enough to be worth it and `still` holds, asked
    /// as late as possible. The caller knows that all who could look at the clock sleep. `since` is as for
    /// [`Clock::tell_late`]; `known` are processes known to be on the clock.
    pub fn leap_to_next(
        &self,
        since: VirtualInstant,
        known: &[u32],
        still: impl FnOnce() -> bool,
    ) -> bool {
        /// Nearer ones come by themselves sooner than anything could be done about them.
        const WORTH_IT: Span = Span(50_000);
        let leaps = &self.registry().leaps;
        let (sum, look) = (leaps.sum(), self.look());
        let followers = self.followers_with(known);
        let Some(earliest) = followers.earliest(&look) else { return false };
        let target = earliest.min(look.limit);
        let ahead = look.real_at(target).since(look.real);
        if look.segment.pace == Pace::Frozen || ahead.0 < WORTH_IT.0 || !still() {
            return false;
        }
        // Time has gone on by a little meanwhile.
        let now = self.look();
        let by = target.since(now.now());
        if by.0 <= 0 || now.sequence != look.sequence || !leaps.leap(sum, by, now.real) {
            return false;
        }
        followers.tell_late(since, target, leaps.sum(), &now.after(by));
        true
    }

    /// Wakes those whose deadlines have come nearer by a leap than the kernel knows, and that come within `soon` of real
    /// time. `since` is the virtual instant that the last call returned; this one returns the next. `known` are processes
    /// known to be on the clock.
    pub fn tell_late(
        &self,
        since: VirtualInstant,
        known: &[u32],
        soon: Duration,
    ) -> VirtualInstant {
        let sum = self.registry().leaps.sum();
        let look = self.look();
        if look.segment.pace != Pace::Frozen && sum > Span::ZERO {
            let soon = RealInstant(look.real.0.saturating_add(soon.as_nanos() as i64));
            let until = look.segment.virtual_at(soon);
            self.followers_with(known).tell_late(since, until, sum, &look);
        }
        look.now()
    }
}

/// All signals are blocked in this thread as long as this lives.
struct SignalsBlocked(SigSet);

impl SignalsBlocked {
    fn new() -> io::Result<SignalsBlocked> {
        Ok(SignalsBlocked(SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK)?))
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        let _ = self.0.thread_set_mask();
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and nothing borrowed from it outlives `self`.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), file::LEN) };
    }
}

pub(crate) fn host_now() -> RealInstant {
    RealInstant(clock_nanos(libc::CLOCK_MONOTONIC).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClockOptions;

    /// Forgotten, a change is one whose writer was killed.
    #[test]
    fn whoever_opens_a_clock_ends_the_change_of_a_writer_that_died() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("clock");
        let host = HostNow::read().unwrap();
        let clock =
            Clock::create(&path, &ClockOptions::default().settings(&host).unwrap()).unwrap();
        clock.dilate("5".parse().unwrap()).unwrap();
        std::mem::forget(clock.page().change());
        assert_eq!(clock.page().sequence() & 1, 1);
        let reading = Clock::open(&path).unwrap().reading();
        assert_eq!((reading.rate, reading.frozen), ("5".parse().unwrap(), false));
    }
}
