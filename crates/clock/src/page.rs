//! The shared page that *is* a virtual clock.
//!
//! One writer at a time (the file's lock decides which), any number of readers in any number of
//! processes, none of which can write. A sequence lock keeps them apart: the sequence is odd while the
//! clock is being changed.
//!
//! Two things make it more than a plain sequence lock:
//!
//! - *Never backwards.* A reader takes the host's time between its two looks at the sequence, and a
//!   writer takes the host's time of the change after the sequence has been odd for [`SETTLE`]. So whoever
//!   still read by the old segment did it before the change, and whoever reads by the new one does it after.
//! - *A writer may die anywhere.* The last entry of the history is what is in force; how many changes there were is
//!   stored after everything else, and nothing that counts is ever written over. The next writer finds the sequence odd
//!   and restores from there.

use crate::instant::{saturate, RealInstant, Span, VirtualInstant, WallTime};
use crate::leaps::{Leaps, SkipMode, Skipping};
use crate::rate::Rate;
use crate::segment::{Pace, Segment};
use crate::sync::{along, fence, spin_loop, AtomicI64, AtomicU32, AtomicU64, Ordering};
use core::cell::Cell;
use core::iter::once;

mod short;

use short::{Short, Way};

/// First word of every clock page: "LORENTZ" and the layout's version.
pub const MAGIC: u64 = u64::from_le_bytes(*b"LORENTZ\x04");

/// How long a writer keeps the sequence odd before it takes the host's time. A reader that took the
/// host's time later than that has seen the odd sequence: the processor's reordering window is far shorter.
pub const SETTLE: Span = Span(1_000);

/// Room for the segments remembered, for the times of files written under earlier ones: the first, the latest ones,
/// and one that is being written.
#[cfg(not(loom))]
pub const HISTORY: usize = 60;
/// Short, so that the model stays small.
#[cfg(loom)]
pub const HISTORY: usize = 3;

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
    /// What a program sends waits until it is its clock's turn ([`ClockPage::turn`]): one of several in an experiment.
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

/// What is in force from one change to the next.
#[derive(Clone, Copy)]
struct Terms {
    segment: Segment,
    limit: VirtualInstant,
    /// The rate of the segment, or the one to go on with after a freeze.
    rate: Rate,
}

impl Terms {
    /// `paused` is the rate to go on with if the segment stands still.
    fn new(segment: &Segment, limit: VirtualInstant, paused: Rate) -> Terms {
        let rate = match segment.pace {
            Pace::Running(rate) => rate,
            Pace::Frozen => paused,
        };
        Terms { segment: *segment, limit, rate }
    }
}

/// [`Terms`] as they lie in shared memory: one cache line.
#[repr(C)]
#[cfg_attr(loom, derive(Default))]
struct SharedTerms {
    real: AtomicI64,
    virt: AtomicI64,
    num: along::AtomicU64,
    /// With [`FROZEN`] while time stands still.
    den: along::AtomicU64,
    wall_secs: along::AtomicI64,
    wall_nanos: along::AtomicU64,
    boot: along::AtomicI64,
    limit: along::AtomicI64,
}

/// A bit that no term of a rate has.
const FROZEN: u64 = 1 << 63;

impl SharedTerms {
    #[inline(always)]
    fn load(&self) -> Terms {
        let den = self.den.load(Ordering::Relaxed);
        // A torn pair is thrown away by the sequence check; it must only do no harm until then.
        let rate =
            Rate::from_terms(self.num.load(Ordering::Relaxed), den & !FROZEN).unwrap_or(Rate::ONE);
        let segment = Segment {
            real: RealInstant(self.real.load(Ordering::Relaxed)),
            virt: VirtualInstant(self.virt.load(Ordering::Relaxed)),
            pace: if den & FROZEN == 0 { Pace::Running(rate) } else { Pace::Frozen },
            wall: WallTime {
                secs: self.wall_secs.load(Ordering::Relaxed),
                nanos: self.wall_nanos.load(Ordering::Relaxed) as u32,
            },
            boot: Span(self.boot.load(Ordering::Relaxed)),
        };
        Terms { segment, limit: VirtualInstant(self.limit.load(Ordering::Relaxed)), rate }
    }

