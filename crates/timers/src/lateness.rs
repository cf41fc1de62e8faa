//! How late the kernel wakes a thread, learnt from its own sleeps: how long before a target it must be woken.

use std::cell::Cell;

/// Sleeps remembered.
const REMEMBERED: usize = 64;
/// How many of them may wake later than the window is long: about 5 in 100.
const OUTSIDE: usize = 3;
/// After so many sleeps what was learnt is used, and it is reckoned anew each time so many more have been seen.
const BATCH: u32 = 8;
/// Nanoseconds. Before anything is learnt: what an idle machine with a timer slack of 1 ns does.
const FIRST: u32 = 60_000;
/// No window is shorter: the kernel's own way out of a sleep takes that long.
const FLOOR: u32 = 4_000;
/// No window is longer: what is later than this comes from other programs' turns, and spinning does not help.
const CEILING: u32 = 100_000;

/// What one thread has learnt.
pub(crate) struct Lateness {
    seen: [Cell<u32>; REMEMBERED],
    count: Cell<u32>,
    window: Cell<u32>,
}

impl Lateness {
    pub const fn new() -> Lateness {
        let seen = [const { Cell::new(0) }; REMEMBERED];
        Lateness { seen, count: Cell::new(0), window: Cell::new(FIRST) }
    }

    /// How many nanoseconds before its target a thread is to be woken.
    pub fn window(&self) -> i64 {
        self.window.get().into()
    }

    /// The kernel woke us this many nanoseconds later than it was asked to.
    pub fn observe(&self, nanos: i64) {
        let count = self.count.get();
        self.seen[count as usize % REMEMBERED].set(nanos.clamp(0, u32::MAX.into()) as u32);
        // The count goes on in the second half when it is full, so that it still tells that all places are.
        self.count.set(count.checked_add(1).unwrap_or(REMEMBERED as u32 * BATCH));
        if self.count.get().is_multiple_of(BATCH) {
            self.window.set(self.reckon());
        }
    }

    /// The quantile of what is remembered, and an eighth more.
    fn reckon(&self) -> u32 {
        let known = (self.count.get() as usize).min(REMEMBERED);
        let mut seen: [u32; REMEMBERED] = std::array::from_fn(|place| self.seen[place].get());
        let seen = &mut seen[..known];
        let place = known - 1 - OUTSIDE * known / REMEMBERED;
        let (_, quantile, _) = seen.select_nth_unstable(place);
        quantile.saturating_add(*quantile / 8).clamp(FLOOR, CEILING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_thread_begins_with_the_usual_window() {
        let lateness = Lateness::new();
        assert_eq!(lateness.window(), i64::from(FIRST));
        (0..BATCH - 1).for_each(|_| lateness.observe(20_000));
        assert_eq!(lateness.window(), i64::from(FIRST));
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
        assert_eq!(lateness.window(), i64::from(CEILING));
    }

    proptest! {
        #[test]
        fn the_window_is_bounded(late in proptest::collection::vec(any::<i64>(), 0..300)) {
            let lateness = Lateness::new();
            for nanos in late {
                lateness.observe(nanos);
                prop_assert!((FLOOR.into()..=CEILING.into()).contains(&lateness.window()));
            }
        }
    }
}
