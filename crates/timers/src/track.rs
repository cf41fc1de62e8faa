//! A clock followed with a counter: straight pieces that join, for ever.
//!
//! From ticks to a clock's nanoseconds by the piece in which the ticks lie: `base + (ticks - start) * scale`. Now and
//! then a sample of both is taken and a new piece begins, where the last one has come to, at the rate at which the
//! clock was seen to run, and a little faster or slower to make up for what we are off. So time as it is told never
//! jumps and never goes back.
//!
//! Readers never wait and take no lock. *Never backwards* holds across threads too, by the way a piece begins: it is
//! made known first, without its start. Then whoever sees it, a reader or the writer, decides the start, by
//! compare-and-swap, to a little after now ([`LEAD`]). Who still reads by the older piece has not seen the newer one, so
//! took its ticks before the newer one was known to anybody, and those lie before its start. The lead allows for
//! processors that execute the load before the read of the counter.

use crate::scale::Scale;
use std::sync::atomic::{fence, AtomicBool, AtomicI64, AtomicU64, Ordering};

/// Nanoseconds from the decision when a piece begins to its start: longer than a processor's window of reordering.
const LEAD: i64 = 1_000;
/// Pieces remembered. Four older than the latest are used, so that a moment converts to what it did before.
const PIECES: usize = 8;
const OLDER: u64 = 4;
/// How much faster or slower than its clock a track may run to catch up with it, parts per million.
const SLEW: f64 = 500.0;
/// A clock that seems to run by this much faster or slower than before, parts per million, and is off by so many
/// nanoseconds, was set, stopped or moved.
const ANOTHER_CLOCK: f64 = 2_000.0;
const SET: f64 = 100_000.0;
/// Nanoseconds by which two samples may be off against each other.
const NOISE: f64 = 1_000.0;
/// Over how many nanoseconds the rate of the clock is averaged.
const MEMORY: f64 = 8e9;

/// Counter and clock at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Sample {
    pub ticks: i64,
    pub nanos: i64,
}

/// One straight piece. Number and generation are one: a place holds piece `n`, then `n + PIECES`.
struct Piece {
    /// Ticks at which it begins; [`undecided`] before that is known.
    start: AtomicI64,
    /// The clock there; [`unknown`] before it was computed.
    base: AtomicI64,
    multiplier: AtomicU64,
}

/// Counters are never negative, so these are no starts. One for each piece: a thread that was asleep since the place
/// held another piece decides nothing about this one.
const fn undecided(number: u64) -> i64 {
    -1 - number as i64
}

const fn unknown(number: u64) -> i64 {
    i64::MIN + number as i64
}

/// A clock as the counter follows it.
pub(crate) struct Track {
    /// Number of the latest piece, from 1; 0 before the first.
    latest: AtomicU64,
    pieces: [Piece; PIECES],
    /// Somebody takes a sample.
    busy: AtomicBool,
    /// Ticks from which on a sample is due.
    due: AtomicI64,
    // What only who is busy reads and writes.
    last: [AtomicI64; 2],
    rate: AtomicU64,
    /// Nanoseconds between samples, at most.
    longest: i64,
    resets: AtomicU64,
}

/// A piece as a reader has it in hand.
#[derive(Clone, Copy)]
struct Line {
    start: i64,
    base: i64,
    scale: Scale,
    is_first: bool,
}

impl Line {
    #[inline(always)]
    fn at(self, ticks: i64) -> i64 {
        if ticks >= self.start {
            let passed = self.scale.nanos_forward(ticks.abs_diff(self.start));
            return self.base.saturating_add(passed);
        }
        self.base.saturating_sub(self.scale.nanos_forward(ticks.abs_diff(self.start)))
    }
}

impl Track {
    /// A track without a piece. Samples are taken at least every `longest` nanoseconds while it is in use.
    pub const fn new(longest: i64) -> Track {
        Track {
            latest: AtomicU64::new(0),
            pieces: [const {
                Piece {
                    start: AtomicI64::new(undecided(0)),
                    base: AtomicI64::new(unknown(0)),
                    multiplier: AtomicU64::new(0),
                }
            }; PIECES],
            busy: AtomicBool::new(false),
            due: AtomicI64::new(i64::MIN),
            last: [const { AtomicI64::new(0) }; 2],
            rate: AtomicU64::new(0),
            longest,
            resets: AtomicU64::new(0),
        }
    }