    fn store(&self, terms: &Terms) {
        let Terms { segment, limit, rate } = terms;
        let frozen = if segment.pace == Pace::Frozen { FROZEN } else { 0 };
        self.real.store(segment.real.0, Ordering::Relaxed);
        self.virt.store(segment.virt.0, Ordering::Relaxed);
        self.num.store(rate.num(), Ordering::Relaxed);
        self.den.store(rate.den() | frozen, Ordering::Relaxed);
        self.wall_secs.store(segment.wall.secs, Ordering::Relaxed);
        self.wall_nanos.store(segment.wall.nanos as u64, Ordering::Relaxed);
        self.boot.store(segment.boot.0, Ordering::Relaxed);
        self.limit.store(limit.0, Ordering::Relaxed);
    }
}

/// The shared page. Lies at the start of a clock's file; mapped read-only into every program.
#[repr(C, align(64))]
#[cfg_attr(loom, derive(Default))]
pub struct ClockPage {
    magic: AtomicU64,
    policy: AtomicU32,
    /// A [`SkipMode`], and whether leaps are believed.
    skip: AtomicU32,
    /// How many changes there have been: which entry of the history is in force.
    changes: AtomicU64,
    /// What the host's wall clock was ahead of its monotonic clock when this clock was made.
    host_wall_secs: AtomicI64,
    host_wall_nanos: AtomicU64,
    /// What reading a clock costs, virtual nanoseconds.
    read_cost: AtomicI64,
    /// All other clocks of its experiment have come at least this far.
    others: AtomicI64,
    /// Counts the changes of that, for who waits for them.
    turn: AtomicU32,
    unused: AtomicU32,
    // What a reader needs begins a cache line of its own.
    sequence: AtomicU32,
    /// A [`Way`].
    way: AtomicU32,
    short: Short,
    current: SharedTerms,
    /// The start, then a ring.
    history: [SharedTerms; HISTORY],
}

/// Where change number `change` stands in the history.
fn place(change: u64) -> usize {
    match change {
        0 => 0,
        later => 1 + ((later - 1) % (HISTORY as u64 - 1)) as usize,
    }
}

/// What a reader sees in one consistent look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// The segment in force.
    pub segment: Segment,
    /// Virtual time never shows later than this.
    pub limit: VirtualInstant,
    /// Which state of the clock this is; changes with every change.
    pub sequence: u32,
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

    /// The first real instant at which virtual time shows `deadline`; never, where it is frozen or held before it.
    pub fn real_at(&self, deadline: VirtualInstant) -> RealInstant {
        if deadline > self.limit {
            return RealInstant::NEVER;
        }
        self.segment.real_at(deadline)
    }
}

