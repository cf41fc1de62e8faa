//! Changing the clock. There is one writer at a time: the caller holds the lock of the clock's file.
//!
//! Each step is one store, or a few stores to memory at which no reader looks yet. So a writer may be killed between any two:
//!
//! | step | a writer killed after it |
//! |---|---|
//! | write the new piece and the other view | has changed nothing: the next writer writes them anew |
//! | open the decision of the start | has changed nothing: no reader has seen that version |
//! | **store the version** | has made the change. Readers decide its start and go by it |
//! | decide the start | has made the change. Readers go by the start |
//! | write the start into the piece, open the fast path | leaves only the notification to be done |
//! | notify waits and timers, store `notified` | leaves nothing to be done |
//!
//! [`ClockPage::complete`] does the steps after the store of the version for any writer that did not.

use super::{oldest, ClockPage, HostClock, Piece};
use crate::failpoint::{failpoint, Failpoint};
use crate::instant::{RealInstant, Span, VirtualInstant, WallTime};
use crate::rate::Rate;
use crate::registry::Registry;
use crate::segment::{Pace, Segment};
use crate::sync::{fence, Ordering};

/// Largest number of changes that may be to come at once.
pub const MAX_CHANGES_AHEAD: usize = 16;

/// Largest distance from the number of the piece in force to that of the newest piece. It counts pieces that a later change
/// dropped before they began. The rest of the ring is for the past.
const MAX_NUMBERS_AHEAD: u64 = if cfg!(loom) { 1 } else { 40 };

/// A change: the description of a new piece of the clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// The change begins no earlier than this; at once, if this instant is past.
    pub at: RealInstant,
    /// Forward jump of virtual time at the start.
    pub leap: Span,
    /// Lower bound of virtual time at the start.
    pub floor: VirtualInstant,
    /// The pace of the new piece.
    pub pace: Pace,
    /// The rate to go on with, if the new piece is frozen.
    pub rate: Rate,
    /// The offset of the wall clock to the virtual monotonic clock.
    pub wall: WallTime,
    /// The offset of CLOCK_BOOTTIME to the virtual monotonic clock.
    pub boot: Span,
    /// The latest virtual time that the piece shows. If it is before the piece's first value, the piece stays at that value.
    pub limit: VirtualInstant,
    /// A file that the kernel stamps with this instant or later was written after the change. A kernel's stamp may be a tick
    /// earlier than the moment of writing. The boundary is at most 4 s before the change.
    pub file_boundary: Option<RealInstant>,
}

impl Change {
    /// Makes a change after which the clock goes on as it does in `piece`.
    pub fn of(piece: &Piece) -> Change {
        Change {
            at: RealInstant(i64::MIN + 1),
            leap: Span::ZERO,
            floor: VirtualInstant(i64::MIN),
            pace: piece.segment.pace,
            rate: piece.rate,
            wall: piece.segment.wall,
            boot: piece.segment.boot,
            limit: piece.limit,
            file_boundary: None,
        }
    }

    fn piece(&self) -> Piece {
        let segment = Segment {
            real: self.at,
            virt: self.floor,
            pace: self.pace,
            wall: self.wall,
            boot: self.boot,
        };
        Piece::new(&segment, self.limit, self.rate)
    }
}

/// A change that has been published.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Published {
    /// Number of the state that the change made.
    pub state: u32,
    /// The instant at which the change begins.
    pub begins: RealInstant,
}

/// The error of a change that is too many: as many as the page has room for are to come already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooManyChanges;

impl ClockPage {
    /// Publishes a change. The caller then notifies waits and timers, and stores that by [`ClockPage::set_notified`].
    ///
    /// # Errors
    ///
    /// [`TooManyChanges`] if too many changes are to come. A change that begins at once always has room.
    pub fn publish(
        &self,
        registry: &Registry,
        host: &impl HostClock,
        change: &Change,
    ) -> Result<Published, TooManyChanges> {
        self.complete(registry, host);
        let version = self.version.load(Ordering::Relaxed);
        let view = self.view(version);
        let last = view.last.load(Ordering::Relaxed);
        let now = host.now();
        // The newest piece comes first, so the past need not be read.
        let to_come = self
            .backwards(last, None)
            .map(|(piece, _)| piece.segment.real)
            .take_while(|begins| *begins > now)
            .filter(|begins| *begins < change.at)
            .count();
        let ahead = last + 1 - self.number_in_force(last, now);
        // A change that begins at once becomes the piece in force, so there is always room for it.
        if change.at > now && (to_come >= MAX_CHANGES_AHEAD || ahead > MAX_NUMBERS_AHEAD) {
            return Err(TooManyChanges);
        }
        // This fence follows the store of the current version. A thread that sees a word of the new change therefore sees the
        // current version at least. It knows by that version that the version whose view and place are being overwritten is past.
        fence(Ordering::Release);
        failpoint(registry, Failpoint::BeforePiece);
        self.piece(last + 1).store(&change.piece(), change.file_boundary);
        let state = view.state.load(Ordering::Relaxed).wrapping_add(1);
        let next = self.view(version + 1);
        next.fast.close();
        next.last.store(last + 1, Ordering::Relaxed);
        next.state.store(state, Ordering::Relaxed);
        // A program may write the start of the change. No reader believes an instant before this one.
        next.at.store(change.at.max(now).0, Ordering::Relaxed);
        next.leap.store(change.leap.0, Ordering::Relaxed);
        next.floor.store(change.floor.0, Ordering::Relaxed);
        failpoint(registry, Failpoint::BeforeOpen);
        registry.start.open(version + 1);
        failpoint(registry, Failpoint::BeforeVersion);
        host.change_begins();
        self.version.store(version + 1, Ordering::Release);
        // This fence comes before the host's time is taken, and before the controller looks at the waits. A wait that the
        // controller does not find therefore sees this version.
        fence(Ordering::SeqCst);
        failpoint(registry, Failpoint::AfterVersion);
        let begins = self.complete(registry, host);
        Ok(Published { state, begins })
    }

