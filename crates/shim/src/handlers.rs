//! The shim's handlers of SIGSYS and of the clock-change signal, in the kernel's eyes.
//!
//! The boot code registers the two functions. So code that installs them anew need not know them, and they may use that code.

use crate::gate;
use crate::layout::data;
use crate::sys::{self, sig, SaFlags, SigSet, Sigaction, HANDLER_FLAGS};
use crate::trap_mask;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Remembers the addresses of the two handlers.
pub fn register(on_sigsys: usize, on_change: usize) {
    let [sigsys, change] = &data().handlers;
    sigsys.store(on_sigsys, Relaxed);
    change.store(on_change, Relaxed);
}

/// Gives SIGSYS and the clock-change signal our handlers. Returns the actions before.
pub fn install() -> (Sigaction, Sigaction) {
    let own = |handler: usize, flags: SaFlags, mask: SigSet| Sigaction {
        handler,
        flags: HANDLER_FLAGS.with(flags),
        restorer: gate::restorer(),
        mask,
    };
    let [sigsys, change] = &data().handlers;
    // Signals wait while a trapped call is carried out, except a trap in a trap.
    let on_sigsys = own(sigsys.load(Relaxed), SaFlags::SA_NODEFER, trap_mask::get());
    let sigsys = sys::set_action(sig::SIGSYS, &on_sigsys);
    // Calls that were not trapped go on after a clock-change signal.
    let mask = trap_mask::get().with(SigSet::of(sig::SIGSYS));
    let on_change = own(change.load(Relaxed), SaFlags::SA_RESTART, mask);
    (sigsys, sys::set_action(sig::CLOCK_CHANGE, &on_change))
}

/// Adds `signal` to the trap handler's mask, before the program stops ignoring it.
pub fn mask(signal: u32) {
    trap_mask::add(signal);
    install_mask();
}

/// Removes `signal` from the trap handler's mask, after the program began to ignore it.
pub fn unmask(signal: u32) {
    trap_mask::remove(signal);
    install_mask();
}

/// Race: two threads change the mask, and the one that computed its handlers first installs them last. Therefore each repeats until
/// the mask is the one that it installed.
fn install_mask() {
    loop {
        let mask = data().trap_mask.load(SeqCst);
        install();
        if data().trap_mask.load(SeqCst) == mask {
            return;
        }
    }
}