impl ClockPage {
    /// Makes a page of zeroes into a clock that starts with `segment`.
    /// `host_wall` is what the host's wall clock is ahead of its monotonic clock.
    pub fn initialise(&self, segment: &Segment, rate: Rate, policy: Policy, host_wall: WallTime) {
        self.host_wall_secs.store(host_wall.secs, Ordering::Relaxed);
        self.host_wall_nanos.store(host_wall.nanos as u64, Ordering::Relaxed);
        self.policy.store(policy.to_bits(), Ordering::Relaxed);
        let terms = Terms::new(segment, VirtualInstant::NEVER, rate);
        self.history[0].store(&terms);
        self.changes.store(0, Ordering::Relaxed);
        self.others.store(VirtualInstant::NEVER.0, Ordering::Relaxed);
        self.set(&terms);
        self.sequence.store(2, Ordering::Relaxed);
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

    /// How it goes about idle time.
    pub fn skipping(&self) -> Skipping {
        let bits = self.skip.load(Ordering::Relaxed);
        Skipping {
            mode: SkipMode::from_bits(bits),
            believed: bits & SkipMode::BELIEVED != 0,
            read_cost: Span(self.read_cost.load(Ordering::Relaxed)),
        }
    }

    /// Whether [`crate::Leaps`] are part of its time.
    #[inline(always)]
    pub fn leaps(&self) -> bool {
        self.skip.load(Ordering::Relaxed) & SkipMode::BELIEVED != 0
    }

    /// A consistent look, as [`ClockPage::snapshot`], with what has been leapt over.
    #[inline(always)]
    pub fn look(
        &self,
        leaps: &Leaps,
        host: impl Fn() -> RealInstant,
        wait: impl Fn(u32),
    ) -> Snapshot {
        let snapshot = self.snapshot(host, wait);
        if self.leaps() {
            snapshot.after(leaps.sum())
        } else {
            snapshot
        }
    }

    /// How far all other clocks of its experiment have come at least, and the number of this turn. What a program does at a
    /// later time others must not see yet: it waits for another turn.
    pub fn turn(&self) -> (VirtualInstant, u32) {
        let turn = self.turn.load(Ordering::Acquire);
        (VirtualInstant(self.others.load(Ordering::Acquire)), turn)
    }

    /// The number of the turn alone, for a futex.
    pub fn turn_word(&self) -> &AtomicU32 {
        &self.turn
    }

    /// Begins a turn: all others have come as far as `others`. Who waits for it has still to be woken.
    pub fn set_turn(&self, others: VirtualInstant) {
        self.others.store(others.0, Ordering::Release);
        self.turn.fetch_add(1, Ordering::AcqRel);
    }

    /// What the host's wall clock was ahead of its monotonic clock when this clock was made.
    pub fn host_wall(&self) -> WallTime {
        WallTime {
            secs: self.host_wall_secs.load(Ordering::Relaxed),
            nanos: self.host_wall_nanos.load(Ordering::Relaxed) as u32,
        }
    }

    /// Which state of the clock is in force. Changes with every change; odd during one.
    #[inline(always)]
    pub fn sequence(&self) -> u32 {
        self.sequence.load(Ordering::Acquire)
    }

    /// The short way for a clock that runs at rate one without a limit: seconds and nanoseconds (0..1e9) to add to the
    /// host's monotonic clock, for the wall clock or the monotonic one, and the sequence they hold for. A reader takes
    /// the host's time after this and then looks whether the sequence is still the same. `None` where the clock is not so.
    #[inline(always)]
    pub fn ahead(&self, wall: bool) -> Option<(u32, i64, i64)> {
        let sequence = self.sequence.load(Ordering::Acquire);
        if sequence & 1 != 0 || self.way.load(Ordering::Relaxed) != Way::Ahead as u32 {
            return None;
        }
        let (secs, nanos) = self.short.load(wall);
        Some((sequence, secs, nanos))
    }

    /// The short way for a clock at another rate, with a limit, or that stands: seconds and nanoseconds (0..1e9) that the wall
    /// clock or the monotonic one shows, with the host's time taken by `host`. `None` where the clock is not so, has come to
    /// its limit, or is being changed; with `dilated` also where it runs at rate one or stands.
    #[inline(always)]
    pub fn in_piece(
        &self,
        wall: bool,
        dilated: bool,
        host: impl Fn() -> RealInstant,
    ) -> Option<(i64, i64)> {
        let least = if dilated { Way::Dilated } else { Way::Piece };
        loop {
            let sequence = self.sequence.load(Ordering::Acquire);
            if sequence & 1 != 0 || self.way.load(Ordering::Relaxed) < least as u32 {
                return None;
            }
            let shown = self.short.piece_at(host(), wall);
            if self.is_still(sequence) {
                return shown;
            }
        }
    }

    /// When the segment in force began: a clock of the host's that lags behind may still show an earlier time.
    #[inline(always)]
    pub fn began(&self) -> RealInstant {
        RealInstant(self.current.real.load(Ordering::Relaxed))
    }

    /// Whether the clock still is in state `sequence`, asked after the host's time was taken.
    #[inline(always)]
    pub fn is_still(&self, sequence: u32) -> bool {
        fence(Ordering::Acquire);
        self.sequence.load(Ordering::Relaxed) == sequence
    }

    /// Puts `terms` in force.
    fn set(&self, terms: &Terms) {
        self.current.store(terms);
        let way = match self.leaps() {
            true => Way::Long,
            false => self.short.store(terms),
        };
        self.way.store(way as u32, Ordering::Relaxed);
    }

    /// Where the sequence lies, for code that compares it in assembly.
    pub const SEQUENCE_OFFSET: usize = core::mem::offset_of!(ClockPage, sequence);

    /// A consistent look, with the host's time taken by `host` in its middle. `wait` is called while a
    /// change is under way, with the number of times it has been called.
    #[inline(always)]
    pub fn snapshot(&self, host: impl Fn() -> RealInstant, wait: impl Fn(u32)) -> Snapshot {
        let mut tries = 0;
        loop {
            let sequence = self.sequence.load(Ordering::Acquire);
            if sequence & 1 == 0 {
                let Terms { segment, limit, .. } = self.current.load();
                let real = host();
                fence(Ordering::Acquire);
                if self.sequence.load(Ordering::Relaxed) == sequence {
                    return Snapshot { segment, limit, sequence, real };
                }
            }
            tries += 1;
            spin_loop();
            wait(tries);
        }
    }

    /// The rate in force, or to go on with while frozen.
    pub fn rate(&self) -> Rate {
        self.look_back(|last| self.entry(last).load().rate)
    }

    /// Begins a change. The caller holds the clock's lock: there is no other writer.
    pub fn change(&self) -> Change<'_> {
        let sequence = self.sequence.load(Ordering::Relaxed);
        let odd = sequence | 1;
        self.sequence.store(odd, Ordering::Relaxed);
        // Full, not release: the odd sequence must be visible before the host's time is taken, and before whoever
        // changes the clock looks at the waiters. A wait that it does not find there sees the odd sequence.
        fence(Ordering::SeqCst);
        let before = self.entry(self.changes.load(Ordering::Relaxed)).load();
        if sequence == odd {
            // The last writer died in the middle: go back to what was in force.
            self.set(&before);
        }
        let Terms { limit, rate, .. } = before;
        Change { page: self, odd, before, limit: Cell::new(limit), rate: Cell::new(rate) }
    }

