//! Changing the clock. One writer at a time: the caller holds the lock of the clock's file.
//!
//! Each step is one store or a few to places where no reader looks yet, so a writer may be killed between any two:
//!
//! | step | killed after it |
//! |---|---|
//! | write the new piece and the other view | nothing has happened: the next writer writes them anew |
//! | open the decision of the start | the same: no reader has seen that version |
//! | **store the version** | the change is made. Readers decide its start and go by it |
//! | decide the start | the same |
//! | write the start into the piece, open the fast path | nothing is left but to tell those who wait |
//! | tell them, store `notified` | |
//!
//! [`ClockPage::complete`] does the steps after the store of the version, whoever did the others.

use super::{oldest, ClockPage, Host, Piece};
use crate::failpoint::{failpoint, Failpoint};
use crate::instant::{RealInstant, Span, VirtualInstant, WallTime};
use crate::rate::Rate;
use crate::registry::Registry;
use crate::segment::{Pace, Segment};
use crate::sync::{fence, Ordering};

/// Changes that may be to come at once.
pub const TO_COME: usize = 16;

/// Numbers of pieces from the one in force to the newest, those among them that were overtaken before they began too. The rest
/// of the ring is for the past.
const AHEAD: u64 = if cfg!(loom) { 1 } else { 40 };

/// A new piece of the clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// It begins no earlier than this; at once, where this is past.
    pub at: RealInstant,
    /// Virtual time jumps forward by so much where it begins.
    pub leap: Span,
    /// Virtual time is at least this where it begins.
    pub floor: VirtualInstant,
    /// How fast it runs.
    pub pace: Pace,
    /// The rate to go on with, where it stands still.
    pub rate: Rate,
    /// The offset of the wall clock to the virtual monotonic clock.
    pub wall: WallTime,
    /// The offset of CLOCK_BOOTTIME to the virtual monotonic clock.
    pub boot: Span,
    /// Virtual time shows nothing later than this, or than where it begins.
    pub limit: VirtualInstant,
    /// Files that the kernel stamps with this instant or later are written after the change: a stamp may lie a tick before the
    /// moment of writing. At most 4 s before the change.
    pub line: Option<RealInstant>,
}

impl Change {
    /// A piece that goes on as `piece` does.
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
            line: None,
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
    /// Number of the state that it made.
    pub state: u32,
    /// When it begins.
    pub begins: RealInstant,
}

/// There is no room for another change to come: as many were announced since the last one took effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooMany;

impl ClockPage {
    /// Publishes a change. The caller then tells those who wait, and states it by [`ClockPage::set_notified`].
    ///
    /// # Errors
    ///
    /// Where too many changes are to come.
    pub fn publish(
        &self,
        registry: &Registry,
        host: &impl Host,
        change: &Change,
    ) -> Result<Published, TooMany> {
        self.complete(registry, host);
        let version = self.version.load(Ordering::Relaxed);
        let view = self.view(version);
        let last = view.last.load(Ordering::Relaxed);
        let now = host.now();
        // The latest comes first: the past need not be read.
        let to_come = self
            .backwards(last, None)
            .map(|(piece, _)| piece.segment.real)
            .take_while(|begins| *begins > now)
            .filter(|begins| *begins < change.at)
            .count();
        let ahead = last + 1 - self.number_in_force(last, now);
        // One that begins at once is then the piece in force: there is always room for it.
        if change.at > now && (to_come >= TO_COME || ahead > AHEAD) {
            return Err(TooMany);
        }
        // After the store of this version: whoever sees a word of the new one sees this version at least, and so that the version
        // whose places are written to is past.
        fence(Ordering::Release);
        failpoint(registry, Failpoint::BeforePiece);
        self.piece(last + 1).store(&change.piece(), change.line);
        let state = view.state.load(Ordering::Relaxed).wrapping_add(1);
        let next = self.view(version + 1);
        next.fast.close();
        next.last.store(last + 1, Ordering::Relaxed);
        next.state.store(state, Ordering::Relaxed);
        next.at.store(change.at.0, Ordering::Relaxed);
        next.leap.store(change.leap.0, Ordering::Relaxed);
        next.floor.store(change.floor.0, Ordering::Relaxed);
        failpoint(registry, Failpoint::BeforeOpen);
        registry.start.open(version + 1);
        failpoint(registry, Failpoint::BeforeVersion);
        self.version.store(version + 1, Ordering::Release);
        // Before the host's time is taken, and before whoever changes the clock looks at the waits: a wait that is not found
        // there sees this version.
        fence(Ordering::SeqCst);
        failpoint(registry, Failpoint::AfterVersion);
        let begins = self.complete(registry, host);
        Ok(Published { state, begins })
    }

    /// Completes the latest change, where its writer has not: decides when it begins, and opens the fast path. Gives its start.
    /// The caller holds the clock's lock.
    pub fn complete(&self, registry: &Registry, host: &impl Host) -> RealInstant {
        let version = self.version.load(Ordering::Relaxed);
        let view = self.view(version);
        let last = view.last.load(Ordering::Relaxed);
        if !view.fast.is_undecided() {
            return self.piece(last).begins();
        }
        // Nobody else can have written it into the page.
        let begins = self.decide(version, view, registry, host).unwrap_or(host.now());
        failpoint(registry, Failpoint::AfterDecision);
        let Piece { segment, limit, .. } = self.beginning_at(begins, last, view);
        self.piece(last).store_start(segment.real, segment.virt, limit);
        failpoint(registry, Failpoint::BeforeFastPath);
        self.open_fast_path(version, last, host);
        begins
    }

    /// Brings the fast path to the piece in force, where that was to come when the version was published. The clock shows the same
    /// before and after; only its state has another number. The caller holds the clock's lock, and tells those whose timers are
    /// periodic. False where there was nothing to do.
    pub fn refresh(&self, registry: &Registry, host: &impl Host) -> bool {
        self.complete(registry, host);
        let stale = self.is_stale(self.version.load(Ordering::Relaxed), host.now());
        if stale {
            self.renew(registry, host);
        }
        stale
    }

    /// Makes a new state of the clock that shows the same, so that timers are set anew: where a change is about to begin. The caller
    /// holds the clock's lock, and tells them.
    pub fn renew(&self, registry: &Registry, host: &impl Host) {
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

    fn open_fast_path(&self, version: u64, last: u64, host: &impl Host) {
        let (piece, until) = self.in_force(last, None, host.now());
        let view = self.view(version);
        view.fast.open(&piece, until, self.leaps());
    }

    /// Whether a piece has begun that was to come when the version was published.
    fn is_stale(&self, version: u64, now: RealInstant) -> bool {
        let last = self.view(version).last.load(Ordering::Relaxed);
        let (piece, _) = self.in_force(last, None, now);
        self.view(version).fast.begins() != piece.segment.real
    }

    /// Whether somebody has to go on with what a writer has left: by [`ClockPage::refresh`], and by telling those who wait. `None`
    /// where nothing is to be done; else from when on, which may be to come.
    pub fn care_due(&self, now: RealInstant) -> Option<RealInstant> {
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

    /// The number of the piece in force at `real`.
    fn number_in_force(&self, last: u64, real: RealInstant) -> u64 {
        let begun = |number: &u64| self.piece(*number).begins() <= real;
        (oldest(last)..last + 1).rev().find(begun).unwrap_or(0)
    }
}
