//! The host's clocks and waits, also for a command that itself runs in virtual time.
//!
//! A controller measures a change by the host's clocks, and waits in the host's time. A `lorentz` command inside a container would
//! read the very clock that it changes. There this module makes the calls through the shim's image, from which the seccomp filter
//! allows them. No other code of this crate reads a clock or sleeps (`clippy.toml` enforces this).

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use lorentz_clock::{file, RealInstant, Span, WallTime, MAGIC, NANOS_PER_SEC};

/// A moment of the host's CLOCK_MONOTONIC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct HostMoment(RealInstant);

impl HostMoment {
    /// The present moment.
    pub fn now() -> HostMoment {
        HostMoment(now())
    }

    /// Real time since this moment.
    pub fn elapsed(self) -> Duration {
        Duration::from_nanos(now().since(self.0).0.max(0) as u64)
    }

    /// Real time from `real` until this moment; 0 if `real` is later.
    pub fn since(self, real: RealInstant) -> Duration {
        Duration::from_nanos(self.0.since(real).0.max(0) as u64)
    }

    /// The moment that is `time` later.
    #[must_use]
    pub fn after(self, time: Duration) -> HostMoment {
        HostMoment(RealInstant(
            self.0 .0.saturating_add(time.as_nanos().min(i64::MAX as u128) as i64),
        ))
    }
}

/// Reads the host's CLOCK_MONOTONIC.
pub fn now() -> RealInstant {
    RealInstant(clock_nanos(libc::CLOCK_MONOTONIC).unwrap_or(0))
}

/// Reads a clock of the host, in nanoseconds.
///
/// # Errors
///
/// If the kernel has no such clock.
pub fn clock_nanos(clock: libc::clockid_t) -> io::Result<i64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // Computed before the clock is read, so that nothing slow comes between the reads of two clocks that belong together.
    let ahead = ahead(clock);
    match shim_call() {
        // SAFETY: `time` is valid for the kernel to write.
        None => match unsafe { libc::clock_gettime(clock, &mut time) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        },
        Some(_) => {
            let args = [clock as u64, &raw mut time as u64, 0, 0];
            // SAFETY: as above.
            unsafe { host_call(libc::SYS_clock_gettime, args) }.map(drop)
        }
    }?;
    Ok(time.tv_sec * NANOS_PER_SEC + time.tv_nsec - ahead)
}

/// By how many nanoseconds a clock is ahead of the monitor's: a process in virtual time may be in another time namespace. 0 in a
/// process in real time.
fn ahead(clock: libc::clockid_t) -> i64 {
    // The look that finds the shim reads the offsets too. A process enters no time namespace after its start.
    if !is_virtual() {
        return 0;
    }
    let [monotonic, boot] = [0, 1].map(|i: usize| AHEAD[i].load(Ordering::Relaxed));
    match clock {
        libc::CLOCK_MONOTONIC | libc::CLOCK_MONOTONIC_COARSE | libc::CLOCK_MONOTONIC_RAW => {
            monotonic
        }
        libc::CLOCK_BOOTTIME => boot,
        _ => 0,
    }
}

/// Returns the offset from the host's CLOCK_MONOTONIC to its CLOCK_REALTIME, exact to the nanosecond. `None` if in 100 tries no two
/// readings fell into one tick.
pub fn wall_ahead() -> Option<WallTime> {
    const MAX_TRIES: u32 = 100;
    (0..MAX_TRIES).find_map(|_| {
        // Within a tick the coarse clocks stand still.
        let before = clock_nanos(libc::CLOCK_MONOTONIC_COARSE).ok()?;
        let wall = clock_nanos(libc::CLOCK_REALTIME_COARSE).ok()?;
        let after = clock_nanos(libc::CLOCK_MONOTONIC_COARSE).ok()?;
        (before == after).then(|| WallTime::from_nanos(i128::from(wall) - i128::from(before)))
    })
}

/// Returns the offset from the host's CLOCK_MONOTONIC to its CLOCK_BOOTTIME, nanoseconds: the time for which it was suspended.
fn boot_ahead() -> io::Result<i64> {
    const TRIES: u32 = 5;
    // Each reading lies between two of the other clock.
    let (mut least, mut most) = (i64::MIN, i64::MAX);
    for _ in 0..TRIES {
        let before = clock_nanos(libc::CLOCK_MONOTONIC)?;
        let boot = clock_nanos(libc::CLOCK_BOOTTIME)?;
        let after = clock_nanos(libc::CLOCK_MONOTONIC)?;
        (least, most) = (least.max(boot - after), most.min(boot - before));
    }
    let is_possible = |ahead: &i64| (least..=most).contains(ahead);
    let exact = Some(0).filter(is_possible).or_else(|| kernel_boot_ahead().filter(is_possible));
    Ok(exact.unwrap_or(least.midpoint(most)))
}

