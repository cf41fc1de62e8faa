//! A clock that a counter follows: straight pieces, each of which begins where the last one ends.
//!
//! The piece in which the ticks lie converts them to the clock's nanoseconds: `base + (ticks - start) * scale`. Now and then the
//! track takes a sample of counter and clock and begins a new piece. The new piece begins at the end of the last one. Its rate is
//! that of the clock, made a little faster or slower to reduce the error. The clock shown therefore never jumps and never goes
//! back.
//!
//! Readers never wait and take no lock.
//!
//! Race: a reader has an older piece. The writer begins a newer and slower one, with a start in the past. The reader then shows a
//! later time than readers of the newer piece. Therefore the writer publishes a piece without its start. The first thread that sees
//! the piece, a reader or the writer, decides its start by compare-and-swap as a little later than now ([`START_LEAD`]). A reader
//! that still uses the older piece has not seen the newer one. It took its ticks before anybody saw the newer one, so they lie
//! before its start. The lead allows for processors that execute the load before the read of the counter.

use crate::scale::Scale;
use std::sync::atomic::{fence, AtomicBool, AtomicI64, AtomicU64, Ordering};

/// Time from the decision on a piece's start to that start, ns: longer than a processor's window of reordering.
const START_LEAD: i64 = 1_000;
/// Number of pieces remembered. Readers use the latest and the four before, so that a moment converts to the same time
/// as before.
const PIECE_COUNT: usize = 8;
const OLDER_PIECES_READ: u64 = 4;
/// Greatest correction of a track's rate while it approaches its clock, parts per million.
const MAX_SLEW_PPM: f64 = 500.0;
/// Greatest plausible change of a clock's rate, parts per million. A clock whose rate changed by more, and that is off
/// by more than the noise, was set, stopped or moved.
const MAX_RATE_CHANGE_PPM: f64 = 2_000.0;
const SET_CLOCK_ERROR: f64 = 100_000.0;
/// Greatest error between two samples, ns.
const MAX_SAMPLE_ERROR: f64 = 1_000.0;
/// Time over which the clock's rate is averaged, ns.
const AVERAGING_TIME: f64 = 8e9;

/// A sample of counter and clock at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct TrackSample {
    pub ticks: i64,
    pub nanos: i64,
}

/// One straight piece. Its number also is its generation: a place holds piece `n`, then `n + PIECE_COUNT`.
struct TrackPiece {
    /// Ticks at which the piece begins; [`undecided`] until the start is decided.
    start: AtomicI64,
    /// The clock at the start, ns; [`unknown`] until it is computed.
    base: AtomicI64,
    multiplier: AtomicU64,
}

/// The value of a start that is not decided. Counters are never negative, so no start has this value. Each piece has
/// its own value: a thread that slept since the place held another piece decides nothing about this one.
const fn undecided(number: u64) -> i64 {
    -1 - number as i64
}

const fn unknown(number: u64) -> i64 {
    i64::MIN + number as i64
}

/// A clock as the counter follows it.
pub(crate) struct Track {
    /// Number of the latest piece, from 1; 0 before the first one.
    latest: AtomicU64,
    pieces: [TrackPiece; PIECE_COUNT],
    /// Whether a thread is taking a sample.
    busy: AtomicBool,
    /// Ticks from which on a sample is due.
    due: AtomicI64,
    // The words from here on belong to the thread that set `busy`.
    last: [AtomicI64; 2],
    rate: AtomicU64,
    /// Longest time between samples, ns.
    longest: i64,
    resets: AtomicU64,
}

