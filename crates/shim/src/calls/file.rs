//! Times of files, and the files that tell the time.

use crate::clocks;
use crate::filter::Extra;
use crate::noted;
use crate::stamps;
use crate::sys::{clk, errno, nr, sys, Itimerspec, Timespec};
use crate::trap::Call;
use crate::user;
use crate::wait::Masking;

/// The stat family: the kernel's answer with its times translated.
pub fn stat(call: &Call) -> isize {
    let result = call.by_kernel();
    if result != 0 {
        return result;
    }
    const STAT_TIMES: [u64; 3] = [72, 88, 104];
    const STATX_TIMES: [u64; 4] = [64, 80, 96, 112];
    match call.nr {
        nr::STATX => STATX_TIMES.iter().for_each(|at| translate_statx(call.args[4] + at)),
        nr::NEWFSTATAT => STAT_TIMES.iter().for_each(|at| translate(call.args[2] + at)),
        _ => STAT_TIMES.iter().for_each(|at| translate(call.args[1] + at)),
    }
    0
}

fn translate(at: u64) {
    let at = at as *mut Timespec;
    // SAFETY: within the structure that the kernel has just written.
    unsafe { at.write_unaligned(stamps::to_virtual(at.read_unaligned())) };
}

/// struct statx_timestamp: seconds, 32 bits of nanoseconds, padding. All zero where the file system has none.
fn translate_statx(at: u64) {
    // SAFETY: within the structure that the kernel has just written.
    unsafe {
        let (secs, nanos) = (at as *mut i64, (at + 8) as *mut u32);
        let stamp = Timespec { secs: secs.read_unaligned(), nanos: nanos.read_unaligned() as i64 };
        if stamp != Timespec::default() {
            let told = stamps::to_virtual(stamp);
            secs.write_unaligned(told.secs);
            nanos.write_unaligned(told.nanos as u32);
        }
    }
}

/// The utime family with explicit times: all as utimensat, which can say nanoseconds.
pub fn set_times(call: &Call) -> isize {
    const AT_FDCWD: u64 = -100i64 as u64;
    let (dir, path, at, flags) = match call.nr {
        nr::UTIMENSAT => (call.args[0], call.args[1], call.args[2], call.args[3]),
        nr::FUTIMESAT => (call.args[0], call.args[1], call.args[2], 0),
        _ => (AT_FDCWD, call.args[0], call.args[1], 0),
    };
    let times = match read_times(call.nr, at) {
        Ok(times) => times,
        Err(error) => return error,
    };
    let host = times.map(to_host);
    // SAFETY: the program's own call, with our copy of the times.
    unsafe { sys!(nr::UTIMENSAT, dir, path, host.as_ptr(), flags) }
}

fn read_times(nr: u32, at: u64) -> Result<[Timespec; 2], isize> {
    if nr == nr::UTIME {
        let pair = user::read_timespec(at)?;
        return Ok([pair.secs, pair.nanos].map(|secs| Timespec { secs, nanos: 0 }));
    }
    let Itimerspec { interval: access, value: modification } = user::read_itimer(at)?;
    let times = [access, modification];
    if nr == nr::UTIMENSAT {
        return Ok(times);
    }
    if times.iter().any(|tv| !(0..1_000_000).contains(&tv.nanos)) {
        return Err(-errno::EINVAL);
    }
    Ok(times.map(|tv| Timespec { secs: tv.secs, nanos: tv.nanos * 1000 }))
}

/// UTIME_NOW, UTIME_OMIT and what is invalid are left to the kernel.
fn to_host(time: Timespec) -> Timespec {
    if (0..lorentz_clock::NANOS_PER_SEC).contains(&time.nanos) {
        stamps::to_host(time)
    } else {
        time
    }
}

/// open and openat: the kernel's, but for the files of /proc that tell the time.
pub fn open(call: &Call) -> isize {
    let path = if call.nr == nr::OPEN { call.args[0] } else { call.args[1] };
    let result = super::socket::blocking(call, Masking::Repeats);
    if result < 0 {
        return result;
    }
    let fd = result as u32;
    // SAFETY: the kernel has just read this path.
    if unsafe { is(path, b"/proc/uptime\0") } {
        if stand_in(fd) && refresh_uptime(fd) {
            noted::note(fd, noted::UPTIME);
            noted::also_trap(Extra::Reads);
        }
    } else if unsafe { is(path, b"/proc/stat\0") } {
        boot_time_in_stat(fd);
    }
    result
}

/// # Safety
/// There must be a string at `path`.
unsafe fn is(path: u64, name: &[u8]) -> bool {
    // SAFETY: no byte behind the first difference is looked at, so none behind the end of the string.
    name.iter().enumerate().all(|(i, byte)| unsafe { *(path as *const u8).add(i) } == *byte)
}

