//! The system's clocks as the counter follows them. A program that reads a clock often reads the counter instead.

use crate::source::{self, ClockSample};
use crate::track::{Track, TrackSample};
use crate::{os, virtual_time};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Once;

/// A clock of the system that the counter follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reference {
    /// CLOCK_MONOTONIC_RAW: time since the start of the machine, at the rate of the hardware.
    MonotonicRaw,
    /// CLOCK_MONOTONIC: time since the start of the machine, at the rate that NTP sets.
    Monotonic,
    /// CLOCK_REALTIME: time since 1970-01-01T00:00:00Z. It jumps when somebody sets it, also backwards.
    Realtime,
    /// CLOCK_BOOTTIME: as CLOCK_MONOTONIC, and it also runs while the machine is suspended.
    Boottime,
}

/// Longest time between samples of a clock that NTP steers, ns. NTP may change its rate by 500 ppm: 50 us in 100 ms.
const MAX_STEERED_INTERVAL: i64 = 100_000_000;
const MAX_FREE_INTERVAL: i64 = 1_000_000_000;
static TRACKS: [Track; 4] = [
    Track::new(MAX_FREE_INTERVAL),
    Track::new(MAX_STEERED_INTERVAL),
    Track::new(MAX_STEERED_INTERVAL),
    Track::new(MAX_STEERED_INTERVAL),
];
/// Whether the process was attached to a virtual clock after the source was chosen.
static WENT_VIRTUAL: AtomicBool = AtomicBool::new(false);

impl Reference {
    /// All clocks that the counter follows.
    pub const ALL: [Reference; 4] =
        [Reference::MonotonicRaw, Reference::Monotonic, Reference::Realtime, Reference::Boottime];

    /// Returns the clock's id in the system.
    pub const fn id(self) -> libc::clockid_t {
        match self {
            Reference::MonotonicRaw => libc::CLOCK_MONOTONIC_RAW,
            Reference::Monotonic => libc::CLOCK_MONOTONIC,
            Reference::Realtime => libc::CLOCK_REALTIME,
            Reference::Boottime => libc::CLOCK_BOOTTIME,
        }
    }

    /// Returns the clock with this id.
    pub fn from_id(id: libc::clockid_t) -> Option<Reference> {
        Reference::ALL.into_iter().find(|reference| reference.id() == id)
    }

    fn track(self) -> &'static Track {
        &TRACKS[self as usize]
    }

    /// Returns the clock's time, ns.
    #[inline]
    pub fn now(self) -> i64 {
        if !source::is_counter() || WENT_VIRTUAL.load(Ordering::Relaxed) {
            return os::read(self.id());
        }
        let track = self.track();
        let ticks = source::ticks();
        if track.is_due(ticks) {
            self.follow();
        }
        match track.now(ticks, source::ticks) {
            Some(nanos) => nanos,
            None => os::read(self.id()),
        }
    }

    /// Returns the clock's time when the counter showed `ticks`; `None` in the first milliseconds.
    #[inline]
    pub(crate) fn at(self, ticks: i64) -> Option<i64> {
        let track = self.track();
        if track.is_due(ticks) {
            self.follow();
        }
        track.at(ticks, source::ticks)
    }

    /// Returns the clock's time when the counter showed `ticks`. It waits a few milliseconds for the first answer.
    pub(crate) fn at_or_wait(self, ticks: i64) -> i64 {
        if !source::is_counter() && self == Reference::MonotonicRaw {
            return ticks;
        }
        // The first call after 2 ms measures the rate. Give up if the machine disturbs every sample.
        for _ in 0..100 {
            if let Some(nanos) = self.at(ticks) {
                return nanos;
            }
            let clock = libc::CLOCK_MONOTONIC;
            os::sleep_until(clock, os::read(clock) + 2_500_000);
        }
        let ago = source::scale().nanos(source::ticks().saturating_sub(ticks));
        (i128::from(os::read(self.id())) - ago) as i64
    }

    #[cold]
    #[inline(never)]
    fn follow(self) {
        static FORKS: Once = Once::new();
        FORKS.call_once(|| os::after_fork(on_fork));
        // Race: a signal handler leaves by siglongjmp, or reads the clock itself, while a sample is half taken.
        // Therefore signals are blocked meanwhile.
        os::without_signals(|| {
            self.track().follow(&source::ticks, || {
                if virtual_time::is_here() && !source::is_virtual() {
                    WENT_VIRTUAL.store(true, Ordering::Relaxed);
                    return None;
                }
                self.sample()
            });
        });
    }

    fn sample(self) -> Option<TrackSample> {
        /// Ticks between the two reads of the counter from which on a sample counts as disturbed: below a microsecond
        /// of a TSC. An undisturbed sample has some 60.
        const MAX_WIDTH: i64 = 2_000;
        let ClockSample { ticks, nanos, width } = ClockSample::take(self.id());
        (width < MAX_WIDTH).then_some(TrackSample { ticks, nanos })
    }

    /// Returns how often the clock was found to have been set, so that its time jumped.
    pub fn resets(self) -> u64 {
        self.track().resets()
    }
}

extern "C" fn on_fork() {
    TRACKS.iter().for_each(Track::free);
}
