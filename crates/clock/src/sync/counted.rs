//! The atomics of the models. They count the stores of a writer, so that a model can have the writer die before any of them.

#![cfg(loom)]

use core::cell::Cell;
use std::boxed::Box;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};

use loom::sync::atomic::Ordering;

loom::thread_local! {
    /// Number of stores that this thread makes before it dies; `None` for a thread that lives on.
    static STORES_LEFT: Cell<Option<usize>> = Cell::new(None);
}

/// Payload of the panic by which a writer dies.
struct Death;

/// Runs `writer` on this thread, and has it die before its store number `nth`, counted from 0. Returns whether the writer completed
/// before that store.
///
/// Each store and each read-modify-write of an atomic of this crate counts.
pub fn completes_before_store(nth: usize, writer: impl FnOnce()) -> bool {
    STORES_LEFT.with(|left| left.set(Some(nth)));
    let end = catch_unwind(AssertUnwindSafe(writer));
    STORES_LEFT.with(|left| left.set(None));
    match end {
        Ok(()) => true,
        Err(payload) if payload.is::<Death>() => false,
        Err(payload) => resume_unwind(payload),
    }
}

/// Counts a store that this thread is about to make. Ends the writer instead if the model chose that store.
pub(super) fn count_store() {
    STORES_LEFT.with(|left| match left.get() {
        None => {}
        Some(0) => resume_unwind(Box::new(Death)),
        Some(stores) => left.set(Some(stores - 1)),
    });
}

macro_rules! counted {
    ($($name:ident: $atomic:ty, $value:ty;)*) => {$(
        /// An atomic whose stores are counted.
        #[derive(Default)]
        pub struct $name($atomic);

        #[allow(dead_code)]
        impl $name {
            pub(crate) fn load(&self, order: Ordering) -> $value {
                self.0.load(order)
            }

            pub(crate) fn store(&self, value: $value, order: Ordering) {
                count_store();
                self.0.store(value, order);
            }

            pub(crate) fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                count_store();
                self.0.fetch_add(value, order)
            }

            pub(crate) fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                count_store();
                self.0.fetch_or(value, order)
            }

            pub(crate) fn compare_exchange(
                &self,
                expected: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                count_store();
                self.0.compare_exchange(expected, new, success, failure)
            }
        }
    )*};
}

counted! {
    AtomicI64: loom::sync::atomic::AtomicI64, i64;
    AtomicU32: loom::sync::atomic::AtomicU32, u32;
    AtomicU64: loom::sync::atomic::AtomicU64, u64;
}

/// The same for words that the models leave out: their stores are counted, and a read returns the last value stored.
pub(crate) mod unmodelled {
    use super::{count_store, Ordering};

    counted! {
        AtomicI64: core::sync::atomic::AtomicI64, i64;
        AtomicU32: core::sync::atomic::AtomicU32, u32;
        AtomicU64: core::sync::atomic::AtomicU64, u64;
    }
}
