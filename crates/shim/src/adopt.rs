//! Adoption: a process whose monitor has died gets a filter with a new listener, which the new monitor takes over.
//!
//! The new monitor traces one thread and sends it the clock-change signal with [`lorentz_clock::signal::ADOPT`]. The thread installs
//! the filter here and closes the listener. The monitor stops it in between and duplicates the listener. Race: the monitor dies
//! meanwhile. The thread then goes on, the listener is closed, and the process is as before, with one more filter.

use crate::filter::{flag, Program};
use crate::install_filter::{install, set_no_new_privs};
use crate::layout::registry;
use crate::sys::{close, to_fd};
use lorentz_clock::{failpoint, Failpoint};

/// Installs a filter with a listener in all threads, and closes the listener. If a monitor still listens, the kernel refuses it.
pub fn listen(no_new_privs: bool) {
    if no_new_privs {
        set_no_new_privs();
    }
    failpoint(registry(), Failpoint::BeforeFilter);
    let listener = install(&Program::of_adopted(), flag::LISTENING_LIVE);
    failpoint(registry(), Failpoint::AfterFilter);
    if let Ok(listener) = listener {
        close(to_fd(listener));
    }
}