    /// The clock now, `ticks` having been read just before; `None` before the first piece. `counter` reads the counter,
    /// in order.
    #[inline]
    pub fn now(&self, mut ticks: i64, counter: impl Fn() -> i64) -> Option<i64> {
        loop {
            let line = self.line(ticks, &counter)?;
            if ticks >= line.start || line.is_first {
                return Some(line.at(ticks));
            }
            // The thread did not run for so long that its piece is forgotten: it takes another look.
            ticks = counter();
        }
    }

    /// The clock when the counter showed `ticks`, as it was told then if that is no longer ago than the pieces that are
    /// remembered; `None` before the first piece.
    #[inline]
    pub fn at(&self, ticks: i64, counter: impl Fn() -> i64) -> Option<i64> {
        self.line(ticks, &counter).map(|line| line.at(ticks))
    }

    /// The piece in which `ticks` lie, or the oldest.
    #[inline]
    fn line(&self, ticks: i64, counter: &impl Fn() -> i64) -> Option<Line> {
        loop {
            let latest = self.latest.load(Ordering::Acquire);
            if latest == 0 {
                return None;
            }
            let oldest = latest.saturating_sub(OLDER).max(1);
            let mut found = None;
            for number in (oldest..=latest).rev() {
                let Some(line) = self.settled(number, counter) else { break };
                found = Some(line);
                if ticks >= line.start {
                    break;
                }
            }
            fence(Ordering::Acquire);
            // The place of the oldest piece is not written to before there are more than these.
            if found.is_some() && self.latest.load(Ordering::Relaxed) <= latest + 2 {
                return found;
            }
        }
    }

    /// Piece `number`, its start decided and its base known; `None` where its place holds another one by now.
    #[inline(always)]
    fn settled(&self, number: u64, counter: &impl Fn() -> i64) -> Option<Line> {
        let piece = self.piece(number);
        let (start, base) =
            (piece.start.load(Ordering::Acquire), piece.base.load(Ordering::Acquire));
        if start < 0 || base < i64::MIN / 2 {
            return self.settle(number, counter);
        }
        let scale = Scale::from_multiplier(piece.multiplier.load(Ordering::Relaxed));
        Some(Line { start, base, scale, is_first: number == 1 })
    }

    #[cold]
    fn settle(&self, number: u64, counter: &impl Fn() -> i64) -> Option<Line> {
        let piece = self.piece(number);
        let scale = Scale::from_multiplier(piece.multiplier.load(Ordering::Relaxed));
        let lead = scale.ticks(LEAD.into())?;
        let wanted = counter().saturating_add(lead);
        let start = decide(&piece.start, undecided(number), wanted);
        if start < 0 {
            return None;
        }
        // The piece before was settled before this one was made known.
        let before = self.piece(number.checked_sub(1)?);
        let line = Line {
            start: before.start.load(Ordering::Acquire),
            base: before.base.load(Ordering::Acquire),
            scale: Scale::from_multiplier(before.multiplier.load(Ordering::Relaxed)),
            is_first: number == 2,
        };
        let base = decide(&piece.base, unknown(number), line.at(start));
        (base >= i64::MIN / 2).then_some(Line { start, base, scale, is_first: false })
    }

    fn piece(&self, number: u64) -> &Piece {
        &self.pieces[number as usize % PIECES]
    }

    /// Whether it is time for a sample.
    #[inline(always)]
    pub fn is_due(&self, ticks: i64) -> bool {
        ticks >= self.due.load(Ordering::Relaxed)
    }

    /// How often the clock was found to have been set or stopped, and the track began anew.
    pub fn resets(&self) -> u64 {
        self.resets.load(Ordering::Relaxed)
    }

    /// Takes a sample with `take`, unless somebody else does, and begins the next piece. `take` has nothing to give
    /// where it was disturbed.
    pub fn follow(&self, counter: &impl Fn() -> i64, take: impl FnOnce() -> Option<Sample>) {
        if self.busy.swap(true, Ordering::Acquire) {
            return;
        }
        if self.is_due(counter()) {
            if let Some(sample) = take() {
                self.add(sample, counter);
            }
        }
        self.busy.store(false, Ordering::Release);
    }

    /// In a child of fork: who was busy is not here.
    pub fn free(&self) {
        self.busy.store(false, Ordering::Release);
    }

