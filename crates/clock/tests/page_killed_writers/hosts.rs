//! The host's clock as a reader and as a writer see it.

use crate::clock::Random;
use crate::host;
use lorentz_clock::{HostClock, RealInstant, Span};
use std::cell::Cell;

/// The host's clock, which counts its readings to compute a number of looks.
#[derive(Default)]
pub struct CountingHost {
    pub times: Cell<u64>,
}

impl CountingHost {
    /// Readings of the host's clock in a look at a change whose start is not in the page: two of them decide the start.
    const READINGS: u64 = 3;

    /// Returns the smallest number of looks of a [`ClockPage::snapshot`] that may have made these readings. A look at a change whose
    /// start is in the page makes one reading.
    pub fn looks(&self) -> u64 {
        self.times.get().div_ceil(Self::READINGS)
    }

    /// Whether a look has met a change whose start was not in the page, if the version changed so many times meanwhile.
    pub fn has_decided(&self, published: u64) -> bool {
        self.times.get() > 1 + published
    }
}

impl HostClock for CountingHost {
    fn now(&self) -> RealInstant {
        self.times.set(self.times.get() + 1);
        host()
    }
}

/// The host's clock for one `publish`. It records when the window of the change begins. It may also delay the writer, as the
/// kernel does when it takes a writer off its processor.
#[derive(Default)]
pub struct WriterHost {
    /// The time right before the store of the version.
    pub before: Cell<Option<RealInstant>>,
    /// The first time read after the store of the version.
    pub first_after: Cell<Option<RealInstant>>,
    /// Number of readings so far.
    pub times: Cell<u64>,
    pub delay: Option<Delay>,
}

/// A delay at reading number `at` of the clock, before or after it.
#[derive(Clone, Copy)]
pub struct Delay {
    pub at: u64,
    pub before: bool,
    pub span: Span,
}

impl Delay {
    /// Picks a delay in one of 4 changes.
    pub fn pick(random: &mut Random) -> Option<Delay> {
        let picked = random.below(4) == 0;
        picked.then(|| Delay {
            at: random.below(5),
            before: random.below(2) == 0,
            span: Span(random.below(50_000) as i64),
        })
    }
}

impl WriterHost {
    pub fn new(delay: Option<Delay>) -> WriterHost {
        WriterHost { delay, ..WriterHost::default() }
    }

    pub fn delay(&self, before: bool) {
        let picked = |delay: &Delay| delay.at == self.times.get() && delay.before == before;
        if let Some(Delay { span, .. }) = self.delay.filter(picked) {
            let until = host().plus(span);
            while host() < until {
                std::hint::spin_loop();
            }
        }
    }
}

impl HostClock for WriterHost {
    fn now(&self) -> RealInstant {
        self.delay(true);
        let now = host();
        self.delay(false);
        self.times.set(self.times.get() + 1);
        if self.before.get().is_some() && self.first_after.get().is_none() {
            self.first_after.set(Some(now));
        }
        now
    }

    fn change_begins(&self) {
        self.before.set(Some(host()));
    }
}
