//! When a change begins: decided once, after the change can be seen, by whoever sees it first.
//!
//! A writer that chose the instant by itself and was then put off the processor would publish a change for a time that has
//! passed: readers have shown later times by the old piece, and the new one would go back behind them. So the writer
//! publishes the change without its instant. The first process that sees the change, the writer itself or any reader, takes the
//! host's time and swaps it into this word, once. Nobody waits for anybody.
//!
//! The word carries the version that it belongs to. A reader that slept since an earlier version finds another number and
//! decides nothing. The word lies among what programs may write: nobody loops on it, and an instant that cannot be right is
//! not believed ([`super::ClockPage`] holds it between the earliest instant that the change asks for and the reader's own).

use crate::instant::RealInstant;
use crate::sync::AtomicPair;

/// The start of the latest change, in shared memory.
#[repr(C)]
#[derive(Default)]
pub struct Start(AtomicPair);

/// Not decided. No host's clock shows it.
const OPEN: u64 = i64::MIN as u64;

impl Start {
    /// Opens the decision for `version`, before that is published. Tried three times: a program that writes the word all the
    /// time only harms its own container, whose readers then go by their own instants.
    pub(super) fn open(&self, version: u64) {
        let mut before = self.0.load();
        for _ in 0..3 {
            match self.0.compare_exchange(before, [version, OPEN]) {
                Ok(_) => return,
                Err(now) => before = now,
            }
        }
    }

    /// Decides for `proposal`, or finds what another has decided. `None` where the word belongs to another version.
    pub(super) fn decide(&self, version: u64, proposal: RealInstant) -> Option<RealInstant> {
        match self.0.compare_exchange([version, OPEN], [version, proposal.0 as u64]) {
            Ok(_) => Some(proposal),
            Err(found) => instant_of(version, found),
        }
    }

    /// What has been decided; `None` where nothing has.
    pub(super) fn decided(&self, version: u64) -> Option<RealInstant> {
        instant_of(version, self.0.load())
    }
}

fn instant_of(version: u64, [tag, instant]: [u64; 2]) -> Option<RealInstant> {
    (tag == version && instant != OPEN).then_some(RealInstant(instant as i64))
}
