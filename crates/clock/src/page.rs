//! The shared page that *is* a virtual clock.
//!
//! There is one writer at a time, which holds the lock of the clock's file. There are any number of readers in any number of
//! processes, and none of them can write the page. A reader never waits, not even for a writer that was stopped or killed at any
//! point:
//!
//! - *One store publishes.* The writer writes a change to memory at which no reader looks: a new [`Piece`] and the second
//!   [`PageView`]. Then one store of the version puts the change in force. A reader takes the version, the host's time, and the
//!   version again. If the version has changed meanwhile, the reader begins anew. So a reader makes at most one look more than
//!   there were changes.
//! - *The start is decided afterwards.* A change that begins at once has no instant when it is published. The first thread that
//!   sees the change decides the instant by a compare-and-swap ([`crate::Start`]), after it has seen the version. Every time that was
//!   read by the old piece is therefore earlier: CLOCK_MONOTONIC never goes back, on any thread.
//! - *Pieces to come.* A writer may publish a change for a later instant. Every reader and every wait switches to it by itself.
//! - *A writer may die anywhere.* Before the store of the version nothing has happened. After the store, readers and the next
//!   writer complete the change by themselves. `notified` says up to which change everybody has been signalled.

use crate::failpoint::{failpoint, Failpoint};
use crate::instant::{RealInstant, Span, VirtualInstant, WallTime};
use crate::rate::Rate;
use crate::registry::Registry;
use crate::segment::Segment;
use crate::sync::{fence, load_after, AtomicI64, AtomicU32, AtomicU64, Ordering};
use fast::FastPath;
use piece::SharedPiece;

mod fast;
mod hold;
mod idle;
mod past;
mod piece;
mod publish;
mod rebase;
mod shift;

pub use fast::FastClock;
pub use hold::HOLD_DELAY;
pub use piece::Piece;
pub use publish::{Change, Published, TooManyChanges, MAX_CHANGES_AHEAD};

/// First word of every clock page: "LORENTZ" and the version of the layout.
pub const MAGIC: u64 = u64::from_le_bytes(*b"LORENTZ\x08");
/// Version of the page's layout, the last byte of [`MAGIC`].
pub const PAGE_LAYOUT: u8 = (MAGIC >> 56) as u8;

/// Number of slots for pieces: one for the first piece, then a ring of the latest ones. The ring includes the pieces to come and
/// the one that a writer is writing.
#[cfg(not(loom))]
pub const PIECES: usize = 58;
/// A small number, so that the model has few states.
#[cfg(loom)]
pub const PIECES: usize = 4;

/// Choices made once, when the clock is created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Policy {
    /// CPU clocks run as the host's do; they are not scaled by the rate.
    pub real_cpu_clocks: bool,
    /// File times are the host's.
    pub real_file_times: bool,
    /// `rdtsc` traps and reads virtual time.
    pub trap_tsc: bool,
    /// The shim counts new tasks ([`crate::TaskCounters`]). Set for a clock that skips idle time from the start.
    pub counts_tasks: bool,
    /// A send waits until send ordering permits it ([`ClockPage::send_order`]). Set for a clock that is one of several in an
    /// experiment.
    pub orders_sends: bool,
    /// The code of programs stays as it is, however often they make trapped calls at the same place.
    pub keeps_code: bool,
    /// Programs may set and discipline the clock without CAP_SYS_TIME.
    pub may_set_clock: bool,
}

impl Policy {
    fn to_bits(self) -> u32 {
        self.real_cpu_clocks as u32
            | (self.real_file_times as u32) << 1
            | (self.trap_tsc as u32) << 2
            | (self.counts_tasks as u32) << 3
            | (self.orders_sends as u32) << 4
            | (self.keeps_code as u32) << 5
            | (self.may_set_clock as u32) << 6
    }

    fn from_bits(bits: u32) -> Policy {
        Policy {
            real_cpu_clocks: bits & 1 != 0,
            real_file_times: bits & 2 != 0,
            trap_tsc: bits & 4 != 0,
            counts_tasks: bits & 8 != 0,
            orders_sends: bits & 16 != 0,
            keeps_code: bits & 32 != 0,
            may_set_clock: bits & 64 != 0,
        }
    }
}

/// One version of the clock, as readers see it. There are two views: one is in force, the next change is written to the other.
#[repr(C, align(64))]
#[cfg_attr(loom, derive(Default))]
struct PageView {
    fast: FastPath,
    /// Number of the newest piece.
    last: AtomicU64,
    /// Number of this state of the clock ([`Snapshot::state`]).
    state: AtomicU32,
    unused: AtomicU32,
    /// The newest piece begins no earlier than this, ns of the host's CLOCK_MONOTONIC.
    at: AtomicI64,
    /// Forward jump of virtual time at the start of the newest piece, ns.
    leap: AtomicI64,
    /// Lower bound of virtual time at the start of the newest piece, ns.
    floor: AtomicI64,
}

