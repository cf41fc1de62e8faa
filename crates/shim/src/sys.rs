//! System calls and the kernel's structures, without libc: x86-64 only.

use core::arch::asm;
use core::hint::spin_loop;
use lorentz_clock::{Span, NANOS_PER_SEC};

pub use lorentz_syscalls::{
    AdjModes, AtFlags, ClockId, CloneFlags, Errno, Fd, FromArg, FutexOp, IntoArg, ItimerId,
    MsgFlags, OpenFlags, RusageWho, SaFlags, SigHow, SigSet, SocketOption, SsFlags, Sysno,
    TimerFlags, UserPtr,
};

/// The result of a system call.
pub type SysResult<T = isize> = Result<T, Errno>;

/// Signal numbers.
#[allow(missing_docs)]
pub mod sig {
    use super::SigSet;

    pub const SIGSEGV: u32 = 11;
    pub const SIGCHLD: u32 = 17;
    pub const SIGSYS: u32 = 31;
    pub use lorentz_clock::signal::CLOCK_CHANGE;
    /// SIGSYS and CLOCK_CHANGE: what a program may never block.
    pub const OURS: SigSet = SigSet::of(SIGSYS).with(SigSet::of(CLOCK_CHANGE));
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

/// struct timeval.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Timeval {
    /// Seconds.
    pub secs: i64,
    /// Microseconds, 0..1e6 where valid.
    pub micros: i64,
}

/// Nanoseconds in a microsecond.
const MICRO: i64 = 1000;

impl Timeval {
    /// Whether the microseconds are in range.
    pub fn is_normal(self) -> bool {
        (0..1_000_000).contains(&self.micros)
    }

    /// The same with nanoseconds; invalid where this is invalid.
    pub fn to_timespec(self) -> Timespec {
        Timespec { secs: self.secs, nanos: self.micros * MICRO }
    }

    /// The same with microseconds, rounded down.
    pub fn from_timespec(time: Timespec) -> Timeval {
        Timeval { secs: time.secs, micros: time.nanos / MICRO }
    }

    /// As a span. Seconds and microseconds are added up, out of range or not.
    pub fn to_span(self) -> Span {
        let micros = self.micros.saturating_mul(MICRO);
        Span(Span::from_secs(self.secs).0.saturating_add(micros))
    }

    /// A span from zero on, rounded down.
    pub fn from_span(span: Span) -> Timeval {
        Timeval::from_timespec(Timespec::from_span(span))
    }

    /// A span from zero on, rounded up.
    pub fn from_span_up(span: Span) -> Timeval {
        let micros = span.0.max(0) / MICRO + (span.0 % MICRO > 0) as i64;
        Timeval { secs: micros / 1_000_000, micros: micros % 1_000_000 }
    }
}

/// struct itimerspec.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Itimerspec {
    /// Period.
    pub interval: Timespec,
    /// First expiry; zero disarms.
    pub value: Timespec,
}

/// struct itimerval.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Itimerval {
    /// Period.
    pub interval: Timeval,
    /// First expiry; zero disarms.
    pub value: Timeval,
}

/// struct stack_t.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Stack {
    /// The lowest address.
    pub sp: u64,
    /// SS_ flags.
    pub flags: SsFlags,
    /// The padding.
    pub padding: u32,
    /// Length, bytes.
    pub size: u64,
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
    pub stack: Stack,
    /// Saved registers, indexed by [`reg`].
    pub regs: [u64; 23],
    /// Floating-point state and reserved words.
    pub fp: [u64; 9],
    /// The program's signal mask.
    pub mask: SigSet,
}

/// The kernel's struct sigaction.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Sigaction {
    /// Handler, SIG_DFL or SIG_IGN.
    pub handler: usize,
    /// SA_ flags.
    pub flags: SaFlags,
    /// Where the handler returns to.
    pub restorer: usize,
    /// Blocked while it runs.
    pub mask: SigSet,
}

