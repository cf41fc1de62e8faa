//! The signal mask of the trap handler: all signals but SIGSYS, so that a trap in a trap works, and but those that the program
//! ignores.
//!
//! Race: a thread carries out a trapped call with SIGCHLD blocked, and its child dies. The program ignores SIGCHLD by default, but
//! the kernel drops an ignored signal only if its target does not block it. So the kernel queues the signal, and wakes another
//! thread, whose epoll_wait returns EINTR though no handler ran. Therefore ignored signals stay unblocked.
//!
//! Race: a thread carries out a trapped call while another installs the first handler of a signal that was ignored. That handler
//! may run before the call has returned, on the stack of the trap handler, which has room for it. It may make calls of its own.

use crate::boot;
use crate::layout::{data, ProcessData, DATA};
use crate::sys::{self, sig, Sigaction};
use core::mem::offset_of;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

const EVERYTHING: u64 = !bit(sig::SIGSYS);
const SIG_IGN: usize = 1;

/// Address of the mask, for the kernel to read.
pub const ADDRESS: usize = DATA + offset_of!(ProcessData, trap_mask);

/// The mask as it is now.
pub fn get() -> u64 {
    data().trap_mask.load(Relaxed)
}

const fn bit(signal: u32) -> u64 {
    1 << (signal - 1)
}

/// Computes the mask from the dispositions that the program has at its start.
pub fn init() {
    let mut mask = EVERYTHING;
    for signal in (1..=64).filter(|signal| sig::OURS & bit(*signal) == 0) {
        let mut action = Sigaction::default();
        sys::sigaction(signal, None, Some(&mut action));
        if is_ignored(signal, &action) {
            mask &= !bit(signal);
        }
    }
    data().trap_mask.store(mask, Relaxed);
}

/// Whether `action` ignores `signal`, by SIG_IGN or by default.
pub fn is_ignored(signal: u32, action: &Sigaction) -> bool {
    const SIGCHLD: u32 = 17;
    const SIGCONT: u32 = 18;
    const SIGURG: u32 = 23;
    const SIGWINCH: u32 = 28;
    let by_default = matches!(signal, SIGCHLD | SIGCONT | SIGURG | SIGWINCH);
    action.handler == SIG_IGN || (action.handler == 0 && by_default)
}

/// Whether the mask changes when the program begins to ignore `signal`, or stops ignoring it.
pub fn changes(signal: u32, ignores: bool) -> bool {
    (1..=64).contains(&signal) && ignores == (get() & bit(signal) != 0)
}

/// Adds `signal`, before the program stops ignoring it.
pub fn add(signal: u32) {
    data().trap_mask.fetch_or(bit(signal), SeqCst);
    install();
}

/// Removes `signal`, after the program began to ignore it.
pub fn remove(signal: u32) {
    data().trap_mask.fetch_and(!bit(signal), SeqCst);
    install();
}

/// Race: two threads change the mask, and the one that computed its handlers first installs them last. Therefore each repeats until
/// the mask is the one that it installed.
fn install() {
    loop {
        let mask = data().trap_mask.load(SeqCst);
        boot::set_actions();
        if data().trap_mask.load(SeqCst) == mask {
            return;
        }
    }
}
