//! Looking back, for the times of files and of packets: what the clock showed at an instant, and when it showed a time.

use super::{oldest, ClockPage, Piece};
use crate::instant::{saturate, RealInstant, Span, VirtualInstant, WallTime, NANOS_PER_SEC};
use crate::registry::Registry;
use crate::segment::Segment;
use crate::sync::{fence, Ordering};

/// The moment at which a clock was created, for the times of files that are older than the clock.
///
/// A file of the host keeps its time inside, so that times that programs have noted of it (in a .pyc file, in git's index) stay
/// true inside and outside. The exception is a clock that was created `d` behind the host's wall clock: there a file would show a
/// time to come. A file that was less than `2 d` old shows half its age, counted back from the start of the clock. So files keep
/// their order, and none shows a time to come.
struct Origin {
    start: RealInstant,
    /// The host's wall clock at the start, ns since 1970.
    host: i128,
    /// The wall clock inside at the start, ns since 1970.
    inside: i128,
}

impl Origin {
    /// Returns the time that a file shows whose timestamp is that of `stamp`, before the start.
    fn shown(&self, stamp: RealInstant) -> WallTime {
        let age = i128::from(self.start.0) - i128::from(stamp.0);
        let behind = self.host - self.inside;
        WallTime::from_nanos(match age < 2 * behind {
            true => self.inside - age / 2,
            false => self.host - age,
        })
    }

    /// Returns the timestamp for a file that is to show `wall`, before the start; the start itself if no older file shows `wall`.
    fn stamp(&self, wall: WallTime) -> RealInstant {
        let before = self.inside - wall.as_nanos();
        let behind = self.host - self.inside;
        let age = match before < behind {
            true => 2 * before,
            false => before + behind,
        };
        self.start.plus(Span(-saturate(age.max(0))))
    }
}

/// Iterator over the pieces of a clock, the latest first, each with the instant at which the next one begins. It leaves out
/// pieces that a later change dropped before they began.
pub(super) struct PiecesBackwards<'a> {
    page: &'a ClockPage,
    last: u64,
    /// Number of the piece to look at next; `None` after the first piece.
    number: Option<u64>,
    /// The newest piece, if its start is not in the page yet.
    newest: Option<Piece>,
    until: RealInstant,
    /// The segment of the piece that the iterator returned last.
    later: Option<Segment>,
}

impl PiecesBackwards<'_> {
    /// Returns the start of the piece that the iterator returned last; never, if it has returned none.
    pub fn until(&self) -> RealInstant {
        self.until
    }

    /// Returns the number of the remembered piece before `number`.
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
        // Between the first piece and the next remembered one only the two ends are known. Time is taken to have run evenly
        // between them.
        if let (0, Some(later), true) = (number, self.later, oldest(self.last) > 1) {
            piece.segment = piece.segment.evenly_until(&later);
        }
        piece
    }
}

