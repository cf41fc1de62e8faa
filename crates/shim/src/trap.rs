//! Where a trapped system call arrives, and which part of the shim carries it out.
//!
//! The kernel delivers SIGSYS at the call; all other signals wait until the handler returns. The handler's result
//! goes into the program's result register, and the program goes on behind the call as if the kernel had made it.

use crate::altstack;
use crate::call::{mark_as_trapped, Arguments, Call, Carry, AGAIN};
use crate::call_sites;
use crate::calls::*;
use crate::clone_tracking;
use crate::filter::TRAP_DATA;
use crate::layout::data;
use crate::send_order;
use crate::signals;
use crate::sys::{self, reg, sig, Errno, Fd, Siginfo, SysResult, Sysno, Ucontext};
use crate::wait::{self, Masking};
use core::sync::atomic::Ordering::Relaxed;
use lorentz_syscalls::Handler;

const UNKNOWN_CALL: &str =
    "lorentz: the filter trapped a system call without a handler; the program ends\n";

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
    let arguments = Arguments {
        nr: Sysno::new(info_ref.second as u32),
        args: [
            regs[reg::RDI],
            regs[reg::RSI],
            regs[reg::RDX],
            regs[reg::R10],
            regs[reg::R8],
            regs[reg::R9],
        ],
    };
    let mut call = Call { arguments, context: context_ref };
    let ip = call.context.regs[reg::RIP];
    let result = if from_vdso(ip) { call.by_kernel() } else { dispatch(&mut call, ip) };
    let nr = call.nr;
    let regs = &mut call.context.regs;
    match result {
        Err(AGAIN) => {
            regs[reg::RAX] = nr.number().into();
            regs[reg::RIP] -= 2;
        }
        Err(error) => {
            regs[reg::RAX] = error.in_register() as u64;
            if error == Errno::EINTR {
                mark_as_trapped(regs);
            }
        }
        Ok(result) => regs[reg::RAX] = result as u64,
    }
}

/// The kernel's vDSO makes a system call where it cannot read the clock: that is our own look at the host's clock.
fn from_vdso(ip: u64) -> bool {
    let data = data();
    (data.vdso.load(Relaxed)..data.vdso_end.load(Relaxed)).contains(&(ip as usize))
}

fn dispatch(call: &mut Call, ip: u64) -> SysResult {
    // The filter is made from the table, where each trapped row has a handler. The kernel's own answer would show real time.
    let Some(handler) = lorentz_syscalls::handler(call.nr) else { sys::die(UNKNOWN_CALL, 126) };
    let has_waited = handler.works_at_call_sites() && call_sites::trapped(ip, call);
    if has_waited && handler == Handler::SigAction {
        // So have signals: they are to have the handler of before. Any other call takes them as signals that came during it.
        return Err(AGAIN);
    }
    match handler {
        Handler::ClockGettime => clock::clock_gettime.carry_out(call),
        Handler::Gettimeofday => clock::gettimeofday.carry_out(call),
        Handler::Time => clock::time.carry_out(call),
        Handler::ClockSettime => settime::clock_settime.carry_out(call),
        Handler::Settimeofday => settime::settimeofday.carry_out(call),
        Handler::Adjtimex => settime::adjtimex.carry_out(call),
        Handler::ClockAdjtime => settime::clock_adjtime.carry_out(call),
        Handler::Nanosleep => sleep::nanosleep.carry_out(call),
        Handler::ClockNanosleep => sleep::clock_nanosleep.carry_out(call),
        Handler::Poll => poll::poll.carry_out(call),
        Handler::Ppoll => poll::ppoll.carry_out(call),
        Handler::Select => poll::select.carry_out(call),
        Handler::Pselect => poll::pselect6.carry_out(call),
        Handler::EpollWait => poll::epoll_wait.carry_out(call),
        Handler::EpollPwait => poll::epoll_pwait.carry_out(call),
        Handler::EpollPwait2 => poll::epoll_pwait2.carry_out(call),
        Handler::Futex => futex::futex.carry_out(call),
        Handler::FutexWait => futex::futex_wait.carry_out(call),
        Handler::FutexWaitv => futex::futex_waitv.carry_out(call),
        Handler::SigTimedWait => ipc::rt_sigtimedwait.carry_out(call),
        Handler::SemTimedOp => ipc::semtimedop.carry_out(call),
        Handler::MqTimed => ipc::mq_timed.carry_out(call),
        Handler::IoGetevents => ipc::io_getevents.carry_out(call),
        Handler::IpcStat => ipc::stat.carry_out(call),
        Handler::Rewind => proc_files::rewind.carry_out(call),
        Handler::Alarm => itimer::alarm.carry_out(call),
        Handler::Setitimer => itimer::setitimer.carry_out(call),
        Handler::Getitimer => itimer::getitimer.carry_out(call),
        Handler::TimerCreate => timer::timer_create.carry_out(call),
        Handler::TimerSettime => timer::settime.carry_out(call),
        Handler::TimerGettime => timer::gettime.carry_out(call),
        Handler::TimerDelete => timer::timer_delete.carry_out(call),
        Handler::TimerfdCreate => timer::timerfd_create.carry_out(call),
        Handler::SetSocketOption => socket::setsockopt.carry_out(call),
        Handler::GetSocketOption => socket::getsockopt.carry_out(call),
        Handler::Receive => socket::receive.carry_out(call),
        Handler::RecvMmsg => socket::recvmmsg.carry_out(call),
        Handler::Send => {
            send_order::wait_until_visible(call.arg::<Fd>(0));
            socket::send.carry_out(call)
        }
        Handler::SendMany => {
            send_order::wait_until_visible(call.arg::<Fd>(0));
            wait::blocking(call, Masking::Repeats)
        }
        Handler::Splice => {
            send_order::wait_until_visible(call.arg::<Fd>(2));
            wait::blocking(call, Masking::Repeats)
        }
        Handler::Sysinfo => process::sysinfo.carry_out(call),
        Handler::Times => process::times.carry_out(call),
        Handler::Getrusage => process::getrusage.carry_out(call),
        Handler::Wait => process::wait.carry_out(call),
        Handler::Stat => file::stat(call),
        Handler::SetFileTimes => file::set_times.carry_out(call),
        Handler::Open => file::open.carry_out(call),
        Handler::SigProcMask => signals::rt_sigprocmask.carry_out(call),
        Handler::SigAction => signals::rt_sigaction.carry_out(call),
        Handler::SigSuspend => signals::rt_sigsuspend.carry_out(call),
        Handler::SigAltStack => altstack::sigaltstack.carry_out(call),
        Handler::SignalFd => signals::signalfd.carry_out(call),
        Handler::Exec => exec::exec.carry_out(call),
        Handler::Sandbox => exec::sandbox.carry_out(call),
        Handler::Trace => exec::trace.carry_out(call),
        Handler::Unshare => namespace::unshare.carry_out(call),
        Handler::Setns => namespace::setns.carry_out(call),
        Handler::Clone => clone_tracking::prepare.carry_out(call),
        Handler::Capset => rights::capset.carry_out(call),
    }
}
