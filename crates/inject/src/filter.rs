//! Installing the seccomp filter, and getting its listener: the descriptor of its notifications.

use crate::{Error, Result};
use lorentz_clock::Policy;
use lorentz_shim::filter::{flag, Instruction, Program, SET_MODE_FILTER};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// struct sock_fprog, for instructions of type `T` (8 bytes each).
#[repr(C)]
pub(crate) struct SockFprog<T> {
    len: u16,
    code: *const T,
}

impl<T> SockFprog<T> {
    /// Makes the structure for `code`, which must outlive it.
    pub fn new(code: &[T]) -> SockFprog<T> {
        SockFprog { len: code.len() as u16, code: code.as_ptr() }
    }
}

/// Installs the filter on this process, for ever, and returns its listener. If the kernel requires it, the process sets
/// no_new_privs first.
pub fn install(policy: Policy) -> Result<OwnedFd> {
    let program = Program::of_program(policy);
    match listen(program.code()) {
        Ok(listener) => Ok(listener),
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
            // SAFETY: the call only reduces the rights of this process.
            unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
            listen(program.code()).map_err(explain)
        }
        Err(error) => Err(explain(error)),
    }
}

fn listen(code: &[Instruction]) -> io::Result<OwnedFd> {
    let program = SockFprog::new(code);
    // SAFETY: the kernel copies the program and returns a new descriptor.
    unsafe {
        let [mode, flags] = [SET_MODE_FILTER, flag::LISTENING].map(u64::from);
        match libc::syscall(libc::SYS_seccomp, mode, flags, &program) {
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
