//! Whether a clock's programs have marked files: with times that no timestamp of the host shows.

use crate::sync::{AtomicU32, Ordering};

/// A word in shared memory that begins as "no".
#[repr(transparent)]
#[cfg_attr(loom, derive(Default))]
pub struct FileMarks(AtomicU32);

impl FileMarks {
    /// Whether a program may have marked a file. A program that has seen the end of the call which marked it gets true.
    pub fn may_exist(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }

    /// Records that a program is about to mark a file. The word never goes back to "no", so nobody has to release it.
    pub fn will_exist(&self) {
        self.0.store(1, Ordering::Release);
    }
}