/// Reads the offset of CLOCK_BOOTTIME in the kernel's list of timers, for root alone.
fn kernel_boot_ahead() -> Option<i64> {
    boot_ahead_of(&std::fs::read_to_string("/proc/timer_list").ok()?)
}

/// Finds the offset of CLOCK_BOOTTIME in the text of /proc/timer_list.
fn boot_ahead_of(timers: &str) -> Option<i64> {
    // The kernel's HRTIMER_BASE_BOOTTIME.
    let (_, base) = timers.split_once(" clock 2:")?;
    let (_, offset) = base.split_once(".offset:")?;
    offset.split_whitespace().next()?.parse().ok()
}

/// The host's clocks at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HostNow {
    /// CLOCK_MONOTONIC.
    pub real: RealInstant,
    /// CLOCK_REALTIME.
    pub wall: WallTime,
    /// CLOCK_BOOTTIME.
    pub boot: Span,
}

impl HostNow {
    /// Returns CLOCK_MONOTONIC at the time when CLOCK_REALTIME will show `wall`, if nobody sets it until then. `None` if that is
    /// beyond the range of CLOCK_MONOTONIC.
    pub fn real_at(&self, wall: WallTime) -> Option<RealInstant> {
        let ahead = wall.as_nanos() - self.wall.as_nanos();
        i64::try_from(i128::from(self.real.0) + ahead).ok().map(RealInstant)
    }

    /// Reads the clocks. The three times belong together to the nanosecond; CLOCK_BOOTTIME within some tens of nanoseconds if the
    /// host has been suspended and this process may not read /proc/timer_list. The first reading is slow, because the kernel reads
    /// in its code.
    ///
    /// # Errors
    ///
    /// If the kernel has no such clock.
    pub fn read() -> io::Result<HostNow> {
        let boot_ahead = boot_ahead()?;
        let wall_ahead = wall_ahead();
        let real = RealInstant(clock_nanos(libc::CLOCK_MONOTONIC)?);
        let wall = match wall_ahead {
            Some(ahead) => WallTime::from_nanos(i128::from(real.0) + ahead.as_nanos()),
            None => WallTime::from_nanos(clock_nanos(libc::CLOCK_REALTIME)?.into()),
        };
        Ok(HostNow { real, wall, boot: Span(real.0 + boot_ahead) })
    }

    /// The span by which the host's wall clock is ahead of its CLOCK_MONOTONIC.
    pub fn wall_offset(&self) -> WallTime {
        WallTime::from_nanos(self.wall.as_nanos() - i128::from(self.real.0))
    }
}

/// Sleeps for `time` of real time.
pub fn sleep(time: Duration) {
    sleep_until(HostMoment::now().after(time).0);
}

/// Sleeps until the host's CLOCK_MONOTONIC shows `until`.
pub fn sleep_until(until: RealInstant) {
    let until = RealInstant(until.0.saturating_add(ahead(libc::CLOCK_MONOTONIC)));
    let at = libc::timespec {
        tv_sec: until.0.max(0) / NANOS_PER_SEC,
        tv_nsec: until.0.max(0) % NANOS_PER_SEC,
    };
    let (clock, absolute) = (libc::CLOCK_MONOTONIC as u64, libc::TIMER_ABSTIME as u64);
    loop {
        let args = [clock, absolute, &raw const at as u64, 0];
        // SAFETY: `at` is valid for the kernel to read.
        let slept = unsafe { host_call(libc::SYS_clock_nanosleep, args) };
        if !slept.is_err_and(|error| error.kind() == io::ErrorKind::Interrupted) {
            return;
        }
    }
}

/// Reads a file as the host's kernel gives it. Inside a container the shim would make the times in files of /proc virtual.
///
/// # Errors
///
/// The kernel's.
pub fn read_file(path: &str) -> io::Result<Vec<u8>> {
    let name = CString::new(path)?;
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as u64;
    let args = [libc::AT_FDCWD as u64, name.as_ptr() as u64, flags, 0];
    // SAFETY: the path ends in a zero byte. The descriptor is new, and belongs to nobody else.
    let mut file = unsafe {
        let fd = host_call(libc::SYS_openat, args)?;
        File::from_raw_fd(fd as i32)
    };
    // Files of /proc have length 0 for stat(2). Room at the start saves small reads.
    let mut content = Vec::with_capacity(1024);
    file.read_to_end(&mut content)?;
    Ok(content)
}

