//! The shared page that *is* a virtual clock.
//!
//! One writer at a time (the file's lock decides which), any number of readers in any number of processes, none of which can
//! write the page. A reader never waits, not even for a writer that was stopped or killed at any point:
//!
//! - *One store publishes.* A change is written where no reader looks: a new [`Piece`] and a second [`View`]. Then one store of
//!   the version puts it in force. A reader takes the version, the host's time, and the version again; where it has changed
//!   meanwhile, the reader begins anew. So it does at most one look more than there were changes.
//! - *The start is decided afterwards.* A change that begins now has no instant yet when it is published. Whoever sees it first
//!   decides the instant by a compare-and-swap ([`Start`]), after it has seen the version. So every time that was read by the
//!   old piece is earlier: CLOCK_MONOTONIC never goes back, on any thread.
//! - *Pieces to come.* A change may be published for an instant ahead. Every reader and every wait switches there by itself.
//! - *A writer may die anywhere.* Before the store of the version nothing has happened; after it, readers and the next writer
//!   complete the change by themselves. `notified` says whether everybody was told of it.

use crate::failpoint::{failpoint, Failpoint};
use crate::instant::{RealInstant, Span, VirtualInstant, WallTime};
use crate::leaps::{SkipMode, Skipping};
use crate::rate::Rate;
use crate::registry::Registry;
use crate::segment::Segment;
use crate::sync::{fence, load_after, AtomicI64, AtomicU32, AtomicU64, Ordering};
use fast::FastPath;
use piece::SharedPiece;

mod fast;
mod hold;
mod past;
mod piece;
mod publish;
mod start;

pub use fast::FastClock;
pub use hold::HELD_FOR;
pub use piece::Piece;
pub use publish::{Change, Published, TooMany, TO_COME};
pub use start::Start;

/// First word of every clock page: "LORENTZ" and the layout's version.
pub const MAGIC: u64 = u64::from_le_bytes(*b"LORENTZ\x06");

/// Room for pieces: the first, then a ring of the latest ones, those to come among them, and one that is being written.
#[cfg(not(loom))]
pub const PIECES: usize = 58;
/// Few, so that the model stays small.
#[cfg(loom)]
pub const PIECES: usize = 4;

/// Choices made once, when the clock is created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Policy {
    /// CPU clocks run as the host's, not scaled by the rate.
    pub real_cpu_clocks: bool,
    /// File times are the host's.
    pub real_file_times: bool,
    /// `rdtsc` traps and reads virtual time.
    pub trap_tsc: bool,
    /// Births are counted ([`crate::Population`]): a clock that skips from the start.
    pub counts_births: bool,
    /// A send waits until it is its clock's turn ([`ClockPage::turn`]): one of several clocks in an experiment.
    pub sends_in_turn: bool,
}

impl Policy {
    fn to_bits(self) -> u32 {
        self.real_cpu_clocks as u32
            | (self.real_file_times as u32) << 1
            | (self.trap_tsc as u32) << 2
            | (self.counts_births as u32) << 3
            | (self.sends_in_turn as u32) << 4
    }

    fn from_bits(bits: u32) -> Policy {
        Policy {
            real_cpu_clocks: bits & 1 != 0,
            real_file_times: bits & 2 != 0,
            trap_tsc: bits & 4 != 0,
            counts_births: bits & 8 != 0,
            sends_in_turn: bits & 16 != 0,
        }
    }
}

/// One version of the clock, as readers see it. There are two: one in force, one that the next change is written to.
#[repr(C, align(64))]
#[cfg_attr(loom, derive(Default))]
struct View {
    fast: FastPath,
    /// Number of the newest piece.
    last: AtomicU64,
    /// Number of this state of the clock ([`Snapshot::state`]).
    state: AtomicU32,
    unused: AtomicU32,
    /// The newest piece begins no earlier than this.
    at: AtomicI64,
    /// Virtual time jumps forward by so much where it begins.
    leap: AtomicI64,
    /// Virtual time is at least this where it begins.
    floor: AtomicI64,
}