    fn entry(&self, change: u64) -> &SharedTerms {
        &self.history[place(change)]
    }

    /// The entries remembered when `last` was the last change, oldest first.
    fn entries(&self, last: u64) -> impl DoubleEndedIterator<Item = &SharedTerms> {
        // One place of the ring is never looked at: the next change is being written there.
        let oldest = last.saturating_sub(HISTORY as u64 - 3).max(1);
        once(0).chain(oldest..last + 1).map(|change| self.entry(change))
    }

    /// The same as segments, each with the latest virtual time it was to show. Of the stretch between the first and the next
    /// one that is remembered only the ends are known: time is taken to have run evenly through it.
    fn stretches(
        &self,
        last: u64,
    ) -> impl DoubleEndedIterator<Item = (Segment, VirtualInstant)> + '_ {
        let load = |change: u64| {
            let Terms { segment, limit, .. } = self.entry(change).load();
            (segment, limit)
        };
        let second = last.saturating_sub(HISTORY as u64 - 3).max(1);
        let (mut first, limit) = load(0);
        if second > 1 {
            first = first.evenly_until(&load(second).0);
        }
        once((first, limit)).chain((second..last + 1).map(load))
    }

    /// What `look` finds in the history, which no change has touched meanwhile. It gets the number of the last change.
    fn look_back<T>(&self, look: impl Fn(u64) -> T) -> T {
        loop {
            let last = self.changes.load(Ordering::Acquire);
            let found = look(last);
            fence(Ordering::Acquire);
            if self.changes.load(Ordering::Relaxed) == last {
                return found;
            }
            spin_loop();
        }
    }

    /// The segments so far, oldest first. Consistent while `sequence()` stays the same.
    pub fn history(&self) -> impl DoubleEndedIterator<Item = Segment> + '_ {
        self.entries(self.changes.load(Ordering::Acquire)).map(|entry| entry.load().segment)
    }

    /// Wall time inside when the host's monotonic clock showed `real`. Before the clock was made, time
    /// ran as fast as the host's: what is an hour older than the start is an hour old.
    pub fn wall_of(&self, real: RealInstant) -> WallTime {
        self.look_back(|last| match self.piece_of(real, last) {
            Some((segment, virt)) => segment.wall_at(virt),
            None => {
                let first = self.entry(0).load().segment;
                first.wall_at(first.virt).plus(real.since(first.real))
            }
        })
    }

    /// What the clock showed when the host's monotonic clock showed `real`; nothing where it was made later.
    pub fn virtual_of(&self, real: RealInstant) -> Option<VirtualInstant> {
        self.look_back(|last| self.piece_of(real, last).map(|(_, virt)| virt))
    }

    /// The segment that was in force at `real`, among those up to change `last`, and the virtual time then.
    fn piece_of(&self, real: RealInstant, last: u64) -> Option<(Segment, VirtualInstant)> {
        let mut end = VirtualInstant::NEVER;
        for (segment, limit) in self.stretches(last).rev() {
            if real >= segment.real {
                return Some((segment, segment.virtual_at(real).min(end).min(limit)));
            }
            end = segment.virt;
        }
        None
    }

    /// The inverse of [`ClockPage::wall_of`]: when the host's monotonic clock shows wall time `wall` inside. A time
    /// that comes twice is told as its last coming; one that was leapt over and never came, as the moment of the leap.
    pub fn real_of(&self, wall: WallTime) -> RealInstant {
        self.look_back(|last| {
            let mut end = RealInstant::NEVER;
            let mut leapt_over = None;
            for (segment, _) in self.stretches(last).rev() {
                let virt = segment.virtual_at_wall(wall);
                if virt >= segment.virt {
                    let real = segment.real_at(virt);
                    if real < end {
                        return real;
                    }
                    leapt_over = leapt_over.or(Some(end));
                }
                end = segment.real;
            }
            let first = self.entry(0).load().segment;
            let after_start = wall.as_nanos() - first.wall_at(first.virt).as_nanos();
            match leapt_over {
                Some(leap) if after_start >= 0 => leap,
                _ => first.real.plus(Span(saturate(after_start))),
            }
        })
    }
}

