//! Files below /proc that tell the time. The program gets a file in memory instead: the kernel's text, with its times
//! made virtual. The text is written when the file is opened, and anew when the program rewinds.

#[cfg(test)]
mod tests;
mod text;

use crate::call::Call;
use crate::clocks;
use crate::cpu;
use crate::fd_table;
use crate::filter::Extra;
use crate::layout::{clock, fork_data, registry, FdEntry, REPORTED_STARTS};
use crate::read;
use crate::stand_in::StandIn;
use crate::sys::{
    close, getpid, gettid, host_clock, sys, to_fd, ClockId, Fd, OpenFlags, SysResult, Sysno,
    Timespec, UserPtr,
};
use crate::time_namespace::offsets;
use crate::timestamps;
use crate::wait::{self, Masking};
use core::sync::atomic::Ordering::Relaxed;
use lorentz_clock::{RealInstant, Span, NANOS_PER_SEC};
use text::Copier;
pub(super) use text::Text;

/// One tick of USER_HZ, the unit of CPU times in /proc, ns.
const TICK: i64 = NANOS_PER_SEC / 100;
/// Longer than any path below /proc that is looked for.
const LINK_LEN: usize = 64;

/// The kinds of files.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Uptime = 1,
    Stat,
    /// /proc/PID/stat, and the same of a thread.
    TaskStat,
    /// /proc/PID/schedstat, and the same of a thread.
    TaskSched,
    Messages,
    Semaphores,
    SharedMemory,
}

/// One file: its kind and, for a task's, the numbers in its path. `thread` is 0 for /proc/PID/NAME.
#[derive(Clone, Copy)]
struct ProcFile {
    kind: Kind,
    pid: u32,
    thread: u32,
}

/// Whether the last part of `path` is the name of a file below /proc that tells the time.
///
/// # Safety
/// There must be a string at `path`.
pub unsafe fn may_tell_time(path: UserPtr<u8>) -> bool {
    // SAFETY: the caller's promise.
    let (_, name) = unsafe { path_and_name(path.address() as *const u8) };
    matches!(name, b"stat" | b"uptime" | b"schedstat" | b"msg" | b"sem" | b"shm")
}

/// Puts a file in memory in the place of `fd`, which the program has just opened at `path`, if it tells the time.
///
/// # Safety
/// There must be a string at `path`.
pub unsafe fn opened(fd: Fd, path: UserPtr<u8>) {
    // SAFETY: the caller's promise.
    let (path, _) = unsafe { path_and_name(path.address() as *const u8) };
    let Some(file) = ProcFile::at(path).or_else(|| ProcFile::behind(fd)) else { return };
    let Some(content) = StandIn::new() else { return };
    // Under a small RLIMIT_FSIZE a pipe stands for the file. It is read once, and cannot be written anew.
    if fill(content.write, fd, file) && content.replace(fd) && content.is_file() {
        remember(fd, file);
    }
}

/// The bytes of a path, and those behind its last slash. One loop for both: the image has no strlen.
///
/// # Safety
/// There must be a string at `path`, which outlives the result.
unsafe fn path_and_name<'a>(path: *const u8) -> (&'a [u8], &'a [u8]) {
    let (mut len, mut name) = (0, 0);
    // SAFETY: no byte behind the end of the string is looked at.
    let path = unsafe {
        loop {
            match *path.add(len) {
                0 => break core::slice::from_raw_parts(path, len),
                byte => {
                    len += 1;
                    name = if byte == b'/' { len } else { name };
                }
            }
        }
    };
    (path, &path[name..])
}

/// lseek to the start of a file, and pread from there: what stands for a file of /proc is written anew.
pub fn rewind(call: &Call, fd: Fd) -> SysResult {
    if let Some(file) = fd_table::find(fd).and_then(ProcFile::of_entry) {
        refresh(fd, file);
    }
    wait::blocking(call, Masking::Repeats)
}

/// read of what stands for /proc/uptime: the kernel makes that text when it is read.
pub fn refresh_uptime(fd: Fd) -> bool {
    write_uptime(fd)
}

impl ProcFile {
    /// The file that `path` names, without links and detours.
    fn at(path: &[u8]) -> Option<ProcFile> {
        let below = path.strip_prefix(b"/proc/")?;
        let whole = |kind| Some(ProcFile { kind, pid: 0, thread: 0 });
        match below {
            b"uptime" => return whole(Kind::Uptime),
            b"stat" => return whole(Kind::Stat),
            b"sysvipc/msg" => return whole(Kind::Messages),
            b"sysvipc/sem" => return whole(Kind::Semaphores),
            b"sysvipc/shm" => return whole(Kind::SharedMemory),
            _ => {}
        }
        let (pid, rest) = text::leading_number(below)?;
        let (thread, rest) = match rest.strip_prefix(b"/task/") {
            Some(rest) => text::leading_number(rest)?,
            None => (0, rest),
        };
        let kind = match rest {
            b"/stat" => Kind::TaskStat,
            b"/schedstat" => Kind::TaskSched,
            _ => return None,
        };
        Some(ProcFile { kind, pid: pid as u32, thread: thread as u32 })
    }