/// Puts an empty file in memory in the place of `fd`, with its close-on-exec flag.
fn stand_in(fd: u32) -> bool {
    const FCNTL: u32 = 72;
    const F_GETFD: u64 = 1;
    const DUP3: u32 = 292;
    const O_CLOEXEC: u64 = 0o2000000;
    // SAFETY: descriptors of our own, and the one just opened.
    unsafe {
        let flags = sys!(FCNTL, fd, F_GETFD);
        let file = sys!(nr::MEMFD_CREATE, c"lorentz-proc".as_ptr(), 0u64);
        if file < 0 {
            return false;
        }
        let done = sys!(DUP3, file, fd, if flags & 1 != 0 { O_CLOEXEC } else { 0 });
        sys!(nr::CLOSE, file);
        done >= 0
    }
}

/// Writes the uptime as it is now into the file that stands for /proc/uptime.
pub fn refresh_uptime(fd: u32) -> bool {
    let boot = clocks::read(clk::BOOTTIME).unwrap_or_default();
    let mut text = Text::new();
    text.seconds(boot);
    text.bytes(b" ");
    text.seconds(boot);
    text.bytes(b"\n");
    text.write_to(fd, 0)
}

/// Gives /proc/stat the time at which the container's boot clock was zero.
fn boot_time_in_stat(fd: u32) {
    const PREAD: u32 = 17;
    const BUFFER: usize = 2048;
    const KEY: &[u8] = b"\nbtime ";
    let original = {
        const DUP: u32 = 32;
        // SAFETY: another descriptor of the same file.
        unsafe { sys!(DUP, fd) }
    };
    if original < 0 {
        return;
    }
    if stand_in(fd) {
        let mut buffer = [0u8; BUFFER];
        let (mut from, mut to) = (0u64, 0u64);
        loop {
            // SAFETY: writes to the buffer.
            let got = unsafe { sys!(PREAD, original, buffer.as_mut_ptr(), BUFFER, from) };
            if got <= 0 {
                break;
            }
            // Whole lines only, so that the key is never cut.
            let got = got as usize;
            let whole =
                buffer[..got].iter().rposition(|byte| *byte == b'\n').map_or(got, |at| at + 1);
            let key = if from == 0 { 0 } else { 1 };
            to += copy_with_boot_time(fd, &buffer[..whole], &KEY[key..], to);
            from += whole as u64;
        }
        const LSEEK_START: u64 = 0;
        // SAFETY: moves to the start of our own file.
        unsafe { sys!(nr::LSEEK, fd, 0u64, LSEEK_START) };
    }
    // SAFETY: our own descriptor.
    unsafe { sys!(nr::CLOSE, original) };
}

/// Appends `lines` at `to`, with the number behind `key` replaced; gives how much was written.
fn copy_with_boot_time(fd: u32, lines: &[u8], key: &[u8], to: u64) -> u64 {
    let found = lines.windows(key.len()).position(|window| window == key);
    let Some(found) = found else { return put(fd, lines, to) };
    let number = found + key.len();
    let rest = number + lines[number..].iter().position(|byte| *byte == b'\n').unwrap_or(0);
    let look = clocks::snapshot();
    let boot = clocks::boot(&look);
    let start = clocks::wall(&look).plus(lorentz_clock::Span(-boot.0));
    let mut text = Text::new();
    text.number(start.secs.max(0) as u64, 1);
    let mut written = put(fd, &lines[..number], to);
    written += put(fd, text.as_bytes(), to + written);
    written + put(fd, &lines[rest..], to + written)
}

fn put(fd: u32, bytes: &[u8], at: u64) -> u64 {
    const PWRITE: u32 = 18;
    // SAFETY: reads the bytes.
    unsafe { sys!(PWRITE, fd, bytes.as_ptr(), bytes.len(), at) };
    bytes.len() as u64
}

/// A short text, without allocation.
struct Text {
    bytes: [u8; 80],
    len: usize,
}

impl Text {
    fn new() -> Text {
        Text { bytes: [0; 80], len: 0 }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if let Some(place) = self.bytes.get_mut(self.len) {
                *place = *byte;
                self.len += 1;
            }
        }
    }

    /// A number of at least `digits` digits.
    fn number(&mut self, mut number: u64, digits: usize) {
        let mut reversed = [b'0'; 20];
        let mut len = 0;
        while (number > 0 || len < digits) && len < reversed.len() {
            reversed[len] = b'0' + (number % 10) as u8;
            number /= 10;
            len += 1;
        }
        (0..len).rev().for_each(|i| self.bytes(&reversed[i..=i]));
    }

    /// Seconds and hundredths, as /proc/uptime has them.
    fn seconds(&mut self, time: Timespec) {
        self.number(time.secs.max(0) as u64, 1);
        self.bytes(b".");
        self.number(time.nanos as u64 / 10_000_000, 2);
    }

    fn write_to(&self, fd: u32, at: u64) -> bool {
        const FTRUNCATE: u32 = 77;
        // SAFETY: our own file.
        let result = unsafe { sys!(FTRUNCATE, fd, self.len) };
        result == 0 && put(fd, self.as_bytes(), at) == self.len as u64
    }
}