/// The shared page at the start of a clock's file. Every program on the clock maps it read-only.
#[repr(C, align(64))]
#[cfg_attr(loom, derive(Default))]
pub struct ClockPage {
    magic: AtomicU64,
    policy: AtomicU32,
    /// A [`SkipMode`](crate::SkipMode), and whether the clock adds leaps to its time.
    skip: AtomicU32,
    /// The offset of the host's wall clock to its monotonic clock when this clock was created.
    host_wall_secs: AtomicI64,
    host_wall_nanos: AtomicU32,
    /// Number of beginnings and ends of holds. Odd while timers are held back.
    holds: AtomicU32,
    /// Virtual nanoseconds that each clock read costs.
    read_cost: AtomicI64,
    /// All other clocks of the experiment show at least this time, virtual ns.
    others_reached: AtomicI64,
    /// Number of changes of `others_reached`. Threads wait for the next change on this word, a futex.
    send_order: AtomicU32,
    /// The state up to which everybody has been notified of changes.
    notified: AtomicU32,
    /// While a hold is on, timers that are due after this instant are held back. Ns of the host's CLOCK_MONOTONIC.
    hold_from: AtomicI64,
    // A cache line of its own begins here.
    version: AtomicU64,
    /// The offset of true wall time to the virtual clock: of a wall clock that nobody has stepped.
    true_wall_secs: AtomicI64,
    true_wall_nanos: AtomicU32,
    views: [PageView; 2],
    /// The first piece, then the ring.
    pieces: [SharedPiece; PIECES],
}

/// A reader's consistent look at the clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// The piece in force. It may have leaps over idle time added.
    pub segment: Segment,
    /// The latest virtual time that the piece shows.
    pub limit: VirtualInstant,
    /// The rate in force. For a frozen clock: the rate to go on with.
    pub rate: Rate,
    /// The instant at which the next piece begins; [`RealInstant::NEVER`] if none is to come.
    pub until: RealInstant,
    /// Number of this state of the clock. It changes with each change, and when the fast path has moved to a piece that was to
    /// come.
    pub state: u32,
    /// Number of this version of the page, for [`ClockPage::is_still`].
    pub version: u64,
    /// The host's time at the look.
    pub real: RealInstant,
}

impl Snapshot {
    /// Returns the same look at a clock whose leaps add up to `sum`.
    #[inline(always)]
    pub fn with_leaps(mut self, sum: Span) -> Snapshot {
        self.segment.virt = self.segment.virt.plus(sum);
        self
    }

    /// Returns virtual time at this look.
    #[inline(always)]
    pub fn now(&self) -> VirtualInstant {
        self.segment.virtual_at(self.real).min(self.limit)
    }

    /// Returns the piece in force.
    pub fn piece(&self) -> Piece {
        Piece { segment: self.segment, limit: self.limit, rate: self.rate }
    }

    /// Returns the first real instant at which the piece in force shows `deadline`; never, if the piece is frozen or limited
    /// before it. If another piece is to come, the result may be wrong from [`Snapshot::until`] on: see [`ClockPage::when`].
    pub fn real_at(&self, deadline: VirtualInstant) -> RealInstant {
        self.piece().real_at(deadline)
    }
}

/// Access to the host's monotonic clock.
pub trait HostClock {
    /// Reads CLOCK_MONOTONIC.
    fn now(&self) -> RealInstant;

    /// Is called right before the store that publishes a change: a measurement of how long one is under way begins here.
    fn change_begins(&self) {}
}

