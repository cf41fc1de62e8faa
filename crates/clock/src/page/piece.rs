//! Pieces: the clock from one change to the next.

use crate::instant::{RealInstant, Span, VirtualInstant, WallTime};
use crate::rate::Rate;
use crate::segment::{Pace, Segment};
use crate::sync::{unmodelled, AtomicI64, Ordering};

/// The clock from one change to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The straight line of the piece.
    pub segment: Segment,
    /// The latest virtual time that the piece shows.
    pub limit: VirtualInstant,
    /// The rate of the segment. For a frozen segment: the rate to go on with.
    pub rate: Rate,
}

impl Piece {
    /// Makes a piece. `paused` is the rate to go on with if the segment is frozen.
    pub(super) fn new(segment: &Segment, limit: VirtualInstant, paused: Rate) -> Piece {
        let rate = match segment.pace {
            Pace::Running(rate) => rate,
            Pace::Frozen => paused,
        };
        Piece { segment: *segment, limit, rate }
    }

    /// Returns virtual time at `real`.
    #[inline(always)]
    pub fn virtual_at(&self, real: RealInstant) -> VirtualInstant {
        self.segment.virtual_at(real).min(self.limit)
    }

    /// Returns the first real instant at which the piece shows `virt`; never, if the piece does not reach it.
    pub fn real_at(&self, virt: VirtualInstant) -> RealInstant {
        if virt > self.limit {
            return RealInstant::NEVER;
        }
        self.segment.real_at(virt)
    }
}

/// [`Piece`] as it lies in shared memory: one cache line.
#[repr(C)]
#[cfg_attr(loom, derive(Default))]
pub(super) struct SharedPiece {
    real: AtomicI64,
    virt: AtomicI64,
    num: unmodelled::AtomicU64,
    /// The denominator of the rate, with [`FROZEN`] while time stands still.
    den: unmodelled::AtomicU64,
    wall_secs: unmodelled::AtomicI64,
    /// Low half: nanoseconds of the wall clock's offset. High half: [`boundary_bits`].
    wall_nanos: unmodelled::AtomicU64,
    boot: unmodelled::AtomicI64,
    limit: unmodelled::AtomicI64,
}

/// A bit that no term of a rate has set.
const FROZEN: u64 = 1 << 63;

/// Returns the low half of an instant; 0 for none.
fn boundary_bits(boundary: Option<RealInstant>) -> u64 {
    boundary.map_or(0, |boundary| u64::from((boundary.0 as u32).max(1)))
}

impl SharedPiece {
    #[inline(always)]
    pub fn load(&self) -> Piece {
        let den = self.den.load(Ordering::Relaxed);
        // The check of the version discards a torn pair. Until then the pair only must do no harm.
        let rate =
            Rate::from_terms(self.num.load(Ordering::Relaxed), den & !FROZEN).unwrap_or(Rate::ONE);
        let segment = Segment {
            real: self.begins(),
            virt: VirtualInstant(self.virt.load(Ordering::Relaxed)),
            pace: if den & FROZEN == 0 { Pace::Running(rate) } else { Pace::Frozen },
            wall: WallTime {
                secs: self.wall_secs.load(Ordering::Relaxed),
                nanos: self.wall_nanos.load(Ordering::Relaxed) as u32,
            },
            boot: Span(self.boot.load(Ordering::Relaxed)),
        };
        Piece { segment, limit: VirtualInstant(self.limit.load(Ordering::Relaxed)), rate }
    }

    /// Returns the instant from which the piece holds.
    #[inline(always)]
    pub fn begins(&self) -> RealInstant {
        RealInstant(self.real.load(Ordering::Relaxed))
    }

    /// Returns the file boundary of a piece that begins at `start`: a file was written in this piece if the kernel stamped it
    /// with this instant or later.
    pub fn file_boundary(&self, start: RealInstant) -> RealInstant {
        match (self.wall_nanos.load(Ordering::Relaxed) >> 32) as u32 {
            0 => start,
            boundary => start.plus(Span(-i64::from((start.0 as u32).wrapping_sub(boundary)))),
        }
    }

    /// Stores `piece`, and `boundary` as in [`super::Change`].
    pub fn store(&self, piece: &Piece, boundary: Option<RealInstant>) {
        let Piece { segment, limit, rate } = piece;
        let frozen = if segment.pace == Pace::Frozen { FROZEN } else { 0 };
        self.num.store(rate.num(), Ordering::Relaxed);
        self.den.store(rate.den() | frozen, Ordering::Relaxed);
        self.wall_secs.store(segment.wall.secs, Ordering::Relaxed);
        let wall_nanos = u64::from(segment.wall.nanos) | boundary_bits(boundary) << 32;
        self.wall_nanos.store(wall_nanos, Ordering::Relaxed);
        self.boot.store(segment.boot.0, Ordering::Relaxed);
        self.store_start(segment.real, segment.virt, *limit);
    }

    /// Adds `by` to the start and to the file boundary.
    pub fn rebase(&self, by: Span) {
        let start = self.begins();
        let boundary = self.file_boundary(start);
        let bits = match self.wall_nanos.load(Ordering::Relaxed) >> 32 {
            0 => 0,
            _ => boundary_bits(Some(boundary.plus(by))),
        };
        let nanos = self.wall_nanos.load(Ordering::Relaxed) & u64::from(u32::MAX);
        self.wall_nanos.store(nanos | bits << 32, Ordering::Relaxed);
        self.real.store(start.plus(by).0, Ordering::Relaxed);
    }

    /// Stores the start and the limit, which are known once the start is decided.
    pub fn store_start(&self, real: RealInstant, virt: VirtualInstant, limit: VirtualInstant) {
        self.real.store(real.0, Ordering::Relaxed);
        self.virt.store(virt.0, Ordering::Relaxed);
        self.limit.store(limit.0, Ordering::Relaxed);
    }
}
