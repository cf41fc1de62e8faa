//! Whether this process lives in virtual time, and how fast that runs.
//!
//! A program on a virtual clock has the clock's page mapped at a known address. There the counters of the processor
//! are the host's and must not be read: the clocks of the system are the virtual ones.

use lorentz_clock::{file, ClockPage, MAGIC};

/// The seven letters, without the version of the layout.
const NAME: u64 = 0x00ff_ffff_ffff_ffff;

/// The first word of the page, fetched so that a missing page is an error and not a fault.
fn first_word() -> Option<u64> {
    let mut word = 0u64;
    let local = libc::iovec { iov_base: (&raw mut word).cast(), iov_len: 8 };
    let remote = libc::iovec { iov_base: file::PAGE_ADDRESS as *mut _, iov_len: 8 };
    // SAFETY: the kernel writes at most eight bytes to `word`, and fails where nothing is mapped to read from.
    let copied = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    (copied == 8).then_some(word)
}

/// Whether the AT_SYSINFO_EHDR of the process is in the shim's image: for hosts that forbid `process_vm_readv`.
fn vdso_is_ours() -> bool {
    // SAFETY: asks for a word that the kernel left at the start.
    let vdso = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
    (file::PAGE_ADDRESS - 0x8_0000..file::PAGE_ADDRESS).contains(&vdso)
}

/// Whether the clocks of this process are virtual.
pub fn is_here() -> bool {
    first_word().is_some_and(|word| word & NAME == MAGIC & NAME) || vdso_is_ours()
}

/// The page of this process's clock, where there is one of the layout that is known here.
pub fn page() -> Option<&'static ClockPage> {
    if first_word() != Some(MAGIC) {
        return None;
    }
    // SAFETY: a page of this very layout lies there, mapped until the program ends; it is only read, and all of it are
    // atomics.
    Some(unsafe { &*(file::PAGE_ADDRESS as *const ClockPage) })
}
