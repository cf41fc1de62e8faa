//! Times that the kernel has written down: on files, on messages. From the host's wall time to the container's and back.

use crate::clocks;
use crate::layout::{clock, registry};
use crate::sys::{clk, sys, Sysno, Timespec};
use lorentz_clock::{saturate, RealInstant, Span, WallTime, NANOS_PER_SEC};

/// The host's wall clock may be set while containers run; by less than this it is not believed to have been.
const HOST_STEP: i128 = 10_000_000;

/// What the host's wall clock is ahead of its monotonic clock. As it was when the clock was made, to the nanosecond, so
/// that a time written and read back is the same, unless the host's wall clock has been set since.
fn host_wall_ahead() -> i128 {
    let known = clock().host_wall().as_nanos();
    let wall = crate::sys::host_clock(clk::REALTIME);
    let sampled =
        wall.secs as i128 * NANOS_PER_SEC as i128 + wall.nanos as i128 - clocks::host().0 as i128;
    if (sampled - known).abs() < HOST_STEP {
        known
    } else {
        within_a_tick().unwrap_or(sampled)
    }
}

/// The same to the nanosecond: within a tick the coarse clocks stand still.
fn within_a_tick() -> Option<i128> {
    let coarse = |clock| {
        let time = crate::sys::host_clock(clock);
        time.secs as i128 * NANOS_PER_SEC as i128 + time.nanos as i128
    };
    let before = coarse(clk::MONOTONIC_COARSE);
    let wall = coarse(clk::REALTIME_COARSE);
    (before == coarse(clk::MONOTONIC_COARSE)).then_some(wall - before)
}

/// Draws a line between files written before and after: the kernel stamps files by its last tick, but none written from now on
/// with less than this instant. On Linux 6.13 and later, none written before with this instant or more: there a stamp that was
/// looked at is followed by a finer one. None where no file can be made to ask with.
///
/// The thread is the only one of its process: another's next file descriptor would have another number.
pub fn draw_line() -> Option<RealInstant> {
    const CLOEXEC: u64 = 1;
    // SAFETY: a name that lasts.
    let file = unsafe { sys!(Sysno::memfd_create, c"stamp".as_ptr() as u64, CLOEXEC) };
    if file < 0 {
        return None;
    }
    /// struct stat, in words.
    const WORDS: usize = 18;
    const MODIFIED: usize = 11;
    let mut stat = [0i64; WORDS];
    // SAFETY: our own file, and room for struct stat.
    let result = unsafe {
        sys!(Sysno::fstat, file, stat.as_mut_ptr() as u64);
        sys!(Sysno::utimensat, file, 0u64, 0u64, 0u64);
        let result = sys!(Sysno::fstat, file, stat.as_mut_ptr() as u64);
        sys!(Sysno::close, file);
        result
    };
    let stamp = Timespec { secs: stat[MODIFIED], nanos: stat[MODIFIED + 1] };
    (result == 0).then(|| to_real(stamp))
}

fn to_real(stamp: Timespec) -> RealInstant {
    let nanos = stamp.secs as i128 * NANOS_PER_SEC as i128 + stamp.nanos as i128;
    RealInstant(saturate(nanos - host_wall_ahead()))
}

/// A time by the host's wall clock, as the container's wall clock had it then.
pub fn to_virtual(stamp: Timespec) -> Timespec {
    let real = to_real(stamp);
    let wall = clock().wall_of_file(registry(), real, clocks::host());
    let wall = match clock().leaps() {
        true => wall.plus(registry().leaps.at(real)),
        false => wall,
    };
    Timespec { secs: wall.secs, nanos: wall.nanos as i64 }
}

/// The inverse.
pub fn to_host(stamp: Timespec) -> Timespec {
    let inside = WallTime { secs: stamp.secs, nanos: stamp.nanos as u32 };
    let real = if clock().leaps() {
        registry().leaps.real_of(|sum| clock().real_of(registry(), inside.plus(Span(-sum.0))))
    } else {
        clock().real_of(registry(), inside)
    };
    let wall = WallTime::from_nanos(real.0 as i128 + host_wall_ahead());
    Timespec { secs: wall.secs, nanos: wall.nanos as i64 }
}

/// Translates the stamps among the control data of a message that the kernel has just received. `at` is its msghdr.
pub fn translate_message(at: u64) {
    const CONTROL: usize = 4;
    const CONTROL_LEN: usize = 5;
    const HEADER: usize = 16;
    const SOL_SOCKET: i32 = 1;
    // SAFETY: the kernel has just read the msghdr, and written its control data and their length. Other threads of the program may
    // write there: no reference is made of it.
    let (mut data, mut left) = unsafe {
        let words = at as *const u64;
        let word = |index| words.add(index).read_unaligned();
        (word(CONTROL) as *mut u8, word(CONTROL_LEN) as usize)
    };
    while !data.is_null() && left >= HEADER {
        // SAFETY: a header lies within the control data.
        let [len, _, level, kind] = unsafe { data.cast::<[i32; 4]>().read_unaligned() };
        let len = len as usize;
        if len < HEADER || len > left {
            return;
        }
        if level == SOL_SOCKET {
            // SAFETY: `len` bytes are left of the control data.
            unsafe { translate_stamps(kind, data.add(HEADER), len - HEADER) };
        }
        let step = len.div_ceil(8) * 8;
        if step >= left {
            return;
        }
        left -= step;
        // SAFETY: within the control data.
        data = unsafe { data.add(step) };
    }
}

/// SO_TIMESTAMP holds a timeval, SO_TIMESTAMPNS a timespec, SO_TIMESTAMPING three, of which the first is the system's.
///
/// # Safety
/// `len` bytes at `data` must be readable and writable.
unsafe fn translate_stamps(kind: i32, data: *mut u8, len: usize) {
    let unit = match kind {
        29 | 63 => 1000,
        35 | 64 | 37 | 65 => 1,
        _ => return,
    };
    if len < size_of::<Timespec>() {
        return;
    }
    let at = data as *mut Timespec;
    // SAFETY: the caller's promise.
    unsafe {
        let value = at.read_unaligned();
        if value != Timespec::default() {
            let told = to_virtual(Timespec { secs: value.secs, nanos: value.nanos * unit });
            at.write_unaligned(Timespec { secs: told.secs, nanos: told.nanos / unit });
        }
    }
}
