//! Installing a seccomp filter on this process.

use crate::filter::{Instruction, Program, SET_MODE_FILTER};
use crate::sys::{sys, SysResult, Sysno};

/// Installs `program` on the calling thread, and on others as `flags` say, of [`crate::filter::flag`]. Returns the listener, where one
/// is asked for.
pub fn install<const N: usize>(program: &Program<N>, flags: u32) -> SysResult {
    /// struct sock_fprog.
    #[repr(C)]
    struct Filter {
        len: u16,
        code: *const Instruction,
    }
    let code = program.code();
    let filter = Filter { len: code.len() as u16, code: code.as_ptr() };
    // SAFETY: the kernel copies the program.
    unsafe { sys!(Sysno::seccomp, SET_MODE_FILTER, flags, &raw const filter) }
}

/// Gives up for good what execs of setuid programs would gain. The kernel then lets the calling thread, and others together with it,
/// install filters without CAP_SYS_ADMIN.
pub fn set_no_new_privs() {
    const PR_SET_NO_NEW_PRIVS: u32 = 38;
    // SAFETY: plain numbers.
    let _ = unsafe { sys!(Sysno::prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
}
