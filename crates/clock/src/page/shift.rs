//! Instants in shared memory, moved to another host's clock.

use crate::instant::{RealInstant, Span};
use crate::sync::{AtomicI64, Ordering};

/// Adds to an instant in shared memory, unless it is never.
pub(super) fn add(word: &AtomicI64, by: Span) {
    let instant = RealInstant(word.load(Ordering::Relaxed));
    if instant != RealInstant::NEVER {
        word.store(instant.plus(by).0, Ordering::Relaxed);
    }
}
