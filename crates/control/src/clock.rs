//! An open clock: its file, mapped, and the times that it shows.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use lorentz_clock::{
    file, ClockPage, Pace, Piece, Policy, Rate, RealInstant, Registry, Skipping, Snapshot, Span,
    Timer, VirtualInstant, WallTime,
};

use crate::host_time;
use crate::notifier::{Notifier, Wait};
use crate::numbers::HostPids;
use crate::processes::{FileId, Thread};
use crate::signalled::Signalled;
use crate::{Cgroup, HostNow};

/// An open clock. Any number of processes may have it open; one at a time changes it.
pub struct Clock {
    path: PathBuf,
    file: FileId,
    memory: NonNull<u8>,
    numbers: RefCell<HostPids>,
    signalled: RefCell<Signalled>,
}

// SAFETY: the mapping belongs to the process and not to a thread, and contains only atomics.
unsafe impl Send for Clock {}

/// A consistent reading of the host's clocks and the container's.
#[derive(Clone, PartialEq, Eq, Debug)]
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
    /// The rate in force; while frozen, the rate after the freeze.
    pub rate: Rate,
    /// Whether time stands still.
    pub frozen: bool,
    /// The latest time that the clock may show; `None` without a limit.
    pub limit: Option<VirtualInstant>,
    /// The choices made when the clock was created.
    pub policy: Policy,
    /// How the clock treats idle time.
    pub skipping: Skipping,
    /// Number of leaps over idle time.
    pub leaps: i64,
    /// Virtual time that these leaps have skipped.
    pub leapt: Span,
    /// Number of waits under way.
    pub waits: usize,
    /// Number of timers that exist.
    pub timers: usize,
    /// Changes announced for later, the next one first.
    pub to_come: Vec<ToCome>,
}

/// A change announced for later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ToCome {
    /// The host's wall time at which it begins, to the millisecond, if nobody sets that clock until then.
    pub at: WallTime,
    /// Real time until then.
    pub left: Span,
    /// The rate from then on; if frozen, the rate after the freeze.
    pub rate: Rate,
    /// Whether time stands still from then on.
    pub frozen: bool,
    /// The span by which all clocks jump forward.
    pub leap: Span,
    /// The span by which the wall clock jumps in addition.
    pub step: Span,
}

