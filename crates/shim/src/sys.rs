//! System calls and the kernel's structures, without libc: x86-64 only.

use core::arch::asm;
use lorentz_clock::{Span, NANOS_PER_SEC};

pub use lorentz_syscalls::Sysno;

/// Error numbers, positive.
#[allow(missing_docs)]
pub mod errno {
    pub const EPERM: isize = 1;
    pub const ENOENT: isize = 2;
    pub const ESRCH: isize = 3;
    pub const EINTR: isize = 4;
    pub const EBADF: isize = 9;
    pub const EAGAIN: isize = 11;
    pub const ENOMEM: isize = 12;
    pub const EFAULT: isize = 14;
    pub const EINVAL: isize = 22;
    pub const ESPIPE: isize = 29;
    pub const ENOSYS: isize = 38;
    pub const ETIMEDOUT: isize = 110;
    pub const EINPROGRESS: isize = 115;
    pub const ECANCELED: isize = 125;
}

/// Clock ids.
#[allow(missing_docs)]
pub mod clk {
    pub const REALTIME: i32 = 0;
    pub const MONOTONIC: i32 = 1;
    pub const PROCESS_CPUTIME: i32 = 2;
    pub const THREAD_CPUTIME: i32 = 3;
    pub const MONOTONIC_RAW: i32 = 4;
    pub const REALTIME_COARSE: i32 = 5;
    pub const MONOTONIC_COARSE: i32 = 6;
    pub const BOOTTIME: i32 = 7;
    pub const REALTIME_ALARM: i32 = 8;
    pub const BOOTTIME_ALARM: i32 = 9;
    pub const TAI: i32 = 11;
}

/// Signal numbers.
#[allow(missing_docs)]
pub mod sig {
    pub const SIGSEGV: u32 = 11;
    pub const SIGCHLD: u32 = 17;
    pub const SIGSYS: u32 = 31;
    /// The signal that tells a thread to look at the clock again: the last real-time signal, delivered after all others.
    pub const KICK: u32 = 64;
    /// SIGSYS and KICK: what a program may never block.
    pub const OURS: u64 = 1 << (SIGSYS - 1) | 1 << (KICK - 1);
    pub const SI_QUEUE: i32 = -1;
}

/// struct timespec.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Timespec {
    /// Seconds.
    pub secs: i64,
    /// Nanoseconds, 0..1e9 where valid.
    pub nanos: i64,
}

impl Timespec {
    /// As a span; `None` where the kernel would say EINVAL (negative, or nanoseconds out of range).
    pub fn to_span(self) -> Option<Span> {
        if self.secs < 0 || self.nanos < 0 || self.nanos >= NANOS_PER_SEC {
            return None;
        }
        Some(Span(self.secs.saturating_mul(NANOS_PER_SEC).saturating_add(self.nanos)))
    }

    /// A span from zero on.
    pub fn from_span(span: Span) -> Timespec {
        let nanos = if span.0 < 0 { 0 } else { span.0 };
        Timespec { secs: nanos / NANOS_PER_SEC, nanos: nanos % NANOS_PER_SEC }
    }
}

/// struct itimerspec; also struct itimerval, whose second halves are microseconds.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Itimerspec {
    /// Period.
    pub interval: Timespec,
    /// First expiry; zero disarms.
    pub value: Timespec,
}

/// struct siginfo as the shim needs it.
#[repr(C)]
pub struct Siginfo {
    /// Signal number.
    pub signo: i32,
    /// For SIGSYS by seccomp: the filter's data.
    pub errno: i32,
    /// Why it was sent.
    pub code: i32,
    /// Alignment.
    pub pad: i32,
    /// SIGSYS: address of the call. Queued signals: sender's pid and uid.
    pub first: u64,
    /// SIGSYS: call number and architecture. Queued signals: the value.
    pub second: u64,
}

/// Indices into the saved registers.
#[allow(missing_docs)]
pub mod reg {
    pub const R8: usize = 0;
    pub const R9: usize = 1;
    pub const R10: usize = 2;
    pub const R11: usize = 3;
    pub const RDI: usize = 8;
    pub const RSI: usize = 9;
    pub const RDX: usize = 12;
    pub const RAX: usize = 13;
    pub const RCX: usize = 14;
    pub const RSP: usize = 15;
    pub const RIP: usize = 16;
}

/// struct ucontext as the kernel pushes it.
#[repr(C)]
pub struct Ucontext {
    /// Flags and link.
    pub head: [u64; 2],
    /// The alternate signal stack.
    pub stack: [u64; 3],
    /// Saved registers, indexed by [`reg`].
    pub regs: [u64; 23],
    /// Floating-point state and reserved words.
    pub fp: [u64; 9],
    /// The program's signal mask.
    pub mask: u64,
}

