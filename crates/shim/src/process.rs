//! This process, as the registry knows it.

use crate::layout::{data, fork_data, registry};
use crate::sys::{self, sys, Sysno};
use core::sync::atomic::Ordering::Relaxed;
use lorentz_clock::{Epoch, Holder, PidNamespace, ProcessId};

/// This process's id. A child that a fork has put into another process id namespace is known from its first exec on.
pub fn own() -> ProcessId {
    numbered(sys::getpid())
}

/// Process `number` of the same namespace.
pub fn numbered(number: u32) -> ProcessId {
    ProcessId::new(PidNamespace::from_bits(data().space.load(Relaxed)), number)
}

/// This thread, as the holder of something in shared memory.
pub fn holder() -> Holder {
    Holder { epoch: epoch(), thread: sys::gettid() }
}

/// The life of this process: another one after each fork, whose child finds the word empty, and after each exec. A child made by
/// vfork shares its parent's.
pub fn epoch() -> Epoch {
    let word = &fork_data().epoch;
    match word.load(Relaxed) {
        0 => {
            let new = registry().new_epoch();
            // Another thread may have been first.
            Epoch(word.compare_exchange(0, new.0, Relaxed, Relaxed).err().unwrap_or(new.0))
        }
        known => Epoch(known),
    }
}

/// Whether this process is the one whose memory this is, not a child of its vfork.
pub fn owns_memory() -> bool {
    let owner = &fork_data().process;
    let pid = sys::getpid();
    match owner.load(Relaxed) {
        0 => {
            owner.store(pid, Relaxed);
            true
        }
        known => known == pid,
    }
}

/// Whether this thread has a capability in force.
pub fn has_capability(number: u32) -> bool {
    const VERSION_3: u64 = 0x2008_0522;
    let header = [VERSION_3];
    // Effective, permitted, inheritable; twice, for the low and the high capabilities.
    let mut sets = [0u32; 6];
    // SAFETY: reads the header, writes the sets.
    let known = unsafe { sys!(Sysno::capget, header.as_ptr(), sets.as_mut_ptr()) }.is_ok();
    let effective = u64::from(sets[3]) << 32 | u64::from(sets[0]);
    known && effective & 1 << number != 0
}