/// Makes a system call of the host's kernel, also in a process that runs in virtual time.
///
/// # Errors
///
/// The kernel's.
///
/// # Safety
///
/// As for the call.
pub(crate) unsafe fn host_call(number: libc::c_long, args: [u64; 4]) -> io::Result<i64> {
    let [a, b, c, d] = args;
    match shim_call() {
        // SAFETY: the caller's promise.
        None => match unsafe { libc::syscall(number, a, b, c, d) } {
            -1 => Err(io::Error::last_os_error()),
            result => Ok(result),
        },
        // SAFETY: the caller's promise.
        Some(call) => match unsafe { call(number as u32, &[a, b, c, d, 0, 0]) } {
            error @ -4095..0 => Err(io::Error::from_raw_os_error(-error as i32)),
            result => Ok(result as i64),
        },
    }
}

/// Whether this process runs in virtual time.
pub fn is_virtual() -> bool {
    shim_call().is_some()
}

type HostCall = unsafe extern "C" fn(u32, *const [u64; 6]) -> isize;

/// Returns the shim's function that makes a system call unchanged; `None` in a process that runs in real time. It is also `None` in
/// a process on a clock of another version of Lorentz, where the address is not known. There the clock's file is not known either,
/// and no clock is changed.
fn shim_call() -> Option<HostCall> {
    let address = match HOST_CALL.load(Ordering::Acquire) {
        NOT_LOOKED_FOR => look_for_shim(),
        known => known,
    };
    // SAFETY: the shim's boot code has stored the address of its function there.
    (address != REAL_TIME).then(|| unsafe { std::mem::transmute::<usize, HostCall>(address) })
}

/// Looks for the shim again. A process that came onto a clock after its first look calls this: without it, this module would go on
/// as in real time.
pub fn look_again() {
    HOST_CALL.store(NOT_LOOKED_FOR, Ordering::Release);
}

/// Address of the shim's function that makes a system call unchanged, or one of the two values below.
static HOST_CALL: AtomicUsize = AtomicUsize::new(NOT_LOOKED_FOR);
const NOT_LOOKED_FOR: usize = 0;
const REAL_TIME: usize = 1;

/// Offsets of CLOCK_MONOTONIC and CLOCK_BOOTTIME from the monitor's to this process's, ns. Valid in virtual time.
static AHEAD: [AtomicI64; 2] = [const { AtomicI64::new(0) }; 2];

/// Finds the shim's function and the offsets, and keeps them. Returns the value of [`HOST_CALL`].
fn look_for_shim() -> usize {
    let is_ours = word_at(file::PAGE_ADDRESS) == Some(MAGIC);
    let address = is_ours.then(|| word_at(file::HOST_CALL_ADDRESS)).flatten();
    let address = address.map_or(REAL_TIME, |address| address as usize);
    if address != REAL_TIME {
        for (i, ahead) in AHEAD.iter().enumerate() {
            let word = word_at(file::TIME_OFFSETS_ADDRESS + 8 * i).unwrap_or(0);
            ahead.store(word as i64, Ordering::Relaxed);
        }
    }
    HOST_CALL.store(address, Ordering::Release);
    address
}

/// Reads the word at `address` of this process. `None` if nothing is mapped there.
fn word_at(address: usize) -> Option<u64> {
    let mut word = 0u64;
    let local = libc::iovec { iov_base: (&raw mut word).cast(), iov_len: 8 };
    let remote = libc::iovec { iov_base: address as *mut _, iov_len: 8 };
    // SAFETY: the kernel writes at most eight bytes to `word`, and fails where nothing is mapped to read from.
    let copied = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    (copied == 8).then_some(word)
}

/// Reads what the kernel says of the host's clock by adjtimex(2): the bound of its error, its status, TAI. On a clock it is the
/// container's.
///
/// # Errors
///
/// The kernel's.
pub fn kernel_clock_state() -> io::Result<libc::timex> {
    // SAFETY: all zeroes is a valid timex that changes nothing, and adjtimex fills it.
    let (result, state) = unsafe {
        let mut state: libc::timex = std::mem::zeroed();
        (libc::adjtimex(&mut state), state)
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_times_belong_together() {
        let offsets = |now: HostNow| (now.wall_offset(), now.boot.0 - now.real.0);
        let first = offsets(HostNow::read().unwrap());
        for _ in 0..1000 {
            assert_eq!(offsets(HostNow::read().unwrap()), first);
        }
    }

    #[test]
    fn the_kernel_tells_how_long_the_host_was_suspended() {
        let base = |number, offset| {
            format!(" clock {number}:\n  .base:       0000000098\n  .index:      {number}\n  .offset:     {offset} nsecs\n")
        };
        let text =
            format!("cpu: 0\n{}{}{}", base(0, 0), base(1, 17), base(2, 3_600_000_000_123_i64));
        assert_eq!(boot_ahead_of(&text), Some(3_600_000_000_123));
        assert_eq!(boot_ahead_of("cpu: 0\n"), None);
    }
}