impl Iterator for PiecesBackwards<'_> {
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
    /// Returns the piece `last` and all before it. `newest` is the newest piece if its start is not in the page yet.
    pub(super) fn backwards(&self, last: u64, newest: Option<Piece>) -> PiecesBackwards<'_> {
        PiecesBackwards {
            page: self,
            last,
            number: Some(last),
            newest,
            until: RealInstant::NEVER,
            later: None,
        }
    }

    /// Returns the number of the newest piece in `version`, and the piece itself if its start is not in the page yet. A piece
    /// whose start nobody has decided yet has not begun.
    pub(super) fn latest(&self, version: u64, registry: &Registry) -> (u64, Option<Piece>) {
        let view = self.view(version);
        let last = view.last.load(Ordering::Relaxed);
        let start = match view.fast.is_undecided() {
            true => self.decided(version, view, registry),
            false => None,
        };
        (last, start.map(|start| self.beginning_at(start, last, view)))
    }

    /// Returns the result of `look` on the pieces, from a look during which no change has touched them.
    fn look_back<T>(&self, registry: &Registry, look: impl Fn(PiecesBackwards) -> T) -> T {
        self.look_at(registry, |last, newest| look(self.backwards(last, newest)))
    }

    /// Does the same with the number of the newest piece, and the piece itself if its start is not in the page yet.
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

    /// Returns wall time inside when the host's monotonic clock showed `real`. Before the clock was created, time ran as fast as
    /// the host's: a time an hour before the start is an hour ago inside.
    pub fn wall_of(&self, registry: &Registry, real: RealInstant) -> WallTime {
        self.look_back(registry, |pieces| match piece_of(pieces, real) {
            Some((segment, virt)) => segment.wall_at(virt),
            None => {
                let first = self.pieces[0].load().segment;
                first.wall_at(first.virt).plus(real.since(first.real))
            }
        })
    }

    /// Returns the modification time that a file shows inside. The kernel's timestamp of the file is that of the instant `stamp`.
    /// `now` is the real instant of the question, `host_wall` the span by which the host's wall clock is ahead of its
    /// CLOCK_MONOTONIC.
    ///
    /// A file written before the clock was created shows the time that [`Origin::shown`] says. A later file shows the wall time
    /// inside at which it was written. The timestamp may lie a tick before that moment, with a change in between
    /// ([`super::Change::file_boundary`]).
    pub fn wall_of_file(
        &self,
        registry: &Registry,
        stamp: RealInstant,
        now: RealInstant,
        host_wall: WallTime,
    ) -> WallTime {
        let written = self.look_at(registry, |last, newest| {
            let start = |number| match newest {
                Some(newest) if number == last => newest.segment.real,
                _ => self.piece(number).begins(),
            };
            let later = (oldest(last)..last + 1).rev().map(|number| (number, start(number)));
            later
                .take_while(|(_, start)| *start > stamp)
                .find(|(number, start)| {
                    *start <= now && self.piece(*number).file_boundary(*start) <= stamp
                })
                .map_or(stamp, |(_, start)| start)
        });
        self.look_back(registry, |pieces| match piece_of(pieces, written) {
            Some((segment, virt)) => segment.wall_at(virt),
            None => self.origin(host_wall.as_nanos()).shown(written),
        })
    }

    /// Whether a file whose timestamp is that of `stamp` shows its timestamp for certain: it is older than the clock, which was not
    /// created behind the host's. Takes a few instructions. `host_wall`, in ns, is as for [`ClockPage::wall_of_file`].
    pub fn shows_timestamp(&self, stamp: RealInstant, host_wall: i128) -> bool {
        /// No file boundary lies farther before the start of its piece.
        const MAX_BOUNDARY: Span = Span(1 << 32);
        let Origin { start, host, inside } = self.origin(host_wall);
        stamp < start.plus(Span(-MAX_BOUNDARY.0)) && inside >= host
    }

    /// Returns the second by the host's wall clock before which a file's timestamp is for certain the time that the file shows. This
    /// holds while the host's wall clock is less than an hour from where it would be if nobody had set it since.
    pub fn old_stamps_end(&self) -> i64 {
        /// The host's wall clock may have been set by so much, and a file boundary lies so far before its piece.
        const MARGIN: i128 = (3600 + 60) * NANOS_PER_SEC as i128;
        let Origin { host, inside, .. } = self.origin(self.host_wall().as_nanos());
        let first_changed = host - (2 * (host - inside)).max(0);
        saturate((first_changed - MARGIN).div_euclid(NANOS_PER_SEC.into()))
    }

    /// Returns the instant at which the clock was created.
    pub fn created(&self) -> RealInstant {
        self.pieces[0].begins()
    }

    /// Returns the instant of the timestamp for a file that is to show `wall` inside: the inverse of [`ClockPage::wall_of_file`].
    /// If no timestamp shows `wall`, the result is the next one.
    pub fn stamp_of_file(
        &self,
        registry: &Registry,
        wall: WallTime,
        host_wall: WallTime,
    ) -> RealInstant {
        self.real_since_start(registry, wall)
            .unwrap_or_else(|| self.origin(host_wall.as_nanos()).stamp(wall))
    }

    /// Returns the origin of the clock. See [`ClockPage::wall_of_file`] for `host_wall`.
    fn origin(&self, host_wall: i128) -> Origin {
        let first = self.pieces[0].load().segment;
        Origin {
            start: first.real,
            host: i128::from(first.real.0) + host_wall,
            inside: first.wall_at(first.virt).as_nanos(),
        }
    }

    /// Returns virtual time when the host's monotonic clock showed `real`; `None` if the clock was created later.
    pub fn virtual_of(&self, registry: &Registry, real: RealInstant) -> Option<VirtualInstant> {
        self.look_back(registry, |pieces| piece_of(pieces, real).map(|(_, virt)| virt))
    }

    /// Returns CLOCK_BOOTTIME inside when the host's monotonic clock showed `real`, also before the clock was created, as
    /// [`ClockPage::wall_of`] does.
    pub fn boot_of(&self, registry: &Registry, real: RealInstant) -> VirtualInstant {
        self.look_back(registry, |pieces| match piece_of(pieces, real) {
            Some((segment, virt)) => virt.plus(segment.boot),
            None => {
                let first = self.pieces[0].load().segment;
                first.virt.plus(first.boot).plus(real.since(first.real))
            }
        })
    }

    /// Returns when the host's monotonic clock shows wall time `wall` inside: the inverse of [`ClockPage::wall_of`]. For a time
    /// that comes twice, the result is the last coming. For a time that was leapt over, it is the moment of the leap. Changes of
    /// one instant are one change.
    pub fn real_of(&self, registry: &Registry, wall: WallTime) -> RealInstant {
        self.real_since_start(registry, wall).unwrap_or_else(|| {
            let first = self.pieces[0].load().segment;
            let before_start = first.wall_at(first.virt).as_nanos() - wall.as_nanos();
            first.real.plus(Span(-saturate(before_start)))
        })
    }

    /// Does the same for a time since the clock was created; `None` for an earlier one.
    fn real_since_start(&self, registry: &Registry, wall: WallTime) -> Option<RealInstant> {
        self.look_back(registry, |pieces| {
            let mut leapt_over = None;
            for (Piece { segment, .. }, end) in pieces {
                let virt = segment.virtual_at_wall(wall);
                if virt >= segment.virt {
                    let real = segment.real_at(virt);
                    if real < end {
                        return Some(real);
                    }
                    leapt_over = leapt_over.or(Some(end));
                }
            }
            let first = self.pieces[0].load().segment;
            let is_since_start = wall.as_nanos() >= first.wall_at(first.virt).as_nanos();
            // A clock that leapt in the instant of its creation has a first piece without length.
            is_since_start.then(|| leapt_over.unwrap_or(first.real))
        })
    }

    /// Returns the pieces so far and to come, the oldest first. For tests and reports.
    pub fn history(&self, registry: &Registry) -> impl DoubleEndedIterator<Item = Segment> {
        let mut segments = [None; super::PIECES];
        let (last, newest) = self.latest(self.version(), registry);
        for (slot, (piece, _)) in segments.iter_mut().rev().zip(self.backwards(last, newest)) {
            *slot = Some(piece.segment);
        }
        segments.into_iter().flatten()
    }
}

/// Returns the segment in force at `real`, and virtual time at that instant.
fn piece_of(pieces: PiecesBackwards, real: RealInstant) -> Option<(Segment, VirtualInstant)> {
    let mut end = VirtualInstant::NEVER;
    for (Piece { segment, limit, .. }, _) in pieces {
        if real >= segment.real {
            return Some((segment, segment.virtual_at(real).min(end).min(limit)));
        }
        end = segment.virt;
    }
    None
}
