//! Whether this process is on a virtual clock, and at which rate that clock runs.
//!
//! A program on a virtual clock has the clock's page mapped at a known address. The counters of the processor are the
//! host's, so such a program must not read them. The clocks of the system are the virtual ones.

use lorentz_clock::{file, ClockPage, MAGIC};

/// Mask of the seven letters, without the version of the layout.
const MAGIC_MASK: u64 = 0x00ff_ffff_ffff_ffff;

/// Reads the first word of the page by a system call, so that a missing page is an error and not a fault.
fn first_word() -> Option<u64> {
    let mut word = 0u64;
    let local = libc::iovec { iov_base: (&raw mut word).cast(), iov_len: 8 };
    let remote = libc::iovec { iov_base: file::PAGE_ADDRESS as *mut _, iov_len: 8 };
    // SAFETY: the kernel writes at most eight bytes to `word`, and fails if nothing is mapped at the source.
    let copied = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    (copied == 8).then_some(word)
}

/// Whether the AT_SYSINFO_EHDR of the process lies in the shim's image. Used on hosts that forbid `process_vm_readv`.
fn vdso_is_ours() -> bool {
    // SAFETY: the call returns a word that the kernel stored at the start.
    let vdso = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
    (file::PAGE_ADDRESS - 0x8_0000..file::PAGE_ADDRESS).contains(&vdso)
}

/// Whether the clocks of this process are virtual.
pub fn is_here() -> bool {
    first_word().is_some_and(|word| word & MAGIC_MASK == MAGIC & MAGIC_MASK) || vdso_is_ours()
}

/// Returns the page of this process's clock, if it has one of the layout known here.
pub fn page() -> Option<&'static ClockPage> {
    if first_word() != Some(MAGIC) {
        return None;
    }
    // SAFETY: a page of this very layout lies there, and stays mapped until the program ends. The code only reads it,
    // and it consists only of atomics.
    Some(unsafe { &*(file::PAGE_ADDRESS as *const ClockPage) })
}
