//! The signal mask of the trap handler: all signals but SIGSYS, so that a trap in a trap works, and but those that the program
//! ignores.
//!
//! Race: a thread carries out a trapped call with SIGCHLD blocked, and its child dies. The program ignores SIGCHLD by default, but
//! the kernel drops an ignored signal only if its target does not block it. So the kernel queues the signal, and wakes another
//! thread, whose epoll_wait returns EINTR though no handler ran. Therefore ignored signals stay unblocked.
//!
//! Race: a thread carries out a trapped call while another installs the first handler of a signal that was ignored. That handler
//! may run before the call has returned, on the stack of the trap handler, which has room for it. It may make calls of its own.

use crate::layout::data;
use crate::sys::{self, sig, SigSet, Sigaction};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

const EVERYTHING: SigSet = SigSet::ALL.without(SigSet::of(sig::SIGSYS));

/// The mask as it is now.
pub fn get() -> SigSet {
    SigSet::new(data().trap_mask.load(Relaxed))
}

/// Computes the mask from the dispositions that the program has at its start.
pub fn init() {
    let mut mask = EVERYTHING;
    for signal in (1..=64).filter(|signal| !sig::OURS.has(*signal)) {
        if is_ignored(signal, &sys::action_of(signal)) {
            mask = mask.without(SigSet::of(signal));
        }
    }
    data().trap_mask.store(mask.bits(), Relaxed);
}

/// Whether `action` ignores `signal`, by SIG_IGN or by default.
pub fn is_ignored(signal: u32, action: &Sigaction) -> bool {
    const SIGCHLD: u32 = 17;
    const SIGCONT: u32 = 18;
    const SIGURG: u32 = 23;
    const SIGWINCH: u32 = 28;
    let by_default = matches!(signal, SIGCHLD | SIGCONT | SIGURG | SIGWINCH);
    action.handler == Sigaction::SIG_IGN || (action.handler == Sigaction::SIG_DFL && by_default)
}

/// Whether the mask changes when the program begins to ignore `signal`, or stops ignoring it.
pub fn changes(signal: u32, ignores: bool) -> bool {
    (1..=64).contains(&signal) && ignores == get().has(signal)
}

/// Adds `signal` to the mask; the handlers still have the one before.
pub fn add(signal: u32) {
    data().trap_mask.fetch_or(SigSet::of(signal).bits(), SeqCst);
}

/// Removes `signal` from the mask; the handlers still have the one before.
pub fn remove(signal: u32) {
    data().trap_mask.fetch_and(!SigSet::of(signal).bits(), SeqCst);
}
