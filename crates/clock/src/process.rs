//! Processes as the registry names them. A program knows only its number in its own process id namespace, and one clock may have
//! programs in several namespaces. A number therefore identifies a process only together with its namespace.

use crate::sync::{AtomicU32, Ordering};

/// Number of process id namespaces that one clock can tell apart, besides that of the first monitor.
#[cfg(not(loom))]
pub const MAX_PID_NAMESPACES: usize = 1_023;
/// A small number, so that the model has few states.
#[cfg(loom)]
pub const MAX_PID_NAMESPACES: usize = 1;

/// A process id namespace with programs on the clock, named by its slot in [`PidNamespaces`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PidNamespace(u32);

impl PidNamespace {
    /// The namespace of the clock's first monitor.
    pub const MONITOR: PidNamespace = PidNamespace(0);

    /// Returns the namespace as a number that the monitor can pass to a program.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Makes a namespace from the number that [`PidNamespace::bits`] returned.
    pub const fn from_bits(bits: u32) -> PidNamespace {
        PidNamespace(bits % (MAX_PID_NAMESPACES as u32 + 1))
    }
}

/// A process: its number in its own process id namespace, and that namespace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ProcessId(u32);

impl ProcessId {
    /// Mask of the process number. Numbers are below 2^22, the kernel's own limit.
    const NUMBER: u32 = (1 << 22) - 1;

    /// Makes the id of process `number` in `namespace`.
    pub const fn new(namespace: PidNamespace, number: u32) -> ProcessId {
        ProcessId(namespace.0 << 22 | number & ProcessId::NUMBER)
    }

    /// Returns the number that a process or thread has in its own process id namespace, from the text of its /proc/PID/status.
    /// `None` if the kernel does not say.
    pub fn number_inside(status: &str) -> Option<u32> {
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        // The numbers go from the outermost namespace that the reader sees to the innermost.
        numbers.split_ascii_whitespace().last()?.parse().ok()
    }

    /// Returns the process's namespace.
    pub const fn namespace(self) -> PidNamespace {
        PidNamespace(self.0 >> 22)
    }

    /// Returns the process's number in its namespace.
    pub const fn number(self) -> u32 {
        self.0 & ProcessId::NUMBER
    }

    /// Returns the word that stands for the process in shared memory.
    pub(crate) const fn bits(self) -> u32 {
        self.0
    }

    /// Returns the word that stands for one of the process's threads in shared memory; never 0.
    pub(crate) const fn key(self, thread: u32) -> u64 {
        (self.0 as u64) << 32 | thread as u64
    }

    pub(crate) const fn from_bits(bits: u32) -> ProcessId {
        ProcessId(bits)
    }
}

/// Table of the inode of each [`PidNamespace`], by which the kernel tells namespaces apart. A place that is taken stays taken as
/// long as the clock exists.
#[repr(C)]
#[cfg_attr(loom, derive(Default))]
pub struct PidNamespaces([AtomicU32; MAX_PID_NAMESPACES]);

impl PidNamespaces {
    /// Returns the namespace with this inode, and takes a slot for it if it has none. `None` means that no place is
    /// free.
    pub fn find_or_add(&self, inode: u32) -> Option<PidNamespace> {
        let index = self.0.iter().position(|slot| {
            let taken = slot.compare_exchange(0, inode, Ordering::AcqRel, Ordering::Acquire);
            taken.is_ok_and(|free| free == 0) || taken == Err(inode)
        })?;
        Some(PidNamespace(index as u32 + 1))
    }

    /// Returns the inode of `namespace`; `None` if no program has come from there.
    pub fn inode(&self, namespace: PidNamespace) -> Option<u32> {
        let slot = self.0.get((namespace.0 as usize).checked_sub(1)?)?;
        Some(slot.load(Ordering::Acquire)).filter(|inode| *inode != 0)
    }
}
