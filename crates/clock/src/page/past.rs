//! Looking back: what the clock showed at an instant, and when it showed a time. For the times of files and of packets.

use super::{oldest, ClockPage, Piece};
use crate::instant::{saturate, RealInstant, Span, VirtualInstant, WallTime};
use crate::registry::Registry;
use crate::segment::Segment;
use crate::sync::{fence, Ordering};

/// The pieces of a clock, the latest first, each with the instant at which the next one begins. A piece that a later change has
/// overtaken before it began is left out.
pub(super) struct Backwards<'a> {
    page: &'a ClockPage,
    last: u64,
    /// The piece to look at next; none after the first.
    number: Option<u64>,
    /// The newest piece, where its start is not in the page yet.
    newest: Option<Piece>,
    until: RealInstant,
    /// The piece given last.
    later: Option<Segment>,
}

impl Backwards<'_> {
    /// Where the piece given last begins; never, where none has been.
    pub fn until(&self) -> RealInstant {
        self.until
    }

    /// The number before `number` that is remembered.
    fn before(&self, number: u64) -> Option<u64> {
        match number {
            0 => None,
            number if number > oldest(self.last) => Some(number - 1),
            _ => Some(0),
        }
    }

    fn load(&mut self, number: u64) -> Piece {
        let mut piece = match self.newest.take() {
            Some(newest) => newest,
            None => self.page.piece(number).load(),
        };
        // Of the stretch between the first piece and the next one that is remembered only the ends are known: time is taken to
        // have run evenly through it.
        if let (0, Some(later), true) = (number, self.later, oldest(self.last) > 1) {
            piece.segment = piece.segment.evenly_until(&later);
        }
        piece
    }
}

impl Iterator for Backwards<'_> {
    type Item = (Piece, RealInstant);

    fn next(&mut self) -> Option<(Piece, RealInstant)> {
        loop {
            let number = self.number?;
            let piece = self.load(number);
            self.number = self.before(number);
            let until = self.until;
            if piece.segment.real < until {
                self.until = piece.segment.real;
                self.later = Some(piece.segment);
                return Some((piece, until));
            }
        }
    }
}

impl ClockPage {
    /// The pieces before `last` and itself. `newest` is given where its start is not in the page yet.
    pub(super) fn backwards(&self, last: u64, newest: Option<Piece>) -> Backwards<'_> {
        Backwards {
            page: self,
            last,
            number: Some(last),
            newest,
            until: RealInstant::NEVER,
            later: None,
        }
    }

    /// The number of the newest piece in `version`; and the piece, where its start is not in the page yet. One whose start nobody
    /// has decided yet has not begun.
    pub(super) fn latest(&self, version: u64, registry: &Registry) -> (u64, Option<Piece>) {
        let view = self.view(version);
        let last = view.last.load(Ordering::Relaxed);
        let start = match view.fast.is_undecided() {
            true => self.decided(version, view, registry),
            false => None,
        };
        (last, start.map(|start| self.beginning_at(start, last, view)))
    }

    /// What `look` finds in the pieces, none of which a change has touched meanwhile.
    fn look_back<T>(&self, registry: &Registry, look: impl Fn(Backwards) -> T) -> T {
        self.look_at(registry, |last, newest| look(self.backwards(last, newest)))
    }

    /// The same, given the number of the newest piece; and itself, where its start is not in the page yet.
    fn look_at<T>(&self, registry: &Registry, look: impl Fn(u64, Option<Piece>) -> T) -> T {
        loop {
            let version = self.version();
            let (last, newest) = self.latest(version, registry);
            let found = look(last, newest);
            fence(Ordering::Acquire);
            if self.version.load(Ordering::Relaxed) == version {
                return found;
            }
        }
    }

    /// Wall time inside when the host's monotonic clock showed `real`. Before the clock was made, time
    /// ran as fast as the host's: what is an hour older than the start is an hour old.
    pub fn wall_of(&self, registry: &Registry, real: RealInstant) -> WallTime {
        self.look_back(registry, |pieces| match piece_of(pieces, real) {
            Some((segment, virt)) => segment.wall_at(virt),
            None => {
                let first = self.pieces[0].load().segment;
                first.wall_at(first.virt).plus(real.since(first.real))
            }
        })
    }

    /// Wall time inside of a file that the kernel has stamped with `stamp`, told at the real instant `now`. The stamp may lie a tick
    /// before the moment of writing, and a change in between ([`super::Change::line`]).
    pub fn wall_of_file(
        &self,
        registry: &Registry,
        stamp: RealInstant,
        now: RealInstant,
    ) -> WallTime {
        let written = self.look_at(registry, |last, newest| {
            let start = |number| match newest {
                Some(newest) if number == last => newest.segment.real,
                _ => self.piece(number).begins(),
            };
            let later = (oldest(last)..last + 1).rev().map(|number| (number, start(number)));
            later
                .take_while(|(_, start)| *start > stamp)
                .find(|(number, start)| *start <= now && self.piece(*number).line(*start) <= stamp)
                .map_or(stamp, |(_, start)| start)
        });
        self.wall_of(registry, written)
    }

    /// Virtual time when the host's monotonic clock showed `real`; none where the clock was made later.
    pub fn virtual_of(&self, registry: &Registry, real: RealInstant) -> Option<VirtualInstant> {
        self.look_back(registry, |pieces| piece_of(pieces, real).map(|(_, virt)| virt))
    }

    /// Virtual time when the host's monotonic clock showed `real`, also before the clock was made: as [`ClockPage::wall_of`].
    pub fn virtual_or_before(&self, registry: &Registry, real: RealInstant) -> VirtualInstant {
        self.virtual_of(registry, real).unwrap_or_else(|| {
            let first = self.pieces[0].load().segment;
            first.virt.plus(real.since(first.real))
        })
    }

    /// The inverse of [`ClockPage::wall_of`]: when the host's monotonic clock shows wall time `wall` inside. A time
    /// that comes twice gives its last coming; one that was leapt over and never came, the moment of the leap.
    pub fn real_of(&self, registry: &Registry, wall: WallTime) -> RealInstant {
        self.look_back(registry, |pieces| {
            let mut leapt_over = None;
            for (Piece { segment, .. }, end) in pieces {
                let virt = segment.virtual_at_wall(wall);
                if virt >= segment.virt {
                    let real = segment.real_at(virt);
                    if real < end {
                        return real;
                    }
                    leapt_over = leapt_over.or(Some(end));
                }
            }
            let first = self.pieces[0].load().segment;
            let after_start = wall.as_nanos() - first.wall_at(first.virt).as_nanos();
            match leapt_over {
                Some(leap) if after_start >= 0 => leap,
                _ => first.real.plus(Span(saturate(after_start))),
            }
        })
    }

    /// The pieces so far and to come, oldest first. For tests and reports.
    pub fn history(&self, registry: &Registry) -> impl DoubleEndedIterator<Item = Segment> {
        let mut segments = [None; super::PIECES];
        let (last, newest) = self.latest(self.version(), registry);
        for (place, (piece, _)) in segments.iter_mut().rev().zip(self.backwards(last, newest)) {
            *place = Some(piece.segment);
        }
        segments.into_iter().flatten()
    }
}

/// The segment in force at `real`, and virtual time then.
fn piece_of(pieces: Backwards, real: RealInstant) -> Option<(Segment, VirtualInstant)> {
    let mut end = VirtualInstant::NEVER;
    for (Piece { segment, limit, .. }, _) in pieces {
        if real >= segment.real {
            return Some((segment, segment.virtual_at(real).min(end).min(limit)));
        }
        end = segment.virt;
    }
    None
}
