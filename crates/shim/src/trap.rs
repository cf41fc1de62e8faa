//! Where a trapped system call arrives, and which part of the shim carries it out.
//!
//! The kernel delivers SIGSYS at the call; all other signals wait until the handler returns. The handler's result
//! goes into the program's result register, and the program goes on behind the call as if the kernel had made it.

use crate::altstack;
use crate::births;
use crate::calls::*;
use crate::clocks;
use crate::filter::TRAP_DATA;
use crate::layout::data;
use crate::signals;
use crate::sys::{self, nr, reg, sig, Siginfo, Ucontext};
use crate::time_namespace;
use crate::turn;
use crate::wait::Masking;
use core::sync::atomic::Ordering::Relaxed;
use lorentz_clock::{Deadline, Span, VirtualInstant};

/// SA_SIGINFO, SA_ONSTACK (goroutine stacks are tiny) and SA_RESTORER.
pub const HANDLER_FLAGS: u64 = 0x4 | 0x0800_0000 | 0x0400_0000;

/// A result that means: the program makes the call again.
pub const AGAIN: isize = -5001;

/// One trapped system call.
pub struct Call<'a> {
    /// Its number.
    pub nr: u32,
    /// Its arguments.
    pub args: [u64; 6],
    /// The program's state; its mask and registers may be changed.
    pub context: &'a mut Ucontext,
}

impl Call<'_> {
    /// The program's signal mask.
    pub fn mask(&self) -> u64 {
        self.context.mask
    }

    /// The virtual instant `span` after the call was made. A call that a thread makes again because its process has
    /// been brought in was made earlier than now.
    pub fn after(&self, span: Span) -> Deadline {
        let begun = clocks::snapshot().now().0 - waited_before();
        Deadline::Virtual(VirtualInstant(begun).plus(span))
    }

    /// Makes the call itself, unchanged.
    pub fn by_kernel(&self) -> isize {
        // SAFETY: the program's own call.
        unsafe { sys::syscall(self.nr, self.args) }
    }
}

/// Nanoseconds that this thread had waited when its process was brought in; told once.
fn waited_before() -> i64 {
    let credits = &data().credits;
    if credits[0].thread.load(Relaxed) == 0 {
        return 0;
    }
    let thread = u64::from(sys::gettid());
    // Entries are used up from any end, so the first stays as long as any may be left: it is only marked.
    let own = credits.iter().find(|credit| credit.thread.load(Relaxed) == thread);
    own.map_or(0, |credit| credit.elapsed.swap(0, Relaxed) as i64)
}

/// The SIGSYS handler.
///
/// # Safety
/// Called by the kernel as a signal handler.
pub unsafe extern "C" fn on_sigsys(_signal: i32, info: *mut Siginfo, context: *mut Ucontext) {
    const SYS_SECCOMP: i32 = 1;
    // SAFETY: the kernel's arguments.
    let (info_ref, context_ref) = unsafe { (&*info, &mut *context) };
    if info_ref.code != SYS_SECCOMP || info_ref.errno != TRAP_DATA as i32 {
        // SAFETY: as above.
        unsafe { signals::forward(sig::SIGSYS, info, context) };
        return;
    }
    let regs = &context_ref.regs;
    let mut call = Call {
        nr: info_ref.second as u32,
        args: [
            regs[reg::RDI],
            regs[reg::RSI],
            regs[reg::RDX],
            regs[reg::R10],
            regs[reg::R8],
            regs[reg::R9],
        ],
        context: context_ref,
    };
    let result = if from_vdso(call.context.regs[reg::RIP]) {
        call.by_kernel()
    } else {
        carry_out(&mut call)
    };
    if result == AGAIN {
        let regs = &mut call.context.regs;
        regs[reg::RAX] = call.nr as u64;
        regs[reg::RIP] -= 2;
    } else {
        call.context.regs[reg::RAX] = result as u64;
    }
}

/// The kernel's vDSO makes a system call where it cannot read the clock: that is our own look at the host's clock.
fn from_vdso(ip: u64) -> bool {
    let data = data();
    (data.vdso.load(Relaxed)..data.vdso_end.load(Relaxed)).contains(&(ip as usize))
}

