//! Processes as the registry knows them. A program knows its number in its own process id namespace alone, and on one clock
//! there may be several: a number says who it is only together with its namespace.

use crate::sync::{AtomicU32, Ordering};

/// Process id namespaces that one clock can tell apart, besides that of the first monitor.
#[cfg(not(loom))]
pub const SPACES: usize = 1_023;
/// Small, so that the model stays small.
#[cfg(loom)]
pub const SPACES: usize = 1;

/// A process id namespace with programs on the clock, by its place in [`Spaces`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Space(u32);

impl Space {
    /// That of the command which looks after the programs.
    pub const MONITORS: Space = Space(0);

    /// As a number that a program can be told.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The inverse.
    pub const fn from_bits(bits: u32) -> Space {
        Space(bits % (SPACES as u32 + 1))
    }
}

/// A process: its number in its own process id namespace, and which that is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ProcessId(u32);

impl ProcessId {
    /// Numbers are below 2^22, the kernel's own limit.
    const NUMBER: u32 = (1 << 22) - 1;

    /// Process `number` of `space`.
    pub const fn new(space: Space, number: u32) -> ProcessId {
        ProcessId(space.0 << 22 | number & ProcessId::NUMBER)
    }

    /// Its namespace.
    pub const fn space(self) -> Space {
        Space(self.0 >> 22)
    }

    /// Its number there.
    pub const fn number(self) -> u32 {
        self.0 & ProcessId::NUMBER
    }

    /// As it lies in shared memory.
    pub(crate) const fn bits(self) -> u32 {
        self.0
    }

    /// One of its threads, as it lies in shared memory; never 0.
    pub(crate) const fn key(self, thread: u32) -> u64 {
        (self.0 as u64) << 32 | thread as u64
    }

    pub(crate) const fn from_bits(bits: u32) -> ProcessId {
        ProcessId(bits)
    }
}

/// Which process id namespace each [`Space`] is: its inode, by which the kernel tells them apart. A place that is taken
/// stays so as long as the clock lives.
#[repr(C)]
#[cfg_attr(loom, derive(Default))]
pub struct Spaces([AtomicU32; SPACES]);

impl Spaces {
    /// The space of the namespace with this inode; none where there is no place left for it.
    pub fn of(&self, inode: u32) -> Option<Space> {
        let place = self.0.iter().position(|place| {
            let taken = place.compare_exchange(0, inode, Ordering::AcqRel, Ordering::Acquire);
            taken.is_ok_and(|free| free == 0) || taken == Err(inode)
        })?;
        Some(Space(place as u32 + 1))
    }

    /// The inode of the namespace that `space` is; none where nobody has come from there.
    pub fn inode(&self, space: Space) -> Option<u32> {
        let place = self.0.get((space.0 as usize).checked_sub(1)?)?;
        Some(place.load(Ordering::Acquire)).filter(|inode| *inode != 0)
    }
}
