//! Installing the seccomp filter, and getting the descriptor on which its notifications arrive.

use crate::{Error, Result};
use lorentz_clock::Policy;
use lorentz_shim::filter::{Instruction, Program};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

#[repr(C)]
struct FilterProgram {
    len: u16,
    code: *const Instruction,
}

pub(crate) const SET_MODE_FILTER: libc::c_long = 1;
const FLAG_SPEC_ALLOW: libc::c_long = 1 << 2;
const FLAG_NEW_LISTENER: libc::c_long = 1 << 3;
/// For all threads, or for none with ESRCH: without this last, a thread's number would be the result.
const FLAG_ALL_THREADS: libc::c_long = 1 | 1 << 4;
/// Once the monitor has been told of a call, only a fatal signal takes it away again: Go's preemption would otherwise
/// interrupt and repeat it for ever.
const FLAG_WAIT_KILLABLE: libc::c_long = 1 << 5;
const FLAGS: libc::c_long = FLAG_SPEC_ALLOW | FLAG_NEW_LISTENER | FLAG_WAIT_KILLABLE;
/// The flags for a process that runs already.
pub(crate) const FLAGS_LIVE: libc::c_long = FLAGS | FLAG_ALL_THREADS;

/// Installs the filter on this process, for ever. Where the kernel wants it, the process gives up gaining privileges
/// by exec (no_new_privs) first.
pub fn install(policy: Policy) -> Result<OwnedFd> {
    let program = Program::of_program(policy);
    match listen(program.code()) {
        Ok(listener) => Ok(listener),
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
            // SAFETY: changes only this process's own rights, downwards.
            unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
            listen(program.code()).map_err(explain)
        }
        Err(error) => Err(explain(error)),
    }
}

fn listen(code: &[Instruction]) -> io::Result<OwnedFd> {
    let program = FilterProgram { len: code.len() as u16, code: code.as_ptr() };
    // SAFETY: the kernel copies the program and returns a new descriptor.
    unsafe {
        match libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, FLAGS, &program) {
            fd if fd < 0 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd as i32)),
        }
    }
}

pub(crate) fn explain(error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::EBUSY) => Error::Refused(
            "a seccomp filter with a listener is already in force here: lorentz does not run inside lorentz, nor inside \
             another supervisor of this kind"
                .into(),
        ),
        _ => Error::System("seccomp filter with notification (needs Linux 5.19)", error),
    }
}
