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
//! - *A writer may die anywhere.* The last entry of the history is the segment in force; the length of the
//!   history is stored after everything else. The next writer finds the sequence odd and restores from there.

use crate::instant::{RealInstant, Span, VirtualInstant, WallTime};
use crate::rate::Rate;
use crate::segment::{Pace, Segment};
use crate::sync::{fence, spin_loop, AtomicI64, AtomicU32, AtomicU64, Ordering};

/// First word of every clock page: "LORENTZ" and the layout's version.
pub const MAGIC: u64 = u64::from_le_bytes(*b"LORENTZ\x01");

/// How long a writer keeps the sequence odd before it takes the host's time. A reader that took the
/// host's time later than that has seen the odd sequence: the processor's reordering window is far shorter.
pub const SETTLE: Span = Span(1_000);

/// Segments remembered, for the times of files written under earlier ones.
#[cfg(not(loom))]
pub const HISTORY: usize = 60;
/// Short, so that the model stays small.
#[cfg(loom)]
pub const HISTORY: usize = 2;

/// Choices made once, when the clock is created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Policy {
    /// CPU clocks run as the host's, not scaled by the rate.
    pub real_cpu_clocks: bool,
    /// File times are the host's.
    pub real_file_times: bool,
    /// `rdtsc` traps and reads virtual time.
    pub trap_tsc: bool,
}

impl Policy {
    fn to_bits(self) -> u32 {
        self.real_cpu_clocks as u32 | (self.real_file_times as u32) << 1 | (self.trap_tsc as u32) << 2
    }

    fn from_bits(bits: u32) -> Policy {
        Policy { real_cpu_clocks: bits & 1 != 0, real_file_times: bits & 2 != 0, trap_tsc: bits & 4 != 0 }
    }
}

/// A segment as it lies in shared memory.
#[repr(C)]
struct SharedSegment {
    real: AtomicI64,
    virt: AtomicI64,
    /// 0 while frozen.
    num: AtomicU64,
    den: AtomicU64,
    wall_secs: AtomicI64,
    wall_nanos: AtomicU64,
    boot: AtomicI64,
    /// Keeps a history entry at one cache line.
    unused: AtomicU64,
}

impl SharedSegment {
    #[inline(always)]
    fn load(&self) -> Segment {
        let num = self.num.load(Ordering::Relaxed);
        let den = self.den.load(Ordering::Relaxed);
        let pace = if num == den {
            Pace::Running(Rate::ONE)
        } else {
            // A torn pair is thrown away by the sequence check; it must only do no harm until then.
            match Rate::from_terms(num, den) {
                Some(rate) => Pace::Running(rate),
                None => Pace::Frozen,
            }
        };
        Segment {
            real: RealInstant(self.real.load(Ordering::Relaxed)),
            virt: VirtualInstant(self.virt.load(Ordering::Relaxed)),
            pace,
            wall: WallTime {
                secs: self.wall_secs.load(Ordering::Relaxed),
                nanos: self.wall_nanos.load(Ordering::Relaxed) as u32,
            },
            boot: Span(self.boot.load(Ordering::Relaxed)),
        }
    }

    fn store(&self, segment: &Segment) {
        let (num, den) = match segment.pace {
            Pace::Running(rate) => (rate.num(), rate.den()),
            Pace::Frozen => (0, 1),
        };
        self.real.store(segment.real.0, Ordering::Relaxed);
        self.virt.store(segment.virt.0, Ordering::Relaxed);
        self.num.store(num, Ordering::Relaxed);
        self.den.store(den, Ordering::Relaxed);
        self.wall_secs.store(segment.wall.secs, Ordering::Relaxed);
        self.wall_nanos.store(segment.wall.nanos as u64, Ordering::Relaxed);
        self.boot.store(segment.boot.0, Ordering::Relaxed);
    }
}

/// The shared page. Lies at the start of a clock's file; mapped read-only into every program.
#[repr(C, align(64))]
pub struct ClockPage {
    magic: AtomicU64,
    policy: AtomicU32,
    history_len: AtomicU32,
    /// The rate to go on with when a frozen clock is unfrozen.
    rate_num: AtomicU64,
    rate_den: AtomicU64,
    /// What the host's wall clock was ahead of its monotonic clock when this clock was made.
    host_wall_secs: AtomicI64,
    host_wall_nanos: AtomicU64,
    unused: [AtomicU64; 2],
    // What a reader needs begins a cache line of its own.
    sequence: AtomicU32,
    /// 1 while the clock runs at rate one without a limit: then `ahead` says all there is to say.
    even_pace: AtomicU32,
    limit: AtomicI64,
    /// Seconds and nanoseconds to add to the host's monotonic clock, for the monotonic and the wall clock.
    ahead: [[AtomicI64; 2]; 2],
    unused_too: [AtomicU64; 2],
    current: SharedSegment,
    history: [SharedSegment; HISTORY],
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
        self.rate_num.store(rate.num(), Ordering::Relaxed);
        self.rate_den.store(rate.den(), Ordering::Relaxed);
        self.set(segment, VirtualInstant::NEVER);
        self.history[0].store(segment);
        self.history_len.store(1, Ordering::Relaxed);
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
        if sequence & 1 != 0 || self.even_pace.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let [secs, nanos] = &self.ahead[wall as usize];
        Some((sequence, secs.load(Ordering::Relaxed), nanos.load(Ordering::Relaxed)))
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

