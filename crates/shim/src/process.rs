//! This process, as the registry knows it.

use crate::layout::data;
use crate::sys;
use core::sync::atomic::Ordering::Relaxed;
use lorentz_clock::{ProcessId, Space};

/// Who this process is. A child that a fork has put into another process id namespace is known from its first exec on.
pub fn own() -> ProcessId {
    numbered(sys::getpid())
}

/// Process `number` of the same namespace.
pub fn numbered(number: u32) -> ProcessId {
    ProcessId::new(Space::from_bits(data().space.load(Relaxed)), number)
}
