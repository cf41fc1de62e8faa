//! The start of a change. The first thread that sees the change decides its start, once.
//!
//! Race: a writer chooses the start, and the kernel puts the writer off the processor. Readers show later times by the old piece.
//! The writer publishes the change for a time that has passed, and the clock goes back. Therefore the writer publishes the change
//! without its start. The first thread that sees the change, the writer itself or any reader, takes the host's time and swaps it
//! into this word, once. Nobody waits for anybody.
//!
//! The word carries the version that it belongs to. A reader that slept since an earlier version finds another number and decides
//! nothing. Programs may write the word. Therefore nobody loops on it, and nobody believes an impossible instant:
//! [`crate::ClockPage`] clamps it between the earliest instant that the change asks for and the reader's own time.

use crate::instant::{RealInstant, Span};
use crate::sync::AtomicPair;

/// The start of the latest change, in shared memory.
#[repr(C)]
#[derive(Default)]
pub struct Start(AtomicPair);

/// Stands for a start that is not decided. No host's clock shows this value.
const OPEN: u64 = i64::MIN as u64;

impl Start {
    /// Opens the decision for `version`, before that version is published. It tries three times. A program that writes the word
    /// all the time harms only its own container, whose readers then go by their own instants.
    pub(crate) fn open(&self, version: u64) {
        let mut before = self.0.load();
        for _ in 0..3 {
            match self.0.compare_exchange(before, [version, OPEN]) {
                Ok(_) => return,
                Err(now) => before = now,
            }
        }
    }

    /// Decides the start as `proposal`, or returns what another thread has decided. `None` if the word belongs to another
    /// version.
    pub(crate) fn decide(&self, version: u64, proposal: RealInstant) -> Option<RealInstant> {
        match self.0.compare_exchange([version, OPEN], [version, proposal.0 as u64]) {
            Ok(_) => Some(proposal),
            Err(found) => instant_of(version, found),
        }
    }

    /// Adds `by` to the start of `version`, if it is decided. Nobody else uses the word meanwhile.
    pub(crate) fn rebase(&self, version: u64, by: Span) {
        if let Some(start) = self.decided(version) {
            let _ = self
                .0
                .compare_exchange([version, start.0 as u64], [version, start.plus(by).0 as u64]);
        }
    }

    /// Returns the decided start; `None` if nobody has decided it.
    pub(crate) fn decided(&self, version: u64) -> Option<RealInstant> {
        instant_of(version, self.0.load())
    }
}

fn instant_of(version: u64, [tag, instant]: [u64; 2]) -> Option<RealInstant> {
    (tag == version && instant != OPEN).then_some(RealInstant(instant as i64))
}