    /// The file behind a descriptor, whatever path the program opened it by.
    fn behind(fd: Fd) -> Option<ProcFile> {
        let mut link = Text::new();
        link.bytes(b"/proc/self/fd/");
        link.number(fd.number().into(), 1);
        let mut target = [0; LINK_LEN];
        ProcFile::at(link_target(&mut link, &mut target)?)
    }

    fn of_entry(entry: &FdEntry) -> Option<ProcFile> {
        if entry.properties.load(Relaxed) & fd_table::PROC == 0 {
            return None;
        }
        let word = entry.receive_timeout.load(Relaxed);
        let kinds = [
            Kind::Stat,
            Kind::TaskStat,
            Kind::TaskSched,
            Kind::Messages,
            Kind::Semaphores,
            Kind::SharedMemory,
        ];
        let kind = kinds.into_iter().find(|kind| *kind as u64 == word >> 32)?;
        let thread = entry.send_timeout.load(Relaxed) as u32;
        Some(ProcFile { kind, pid: word as u32, thread })
    }

    /// Opens the kernel's file.
    fn open(self) -> SysResult<Fd> {
        let mut path = Text::new();
        path.bytes(b"/proc/");
        if self.pid != 0 {
            path.number(self.pid.into(), 1);
            path.bytes(b"/");
        }
        if self.thread != 0 {
            path.bytes(b"task/");
            path.number(self.thread.into(), 1);
            path.bytes(b"/");
        }
        path.bytes(match self.kind {
            Kind::Uptime => b"uptime",
            Kind::Stat | Kind::TaskStat => b"stat",
            Kind::TaskSched => b"schedstat",
            Kind::Messages => b"sysvipc/msg",
            Kind::Semaphores => b"sysvipc/sem",
            Kind::SharedMemory => b"sysvipc/shm",
        });
        // SAFETY: a path that ends in a zero byte.
        let fd =
            unsafe { sys!(Sysno::openat, Fd::AT_FDCWD, path.terminated(), OpenFlags::O_CLOEXEC)? };
        Ok(to_fd(fd))
    }

    /// Whether it is about the calling process: the CPU clocks then know more than the kernel's text.
    fn is_own_process(self) -> bool {
        if self.pid != getpid() {
            return false;
        }
        // /proc may be that of another process id namespace.
        let mut link = Text::new();
        link.bytes(b"/proc/self");
        let mut target = [0; LINK_LEN];
        let own = link_target(&mut link, &mut target).and_then(text::leading_number);
        own.is_some_and(|(pid, _)| pid == u64::from(self.pid))
    }

    /// The clock of the calling process or thread that this file is about; none where it is about another.
    fn own_clock(self) -> Option<ClockId> {
        let thread = if self.thread == 0 { self.pid } else { self.thread };
        match (self.kind, self.thread) {
            (Kind::TaskStat, 0) if self.is_own_process() => Some(ClockId::PROCESS_CPUTIME_ID),
            _ if thread == gettid() && self.is_own_process() => Some(ClockId::THREAD_CPUTIME_ID),
            _ => None,
        }
    }
}

/// Where a symbolic link leads.
fn link_target<'a>(link: &mut Text, target: &'a mut [u8; LINK_LEN]) -> Option<&'a [u8]> {
    let (path, buffer) = (link.terminated(), target.as_mut_ptr());
    // SAFETY: reads the path, writes to the buffer.
    let len = unsafe { sys!(Sysno::readlinkat, Fd::AT_FDCWD, path, buffer, LINK_LEN).ok()? };
    target.get(..len as usize).filter(|target| target.len() < LINK_LEN)
}

/// Notes which file `fd` stands for, and has the calls trapped at which its text is written anew.
fn remember(fd: Fd, file: ProcFile) {
    if file.kind == Kind::Uptime {
        fd_table::add(fd, fd_table::UPTIME);
        return fd_table::also_trap(Extra::Reads);
    }
    if let Some(entry) = fd_table::add(fd, fd_table::PROC) {
        // A file has no timeouts: their places hold its numbers.
        entry.receive_timeout.store((file.kind as u64) << 32 | u64::from(file.pid), Relaxed);
        entry.send_timeout.store(file.thread.into(), Relaxed);
        fd_table::also_trap(Extra::Rewinds);
    }
}

/// Writes the text as it is now. The old one stays where the kernel's file cannot be opened any more.
fn refresh(fd: Fd, file: ProcFile) {
    if let Ok(source) = file.open() {
        fill(fd, source, file);
        close(source);
    }
}

/// Writes the virtual text of the kernel's file `source` to `memory`. False where the kernel's cannot be read.
fn fill(memory: Fd, source: Fd, file: ProcFile) -> bool {
    match file.kind {
        Kind::Uptime => write_uptime(memory),
        Kind::Stat => write_stat(memory, source),
        Kind::TaskStat => write_task_stat(memory, source, file),
        Kind::TaskSched => write_sched(memory, source, file),
        Kind::Messages | Kind::SharedMemory => write_ipc(memory, source, 11..14),
        Kind::Semaphores => write_ipc(memory, source, 8..10),
    }
}