impl Clock {
    /// Opens the clock at `path`.
    ///
    /// # Errors
    ///
    /// If there is no file, or the file is no clock.
    pub fn open(path: &Path) -> io::Result<Clock> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let no_clock = || io::Error::new(io::ErrorKind::InvalidData, "not a clock");
        if file.metadata()?.len() != file::LEN as u64 {
            return Err(no_clock());
        }
        let clock = Clock::map(path, &file)?;
        clock.page().is_valid().then_some(clock).ok_or_else(no_clock)
    }

    pub(crate) fn map(path: &Path, file: &File) -> io::Result<Clock> {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        let fd = file.as_raw_fd();
        // SAFETY: a new shared mapping of an open file.
        let mapped = unsafe { libc::mmap(std::ptr::null_mut(), file::LEN, access, kind, fd, 0) };
        let memory = NonNull::new(mapped.cast()).filter(|_| mapped != libc::MAP_FAILED);
        let memory = memory.ok_or_else(io::Error::last_os_error)?;
        // No read-ahead: where the file is on a disk, the first touch would fill the page cache with 2 MB of zeros.
        // SAFETY: the mapping just made. The call changes no memory.
        unsafe { libc::madvise(mapped, file::LEN, libc::MADV_RANDOM) };
        Ok(Clock {
            path: path.to_path_buf(),
            file: FileId::of(path)?,
            memory,
            numbers: RefCell::default(),
            signalled: RefCell::default(),
        })
    }

    /// The same clock, whose notifier searches `group` first for programs. Most of them are there.
    #[must_use]
    pub fn with_likely_group(self, group: Option<Cgroup>) -> Clock {
        self.numbers.replace(HostPids::with_likely_group(group));
        self
    }

    /// The path of its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn page(&self) -> &ClockPage {
        // SAFETY: the mapping lives as long as `self`, and contains only atomics.
        unsafe { self.memory.cast().as_ref() }
    }

    pub(crate) fn registry(&self) -> &Registry {
        // SAFETY: as above. The file is as long as the page and the registry.
        unsafe { self.memory.add(file::REGISTRY_OFFSET).cast().as_ref() }
    }

    /// Makes the clock of a restored container, perhaps of another host, go on by this host's: see
    /// [`lorentz_clock::ClockPage::rebase`]. The clock is frozen, and nobody else uses it.
    pub fn rebase(&self, by: Span) {
        if by != Span::ZERO {
            self.page().rebase(self.registry(), by);
        }
        self.registry().timers().for_each(Timer::note_signal_before);
    }

    /// Reads the clocks, all at one instant.
    pub fn reading(&self) -> Reading {
        self.reading_of(&self.look())
    }

    /// Returns the clocks as they will be when the host's CLOCK_MONOTONIC shows `real`, if only announced changes happen until
    /// then.
    pub fn reading_at(&self, real: RealInstant) -> Reading {
        let look = self.look();
        let piece = self.piece_at(real.max(look.real));
        let Piece { segment, limit, rate } = piece;
        self.reading_of(&Snapshot { segment, limit, rate, real: real.max(look.real), ..look })
    }

    /// Returns the piece in force at `real`, with leaps over idle time.
    pub(crate) fn piece_at(&self, real: RealInstant) -> Piece {
        let look = self.look();
        let registry = self.registry();
        let mut to_come = self.page().to_come(registry, &look);
        let then = to_come.find(|(piece, _)| piece.segment.real <= real);
        match then {
            None => look.piece(),
            Some((mut piece, _)) => {
                if self.page().leaps_enabled() {
                    piece.segment.virt = piece.segment.virt.plus(registry.leaps.sum());
                }
                piece
            }
        }
    }

    fn reading_of(&self, look: &Snapshot) -> Reading {
        let host = HostNow::read().unwrap_or_default();
        // The host's other clocks, computed for the moment of the look.
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
            rate: look.rate,
            frozen: look.segment.pace == Pace::Frozen,
            limit: limited.then_some(look.limit),
            policy: self.page().policy(),
            skipping: self.page().skipping(),
            leaps: self.registry().leaps.count(),
            leapt: self.registry().leaps.sum(),
            waits: self.registry().waiters().count(),
            timers: self.registry().timers().count(),
            to_come: self.to_come(look, host.wall.plus(since)),
        }
    }

    /// Returns the changes announced for after `look`. `host_wall` is the host's wall time at that look.
    fn to_come(&self, look: &Snapshot, host_wall: WallTime) -> Vec<ToCome> {
        let mut pieces: Vec<Piece> =
            self.page().to_come(self.registry(), look).map(|(piece, _)| piece).collect();
        pieces.reverse();
        let mut before = self.page().snapshot(self.registry(), &host_time::now).piece();
        let change = |piece: Piece| {
            let Piece { segment, rate, .. } = piece;
            let left = segment.real.since(look.real);
            let change = ToCome {
                at: to_millis(host_wall.plus(left)),
                left,
                rate,
                frozen: segment.pace == Pace::Frozen,
                leap: segment.virt.since(before.virtual_at(segment.real)),
                step: Span(lorentz_clock::saturate(
                    segment.wall.as_nanos() - before.segment.wall.as_nanos(),
                )),
            };
            before = piece;
            change
        };
        pieces.into_iter().map(change).collect()
    }

    /// The choices made when the clock was created.
    pub fn policy(&self) -> Policy {
        self.page().policy()
    }

    /// Returns the number of leaps over idle time, and the virtual time that they have skipped. It reads two words; a
    /// [`Reading`] also counts all waits and timers.
    pub fn leaps(&self) -> (i64, Span) {
        (self.registry().leaps.count(), self.registry().leaps.sum())
    }

    /// Returns the waits under way whose threads are found in this pid namespace.
    pub fn waits(&self) -> Vec<Wait> {
        self.notifier().all_waits(&self.look())
    }

    /// Returns the threads that wait.
    pub fn waiting_threads(&self) -> HashSet<Thread> {
        self.notifier().waiting_threads()
    }

    /// Whether time stands still.
    pub fn is_frozen(&self) -> bool {
        self.look().segment.pace == Pace::Frozen
    }

    /// Returns the piece in force and the host's time at this look. With it a caller can compute when the clock will show a time,
    /// until [`Snapshot::until`].
    pub fn look(&self) -> Snapshot {
        self.page().look(self.registry(), &host_time::now)
    }

    /// Returns virtual time when the host's monotonic clock showed `real`, exact for the last changes. `None` if the clock was made
    /// later.
    pub fn virtual_of(&self, real: RealInstant) -> Option<VirtualInstant> {
        self.page().virtual_of(self.registry(), real)
    }

    /// Whether the clock errs in an experiment, which moves it by the truth: at an instant of the experiment it shows a time of its own.
    pub fn shows_own_time(&self) -> bool {
        self.page().shows_own_time()
    }

    /// How the clock treats idle time.
    pub fn skipping(&self) -> Skipping {
        self.page().skipping()
    }

    pub(crate) fn notifier(&self) -> Notifier<'_> {
        self.notifier_with(&[])
    }

    pub(crate) fn notifier_with<'a>(&'a self, known: &'a [u32]) -> Notifier<'a> {
        Notifier {
            page: self.page(),
            registry: self.registry(),
            clock: &self.file,
            known,
            numbers: &self.numbers,
            signalled: &self.signalled,
        }
    }
}

/// Rounds to the nearest millisecond: two clocks of the host cannot be read at one instant.
fn to_millis(time: WallTime) -> WallTime {
    const MILLI: i128 = 1_000_000;
    WallTime::from_nanos((time.as_nanos() + MILLI / 2).div_euclid(MILLI) * MILLI)
}

impl Drop for Clock {
    fn drop(&mut self) {
        // SAFETY: `map` made the mapping, and no borrow from it outlives `self`.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), file::LEN) };
    }
}