impl<F: Fn() -> RealInstant> HostClock for F {
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
    /// Returns what `clock` shows, as seconds and nanoseconds (0..1e9).
    ///
    /// `secs` and `nanos` are the host's monotonic clock, which the caller must have read after this look began. `lags` says that
    /// they come from the host's coarse clock. The result is `None` if the caller has to take the slow path.
    ///
    /// # Errors
    ///
    /// [`Changed`]: the clock has changed meanwhile, and the look has to begin anew.
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

/// The error of a look during which the clock has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Changed;

/// Returns the index of the slot of piece `number`.
fn slot(number: u64) -> usize {
    match number {
        0 => 0,
        later => 1 + ((later - 1) % (PIECES as u64 - 1)) as usize,
    }
}

/// Returns the number of the oldest remembered piece except the first one, when `last` is the newest. Nobody looks at one place
/// of the ring: the next change is written there.
fn oldest(last: u64) -> u64 {
    last.saturating_sub(PIECES as u64 - 3).max(1)
}

impl ClockPage {
    /// Makes a page of zeroes into a clock that starts with `segment`.
    ///
    /// `rate` is the rate to go on with if the segment is frozen. `host_wall` is the offset of the host's wall clock to its
    /// monotonic clock.
    pub fn initialise(&self, segment: &Segment, rate: Rate, policy: Policy, host_wall: WallTime) {
        self.host_wall_secs.store(host_wall.secs, Ordering::Relaxed);
        self.host_wall_nanos.store(host_wall.nanos, Ordering::Relaxed);
        self.policy.store(policy.to_bits(), Ordering::Relaxed);
        self.others_reached.store(VirtualInstant::NEVER.0, Ordering::Relaxed);
        self.set_true_wall(segment.wall);
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

    /// Whether the page is a clock of this layout.
    pub fn is_valid(&self) -> bool {
        self.magic.load(Ordering::Acquire) == MAGIC
    }

    /// Returns the choices made when the clock was created.
    pub fn policy(&self) -> Policy {
        Policy::from_bits(self.policy.load(Ordering::Relaxed))
    }

    /// Returns the time up to which all other clocks of the experiment have come at least, and how often that time has changed. A
    /// program that would have an effect on others at a later virtual time waits for the next change.
    pub fn send_order(&self) -> (VirtualInstant, u32) {
        let number = self.send_order.load(Ordering::Acquire);
        (VirtualInstant(self.others_reached.load(Ordering::Acquire)), number)
    }

    /// Returns the number of changes alone, as a futex word.
    pub fn send_order_word(&self) -> &AtomicU32 {
        &self.send_order
    }

    /// Stores that all other clocks have come as far as `others`. The caller then wakes the threads that wait for the change.
    pub fn set_send_order(&self, others: VirtualInstant) {
        self.others_reached.store(others.0, Ordering::Release);
        self.send_order.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the offset of the host's wall clock to its monotonic clock when this clock was created.
    pub fn host_wall(&self) -> WallTime {
        WallTime {
            secs: self.host_wall_secs.load(Ordering::Relaxed),
            nanos: self.host_wall_nanos.load(Ordering::Relaxed),
        }
    }

    /// Returns the offset of true wall time to the virtual clock: that of the wall clock if nobody has stepped it.
    pub fn true_wall(&self) -> WallTime {
        WallTime {
            secs: self.true_wall_secs.load(Ordering::Relaxed),
            nanos: self.true_wall_nanos.load(Ordering::Relaxed),
        }
    }

    /// Sets the offset of true wall time. The caller holds the clock's lock.
    pub fn set_true_wall(&self, wall: WallTime) {
        self.true_wall_secs.store(wall.secs, Ordering::Relaxed);
        self.true_wall_nanos.store(wall.nanos, Ordering::Relaxed);
    }

    /// Offset of the version in the page, bytes, for assembly code that compares it.
    pub const VERSION_OFFSET: usize = core::mem::offset_of!(ClockPage, version);

    /// Returns the number of this version of the page. Each published change makes a new one.
    #[inline(always)]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Whether the clock still is in `version`. The load happens after the host's time `real` was taken.
    #[inline(always)]
    pub fn is_still(&self, version: u64, real: RealInstant) -> bool {
        fence(Ordering::Acquire);
        load_after(real.0, &self.version) == version
    }

    #[inline(always)]
    fn view(&self, version: u64) -> &PageView {
        &self.views[(version & 1) as usize]
    }

    fn piece(&self, number: u64) -> &SharedPiece {
        &self.pieces[slot(number)]
    }

    /// Begins a look at the fast path. The reader takes the host's time next, then calls [`FastLook::at`].
    #[inline(always)]
    pub fn fast(&self) -> FastLook<'_> {
        let version = self.version();
        FastLook { version, path: &self.view(version).fast }
    }

    /// Takes a consistent look at the clock, with the host's time read in its middle. It waits for nobody: it begins anew once
    /// for each change that was published meanwhile.
    #[inline(always)]
    pub fn snapshot(&self, registry: &Registry, host: &impl HostClock) -> Snapshot {
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

    /// Takes a consistent look as [`ClockPage::snapshot`] does, and adds the idle time that was skipped.
    #[inline(always)]
    pub fn look(&self, registry: &Registry, host: &impl HostClock) -> Snapshot {
        let snapshot = self.snapshot(registry, host);
        if self.leaps_enabled() {
            snapshot.with_leaps(registry.leaps.sum())
        } else {
            snapshot
        }
    }

    /// Returns the newest piece if its start is not in the page yet. The reader then decides the start, once.
    #[inline(always)]
    fn undecided(
        &self,
        version: u64,
        view: &PageView,
        registry: &Registry,
        host: &impl HostClock,
    ) -> Option<Piece> {
        if !view.fast.is_undecided() {
            return None;
        }
        failpoint(registry, Failpoint::ReaderDecides);
        let start = self.decide(version, view, registry, host)?;
        let last = view.last.load(Ordering::Relaxed);
        Some(self.beginning_at(start, last, view))
    }

    /// Returns the start of the newest piece, and decides it if nobody has. `None` means that the page has the start by now.
    ///
    /// The reader tries once. If the word belongs to another version, the reader goes by its own instant. Either the version has
    /// changed, and the reader discards the look; or a program has written the word, which harms only its own container.
    fn decide(
        &self,
        version: u64,
        view: &PageView,
        registry: &Registry,
        host: &impl HostClock,
    ) -> Option<RealInstant> {
        let at = RealInstant(view.at.load(Ordering::Relaxed));
        let proposal = at.max(host.now());
        let decided = registry.start.decide(version, proposal);
        if decided.is_none() && !view.fast.is_undecided() {
            // The next writer uses the word already. It put the start into the page before that.
            return None;
        }
        // Do not believe an instant that nobody could have decided by now.
        Some(decided.unwrap_or(proposal).clamp(at, at.max(host.now())))
    }

    /// Returns the decided start for a look that does not read the host's clock. As long as nobody has decided, the piece has not
    /// begun. `None` means that the page has the start by now.
    fn decided(&self, version: u64, view: &PageView, registry: &Registry) -> Option<RealInstant> {
        let decided = registry.start.decided(version);
        if decided.is_none() && !view.fast.is_undecided() {
            return None;
        }
        Some(decided.unwrap_or(RealInstant::NEVER))
    }

    /// Computes the newest piece for the case that it begins at `start`.
    fn beginning_at(&self, start: RealInstant, last: u64, view: &PageView) -> Piece {
        let (before, _) = self.in_force(last.wrapping_sub(1), None, start);
        let leap = Span(view.leap.load(Ordering::Relaxed));
        let floor = VirtualInstant(view.floor.load(Ordering::Relaxed));
        let virt = before.virtual_at(start).plus(leap).max(floor);
        let Piece { segment, limit, rate } = self.piece(last).load();
        Piece { segment: Segment { real: start, virt, ..segment }, limit: limit.max(virt), rate }
    }

    /// Returns the piece in force at `real`, and the instant at which the next one begins. `last` is the number of the newest
    /// piece. `newest` is the newest piece if its start is not in the page yet.
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

    /// Returns the same for the case that the newest piece is not in force.
    #[cold]
    fn in_force_before(
        &self,
        last: u64,
        newest: Option<Piece>,
        real: RealInstant,
    ) -> (Piece, RealInstant) {
        let mut pieces = self.backwards(last, newest);
        let found = pieces.find(|(piece, _)| piece.segment.real <= real);
        // Before it was created, the clock shows its first value.
        found.unwrap_or_else(|| (self.pieces[0].load(), pieces.until()))
    }

    /// Returns the first real instant at which the clock reaches a deadline; never, if no piece reaches it.
    ///
    /// `due` computes the deadline's virtual instant for a piece: a wall time moves when the wall clock is stepped. The search
    /// goes through the piece in force at `look` and all pieces to come. The caller discards the result if the version has
    /// changed since the look.
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
        // The loop begins with the latest piece, so the result of the earliest one wins.
        for (mut piece, until) in self.to_come(registry, look) {
            // Skipped idle time is part of every piece.
            if self.leaps_enabled() {
                piece.segment.virt = piece.segment.virt.plus(registry.leaps.sum());
            }
            let real = real_due(&piece, due);
            if real < until {
                when = real;
            }
        }
        when
    }

    /// Returns the pieces to come at `look`, the latest first, each with the instant at which the next begins.
    pub fn to_come(
        &self,
        registry: &Registry,
        look: &Snapshot,
    ) -> impl Iterator<Item = (Piece, RealInstant)> + '_ {
        let real = look.real;
        let (last, newest) = self.latest(look.version, registry);
        self.backwards(last, newest).take_while(move |(piece, _)| piece.segment.real > real)
    }

    /// Returns the state up to which everybody has been notified of changes.
    pub fn notified(&self) -> u32 {
        self.notified.load(Ordering::Acquire)
    }

    /// Stores that everybody has been notified of changes up to `state`.
    pub fn set_notified(&self, state: u32) {
        self.notified.store(state, Ordering::Release);
    }

    /// Returns the rate in force, or the rate to go on with while frozen, for a reader that does not know the host's time. After
    /// the start of a piece that was to come, the result is the rate before it until somebody refreshes the fast path.
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

    /// Returns the number of this state of the clock.
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

/// Returns the instant at which `piece` shows a deadline; the piece's start, if that is later.
#[inline(always)]
fn real_due(piece: &Piece, due: &impl Fn(&Segment) -> VirtualInstant) -> RealInstant {
    match due(&piece.segment) {
        VirtualInstant::NEVER => RealInstant::NEVER,
        instant => piece.real_at(instant),
    }
}
