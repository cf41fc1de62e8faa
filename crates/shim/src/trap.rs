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
use crate::sys::{self, errno, reg, sig, Siginfo, Sysno, Ucontext};
use crate::time_namespace;
use crate::turn;
use crate::wait::{self, Masking};
use core::sync::atomic::Ordering::Relaxed;
use lorentz_clock::{Deadline, Span, VirtualInstant};
use lorentz_syscalls::Handler;

/// SA_SIGINFO, SA_ONSTACK (goroutine stacks are tiny) and SA_RESTORER.
pub const HANDLER_FLAGS: u64 = 0x4 | 0x0800_0000 | 0x0400_0000;

/// A result that means: the program makes the call again.
pub const AGAIN: isize = -5001;

/// One trapped system call.
pub struct Call<'a> {
    /// Its number.
    pub nr: Sysno,
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
        nr: Sysno::new(info_ref.second as u32),
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
        regs[reg::RAX] = call.nr.number().into();
        regs[reg::RIP] -= 2;
    } else {
        let regs = &mut call.context.regs;
        regs[reg::RAX] = result as u64;
        if result == -errno::EINTR {
            mark_as_trapped(regs);
        }
    }
}

/// Marks the program's registers behind a trapped call that returns EINTR. The syscall instruction leaves the address behind it in
/// rcx, for which programs have no use.
///
/// Race: a signal of the program's interrupts a trapped call, and a clock-change signal arrives before the handler returns. The
/// kernel delivers it behind the call, which looks like one that only the clock-change signal has interrupted. Therefore the mark.
fn mark_as_trapped(regs: &mut [u64; 23]) {
    regs[reg::RCX] = 0;
}

/// Whether the EINTR of the call just before the instruction pointer comes from the trap handler.
pub fn was_trapped(regs: &[u64; 23]) -> bool {
    regs[reg::RCX] != regs[reg::RIP]
}

/// The kernel's vDSO makes a system call where it cannot read the clock: that is our own look at the host's clock.
fn from_vdso(ip: u64) -> bool {
    let data = data();
    (data.vdso.load(Relaxed)..data.vdso_end.load(Relaxed)).contains(&(ip as usize))
}

fn carry_out(call: &mut Call) -> isize {
    // The filter traps what the table says, and each such row has a handler.
    let Some(handler) = lorentz_syscalls::handler(call.nr) else { return call.by_kernel() };
    match handler {
        Handler::ClockGettime => clock::gettime(call),
        Handler::Gettimeofday => clock::gettimeofday(call),
        Handler::Time => clock::time(call),
        Handler::ClockSettime => settime::clock_settime(call),
        Handler::Settimeofday => settime::settimeofday(call),
        Handler::Adjtimex => settime::adjtimex(call),
        Handler::ClockAdjtime => settime::clock_adjtime(call),
        Handler::Nanosleep => sleep::nanosleep(call),
        Handler::ClockNanosleep => sleep::clock_nanosleep(call),
        Handler::Poll => poll::poll(call),
        Handler::Ppoll => poll::ppoll(call),
        Handler::Select => poll::select(call),
        Handler::Pselect => poll::pselect6(call),
        Handler::EpollWait => poll::epoll_wait(call),
        Handler::EpollPwait => poll::epoll_pwait(call),
        Handler::EpollPwait2 => poll::epoll_pwait2(call),
        Handler::Futex => futex::futex(call),
        Handler::FutexWait => futex::futex_wait(call),
        Handler::FutexWaitv => futex::futex_waitv(call),
        Handler::SigTimedWait => ipc::rt_sigtimedwait(call),
        Handler::SemTimedOp => ipc::semtimedop(call),
        Handler::MqTimed => ipc::mq_timed(call),
        Handler::IoGetevents => ipc::io_getevents(call),
        Handler::IpcStat => ipc::stat(call),
        Handler::Rewind => proc_files::rewind(call),
        Handler::Alarm => itimer::alarm(call),
        Handler::Setitimer => itimer::setitimer(call),
        Handler::Getitimer => itimer::getitimer(call),
        Handler::TimerCreate => timer::create(call),
        Handler::TimerSettime => timer::settime(call),
        Handler::TimerGettime => timer::gettime(call),
        Handler::TimerDelete => timer::delete(call),
        Handler::TimerfdCreate => timer::fd_create(call),
        Handler::SetSocketOption => socket::setsockopt(call),
        Handler::GetSocketOption => socket::getsockopt(call),
        Handler::Receive => socket::receive(call),
        Handler::RecvMmsg => socket::recvmmsg(call),
        Handler::Send => {
            turn::come(call.args[0]);
            socket::send(call)
        }
        Handler::SendMany => {
            turn::come(call.args[0]);
            wait::blocking(call, Masking::Repeats)
        }
        Handler::Splice => {
            turn::come(call.args[2]);
            wait::blocking(call, Masking::Repeats)
        }
        Handler::Sysinfo => process::sysinfo(call),
        Handler::Times => process::times(call),
        Handler::Getrusage => process::getrusage(call),
        Handler::Wait => process::wait(call),
        Handler::Stat => file::stat(call),
        Handler::SetFileTimes => file::set_times(call),
        Handler::Open => file::open(call),
        Handler::SigProcMask => signals::rt_sigprocmask(call),
        Handler::SigAction => signals::rt_sigaction(call),
        Handler::SigSuspend => signals::rt_sigsuspend(call),
        Handler::SigAltStack => altstack::sigaltstack(call),
        Handler::SignalFd => signals::signalfd(call),
        Handler::Exec => exec::exec(call),
        Handler::Sandbox => exec::sandbox(call),
        Handler::Trace => exec::trace(),
        Handler::Unshare => time_namespace::unshare(call),
        Handler::Setns => time_namespace::setns(call),
        Handler::Clone => births::prepare(call),
    }
}
