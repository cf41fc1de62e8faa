//! When a wait or a timer is due, on the clock by which it was stated.

use crate::instant::{VirtualInstant, WallTime};
use crate::sync::{AtomicI64, AtomicU32, Ordering};

/// The time at which a wait or a timer is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deadline {
    /// The wait or timer is due at an instant of the virtual monotonic clock.
    Virtual(VirtualInstant),
    /// The wait or timer is due when the wall clock shows this time. A step of the wall clock moves that instant.
    Wall(WallTime),
    /// The wait or timer is due when CLOCK_BOOTTIME shows this time. A suspend moves that instant.
    Boot(VirtualInstant),
    /// The wait or timer has no deadline.
    Never,
}

/// A [`Deadline`] as it lies in shared memory.
#[repr(C)]
#[cfg_attr(loom, derive(Default))]
pub(super) struct SharedDeadline {
    /// 0 never, 1 virtual, 2 wall, 3 boot.
    kind: AtomicU32,
    nanos: AtomicU32,
    /// Virtual ns for kind 1; seconds of wall time for kind 2; ns of CLOCK_BOOTTIME for kind 3.
    value: AtomicI64,
}

impl SharedDeadline {
    pub fn store(&self, deadline: Deadline) {
        let (kind, value, nanos) = match deadline {
            Deadline::Never => (0, 0, 0),
            Deadline::Virtual(instant) => (1, instant.0, 0),
            Deadline::Wall(wall) => (2, wall.secs, wall.nanos),
            Deadline::Boot(boot) => (3, boot.0, 0),
        };
        self.value.store(value, Ordering::Relaxed);
        self.nanos.store(nanos, Ordering::Relaxed);
        self.kind.store(kind, Ordering::Relaxed);
    }

    pub fn load(&self) -> Deadline {
        let value = self.value.load(Ordering::Relaxed);
        match self.kind.load(Ordering::Relaxed) {
            1 => Deadline::Virtual(VirtualInstant(value)),
            2 => {
                Deadline::Wall(WallTime { secs: value, nanos: self.nanos.load(Ordering::Relaxed) })
            }
            3 => Deadline::Boot(VirtualInstant(value)),
            _ => Deadline::Never,
        }
    }
}
