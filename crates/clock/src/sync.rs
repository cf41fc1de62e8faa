//! Atomics, swapped for loom's in the model tests of the page protocol.

#[cfg(not(loom))]
pub(crate) use core::{
    hint::spin_loop,
    sync::atomic::{fence, AtomicI64, AtomicU32, AtomicU64, Ordering},
};

#[cfg(loom)]
pub(crate) use loom::{
    hint::spin_loop,
    sync::atomic::{fence, AtomicI64, AtomicU32, AtomicU64, Ordering},
};

/// Words that only come along with others: no part of the models, which would have too many states.
pub(crate) mod along {
    pub(crate) use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};
}
