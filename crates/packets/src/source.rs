//! Sources of records: the tracepoints, or timestamps that travel with the packets.

use crate::error::PacketsError;
use crate::namespace::{Namespace, OuterDevice};
use crate::record::RECORD_LEN;

/// Counters of the BPF programs, for each namespace.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Records for which the ring buffer had no room.
    pub dropped: u64,
    /// Packets for which there was no room in a table.
    pub full: u64,
    /// Packets that left outside any send call of their socket's owner.
    pub unclaimed: u64,
    /// Packets that came, but not through the outer device.
    pub inside: u64,
}

/// Interface of a watcher to the BPF programs. Each namespace has a number, which its records carry.
pub(crate) trait RecordSource {
    /// Makes `device` an outer device. `cookie` identifies the device's network namespace.
    fn add_outer(&mut self, device: &OuterDevice, cookie: u64) -> Result<(), PacketsError>;
    /// Starts watching `namespace`, with counters at 0.
    fn add(&mut self, namespace: &Namespace, number: u16) -> Result<(), PacketsError>;
    /// Stops watching the namespace and clears its state.
    fn remove(&mut self, namespace: &Namespace, number: u16) -> Result<(), PacketsError>;
    /// Resumes (`on`) or suspends the watching.
    fn switch(&mut self, namespace: &Namespace, number: u16, on: bool) -> Result<(), PacketsError>;
    /// Returns the kernel's counters of the namespace.
    fn counters(&self, namespace: &Namespace, number: u16) -> Result<Counters, PacketsError>;
    /// Returns the records since the last call.
    fn records(&mut self) -> Result<Vec<[u8; RECORD_LEN]>, PacketsError>;
    /// Removes packets that have waited too long at CLOCK_MONOTONIC `now`, ns, and returns the misses among them. With `all`, of
    /// any age.
    fn sweep(&mut self, now: u64, all: bool) -> Result<Vec<[u8; RECORD_LEN]>, PacketsError>;
}
