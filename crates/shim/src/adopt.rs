//! Adoption: a process whose monitor has died gets a filter with a new listener, which the new monitor takes over.
//!
//! The new monitor traces one thread and sends it the clock-change signal with [`lorentz_clock::signal::ADOPT`]. The thread installs
//! the filter here and closes the listener. The monitor stops it in between and duplicates the listener. Race: the monitor dies
//! meanwhile. The thread then goes on, the listener is closed, and the process is as before, with one more filter.

use crate::filter::{flag, Program};
use crate::install_filter::install;
use crate::layout::registry;
use crate::sys::{close, sys, to_fd, Sysno};
use lorentz_clock::{failpoint, Failpoint};

/// Installs a filter with a listener in all threads, and closes the listener. If a monitor still listens, the kernel refuses it.
pub fn listen(no_new_privs: bool) {
    const PR_SET_NO_NEW_PRIVS: u32 = 38;
    if no_new_privs {
        // SAFETY: plain numbers.
        let _ = unsafe { sys!(Sysno::prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    }
    failpoint(registry(), Failpoint::BeforeFilter);
    let listener = install(&Program::of_adopted(), flag::LISTENING_LIVE);
    failpoint(registry(), Failpoint::AfterFilter);
    if let Ok(listener) = listener {
        close(to_fd(listener));
    }
}
