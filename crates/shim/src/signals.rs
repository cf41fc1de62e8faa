//! The program's view of its signals, where ours differ.
//!
//! SIGSYS and the kick signal must never be blocked or lose their handlers, or the next trapped call would end the
//! program. So calls that may block signals are trapped and those two taken out; what the program does with
//! the two themselves is remembered, told back, and followed when somebody else sends them.

use crate::layout::{data, fork_data, Disposition};
use crate::sys::{self, errno, nr, sig, sys, Itimerspec, Sigaction, Siginfo, Ucontext};
use crate::trap::Call;
use crate::user;
use crate::wait::{self, Masking};
use core::sync::atomic::Ordering::Relaxed;

const SIGSET_LEN: u64 = 8;

impl Disposition {
    /// Remembers `action`.
    pub fn store(&self, action: &Sigaction) {
        self.handler.store(action.handler, Relaxed);
        self.flags.store(action.flags, Relaxed);
        self.restorer.store(action.restorer, Relaxed);
        self.mask.store(action.mask, Relaxed);
    }

    /// What is remembered.
    pub fn load(&self) -> Sigaction {
        Sigaction {
            handler: self.handler.load(Relaxed),
            flags: self.flags.load(Relaxed),
            restorer: self.restorer.load(Relaxed),
            mask: self.mask.load(Relaxed),
        }
    }
}

/// The program's own disposition of a signal that has a handler of ours.
fn virtual_disposition(signal: u64) -> Option<&'static Disposition> {
    let data = data();
    match signal as u32 {
        sig::SIGSYS => Some(&data.sigsys),
        sig::KICK => Some(&data.kick),
        sig::SIGSEGV if data.tsc_hz.load(Relaxed) != 0 => Some(&data.sigsegv),
        _ => None,
    }
}

/// rt_sigprocmask(2), as far as it blocks signals: changes the mask that comes into force at the return.
pub fn rt_sigprocmask(call: &mut Call) -> isize {
    const BLOCK: i32 = 0;
    const SETMASK: i32 = 2;
    let [how, new, old, size, ..] = call.args;
    if size != SIGSET_LEN {
        return -errno::EINVAL;
    }
    let set = match user::read_sigset(new) {
        Ok(set) => set,
        Err(error) => return error,
    };
    let before = call.context.mask;
    let after = match how as i32 {
        BLOCK => before | set,
        SETMASK => set,
        _ => return -errno::EINVAL,
    };
    call.context.mask = after & !sig::OURS;
    if old != 0 {
        if let Err(error) = user::write_u64(old, before) {
            return error;
        }
    }
    0
}

/// rt_sigaction(2) with a new action: ours are remembered, the others' masks cleaned of ours.
pub fn rt_sigaction(call: &mut Call) -> isize {
    let [signal, new, old, size, ..] = call.args;
    if size != SIGSET_LEN {
        return -errno::EINVAL;
    }
    let mut action = match user::read_itimer(new) {
        // SAFETY: both are four words.
        Ok(words) => unsafe { core::mem::transmute::<Itimerspec, Sigaction>(words) },
        Err(error) => return error,
    };
    action.mask &= !sig::OURS;
    let Some(disposition) = virtual_disposition(signal) else {
        // SAFETY: our copy of the new action; the old one goes where the program said.
        return unsafe { sys!(nr::RT_SIGACTION, signal, &action as *const Sigaction, old, size) };
    };
    let before = disposition.load();
    if old != 0 {
        // SAFETY: both are four words.
        let words = unsafe { core::mem::transmute::<Sigaction, Itimerspec>(before) };
        if let Err(error) = user::write_itimer(old, words) {
            return error;
        }
    }
    // A child made by vfork shares this memory and clears every signal before it execs: not its parent's.
    if owns_memory() {
        disposition.store(&action);
    }
    0
}

/// Whether this process is the one whose memory this is, not a child of its vfork.
fn owns_memory() -> bool {
    let owner = &fork_data().process;
    let pid = sys::getpid();
    match owner.load(Relaxed) {
        0 => {
            owner.store(pid, Relaxed);
            true
        }
        known => known == pid,
    }
}

/// rt_sigsuspend(2): with ours left open.
pub fn rt_sigsuspend(call: &mut Call) -> isize {
    let [set, size, ..] = call.args;
    if size != SIGSET_LEN {
        return -errno::EINVAL;
    }
    let mask = match user::read_sigset(set) {
        Ok(mask) => mask & !sig::OURS,
        Err(error) => return error,
    };
    let args = [&mask as *const u64 as u64, size, 0, 0, 0, 0, nr::RT_SIGSUSPEND as u64];
    wait::wait_untimed(call, &args, Masking::ByCall)
}

/// A mask that a waiting call puts in force, read from the program and cleaned of ours; the program's own
/// where it gives none.
pub fn waiting_mask(call: &Call, at: u64, size: u64) -> Result<u64, isize> {
    if at == 0 {
        return Ok(call.mask());
    }
    if size != SIGSET_LEN {
        return Err(-errno::EINVAL);
    }
    Ok(user::read_sigset(at)? & !sig::OURS)
}

/// Somebody else sent a signal that has a handler of ours: do with it what the program wants done.
///
/// # Safety
/// The arguments of a signal handler.
pub unsafe fn forward(signal: u32, info: *mut Siginfo, context: *mut Ucontext) {
    const DEFAULT: usize = 0;
    const IGNORE: usize = 1;
    let Some(disposition) = virtual_disposition(signal as u64) else { return };
    let action = disposition.load();
    match action.handler {
        IGNORE => {}
        DEFAULT => {
            sys::sigaction(signal, Some(&Sigaction::default()), None);
            // SAFETY: a signal to this very thread; it ends the process at the latest when the handler returns.
            unsafe { sys!(nr::TGKILL, sys::getpid(), sys::gettid(), signal) };
        }
        handler => {
            // SAFETY: the program's own handler, called as the kernel would have called it.
            unsafe {
                sys::set_mask(((*context).mask | action.mask | 1 << (signal - 1)) & !sig::OURS);
                core::mem::transmute::<usize, extern "C" fn(i32, *mut Siginfo, *mut Ucontext)>(handler)(
                    signal as i32,
                    info,
                    context,
                );
                sys::set_mask(!(1 << (sig::SIGSYS - 1)));
            }
        }
    }
}
