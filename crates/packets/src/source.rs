//! Where records come from: the tracepoints, or stamps that travel with the packets.

use crate::fault::PacketsError;
use crate::kernel::Counters;
use crate::namespace::{Namespace, OuterDevice};
use crate::record::RECORD;

/// What a watcher asks of the programs in the kernel. Namespaces have a number each, by which records name them.
pub(crate) trait Source {
    /// Makes `device`, in the namespace with this cookie, one at which containers' stacks end.
    fn add_outer(&mut self, device: &OuterDevice, cookie: u64) -> Result<(), PacketsError>;
    /// Watches `namespace` and counts from nothing.
    fn add(&mut self, namespace: &Namespace, number: u16) -> Result<(), PacketsError>;
    /// Watches it no more and forgets it.
    fn remove(&mut self, namespace: &Namespace, number: u16) -> Result<(), PacketsError>;
    /// Goes on watching it, or stops for now.
    fn switch(&mut self, namespace: &Namespace, number: u16, on: bool) -> Result<(), PacketsError>;
    /// What was counted of it in the kernel.
    fn counters(&self, namespace: &Namespace, number: u16) -> Result<Counters, PacketsError>;
    /// Records that have come since the last time.
    fn records(&mut self) -> Result<Vec<[u8; RECORD]>, PacketsError>;
    /// Clears what has waited too long, at CLOCK_MONOTONIC `now`, and gives the misses among it. With `all`, whatever its age.
    fn sweep(&mut self, now: u64, all: bool) -> Result<Vec<[u8; RECORD]>, PacketsError>;
}