/// The shared page. Lies at the start of a clock's file; mapped read-only into every program.
#[repr(C, align(64))]
#[cfg_attr(loom, derive(Default))]
pub struct ClockPage {
    magic: AtomicU64,
    policy: AtomicU32,
    /// A [`SkipMode`], and whether leaps are believed.
    skip: AtomicU32,
    /// The offset of the host's wall clock to its monotonic clock when this clock was made.
    host_wall_secs: AtomicI64,
    host_wall_nanos: AtomicU32,
    /// Counts the beginnings and ends of holds: odd while timers are held back.
    holds: AtomicU32,
    /// Virtual nanoseconds that reading a clock costs.
    read_cost: AtomicI64,
    /// All other clocks of its experiment have come at least this far.
    others: AtomicI64,
    /// Counts the changes of `others`, for those who wait for one.
    turn: AtomicU32,
    /// The state up to which everybody has been told of changes.
    notified: AtomicU32,
    /// Timers that are due after this instant are held back, where a hold is on.
    hold_from: AtomicI64,
    // A cache line of its own begins here.
    version: AtomicU64,
    views: [View; 2],
    /// The start, then a ring.
    pieces: [SharedPiece; PIECES],
}

/// A reader's consistent look at the clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// The piece in force, which may have leaps over idle time added.
    pub segment: Segment,
    /// Virtual time never shows later than this.
    pub limit: VirtualInstant,
    /// The rate in force, or to go on with while frozen.
    pub rate: Rate,
    /// The next piece begins here; never, where none is to come.
    pub until: RealInstant,
    /// Number of this state of the clock: another after each change, and after the start of each piece that was to come.
    pub state: u32,
    /// Number of this version of the page, for [`ClockPage::is_still`].
    pub version: u64,
    /// The host's time when it was taken.
    pub real: RealInstant,
}

impl Snapshot {
    /// The same look at a clock that has leapt by `sum`.
    #[inline(always)]
    pub fn after(mut self, sum: Span) -> Snapshot {
        self.segment.virt = self.segment.virt.plus(sum);
        self
    }

    /// Virtual time at this look.
    #[inline(always)]
    pub fn now(&self) -> VirtualInstant {
        self.segment.virtual_at(self.real).min(self.limit)
    }

    /// The piece in force.
    pub fn piece(&self) -> Piece {
        Piece { segment: self.segment, limit: self.limit, rate: self.rate }
    }

    /// The first real instant at which the piece in force shows `deadline`; never, where it is frozen or held before it. Where
    /// another piece is to come, that may be wrong from [`Snapshot::until`] on: see [`ClockPage::when`].
    pub fn real_at(&self, deadline: VirtualInstant) -> RealInstant {
        self.piece().real_at(deadline)
    }
}

/// The host's monotonic clock, as a reader has it.
pub trait Host {
    /// CLOCK_MONOTONIC now.
    fn now(&self) -> RealInstant;

    /// Whether this reader may decide when a change begins. A process in a time namespace of its own sees another clock.
    fn decides(&self) -> bool {
        true
    }
}

impl<F: Fn() -> RealInstant> Host for F {
    fn now(&self) -> RealInstant {
        self()
    }
}

/// One look at the fast path: [`ClockPage::fast`].
pub struct FastLook<'a> {
    version: u64,
    path: &'a FastPath,
}

impl FastLook<'_> {
    /// `clock` at `secs` and `nanos` of the host's monotonic clock, which was read after this look began. `Err` where the clock has
    /// changed meanwhile, and the look has to begin anew; `None` where the slow path has to be taken. `lags`: the host's clock is
    /// the coarse one.
    #[inline(always)]
    pub fn at(
        &self,
        page: &ClockPage,
        secs: i64,
        nanos: i64,
        clock: FastClock,
        lags: bool,
    ) -> Result<Option<(i64, i64)>, Changed> {
        let shown = self.path.at(secs, nanos, clock, lags);
        match page.is_still(self.version, RealInstant(nanos)) {
            true => Ok(shown),
            false => Err(Changed),
        }
    }
}

/// The clock has changed during a look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Changed;

/// Where piece `number` lies.
fn place(number: u64) -> usize {
    match number {
        0 => 0,
        later => 1 + ((later - 1) % (PIECES as u64 - 1)) as usize,
    }
}

/// The oldest piece but the first that is remembered when `last` is the newest. One place of the ring is never looked at: the
/// next change is being written there.
fn oldest(last: u64) -> u64 {
    last.saturating_sub(PIECES as u64 - 3).max(1)
}

