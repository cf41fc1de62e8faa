//! The signal that tells a thread: the clock has changed, look again.

use crate::gate;
use crate::signals;
use crate::sys::{errno, reg, sig, Siginfo, Ucontext};
use crate::timers;
use crate::wait;

/// High half of the value that comes with a kick; the low half is a [`sighting`], or [`NO_CALL`].
pub const KICK_MAGIC: u32 = 0x4c7a_6b21;
/// Low half: the thread was not seen in a call that a kick would break off.
pub const NO_CALL: u32 = u32::MAX;

/// A thread seen blocked in system call `call` at these registers, in 32 bits: 10 of the call, 22 of the place.
pub fn sighting(call: u32, ip: u64, sp: u64) -> u32 {
    let place = (ip ^ sp.rotate_left(17)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 42;
    (call & 0x3ff) << 22 | place as u32
}

/// The handler of [`sig::KICK`].
///
/// # Safety
/// Called by the kernel as a signal handler.
pub unsafe extern "C" fn on_kick(_signal: i32, info: *mut Siginfo, context: *mut Ucontext) {
    // SAFETY: the kernel's arguments.
    let (info_ref, context_ref) = unsafe { (&*info, &mut *context) };
    if info_ref.code != sig::SI_QUEUE || (info_ref.second >> 32) as u32 != KICK_MAGIC {
        // SAFETY: as above.
        unsafe { signals::forward(sig::KICK, info, context) };
        return;
    }
    let due = timers::rearm_all();
    let broken_off = context_ref.regs[reg::RAX] as isize == -errno::EINTR;
    let at_gate = gate::is_at(context_ref.regs[reg::RIP] as usize);
    if !at_gate && !broken_off {
        return;
    }
    // A signal that is waiting, such as that of a timer that this change has made due, breaks off the call by itself.
    let by_signal = wait::signal_comes(context_ref.mask, due);
    let regs = &mut context_ref.regs;
    if at_gate {
        let result = if by_signal { -errno::EINTR } else { gate::RETRY };
        if let Some((ip, result)) =
            gate::turn_back(regs[reg::RIP] as usize, regs[reg::RAX] as isize, result)
        {
            regs[reg::RIP] = ip as u64;
            regs[reg::RAX] = result as u64;
        }
    } else if !by_signal {
        repeat_untrapped(regs, info_ref.second as u32);
    }
}

/// A thread that was blocked in a call without a timeout, such as epoll_wait(-1) or pause, got EINTR from the
/// kick alone: nobody sent it a signal of its own. It makes the call again, if it still is where it was seen.
fn repeat_untrapped(regs: &mut [u64; 23], seen: u32) {
    let call = seen >> 22;
    if seen != NO_CALL && sighting(call, regs[reg::RIP], regs[reg::RSP]) == seen {
        regs[reg::RAX] = call as u64;
        regs[reg::RIP] -= 2;
    }
}
