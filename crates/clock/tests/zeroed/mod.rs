//! Memory as a clock's file has it when it is made.

use std::alloc::{alloc_zeroed, handle_alloc_error, Layout};

/// A page or a registry of zeroes.
///
/// # Safety
///
/// All zeroes must be a value of `T`.
pub unsafe fn zeroed<T>() -> Box<T> {
    let layout = Layout::new::<T>();
    // SAFETY: neither type is of size zero.
    let memory = unsafe { alloc_zeroed(layout) };
    if memory.is_null() {
        handle_alloc_error(layout);
    }
    // SAFETY: just allocated for a `T`, which zeroes are by the caller's promise.
    unsafe { Box::from_raw(memory.cast()) }
}