fn carry_out(call: &mut Call) -> isize {
    match call.nr {
        nr::CLOCK_GETTIME => clock::gettime(call),
        nr::GETTIMEOFDAY => clock::gettimeofday(call),
        nr::TIME => clock::time(call),
        nr::CLOCK_SETTIME => settime::clock_settime(call),
        nr::SETTIMEOFDAY => settime::settimeofday(call),
        nr::ADJTIMEX => settime::adjtimex(call),
        nr::CLOCK_ADJTIME => settime::clock_adjtime(call),
        nr::NANOSLEEP => sleep::nanosleep(call),
        nr::CLOCK_NANOSLEEP => sleep::clock_nanosleep(call),
        nr::POLL => poll::poll(call),
        nr::PPOLL => poll::ppoll(call),
        nr::SELECT => poll::select(call),
        nr::PSELECT6 => poll::pselect6(call),
        nr::EPOLL_WAIT => poll::epoll_wait(call),
        nr::EPOLL_PWAIT => poll::epoll_pwait(call),
        nr::EPOLL_PWAIT2 => poll::epoll_pwait2(call),
        nr::FUTEX => futex::futex(call),
        nr::FUTEX_WAIT => futex::futex_wait(call),
        nr::FUTEX_WAITV => futex::futex_waitv(call),
        nr::RT_SIGTIMEDWAIT => ipc::rt_sigtimedwait(call),
        nr::SEMTIMEDOP => ipc::semtimedop(call),
        nr::MQ_TIMEDSEND | nr::MQ_TIMEDRECEIVE => ipc::mq_timed(call),
        nr::RECVMMSG => socket::recvmmsg(call),
        nr::IO_GETEVENTS | nr::IO_PGETEVENTS => ipc::io_getevents(call),
        nr::MSGCTL | nr::SHMCTL | nr::SEMCTL => ipc::stat(call),
        nr::LSEEK | nr::PREAD64 => proc_files::rewind(call),
        nr::ALARM => itimer::alarm(call),
        nr::SETITIMER => itimer::setitimer(call),
        nr::GETITIMER => itimer::getitimer(call),
        nr::TIMER_CREATE => timer::create(call),
        nr::TIMER_SETTIME => timer::settime(call),
        nr::TIMER_GETTIME => timer::gettime(call),
        nr::TIMER_DELETE => timer::delete(call),
        nr::TIMERFD_CREATE => timer::fd_create(call),
        nr::TIMERFD_SETTIME => timer::settime(call),
        nr::TIMERFD_GETTIME => timer::gettime(call),
        nr::SETSOCKOPT => socket::setsockopt(call),
        nr::GETSOCKOPT => socket::getsockopt(call),
        nr::RECVMSG
        | nr::RECVFROM
        | nr::READ
        | nr::READV
        | nr::ACCEPT
        | nr::ACCEPT4
        | nr::CONNECT => socket::receive(call),
        nr::SENDTO | nr::SENDMSG | nr::WRITE | nr::WRITEV => {
            turn::come(call.args[0]);
            socket::send(call)
        }
        nr::SENDMMSG | nr::SENDFILE => {
            turn::come(call.args[0]);
            socket::blocking(call, Masking::Repeats)
        }
        nr::SPLICE => {
            turn::come(call.args[2]);
            socket::blocking(call, Masking::Repeats)
        }
        nr::SYSINFO => process::sysinfo(call),
        nr::TIMES => process::times(call),
        nr::GETRUSAGE => process::getrusage(call),
        nr::WAIT4 | nr::WAITID => process::wait(call),
        nr::STAT | nr::FSTAT | nr::LSTAT | nr::NEWFSTATAT | nr::STATX => file::stat(call),
        nr::UTIME | nr::UTIMES | nr::FUTIMESAT | nr::UTIMENSAT => file::set_times(call),
        nr::OPEN | nr::OPENAT => file::open(call),
        nr::RT_SIGPROCMASK => signals::rt_sigprocmask(call),
        nr::RT_SIGACTION => signals::rt_sigaction(call),
        nr::RT_SIGSUSPEND => signals::rt_sigsuspend(call),
        nr::SIGALTSTACK => altstack::sigaltstack(call),
        nr::SIGNALFD | nr::SIGNALFD4 => signals::signalfd(call),
        nr::EXECVE | nr::EXECVEAT => exec::exec(call),
        nr::SECCOMP | nr::PRCTL => exec::sandbox(call),
        nr::PTRACE => exec::trace(),
        nr::UNSHARE => time_namespace::unshare(call),
        nr::SETNS => time_namespace::setns(call),
        nr::CLONE | nr::FORK | nr::VFORK => births::prepare(call),
        _ => call.by_kernel(),
    }
}