/// /proc/uptime: the boot clock. The idle time of the processors is not known to it.
fn write_uptime(memory: Fd) -> bool {
    let boot = read::clock_time(ClockId::BOOTTIME).unwrap_or_default();
    let mut text = Text::new();
    text.seconds(boot);
    text.bytes(b" ");
    text.seconds(boot);
    text.bytes(b"\n");
    text.write_to(memory)
}

/// /proc/stat: CPU times are scaled as those of other processes are, so that shares come out right in virtual time.
fn write_stat(memory: Fd, source: Fd) -> bool {
    let boot = boot_time();
    Copier::new(memory, source).copy(|line, word, value| {
        if line.starts_with(b"cpu") {
            ticks(value)
        } else if word == 1 && line == b"btime" {
            boot
        } else {
            value
        }
    })
}

/// The wall time at which the container's boot clock was zero, s.
fn boot_time() -> u64 {
    let look = clocks::snapshot();
    let boot = clocks::boot(&look);
    clocks::wall(&look).plus(Span(-boot.0)).secs.max(0) as u64
}

/// CPU time of other processes, in ticks.
fn ticks(value: u64) -> u64 {
    let real = Span((value.min(i64::MAX as u64) as i64).saturating_mul(TICK));
    (cpu::reported_of_others(real).0 / TICK) as u64
}

/// /proc/PID/stat: words counted as proc(5) does, from 1. The name, which may hold anything, is copied.
fn write_task_stat(memory: Fd, source: Fd, file: ProcFile) -> bool {
    const STATE: usize = 3;
    const UTIME: usize = 14;
    const STIME: usize = 15;
    const CHILDREN: core::ops::RangeInclusive<usize> = 16..=17;
    const START: usize = 22;
    const BLOCK_IO_AND_GUESTS: core::ops::RangeInclusive<usize> = 42..=44;
    let mut copier = Copier::new(memory, source);
    copier.skip_name();
    let used = [UTIME, STIME].map(|word| copier.peek(word - STATE));
    let used = file.own_clock().map_or(used.map(ticks), |clock| own_ticks(clock, used));
    copier.copy(|_, word, value| match word + STATE {
        UTIME => used[0],
        STIME => used[1],
        START => start_ticks(value),
        word if CHILDREN.contains(&word) || BLOCK_IO_AND_GUESTS.contains(&word) => ticks(value),
        _ => value,
    })
}

/// User and system time of the caller: its CPU clock, divided as the kernel divides it.
fn own_ticks(clock: ClockId, used: [u64; 2]) -> [u64; 2] {
    let spans = used.map(|ticks| Span((ticks as i64).saturating_mul(TICK)));
    let (user, system) = super::process::shared(super::process::own(clock), spans[0], spans[1]);
    [user, system].map(|span| (span.0 / TICK) as u64)
}

/// When a task started, in ticks of the container's boot clock, by the same in ticks of the host's. A start names a task
/// together with its number, so it stays the same for its reader: the clock's past is forgotten piece by piece.
fn start_ticks(value: u64) -> u64 {
    let entry = &fork_data().starts[value as usize % REPORTED_STARTS];
    entry.get(value).unwrap_or_else(|| {
        let reported = start_by_history(value);
        entry.set(value, reported);
        reported
    })
}

fn start_by_history(value: u64) -> u64 {
    /// The host's two clocks are read one after the other. Each look must give the same.
    const READING: i64 = 1_000_000;
    let boot = host_clock(ClockId::BOOTTIME).to_span().unwrap_or_default();
    let suspended = (boot.0 - clocks::host().0 + READING / 2).div_euclid(READING) * READING;
    let start = (value.min(i64::MAX as u64) as i64).saturating_mul(TICK);
    let real = RealInstant(start.saturating_sub(suspended));
    let mut boot = clock().boot_of(registry(), real).plus(offsets().boot);
    if clock().leaps_enabled() {
        boot = boot.plus(registry().leaps.at(real));
    }
    (boot.0.max(0) / TICK) as u64
}

/// /proc/PID/schedstat: time on a processor and time in wait of one, ns, and a count.
fn write_sched(memory: Fd, source: Fd, file: ProcFile) -> bool {
    let own = file.own_clock().map(|clock| super::process::own(clock).0 as u64);
    Copier::new(memory, source).copy(|_, word, value| {
        let others = || cpu::reported_of_others(Span(value.min(i64::MAX as u64) as i64)).0 as u64;
        match (word, own) {
            (0, Some(own)) => own,
            (0 | 1, _) => others(),
            _ => value,
        }
    })
}

/// /proc/sysvipc: the times of each object, s of the wall clock.
fn write_ipc(memory: Fd, source: Fd, times: core::ops::Range<usize>) -> bool {
    Copier::new(memory, source).copy(|_, word, value| match times.contains(&word) {
        true => ipc_time(value as i64) as u64,
        false => value,
    })
}

/// The time of a System V object, s. 0 means never.
pub fn ipc_time(secs: i64) -> i64 {
    match secs {
        0 => 0,
        _ => timestamps::moment_to_virtual(Timespec { secs, nanos: 0 }).secs,
    }
}