impl ClockPage {
    /// Makes a page of zeroes into a clock that starts with `segment`. `rate` is the one to go on with where that stands still.
    /// `host_wall` is the offset of the host's wall clock to its monotonic clock.
    pub fn initialise(&self, segment: &Segment, rate: Rate, policy: Policy, host_wall: WallTime) {
        self.host_wall_secs.store(host_wall.secs, Ordering::Relaxed);
        self.host_wall_nanos.store(host_wall.nanos, Ordering::Relaxed);
        self.policy.store(policy.to_bits(), Ordering::Relaxed);
        self.others.store(VirtualInstant::NEVER.0, Ordering::Relaxed);
        let piece = Piece::new(segment, VirtualInstant::NEVER, rate);
        self.pieces[0].store(&piece, None);
        const FIRST: u64 = 2;
        let view = self.view(FIRST);
        view.last.store(0, Ordering::Relaxed);
        view.state.store(FIRST as u32, Ordering::Relaxed);
        view.fast.open(&piece, RealInstant::NEVER, false);
        self.notified.store(FIRST as u32, Ordering::Relaxed);
        self.version.store(FIRST, Ordering::Relaxed);
        self.magic.store(MAGIC, Ordering::Release);
    }

    /// Whether this is a clock of this layout.
    pub fn is_valid(&self) -> bool {
        self.magic.load(Ordering::Acquire) == MAGIC
    }

    /// The choices made when the clock was created.
    pub fn policy(&self) -> Policy {
        Policy::from_bits(self.policy.load(Ordering::Relaxed))
    }

    /// How the clock treats idle time.
    pub fn skipping(&self) -> Skipping {
        let bits = self.skip.load(Ordering::Relaxed);
        Skipping {
            mode: SkipMode::from_bits(bits),
            believed: bits & SkipMode::BELIEVED != 0,
            read_cost: Span(self.read_cost.load(Ordering::Relaxed)),
        }
    }

    /// Sets how the clock treats idle time. Idle time that was skipped stays skipped. Where it is to be skipped, the caller has
    /// made readers add leaps ([`ClockPage::believe_leaps`]).
    pub fn set_skipping(&self, mode: SkipMode, read_cost: Span) {
        let believed = self.leaps() as u32;
        self.read_cost.store(read_cost.0, Ordering::Relaxed);
        self.skip.store(mode.to_bits() | believed, Ordering::Relaxed);
    }

    /// Leaps are part of its time from the next state of the clock on. The caller holds the clock's lock and makes that state next
    /// ([`ClockPage::renew`]): readers of the one before do not add leaps, and nobody may leap yet.
    pub fn believe_leaps(&self) {
        let skip = self.skip.load(Ordering::Relaxed);
        self.skip.store(skip | SkipMode::BELIEVED, Ordering::Relaxed);
    }

    /// Whether [`crate::Leaps`] are part of its time.
    #[inline(always)]
    pub fn leaps(&self) -> bool {
        self.skip.load(Ordering::Relaxed) & SkipMode::BELIEVED != 0
    }

    /// How far all other clocks of its experiment have come at least, and the number of this turn. A program that would do at a
    /// later time what others can see waits for another turn.
    pub fn turn(&self) -> (VirtualInstant, u32) {
        let turn = self.turn.load(Ordering::Acquire);
        (VirtualInstant(self.others.load(Ordering::Acquire)), turn)
    }

    /// The number of the turn alone, for a futex.
    pub fn turn_word(&self) -> &AtomicU32 {
        &self.turn
    }

    /// Begins a turn: all others have come as far as `others`. The caller then wakes those who wait for the turn.
    pub fn set_turn(&self, others: VirtualInstant) {
        self.others.store(others.0, Ordering::Release);
        self.turn.fetch_add(1, Ordering::AcqRel);
    }

    /// The offset of the host's wall clock to its monotonic clock when this clock was made.
    pub fn host_wall(&self) -> WallTime {
        WallTime {
            secs: self.host_wall_secs.load(Ordering::Relaxed),
            nanos: self.host_wall_nanos.load(Ordering::Relaxed),
        }
    }

    /// Where the version lies, for code that compares it in assembly.
    pub const VERSION_OFFSET: usize = core::mem::offset_of!(ClockPage, version);

