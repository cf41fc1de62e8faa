//! The system's clocks as the counter follows them: what a program that reads them often is given instead.

use crate::source::{self, Look};
use crate::track::{Sample, Track};
use crate::{os, virtual_time};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Once;

/// A clock of the system that the counter follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reference {
    /// CLOCK_MONOTONIC_RAW: since the start of the machine, as the hardware runs.
    MonotonicRaw,
    /// CLOCK_MONOTONIC: the same, as NTP has it run.
    Monotonic,
    /// CLOCK_REALTIME: since 1970-01-01T00:00:00Z; it is set now and then, and goes back where it is set back.
    Realtime,
    /// CLOCK_BOOTTIME: as CLOCK_MONOTONIC, and while the machine is suspended too.
    Boottime,
}

/// What NTP steers is looked at more often: it may change its rate by 500 ppm, 50 us in a tenth of a second.
const STEERED: i64 = 100_000_000;
const FREE: i64 = 1_000_000_000;
static TRACKS: [Track; 4] =
    [Track::new(FREE), Track::new(STEERED), Track::new(STEERED), Track::new(STEERED)];
/// The process was brought into virtual time after the source was chosen.
static WENT_VIRTUAL: AtomicBool = AtomicBool::new(false);

impl Reference {
    /// All of them.
    pub const ALL: [Reference; 4] =
        [Reference::MonotonicRaw, Reference::Monotonic, Reference::Realtime, Reference::Boottime];

    /// Its number in the system.
    pub const fn id(self) -> libc::clockid_t {
        match self {
            Reference::MonotonicRaw => libc::CLOCK_MONOTONIC_RAW,
            Reference::Monotonic => libc::CLOCK_MONOTONIC,
            Reference::Realtime => libc::CLOCK_REALTIME,
            Reference::Boottime => libc::CLOCK_BOOTTIME,
        }
    }

    /// The one of that number.
    pub fn from_id(id: libc::clockid_t) -> Option<Reference> {
        Reference::ALL.into_iter().find(|reference| reference.id() == id)
    }

    fn track(self) -> &'static Track {
        &TRACKS[self as usize]
    }

    /// What the clock shows now, in nanoseconds.
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

    /// What it showed when the counter showed `ticks`; `None` for the first milliseconds.
    #[inline]
    pub(crate) fn at(self, ticks: i64) -> Option<i64> {
        let track = self.track();
        if track.is_due(ticks) {
            self.follow();
        }
        track.at(ticks, source::ticks)
    }

    /// What it showed when the counter showed `ticks`, waiting a few milliseconds for the first answer.
    pub(crate) fn surely_at(self, ticks: i64) -> i64 {
        if !source::is_counter() && self == Reference::MonotonicRaw {
            return ticks;
        }
        // The rate is measured by the first question after 2 ms; a machine that disturbs every look is given up on.
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
        // A handler that jumps away, or reads the clock itself, must not find a sample half taken.
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

    fn sample(self) -> Option<Sample> {
        /// Ticks between the looks of a disturbed sample: below a microsecond of a TSC. Undisturbed it is some 60.
        const DISTURBED: i64 = 2_000;
        let Look { ticks, nanos, width } = Look::take(self.id());
        (width < DISTURBED).then_some(Sample { ticks, nanos })
    }

    /// How often the clock was found to have been set, so that what is told of it jumped.
    pub fn resets(self) -> u64 {
        self.track().resets()
    }
}

extern "C" fn on_fork() {
    TRACKS.iter().for_each(Track::free);
}
