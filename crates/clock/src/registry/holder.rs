//! A thread as the holder of something in shared memory.

/// Identifies one lifetime of a process: from its start, by fork or by exec, to its next exec or its end. No two processes on a
/// clock have the same epoch at once. A later process with the same number has another epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Epoch(pub u32);

/// A thread that holds something in shared memory, named so that others can tell whether it may still be alive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The epoch of its process.
    pub epoch: Epoch,
    /// The thread's id; never 0.
    pub thread: u32,
}

impl Holder {
    pub(super) fn to_bits(self) -> u64 {
        u64::from(self.epoch.0) << 32 | u64::from(self.thread)
    }

    pub(super) fn from_bits(bits: u64) -> Option<Holder> {
        (bits != 0).then_some(Holder { epoch: Epoch((bits >> 32) as u32), thread: bits as u32 })
    }
}