/// SA_SIGINFO, SA_ONSTACK (goroutine stacks are tiny) and SA_RESTORER: the flags of the shim's handlers.
pub const HANDLER_FLAGS: SaFlags =
    SaFlags::SA_SIGINFO.with(SaFlags::SA_ONSTACK).with(SaFlags::SA_RESTORER);

impl Sigaction {
    /// The handler that ignores the signal.
    pub const SIG_IGN: usize = 1;
    /// The handler that does as the kernel does by default.
    pub const SIG_DFL: usize = 0;
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

    /// The number of the call, as its register holds it.
    pub fn nr(&self) -> u64 {
        self.nr
    }

    /// The same call with argument number `index` replaced.
    #[inline(always)]
    pub fn with(mut self, index: usize, value: impl IntoArg) -> Request {
        self.args[index] = value.into_arg();
        self
    }

    /// Makes the call from the image's own code, which the filter lets through.
    ///
    /// # Safety
    /// The kernel reads and writes what the arguments point at.
    #[inline(always)]
    pub unsafe fn make(&self) -> SysResult {
        // SAFETY: the caller's promise.
        Errno::check(unsafe { make(self) })
    }
}

/// # Safety
/// As for [`Request::make`].
#[inline(always)]
unsafe fn make(request: &Request) -> isize {
    let args = &request.args;
    let result: isize;
    // SAFETY: the caller answers for the arguments; the kernel clobbers rcx and r11 only.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") request.nr => result,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    result
}

/// A system call as the host knows it, for a `lorentz` command that runs in virtual time itself: its clocks are the host's, and so are
/// its waits. `lorentz_control::host_time` finds it by [`lorentz_clock::file::HOST_CALL_ADDRESS`].
///
/// # Safety
/// As for [`Request::make`]; `args` points at six words.
pub unsafe extern "C" fn host_call(nr: u32, args: *const [u64; 6]) -> isize {
    // SAFETY: the caller's promise.
    unsafe { make(&Request::new(Sysno::new(nr), *args)) }
}

/// A [`Request`] from a call and the arguments that are there.
macro_rules! request {
    ($nr:expr) => {
        $crate::sys::Request::new($nr, [0; 6])
    };
    ($nr:expr, $a:expr) => {
        $crate::sys::request!(@ $nr, $a, 0, 0, 0, 0, 0)
    };
    ($nr:expr, $a:expr, $b:expr) => {
        $crate::sys::request!(@ $nr, $a, $b, 0, 0, 0, 0)
    };
    ($nr:expr, $a:expr, $b:expr, $c:expr) => {
        $crate::sys::request!(@ $nr, $a, $b, $c, 0, 0, 0)
    };
    ($nr:expr, $a:expr, $b:expr, $c:expr, $d:expr) => {
        $crate::sys::request!(@ $nr, $a, $b, $c, $d, 0, 0)
    };
    ($nr:expr, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr) => {
        $crate::sys::request!(@ $nr, $a, $b, $c, $d, $e, 0)
    };
    ($nr:expr, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr) => {
        $crate::sys::request!(@ $nr, $a, $b, $c, $d, $e, $f)
    };
    (@ $nr:expr, $($arg:expr),*) => {
        $crate::sys::Request::new($nr, [$($crate::sys::IntoArg::into_arg($arg)),*])
    };
}
pub(crate) use request;

/// Makes a system call from the image's own code: unsafe, as [`Request::make`] is.
macro_rules! sys {
    ($($part:expr),*) => {
        $crate::sys::request!($($part),*).make()
    };
}
pub(crate) use sys;

/// This process's id.
pub fn getpid() -> u32 {
    // SAFETY: no arguments.
    unsafe { sys!(Sysno::getpid).unwrap_or(0) as u32 }
}

/// This thread's id.
pub fn gettid() -> u32 {
    // SAFETY: no arguments.
    unsafe { sys!(Sysno::gettid).unwrap_or(0) as u32 }
}

/// Reads a clock by system call.
pub fn clock_gettime(clock: ClockId) -> SysResult<Timespec> {
    let mut time = Timespec::default();
    // SAFETY: writes to `time`.
    unsafe { sys!(Sysno::clock_gettime, clock, &raw mut time)? };
    Ok(time)
}