    fn add(&self, sample: Sample, counter: &impl Fn() -> i64) {
        /// Nanoseconds after which a first sample and a second give a rate to begin with.
        const FIRST: i64 = 2_000_000;
        let [ticks, nanos] = &self.last;
        let last =
            Sample { ticks: ticks.load(Ordering::Relaxed), nanos: nanos.load(Ordering::Relaxed) };
        let passed = Sample {
            ticks: sample.ticks.saturating_sub(last.ticks),
            nanos: sample.nanos.saturating_sub(last.nanos),
        };
        let begun = self.latest.load(Ordering::Relaxed) != 0;
        if !begun && last != Sample::default() && (0..FIRST).contains(&passed.nanos) {
            return;
        }
        ticks.store(sample.ticks, Ordering::Relaxed);
        nanos.store(sample.nanos, Ordering::Relaxed);
        if last == Sample::default() {
            return;
        }
        let Some(seen) = seen_rate(passed) else { return self.restart(sample) };
        if begun {
            self.correct(sample, passed, seen, counter);
        } else {
            self.begin(sample, seen);
        }
    }

    /// A piece that begins where the clock is.
    fn begin(&self, sample: Sample, rate: Scale) {
        let number = self.latest.load(Ordering::Relaxed) + 1;
        let piece = self.piece(number);
        piece.multiplier.store(rate.multiplier(), Ordering::Relaxed);
        piece.base.store(sample.nanos, Ordering::Relaxed);
        piece.start.store(sample.ticks, Ordering::Relaxed);
        self.rate.store(rate.multiplier(), Ordering::Relaxed);
        self.latest.store(number, Ordering::Release);
        self.wait_for(rate, 10_000_000);
    }

    /// The clock is not what it was: forget its rate, and begin anew from here.
    fn restart(&self, sample: Sample) {
        self.resets.fetch_add(1, Ordering::Relaxed);
        if self.latest.load(Ordering::Relaxed) != 0 {
            self.begin(sample, Scale::from_multiplier(self.rate.load(Ordering::Relaxed)));
        }
    }

    /// A piece that begins where the last one has come to, and makes up for what that is off.
    fn correct(&self, sample: Sample, passed: Sample, seen: Scale, counter: &impl Fn() -> i64) {
        let before = Scale::from_multiplier(self.rate.load(Ordering::Relaxed));
        let off = millionths(before, seen);
        let ours = self.at(sample.ticks, counter).unwrap_or(sample.nanos);
        let error = sample.nanos.saturating_sub(ours) as f64;
        let apart = (off * 1e-6 * passed.nanos as f64).abs();
        let share = match off.abs() {
            strange if strange > ANOTHER_CLOCK && apart > SET => return self.restart(sample),
            // Two samples close together, and a disturbed one of them.
            strange if strange > ANOTHER_CLOCK => 0.0,
            // A clock that is being steered is followed at once; noise is averaged.
            steered if steered > 5.0 && apart > NOISE => 0.5,
            _ => (passed.nanos as f64 / MEMORY).min(1.0),
        };
        let rate = before.faster_by(off * share);
        let next = (2 * passed.nanos).max(10_000_000).min(self.longest);
        let slew = (error / next as f64 * 1e6).clamp(-SLEW, SLEW);
        let number = self.latest.load(Ordering::Relaxed) + 1;
        self.settled(number - 1, counter);
        let piece = self.piece(number);
        let multiplier = rate.faster_by(slew).multiplier();
        piece.multiplier.store(multiplier, Ordering::Relaxed);
        piece.base.store(unknown(number), Ordering::Relaxed);
        piece.start.store(undecided(number), Ordering::Release);
        self.rate.store(rate.multiplier(), Ordering::Relaxed);
        // Full: the counter is read for the start after this is visible.
        self.latest.store(number, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.settled(number, counter);
        self.wait_for(rate, next);
    }

    fn wait_for(&self, rate: Scale, nanos: i64) {
        let period = rate.ticks(nanos.into()).unwrap_or(i64::MAX);
        let from = self.last[0].load(Ordering::Relaxed);
        self.due.store(from.saturating_add(period), Ordering::Relaxed);
    }
}

/// Sets `word` to `value` if it still is `none`; what it is now.
fn decide(word: &AtomicI64, none: i64, value: i64) -> i64 {
    match word.compare_exchange(none, value, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => value,
        Err(decided) => decided,
    }
}

fn seen_rate(passed: Sample) -> Option<Scale> {
    Scale::from_ratio(passed.nanos.try_into().ok()?, passed.ticks.try_into().ok()?)
}

/// By how many millionths the ticks of `new` are longer.
fn millionths(old: Scale, new: Scale) -> f64 {
    (new.multiplier() as f64 / old.multiplier() as f64 - 1.0) * 1e6
}

#[cfg(test)]
mod tests;
