//! The kernel's lateness: each thread learns from its own sleeps how long before a target the kernel has to wake it.

use std::cell::Cell;

/// Number of sleeps that are remembered.
const SAMPLES: usize = 64;
/// Number of remembered sleeps that may be later than the window is long: about 5 in 100.
const LATER_THAN_WINDOW: usize = 3;
/// Number of sleeps after which the window is computed for the first time, and between computations.
const UPDATE_INTERVAL: u32 = 8;
/// Window before the first computation, ns: the lateness of an idle machine with a timer slack of 1 ns.
const INITIAL_WINDOW: u32 = 60_000;
/// Shortest window, ns: the kernel's own way out of a sleep takes that long.
const MIN_WINDOW: u32 = 4_000;
/// Longest window, ns. A greater lateness comes from other programs that use the processor, and spinning does not help.
const MAX_WINDOW: u32 = 100_000;

/// The state that one thread has learnt.
pub(crate) struct Lateness {
    seen: [Cell<u32>; SAMPLES],
    count: Cell<u32>,
    window: Cell<u32>,
}

impl Lateness {
    pub const fn new() -> Lateness {
        let seen = [const { Cell::new(0) }; SAMPLES];
        Lateness { seen, count: Cell::new(0), window: Cell::new(INITIAL_WINDOW) }
    }

    /// Returns how many nanoseconds before its target the kernel is to wake the thread.
    pub fn window(&self) -> i64 {
        self.window.get().into()
    }

    /// Records that the kernel woke the thread this many nanoseconds later than asked.
    pub fn observe(&self, nanos: i64) {
        let count = self.count.get();
        self.seen[count as usize % SAMPLES].set(nanos.clamp(0, u32::MAX.into()) as u32);
        // When the count overflows, it continues at a value that still says that all places are filled.
        self.count.set(count.checked_add(1).unwrap_or(SAMPLES as u32 * UPDATE_INTERVAL));
        if self.count.get().is_multiple_of(UPDATE_INTERVAL) {
            self.window.set(self.compute_window());
        }
    }

    /// Returns the quantile of the remembered sleeps plus an eighth, ns, within the shortest and the longest window.
    fn compute_window(&self) -> u32 {
        let known = (self.count.get() as usize).min(SAMPLES);
        let mut seen: [u32; SAMPLES] = std::array::from_fn(|index| self.seen[index].get());
        let seen = &mut seen[..known];
        let index = known - 1 - LATER_THAN_WINDOW * known / SAMPLES;
        let (_, quantile, _) = seen.select_nth_unstable(index);
        quantile.saturating_add(*quantile / 8).clamp(MIN_WINDOW, MAX_WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_thread_begins_with_the_usual_window() {
        let lateness = Lateness::new();
        assert_eq!(lateness.window(), i64::from(INITIAL_WINDOW));
        (0..UPDATE_INTERVAL - 1).for_each(|_| lateness.observe(20_000));
        assert_eq!(lateness.window(), i64::from(INITIAL_WINDOW));
        lateness.observe(20_000);
        assert_eq!(lateness.window(), 22_500);
    }

    #[test]
    fn three_in_sixty_four_are_left_outside() {
        let lateness = Lateness::new();
        (0..61).for_each(|_| lateness.observe(16_000));
        (0..3).for_each(|_| lateness.observe(4_000_000));
        assert_eq!(lateness.window(), 18_000);
        (0..3).for_each(|_| lateness.observe(4_000_000));
        (0..5).for_each(|_| lateness.observe(16_000));
        assert_eq!(lateness.window(), i64::from(MAX_WINDOW));
    }

    proptest! {
        #[test]
        fn the_window_is_bounded(late in proptest::collection::vec(any::<i64>(), 0..300)) {
            let lateness = Lateness::new();
            for nanos in late {
                lateness.observe(nanos);
                prop_assert!((MIN_WINDOW.into()..=MAX_WINDOW.into()).contains(&lateness.window()));
            }
        }
    }
}
