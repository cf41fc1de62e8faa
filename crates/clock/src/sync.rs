//! Atomics. In the model tests of the page protocol, loom's take their place.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{fence, AtomicI64, AtomicU32, AtomicU64, Ordering};

mod counted;
#[cfg(loom)]
pub use counted::completes_before_store;
#[cfg(loom)]
pub(crate) use counted::{unmodelled, AtomicI64, AtomicU32, AtomicU64};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{fence, Ordering};

/// Atomics for words that are only copied along with others. The models leave them out, to have fewer states.
#[cfg(not(loom))]
pub(crate) mod unmodelled {
    pub(crate) use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};
}

/// Two words that one compare-and-swap of 16 bytes changes together. Every operation is a full barrier.
#[cfg(not(loom))]
#[repr(C, align(16))]
#[derive(Default)]
pub(crate) struct AtomicPair(core::cell::UnsafeCell<[u64; 2]>);

// SAFETY: only `lock cmpxchg16b` reads and writes the memory.
#[cfg(not(loom))]
unsafe impl Sync for AtomicPair {}

#[cfg(not(loom))]
impl AtomicPair {
    /// Stores `new` if the pair is `expected`. Both `Ok` and `Err` carry the pair before the call.
    pub(crate) fn compare_exchange(
        &self,
        expected: [u64; 2],
        new: [u64; 2],
    ) -> Result<[u64; 2], [u64; 2]> {
        let (mut low, mut high) = (expected[0], expected[1]);
        // SAFETY: the address is valid and aligned to 16 bytes. The compiler reserves rbx, so the code saves and restores rbx.
        unsafe {
            core::arch::asm!(
                "mov {saved}, rbx",
                "mov rbx, rsi",
                "lock cmpxchg16b xmmword ptr [rdi]",
                "mov rbx, {saved}",
                saved = out(reg) _,
                in("rdi") self.0.get(),
                in("rsi") new[0],
                in("rcx") new[1],
                inout("rax") low,
                inout("rdx") high,
                options(nostack)
            );
        }
        let before = [low, high];
        if before == expected {
            Ok(before)
        } else {
            Err(before)
        }
    }
}

/// The same for the models: each operation takes a lock.
#[cfg(loom)]
#[derive(Default)]
pub(crate) struct AtomicPair(loom::sync::Mutex<[u64; 2]>);

#[cfg(loom)]
impl AtomicPair {
    pub(crate) fn compare_exchange(
        &self,
        expected: [u64; 2],
        new: [u64; 2],
    ) -> Result<[u64; 2], [u64; 2]> {
        counted::count_store();
        let mut pair = self.0.lock().unwrap();
        let before = *pair;
        if before == expected {
            *pair = new;
            Ok(before)
        } else {
            Err(before)
        }
    }
}

impl AtomicPair {
    /// Returns the pair.
    pub(crate) fn load(&self) -> [u64; 2] {
        match self.compare_exchange([0; 2], [0; 2]) {
            Ok(pair) | Err(pair) => pair,
        }
    }
}

/// Loads `word` after `clock` was read from the host's clock, in the order in which the processor executes.
///
/// `rdtsc` waits for the loads before it, but later loads may pass it. The address of this load depends on the clock's result, so
/// this load cannot pass. An `lfence` would do the same and costs ten times as much.
#[inline(always)]
pub(crate) fn load_after(clock: i64, word: &AtomicU64) -> u64 {
    #[cfg(not(any(loom, miri)))]
    {
        let none: usize;
        // SAFETY: `and` with zero touches no memory. The compiler treats the result as unknown, the processor as dependent on
        // `clock`.
        unsafe {
            core::arch::asm!(
                "and {0}, 0",
                inout(reg) clock as usize => none,
                options(pure, nomem, nostack)
            );
        }
        // SAFETY: `none` is zero, so the address is that of `word`.
        unsafe { &*core::ptr::from_ref(word).byte_add(none) }.load(Ordering::Relaxed)
    }
    #[cfg(any(loom, miri))]
    {
        let _ = clock;
        word.load(Ordering::Relaxed)
    }
}
