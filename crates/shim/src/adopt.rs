//! Adoption: a process whose monitor has died gets a filter with a new listener, which the new monitor takes over.
//!
//! The new monitor traces one thread and sends it the clock-change signal with [`lorentz_clock::signal::ADOPT`]. The thread installs
//! the filter here and closes the listener. The monitor stops it in between and duplicates the listener. Race: the monitor dies
//! meanwhile. The thread then goes on, the listener is closed, and the process is as before, with one more filter.

use crate::filter::{Instruction, Program};
use crate::layout::registry;
use crate::sys::{close, sys, to_fd, Sysno};
use lorentz_clock::{failpoint, Failpoint};

/// First argument of seccomp(2).
pub const SET_MODE_FILTER: u32 = 1;
/// Flags of the filter: all threads or none, no mitigation of speculation, a listener, and no signal that interrupts a call of which the
/// monitor has been notified.
pub const FLAGS: u32 = 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5;

/// Installs a filter with a listener in all threads, and closes the listener. If a monitor still listens, the kernel refuses it.
pub fn listen(no_new_privs: bool) {
    #[repr(C)]
    struct Filter {
        len: u16,
        code: *const Instruction,
    }
    const PR_SET_NO_NEW_PRIVS: u32 = 38;
    if no_new_privs {
        // SAFETY: plain numbers.
        let _ = unsafe { sys!(Sysno::prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    }
    failpoint(registry(), Failpoint::BeforeFilter);
    let program = Program::of_adopted();
    let filter = Filter { len: program.code().len() as u16, code: program.code().as_ptr() };
    // SAFETY: the kernel copies the filter.
    let listener = unsafe { sys!(Sysno::seccomp, SET_MODE_FILTER, FLAGS, &raw const filter) };
    failpoint(registry(), Failpoint::AfterFilter);
    if let Ok(listener) = listener {
        close(to_fd(listener));
    }
}
