//! The clock-change signal: a thread that gets it looks at the clock again.

use crate::adopt;
use crate::call;
use crate::call_sites::{self, SITE_LEN};
use crate::gate::{self, At};
use crate::signals;
use crate::sys::{reg, sig, Errno, Siginfo, Ucontext, UserPtr};
use crate::timers;
use crate::trap_mask;
use crate::user;
use crate::wait;
use lorentz_clock::signal::{call_of, fingerprint, ADOPT, ADOPT_NO_NEW_PRIVS, MAGIC, NO_CALL};
use lorentz_syscalls::{row, Restart, Syscall};

/// The handler of [`sig::CLOCK_CHANGE`].
///
/// # Safety
/// Called by the kernel as a signal handler.
pub unsafe extern "C" fn on_change_signal(
    _signal: i32,
    info: *mut Siginfo,
    context: *mut Ucontext,
) {
    // SAFETY: the kernel's arguments.
    let (info_ref, context_ref) = unsafe { (&*info, &mut *context) };
    let kind = (info_ref.second >> 32) as u32;
    if info_ref.code != sig::SI_QUEUE || !matches!(kind, MAGIC | ADOPT | ADOPT_NO_NEW_PRIVS) {
        // SAFETY: as above.
        unsafe { signals::forward(sig::CLOCK_CHANGE, info, context) };
        return;
    }
    if kind != MAGIC {
        adopt::listen(kind == ADOPT_NO_NEW_PRIVS);
    }
    let due = timers::rearm_all();
    let (ip, result) = (context_ref.regs[reg::RIP] as usize, context_ref.regs[reg::RAX] as isize);
    match gate::at(ip) {
        Some(gate) => turn_back(context_ref, gate, due),
        // A signal that is waiting, such as that of a timer that this change has made due, breaks off the call by itself.
        None if Errno::check(result) == Err(Errno::EINTR)
            && !call::was_trapped(&context_ref.regs)
            && !wait::signal_comes(context_ref.mask, due) =>
        {
            repeat_untrapped(&mut context_ref.regs, info_ref.second as u32);
        }
        None => {}
    }
}

/// A thread at a gate looks at the clock anew. Signals of the program's that wait for it by then break off its call.
fn turn_back(context: &mut Ucontext, gate: At, due: bool) {
    let regs = &context.regs;
    let turned = gate.turned_back(regs[reg::RIP] as usize, regs[reg::RAX] as isize);
    let Some((ip, result)) = turned else { return };
    // The signal of a timer that this change has made due is one of them.
    wait::signal_comes(context.mask, due);
    context.regs[reg::RIP] = ip as u64;
    context.regs[reg::RAX] = result as u64;
    if gate == At::OpenGate {
        context.mask = context.mask.with(trap_mask::get());
    }
}

/// A thread in a call that was not trapped, such as epoll_wait(-1) or pause, got EINTR from the clock-change signal alone. It makes
/// the call again, if it still is where the controller saw it, or if the code shows the number of the call.
fn repeat_untrapped(regs: &mut [u64; 23], sent: u32) {
    let call = call_of(sent);
    let known = sent != NO_CALL && fingerprint(call, regs[reg::RIP], regs[reg::RSP]) == sent;
    if let Some(call) = if known { Some(call) } else { call_before(regs[reg::RIP]) } {
        regs[reg::RAX] = call as u64;
        regs[reg::RIP] -= 2;
    }
}

/// The call that the code before `ip` has made, where that is `mov eax, NUMBER; syscall`, rewritten or not, and the kernel does not restart the call
/// by itself. poll and select look for signals even where they do not wait: a thread that runs may be in one.
fn call_before(ip: u64) -> Option<u32> {
    const MOV_EAX: u8 = 0xb8;
    let mut code = [0u8; SITE_LEN];
    user::read_bytes(UserPtr::new(ip.checked_sub(SITE_LEN as u64)?), &mut code).ok()?;
    let call = match code {
        [MOV_EAX, number @ .., 0x0f, 0x05] => u32::from_le_bytes(number),
        _ => call_sites::number_at(ip, &code)?,
    };
    let restarts =
        |row: &Syscall| matches!(row.restart, Restart::ByKernel | Restart::UnlessTimeout);
    row(call).is_some_and(|row| !restarts(row)).then_some(call)
}