    /// The number of this version of the page. Changes with every change.
    #[inline(always)]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Whether the clock still is in `version`, asked after the host's time `real` was taken.
    #[inline(always)]
    pub fn is_still(&self, version: u64, real: RealInstant) -> bool {
        fence(Ordering::Acquire);
        load_after(real.0, &self.version) == version
    }

    #[inline(always)]
    fn view(&self, version: u64) -> &View {
        &self.views[(version & 1) as usize]
    }

    fn piece(&self, number: u64) -> &SharedPiece {
        &self.pieces[place(number)]
    }

    /// Begins a look at the fast path. The reader takes the host's time next, then asks [`FastLook::at`].
    #[inline(always)]
    pub fn fast(&self) -> FastLook<'_> {
        let version = self.version();
        FastLook { version, path: &self.view(version).fast }
    }

    /// A consistent look, with the host's time taken in its middle. Does not wait for anybody: it begins anew as often as a change
    /// was published meanwhile.
    #[inline(always)]
    pub fn snapshot(&self, registry: &Registry, host: &impl Host) -> Snapshot {
        loop {
            let version = self.version();
            let view = self.view(version);
            let newest = self.undecided(version, view, registry, host);
            let real = host.now();
            let last = view.last.load(Ordering::Relaxed);
            let (piece, until) = self.in_force(last, newest, real);
            let state = view.state.load(Ordering::Relaxed);
            if self.is_still(version, real) {
                let Piece { segment, limit, rate } = piece;
                return Snapshot { segment, limit, rate, until, state, version, real };
            }
        }
    }

    /// A consistent look, as [`ClockPage::snapshot`], with the idle time that was skipped.
    #[inline(always)]
    pub fn look(&self, registry: &Registry, host: &impl Host) -> Snapshot {
        let snapshot = self.snapshot(registry, host);
        if self.leaps() {
            snapshot.after(registry.leaps.sum())
        } else {
            snapshot
        }
    }

    /// The newest piece, where its start is not in the page yet: the reader decides it, once.
    #[inline(always)]
    fn undecided(
        &self,
        version: u64,
        view: &View,
        registry: &Registry,
        host: &impl Host,
    ) -> Option<Piece> {
        if !view.fast.is_undecided() {
            return None;
        }
        failpoint(registry, Failpoint::ReaderDecides);
        let start = match host.decides() {
            true => self.decide(version, view, registry, host)?,
            false => self.decided(version, view, registry)?,
        };
        let last = view.last.load(Ordering::Relaxed);
        Some(self.beginning_at(start, last, view))
    }

    /// When the newest piece begins, decided now where it was not. `None` where the page has it by now.
    ///
    /// One try: a reader whose word belongs to another version goes by its own instant. Either the version has changed, and the
    /// look is thrown away, or a program has written the word, which harms its own container alone.
    fn decide(
        &self,
        version: u64,
        view: &View,
        registry: &Registry,
        host: &impl Host,
    ) -> Option<RealInstant> {
        let at = RealInstant(view.at.load(Ordering::Relaxed));
        let proposal = at.max(host.now());
        let decided = registry.start.decide(version, proposal);
        if decided.is_none() && !view.fast.is_undecided() {
            // The next writer has the word already; before it takes that, the start is in the page.
            return None;
        }
        // An instant that nobody could have decided by now is not believed.
        Some(decided.unwrap_or(proposal).clamp(at, at.max(host.now())))
    }

    /// The same for a reader that must not decide: as long as nobody has, the piece has not begun.
    fn decided(&self, version: u64, view: &View, registry: &Registry) -> Option<RealInstant> {
        let decided = registry.start.decided(version);
        if decided.is_none() && !view.fast.is_undecided() {
            return None;
        }
        Some(decided.unwrap_or(RealInstant::NEVER))
    }

    /// The newest piece, where it begins at `start`.
    fn beginning_at(&self, start: RealInstant, last: u64, view: &View) -> Piece {
        let (before, _) = self.in_force(last.wrapping_sub(1), None, start);
        let leap = Span(view.leap.load(Ordering::Relaxed));
        let floor = VirtualInstant(view.floor.load(Ordering::Relaxed));
        let virt = before.virtual_at(start).plus(leap).max(floor);
        let Piece { segment, limit, rate } = self.piece(last).load();
        Piece { segment: Segment { real: start, virt, ..segment }, limit: limit.max(virt), rate }
    }

    /// The piece in force at `real`, and from when on the next one is. `last` is the number of the newest; `newest` is given where
    /// its start is not in the page yet.
    #[inline(always)]
    fn in_force(
        &self,
        last: u64,
        newest: Option<Piece>,
        real: RealInstant,
    ) -> (Piece, RealInstant) {
        if newest.is_none() {
            let piece = self.piece(last).load();
            if piece.segment.real <= real {
                return (piece, RealInstant::NEVER);
            }
        }
        self.in_force_before(last, newest, real)
    }

    /// The same, where the newest is not in force.
    #[cold]
    fn in_force_before(
        &self,
        last: u64,
        newest: Option<Piece>,
        real: RealInstant,
    ) -> (Piece, RealInstant) {
        let mut pieces = self.backwards(last, newest);
        let found = pieces.find(|(piece, _)| piece.segment.real <= real);
        // Before it was made, the clock is where it began.
        found.unwrap_or_else(|| (self.pieces[0].load(), pieces.until()))
    }

    /// The first real instant at which a clock is due, for a deadline that is at virtual instant `due` by a piece: a wall time moves
    /// when the wall clock is stepped. Goes through the piece in force at `look` and all that are to come; never, where none shows
    /// it. Where the version has changed since the look, the answer is to be thrown away.
    #[inline(always)]
    pub fn when(
        &self,
        registry: &Registry,
        look: &Snapshot,
        due: impl Fn(&Segment) -> VirtualInstant,
    ) -> RealInstant {
        let real = real_due(&look.piece(), &due);
        if real < look.until || look.until == RealInstant::NEVER {
            return real;
        }
        self.when_to_come(registry, look, &due)
    }

    #[cold]
    fn when_to_come(
        &self,
        registry: &Registry,
        look: &Snapshot,
        due: &impl Fn(&Segment) -> VirtualInstant,
    ) -> RealInstant {
        let mut when = RealInstant::NEVER;
        // The latest first: the earliest has the last word.
        for (mut piece, until) in self.to_come(registry, look) {
            // Idle time that was skipped is part of every piece.
            if self.leaps() {
                piece.segment.virt = piece.segment.virt.plus(registry.leaps.sum());
            }
            let real = real_due(&piece, due);
            if real < until {
                when = real;
            }
        }
        when
    }

    /// The pieces to come at `look`, each with the instant at which the next begins; the latest first.
    pub fn to_come(
        &self,
        registry: &Registry,
        look: &Snapshot,
    ) -> impl Iterator<Item = (Piece, RealInstant)> + '_ {
        let real = look.real;
        let (last, newest) = self.latest(look.version, registry);
        self.backwards(last, newest).take_while(move |(piece, _)| piece.segment.real > real)
    }

    /// The state up to which everybody has been told of changes.
    pub fn notified(&self) -> u32 {
        self.notified.load(Ordering::Acquire)
    }

    /// States that everybody has been told of changes up to `state`.
    pub fn set_notified(&self, state: u32) {
        self.notified.store(state, Ordering::Release);
    }

    /// The rate in force, or to go on with while frozen, for a reader that does not know the host's time: after the start of a piece
    /// that was to come, it is the one before until somebody has brought the fast path along.
    pub fn rate(&self) -> Rate {
        loop {
            let version = self.version();
            let view = self.view(version);
            let last = view.last.load(Ordering::Relaxed);
            let begins = if view.fast.is_undecided() { None } else { Some(view.fast.begins()) };
            let mut pieces = self.backwards(last, None).map(|(piece, _)| piece);
            let found =
                pieces.find(|piece| begins.is_none_or(|begins| piece.segment.real == begins));
            if self.is_still(version, RealInstant(0)) {
                return found.map_or(Rate::ONE, |piece| piece.rate);
            }
        }
    }

    /// The number of this state of the clock.
    pub fn state(&self) -> u32 {
        loop {
            let version = self.version();
            let state = self.view(version).state.load(Ordering::Relaxed);
            if self.is_still(version, RealInstant(0)) {
                return state;
            }
        }
    }
}

/// When `piece` shows a deadline. Its start, where it begins later than that.
#[inline(always)]
fn real_due(piece: &Piece, due: &impl Fn(&Segment) -> VirtualInstant) -> RealInstant {
    match due(&piece.segment) {
        VirtualInstant::NEVER => RealInstant::NEVER,
        instant => piece.real_at(instant),
    }
}