/// A reader's copy of a piece.
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
    /// Makes a track without a piece. While the track is in use, it takes a sample at least every `longest`
    /// nanoseconds.
    pub const fn new(longest: i64) -> Track {
        Track {
            latest: AtomicU64::new(0),
            pieces: [const {
                TrackPiece {
                    start: AtomicI64::new(undecided(0)),
                    base: AtomicI64::new(unknown(0)),
                    multiplier: AtomicU64::new(0),
                }
            }; PIECE_COUNT],
            busy: AtomicBool::new(false),
            due: AtomicI64::new(i64::MIN),
            last: [const { AtomicI64::new(0) }; 2],
            rate: AtomicU64::new(0),
            longest,
            resets: AtomicU64::new(0),
        }
    }

    /// Returns the clock's time, ns. The caller has read `ticks` just before; `counter` reads the counter, in order.
    /// `None` before the first piece.
    #[inline]
    pub fn now(&self, mut ticks: i64, counter: impl Fn() -> i64) -> Option<i64> {
        loop {
            let line = self.line(ticks, &counter)?;
            if ticks >= line.start || line.is_first {
                return Some(line.at(ticks));
            }
            // The thread did not run for so long that its piece is no longer remembered. Read the counter again.
            ticks = counter();
        }
    }

    /// Returns the clock's time when the counter showed `ticks`, ns. The result is the time shown then if a remembered
    /// piece covers `ticks`. `None` before the first piece.
    #[inline]
    pub fn at(&self, ticks: i64, counter: impl Fn() -> i64) -> Option<i64> {
        self.line(ticks, &counter).map(|line| line.at(ticks))
    }

    /// Returns the piece in which `ticks` lie, or the oldest one.
    #[inline]
    fn line(&self, ticks: i64, counter: &impl Fn() -> i64) -> Option<Line> {
        loop {
            let latest = self.latest.load(Ordering::Acquire);
            if latest == 0 {
                return None;
            }
            let oldest = latest.saturating_sub(OLDER_PIECES_READ).max(1);
            let mut found = None;
            for number in (oldest..=latest).rev() {
                let Some(line) = self.line_of(number, counter) else { break };
                found = Some(line);
                if ticks >= line.start {
                    break;
                }
            }
            fence(Ordering::Acquire);
            // Nobody writes to the place of the oldest piece used before the track has more pieces than this.
            if found.is_some() && self.latest.load(Ordering::Relaxed) <= latest + 2 {
                return found;
            }
        }
    }

    /// Returns piece `number` with its start decided and its base known; `None` if its place holds another one by now.
    #[inline(always)]
    fn line_of(&self, number: u64, counter: &impl Fn() -> i64) -> Option<Line> {
        let piece = self.piece(number);
        let (start, base) =
            (piece.start.load(Ordering::Acquire), piece.base.load(Ordering::Acquire));
        if start < 0 || base < i64::MIN / 2 {
            return self.decide_line(number, counter);
        }
        let scale = Scale::from_multiplier(piece.multiplier.load(Ordering::Relaxed));
        Some(Line { start, base, scale, is_first: number == 1 })
    }

    #[cold]
    fn decide_line(&self, number: u64, counter: &impl Fn() -> i64) -> Option<Line> {
        let piece = self.piece(number);
        let scale = Scale::from_multiplier(piece.multiplier.load(Ordering::Relaxed));
        let lead = scale.ticks(START_LEAD.into())?;
        let wanted = counter().saturating_add(lead);
        let start = decide(&piece.start, undecided(number), wanted);
        if start < 0 {
            return None;
        }
        // The piece before had its start and base before this one was published.
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

    fn piece(&self, number: u64) -> &TrackPiece {
        &self.pieces[number as usize % PIECE_COUNT]
    }

    /// Whether it is time for a sample.
    #[inline(always)]
    pub fn is_due(&self, ticks: i64) -> bool {
        ticks >= self.due.load(Ordering::Relaxed)
    }

    /// Returns how often the track began anew because the clock was found to have been set or stopped.
    pub fn resets(&self) -> u64 {
        self.resets.load(Ordering::Relaxed)
    }

    /// Takes a sample with `take`, unless another thread is doing so, and begins the next piece. `take` returns `None`
    /// if it was disturbed.
    pub fn follow(&self, counter: &impl Fn() -> i64, take: impl FnOnce() -> Option<TrackSample>) {
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

    /// Frees the track in a child of fork, where the thread that was taking a sample does not exist.
    pub fn free(&self) {
        self.busy.store(false, Ordering::Release);
    }

    fn add(&self, sample: TrackSample, counter: &impl Fn() -> i64) {
        /// Time from the first sample to a second that gives the first rate, ns.
        const MIN_FIRST_INTERVAL: i64 = 2_000_000;
        let [ticks, nanos] = &self.last;
        let last = TrackSample {
            ticks: ticks.load(Ordering::Relaxed),
            nanos: nanos.load(Ordering::Relaxed),
        };
        let passed = TrackSample {
            ticks: sample.ticks.saturating_sub(last.ticks),
            nanos: sample.nanos.saturating_sub(last.nanos),
        };
        let begun = self.latest.load(Ordering::Relaxed) != 0;
        if !begun
            && last != TrackSample::default()
            && (0..MIN_FIRST_INTERVAL).contains(&passed.nanos)
        {
            return;
        }
        ticks.store(sample.ticks, Ordering::Relaxed);
        nanos.store(sample.nanos, Ordering::Relaxed);
        if last == TrackSample::default() {
            return;
        }
        let Some(seen) = seen_rate(passed) else { return self.restart(sample) };
        if begun {
            self.correct(sample, passed, seen, counter);
        } else {
            self.begin(sample, seen);
        }
    }

    /// Begins a piece at the clock's time.
    fn begin(&self, sample: TrackSample, rate: Scale) {
        let number = self.latest.load(Ordering::Relaxed) + 1;
        let piece = self.piece(number);
        piece.multiplier.store(rate.multiplier(), Ordering::Relaxed);
        piece.base.store(sample.nanos, Ordering::Relaxed);
        piece.start.store(sample.ticks, Ordering::Relaxed);
        self.rate.store(rate.multiplier(), Ordering::Relaxed);
        self.latest.store(number, Ordering::Release);
        self.wait_for(rate, 10_000_000);
    }

    /// Forgets the rate, and begins anew from this sample: the clock was set, stopped or moved.
    fn restart(&self, sample: TrackSample) {
        self.resets.fetch_add(1, Ordering::Relaxed);
        if self.latest.load(Ordering::Relaxed) != 0 {
            self.begin(sample, Scale::from_multiplier(self.rate.load(Ordering::Relaxed)));
        }
    }

    /// Begins a piece at the end of the last one, at a rate that reduces the error.
    fn correct(
        &self,
        sample: TrackSample,
        passed: TrackSample,
        seen: Scale,
        counter: &impl Fn() -> i64,
    ) {
        let before = Scale::from_multiplier(self.rate.load(Ordering::Relaxed));
        let off = millionths(before, seen);
        let ours = self.at(sample.ticks, counter).unwrap_or(sample.nanos);
        let error = sample.nanos.saturating_sub(ours) as f64;
        let apart = (off * 1e-6 * passed.nanos as f64).abs();
        let share = match off.abs() {
            strange if strange > MAX_RATE_CHANGE_PPM && apart > SET_CLOCK_ERROR => {
                return self.restart(sample)
            }
            // The two samples are close together, and one of them was disturbed.
            strange if strange > MAX_RATE_CHANGE_PPM => 0.0,
            // Follow a clock that is being steered at once; average out noise.
            steered if steered > 5.0 && apart > MAX_SAMPLE_ERROR => 0.5,
            _ => (passed.nanos as f64 / AVERAGING_TIME).min(1.0),
        };
        let rate = before.faster_by(off * share);
        let next = (2 * passed.nanos).max(10_000_000).min(self.longest);
        let slew = (error / next as f64 * 1e6).clamp(-MAX_SLEW_PPM, MAX_SLEW_PPM);
        let number = self.latest.load(Ordering::Relaxed) + 1;
        self.line_of(number - 1, counter);
        let piece = self.piece(number);
        let multiplier = rate.faster_by(slew).multiplier();
        piece.multiplier.store(multiplier, Ordering::Relaxed);
        piece.base.store(unknown(number), Ordering::Relaxed);
        piece.start.store(undecided(number), Ordering::Release);
        self.rate.store(rate.multiplier(), Ordering::Relaxed);
        // This is a full fence: a reader reads the counter for the start after it has seen this store.
        self.latest.store(number, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.line_of(number, counter);
        self.wait_for(rate, next);
    }

    fn wait_for(&self, rate: Scale, nanos: i64) {
        let period = rate.ticks(nanos.into()).unwrap_or(i64::MAX);
        let from = self.last[0].load(Ordering::Relaxed);
        self.due.store(from.saturating_add(period), Ordering::Relaxed);
    }
}

/// Sets `word` to `value` if it is `none`. Returns the word's value afterwards.
fn decide(word: &AtomicI64, none: i64, value: i64) -> i64 {
    match word.compare_exchange(none, value, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => value,
        Err(decided) => decided,
    }
}

fn seen_rate(passed: TrackSample) -> Option<Scale> {
    Scale::from_ratio(passed.nanos.try_into().ok()?, passed.ticks.try_into().ok()?)
}

/// Returns by how many millionths the ticks of `new` are longer than those of `old`.
fn millionths(old: Scale, new: Scale) -> f64 {
    (new.multiplier() as f64 / old.multiplier() as f64 - 1.0) * 1e6
}

#[cfg(test)]
mod tests;