/// A change under way: readers wait until it is published or dropped. Dropped, it changes nothing.
pub struct Change<'a> {
    page: &'a ClockPage,
    odd: u32,
    before: Terms,
    limit: Cell<VirtualInstant>,
    rate: Cell<Rate>,
}

impl Change<'_> {
    /// The segment in force until now.
    pub fn current(&self) -> Segment {
        self.before.segment
    }

    /// The limit in force until now.
    pub fn limit(&self) -> VirtualInstant {
        self.before.limit
    }

    /// Sets how far virtual time may go from now on.
    pub fn set_limit(&self, limit: VirtualInstant) {
        self.limit.set(limit);
    }

    /// Sets the rate to go on with after a freeze.
    pub fn set_rate(&self, rate: Rate) {
        self.rate.set(rate);
    }

    /// Sets how the clock goes about idle time from now on. What has been leapt over stays leapt over.
    pub fn set_skipping(&self, mode: SkipMode, read_cost: Span) {
        let believed = self.page.leaps() || mode != SkipMode::Off;
        self.page.skip.store(mode.to_bits() | believed as u32, Ordering::Relaxed);
        self.page.read_cost.store(read_cost.0, Ordering::Relaxed);
    }

    /// Puts `segment` in force, and what has been set.
    pub fn publish(self, segment: &Segment) {
        let page = self.page;
        let terms = Terms::new(segment, self.limit.get(), self.rate.get());
        let next = page.changes.load(Ordering::Relaxed) + 1;
        page.entry(next).store(&terms);
        page.set(&terms);
        page.changes.store(next, Ordering::Release);
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.page.sequence.store(self.odd.wrapping_add(1), Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