    /// Puts a segment and a limit in force.
    fn set(&self, segment: &Segment, limit: VirtualInstant) {
        self.current.store(segment);
        self.limit.store(limit.0, Ordering::Relaxed);
        let even = segment.pace == Pace::Running(Rate::ONE) && limit == VirtualInstant::NEVER;
        self.even_pace.store(even as u32, Ordering::Relaxed);
        let monotonic = WallTime::from_nanos(segment.virt.0 as i128 - segment.real.0 as i128);
        let wall = WallTime::from_nanos(monotonic.as_nanos() + segment.wall.as_nanos());
        for (place, ahead) in self.ahead.iter().zip([monotonic, wall]) {
            place[0].store(ahead.secs, Ordering::Relaxed);
            place[1].store(ahead.nanos as i64, Ordering::Relaxed);
        }
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
                let segment = self.current.load();
                let limit = VirtualInstant(self.limit.load(Ordering::Relaxed));
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
        Rate::new(self.rate_num.load(Ordering::Relaxed), self.rate_den.load(Ordering::Relaxed)).unwrap_or(Rate::ONE)
    }

    /// Begins a change. The caller holds the clock's lock: there is no other writer.
    pub fn change(&self) -> Change<'_> {
        let sequence = self.sequence.load(Ordering::Relaxed);
        if sequence & 1 == 1 {
            // The last writer died in the middle: go back to the segment that was in force.
            let last = self.history_len.load(Ordering::Relaxed).clamp(1, HISTORY as u32) as usize - 1;
            self.set(&self.history[last].load(), VirtualInstant(self.limit.load(Ordering::Relaxed)));
        }
        let odd = sequence | 1;
        self.sequence.store(odd, Ordering::Relaxed);
        // Full, not release: the odd sequence must be visible before the host's time is taken.
        fence(Ordering::SeqCst);
        Change { page: self, odd }
    }

    /// The segments so far, oldest first. Consistent while `sequence()` stays the same.
    pub fn history(&self) -> impl DoubleEndedIterator<Item = Segment> + '_ {
        let len = self.history_len.load(Ordering::Acquire).clamp(1, HISTORY as u32) as usize;
        self.history[..len].iter().map(SharedSegment::load)
    }

    /// Wall time inside when the host's monotonic clock showed `real`. Before the clock was made, time
    /// ran as fast as the host's: what is an hour older than the start is an hour old.
    pub fn wall_of(&self, real: RealInstant) -> WallTime {
        let mut found = None;
        for segment in self.history().rev() {
            let first = *found.insert(segment);
            if real >= first.real {
                return first.wall_at(first.virtual_at(real));
            }
        }
        match found {
            Some(first) => first.wall_at(first.virt).plus(real.since(first.real)),
            None => WallTime::default(),
        }
    }

    /// The inverse of [`ClockPage::wall_of`]: when the host's monotonic clock shows wall time `wall` inside. A time
    /// that was leapt over is told as the moment of the leap; one that comes twice, as its last coming.
    pub fn real_of(&self, wall: WallTime) -> RealInstant {
        let mut end = RealInstant::NEVER;
        let mut oldest = None;
        for segment in self.history().rev() {
            let virt = segment.virtual_at_wall(wall);
            if virt >= segment.virt {
                return segment.real_at(virt).min(end);
            }
            end = segment.real;
            oldest = Some(segment);
        }
        match oldest {
            Some(first) => first.real.plus(first.virtual_at_wall(wall).since(first.virt)),
            None => RealInstant::default(),
        }
    }
}

/// A change under way: readers wait until it is published or dropped.
pub struct Change<'a> {
    page: &'a ClockPage,
    odd: u32,
}

impl Change<'_> {
    /// The segment in force until now.
    pub fn current(&self) -> Segment {
        self.page.current.load()
    }

    /// The limit in force until now.
    pub fn limit(&self) -> VirtualInstant {
        VirtualInstant(self.page.limit.load(Ordering::Relaxed))
    }

    /// Sets how far virtual time may go. Takes effect when the change ends.
    pub fn set_limit(&self, limit: VirtualInstant) {
        self.page.set(&self.current(), limit);
    }

    /// Sets the rate to go on with after a freeze.
    pub fn set_rate(&self, rate: Rate) {
        self.page.rate_num.store(rate.num(), Ordering::Relaxed);
        self.page.rate_den.store(rate.den(), Ordering::Relaxed);
    }

    /// Puts `segment` in force.
    pub fn publish(self, segment: &Segment) {
        let page = self.page;
        let len = page.history_len.load(Ordering::Relaxed).clamp(1, HISTORY as u32) as usize;
        page.set(segment, self.limit());
        if len < HISTORY {
            page.history[len].store(segment);
            page.history_len.store(len as u32 + 1, Ordering::Release);
        } else {
            // Full: the first stays (what came before the start is counted from it), the second goes.
            for i in 1..HISTORY - 1 {
                page.history[i].store(&page.history[i + 1].load());
            }
            page.history[HISTORY - 1].store(segment);
        }
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.page.sequence.store(self.odd.wrapping_add(1), Ordering::Release);
        // Full, so that whoever looks at the waiters next sees every wait begun under the old state.
        fence(Ordering::SeqCst);
    }
}