/// Reads a clock that the host has for sure, by system call.
pub fn host_clock(clock: ClockId) -> Timespec {
    clock_gettime(clock).unwrap_or_default()
}

/// Closes a descriptor of the shim, or one that it takes back from the program.
pub fn close(fd: Fd) {
    // SAFETY: a number only.
    let _ = unsafe { sys!(Sysno::close, fd) };
}

/// The descriptor that a call has returned.
pub fn to_fd(result: isize) -> Fd {
    Fd::new(result as i32)
}

/// The first words of a struct stat: those that the shim looks at.
pub struct Stat(pub [u64; 18]);

impl Stat {
    /// Asks for those of a descriptor.
    pub fn of(fd: Fd) -> SysResult<Stat> {
        let mut words = [0; 18];
        // SAFETY: struct stat is 144 bytes.
        unsafe { sys!(Sysno::fstat, fd, words.as_mut_ptr())? };
        Ok(Stat(words))
    }
}

/// Whether a thread has ended. It may belong to another process, such as the parent of a child of vfork.
pub fn has_ended(thread: u32) -> bool {
    // SAFETY: numbers only; no signal is sent.
    unsafe { sys!(Sysno::tkill, thread, 0) == Err(Errno::ESRCH) }
}

/// Replaces the thread's signal mask, and returns the one before.
pub fn replace_mask(mask: SigSet) -> SigSet {
    let mut before = SigSet::EMPTY;
    // SAFETY: reads `mask`, writes to `before`.
    let _ = unsafe {
        let (mask, before) = (&raw const mask, &raw mut before);
        sys!(Sysno::rt_sigprocmask, SigHow::SIG_SETMASK, mask, before, SigSet::LEN)
    };
    before
}

/// Replaces the thread's signal mask.
pub fn set_mask(mask: SigSet) {
    // SAFETY: reads `mask`.
    let _ = unsafe {
        sys!(Sysno::rt_sigprocmask, SigHow::SIG_SETMASK, &raw const mask, 0, SigSet::LEN)
    };
}

/// The signals that are pending for the thread or its process.
pub fn pending_signals() -> SigSet {
    let mut pending = SigSet::EMPTY;
    // SAFETY: writes to `pending`.
    let _ = unsafe { sys!(Sysno::rt_sigpending, &raw mut pending, SigSet::LEN) };
    pending
}

/// Reads the kernel's action of a signal.
pub fn action_of(signal: u32) -> Sigaction {
    let mut action = Sigaction::default();
    // SAFETY: writes to `action`.
    let _ = unsafe { sys!(Sysno::rt_sigaction, signal, 0, &raw mut action, SigSet::LEN) };
    action
}

/// Sets the kernel's action of a signal, and returns the one before.
pub fn set_action(signal: u32, action: &Sigaction) -> Sigaction {
    let mut before = Sigaction::default();
    // SAFETY: reads `action`, writes to `before`.
    let _ = unsafe {
        let action = action as *const Sigaction;
        sys!(Sysno::rt_sigaction, signal, action, &raw mut before, SigSet::LEN)
    };
    before
}

/// Gives way to a thread of this process that has a right this thread waits for; it may need this processor.
pub fn give_way(tries: u32) {
    const PAUSE: Timespec = Timespec { secs: 0, nanos: 20_000 };
    if tries < 100 {
        spin_loop();
        return;
    }
    // By its length and not by giving up the processor: that would go to no thread of lower priority.
    // SAFETY: reads the length.
    let _ = unsafe { sys!(Sysno::clock_nanosleep, ClockId::MONOTONIC, 0, UserPtr::to(&PAUSE), 0) };
}

/// Says one line on standard error.
pub fn say(message: &str) {
    // SAFETY: reads the message.
    let _ = unsafe { sys!(Sysno::write, 2, message.as_ptr(), message.len()) };
}

/// Says one line on standard error and ends the process.
pub fn die(message: &str, status: i32) -> ! {
    say(message);
    loop {
        // SAFETY: does not return.
        let _ = unsafe { sys!(Sysno::exit_group, status) };
    }
}