    /// Completes the latest change if its writer has not: decides when it begins, and opens the fast path. Returns the start. The
    /// caller holds the clock's lock.
    pub fn complete(&self, registry: &Registry, host: &impl HostClock) -> RealInstant {
        let version = self.version.load(Ordering::Relaxed);
        let view = self.view(version);
        let last = view.last.load(Ordering::Relaxed);
        if !view.fast.is_undecided() {
            return self.piece(last).begins();
        }
        // Only the lock's holder writes the start into the page, so nobody else has done so.
        let begins = self.decide(version, view, registry, host).unwrap_or(host.now());
        failpoint(registry, Failpoint::AfterDecision);
        let Piece { segment, limit, .. } = self.beginning_at(begins, last, view);
        self.piece(last).store_start(segment.real, segment.virt, limit);
        failpoint(registry, Failpoint::BeforeFastPath);
        self.open_fast_path(version, last, host);
        begins
    }

    /// Moves the fast path to the piece in force, if that piece was to come when the version was published.
    ///
    /// The clock shows the same time before and after, but its state has another number. The caller holds the clock's lock, and
    /// notifies processes with periodic timers. Returns false if there was nothing to do.
    pub fn refresh(&self, registry: &Registry, host: &impl HostClock) -> bool {
        self.complete(registry, host);
        let stale = self.is_stale(self.version.load(Ordering::Relaxed), host.now());
        if stale {
            self.renew(registry, host);
        }
        stale
    }

    /// Makes a new state of the clock that shows the same time, so that processes set their timers anew before a change begins.
    /// The caller holds the clock's lock, and notifies the processes.
    pub fn renew(&self, registry: &Registry, host: &impl HostClock) {
        self.complete(registry, host);
        let version = self.version.load(Ordering::Relaxed);
        fence(Ordering::Release);
        let (view, next) = (self.view(version), self.view(version + 1));
        let last = view.last.load(Ordering::Relaxed);
        next.last.store(last, Ordering::Relaxed);
        let state = view.state.load(Ordering::Relaxed).wrapping_add(1);
        next.state.store(state, Ordering::Relaxed);
        self.open_fast_path(version + 1, last, host);
        failpoint(registry, Failpoint::BeforeVersion);
        self.version.store(version + 1, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    fn open_fast_path(&self, version: u64, last: u64, host: &impl HostClock) {
        let (piece, until) = self.in_force(last, None, host.now());
        let view = self.view(version);
        view.fast.open(&piece, until, self.needs_slow_reads());
    }

    /// Whether a piece has begun that was to come when the version was published.
    fn is_stale(&self, version: u64, now: RealInstant) -> bool {
        let last = self.view(version).last.load(Ordering::Relaxed);
        let (piece, _) = self.in_force(last, None, now);
        self.view(version).fast.begins() != piece.segment.real
    }

    /// Returns the instant from which somebody must go on with work that a writer has left: [`ClockPage::refresh`], or notifying
    /// waits and timers. The instant may be to come. `None` means that nothing is left to do.
    pub fn supervision_due(&self, now: RealInstant) -> Option<RealInstant> {
        loop {
            let version = self.version();
            let view = self.view(version);
            let undecided = view.fast.is_undecided();
            let last = view.last.load(Ordering::Relaxed);
            let state = view.state.load(Ordering::Relaxed);
            let behind = undecided || state != self.notified() || self.timers_held().is_some();
            let due = if behind || self.is_stale(version, now) {
                Some(now)
            } else {
                let (_, until) = self.in_force(last, None, now);
                Some(until).filter(|until| *until != RealInstant::NEVER)
            };
            if self.is_still(version, now) {
                return due;
            }
        }
    }

    /// Returns the number of the piece in force at `real`.
    fn number_in_force(&self, last: u64, real: RealInstant) -> u64 {
        let begun = |number: &u64| self.piece(*number).begins() <= real;
        (oldest(last)..last + 1).rev().find(begun).unwrap_or(0)
    }
}