/// The kernel's struct sigaction.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Sigaction {
    /// Handler, SIG_DFL or SIG_IGN.
    pub handler: usize,
    /// SA_ flags.
    pub flags: u64,
    /// Where the handler returns to.
    pub restorer: usize,
    /// Blocked while it runs.
    pub mask: u64,
}

/// A system call from the image's own code, which the filter lets through.
///
/// # Safety
/// The kernel reads and writes what the arguments point at.
#[inline(always)]
pub unsafe fn syscall(nr: Sysno, args: [u64; 6]) -> isize {
    let result: isize;
    // SAFETY: the caller answers for the arguments; the kernel clobbers rcx and r11 only.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") nr.number() as u64 => result,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    result
}

/// A system call to be made.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Request {
    /// Its arguments.
    pub args: [u64; 6],
    nr: u64,
}

impl Request {
    /// System call `nr` with `args`.
    #[inline(always)]
    pub fn new(nr: Sysno, args: [u64; 6]) -> Request {
        Request { args, nr: nr.number().into() }
    }
}

/// A system call as the host knows it, for a `lorentz` command that runs in virtual time itself: its clocks are the host's, and so are
/// its waits. `lorentz_container::host_time` finds it by [`crate::layout::host_call_address`].
///
/// # Safety
/// As for [`syscall`]; `args` points at six words.
pub unsafe extern "C" fn host_call(nr: u32, args: *const [u64; 6]) -> isize {
    // SAFETY: the caller's promise.
    unsafe { syscall(Sysno::new(nr), *args) }
}

/// As [`syscall`], with the arguments that are there.
macro_rules! sys {
    ($nr:expr) => {
        $crate::sys::syscall($nr, [0; 6])
    };
    ($nr:expr, $a:expr) => {
        $crate::sys::syscall($nr, [$a as u64, 0, 0, 0, 0, 0])
    };
    ($nr:expr, $a:expr, $b:expr) => {
        $crate::sys::syscall($nr, [$a as u64, $b as u64, 0, 0, 0, 0])
    };
    ($nr:expr, $a:expr, $b:expr, $c:expr) => {
        $crate::sys::syscall($nr, [$a as u64, $b as u64, $c as u64, 0, 0, 0])
    };
    ($nr:expr, $a:expr, $b:expr, $c:expr, $d:expr) => {
        $crate::sys::syscall($nr, [$a as u64, $b as u64, $c as u64, $d as u64, 0, 0])
    };
    ($nr:expr, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr) => {
        $crate::sys::syscall($nr, [$a as u64, $b as u64, $c as u64, $d as u64, $e as u64, 0])
    };
    ($nr:expr, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr) => {
        $crate::sys::syscall(
            $nr,
            [$a as u64, $b as u64, $c as u64, $d as u64, $e as u64, $f as u64],
        )
    };
}
pub(crate) use sys;

/// This process's id.
pub fn getpid() -> u32 {
    // SAFETY: no arguments.
    unsafe { sys!(Sysno::getpid) as u32 }
}

/// This thread's id.
pub fn gettid() -> u32 {
    // SAFETY: no arguments.
    unsafe { sys!(Sysno::gettid) as u32 }
}

/// Reads a clock of the host by system call.
pub fn host_clock(clock: i32) -> Timespec {
    let mut ts = Timespec::default();
    // SAFETY: writes to `ts`.
    unsafe { sys!(Sysno::clock_gettime, clock as i64, &mut ts as *mut Timespec) };
    ts
}

/// Replaces the thread's signal mask.
pub fn set_mask(mask: u64) {
    const SETMASK: u64 = 2;
    // SAFETY: reads `mask`.
    unsafe { sys!(Sysno::rt_sigprocmask, SETMASK, &mask as *const u64, 0u64, 8u64) };
}

/// Reads (and with `new`, sets) what a signal does in the kernel's eyes.
pub fn sigaction(signal: u32, new: Option<&Sigaction>, old: Option<&mut Sigaction>) -> isize {
    let new = new.map_or(core::ptr::null(), |p| p as *const Sigaction);
    let old = old.map_or(core::ptr::null_mut(), |p| p as *mut Sigaction);
    // SAFETY: both are null or valid.
    unsafe { sys!(Sysno::rt_sigaction, signal, new, old, 8u64) }
}

/// Says one line on standard error and ends the process.
pub fn die(message: &str, status: i32) -> ! {
    // SAFETY: reads the message; does not return.
    unsafe {
        sys!(Sysno::write, 2u64, message.as_ptr(), message.len());
        loop {
            sys!(Sysno::exit_group, status as i64);
        }
    }
}
