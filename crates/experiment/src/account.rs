//! The processor time that a container got, compared with the time due to it: the real time in which its clock ran, in its slices.
//!
//! Tasks run on for a moment after their slice is over. Other tasks of the machine, and its hypervisor, take time from a slice. A
//! short slice loses a greater part to both than a long one. The account keeps the difference, and the next slices make up for it.
//! For time a container had too much, its clock advances without its tasks. For time it had too little, its tasks run while its
//! clock stands.

use std::time::Duration;

use lorentz_clock::Span;

use crate::tasks::ContainerTasks;

/// Processor time the container had beyond its due, real time; negative if it had too little.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Account(Span);

impl Account {
    /// Adds the result of a slice: the container had `had`, and `due` was due to it.
    pub fn record(&mut self, had: Duration, due: Span) {
        let had = i64::try_from(had.as_nanos()).unwrap_or(i64::MAX);
        self.0 = Span(self.0 .0.saturating_add(had).saturating_sub(due.0));
    }

    /// Takes back surplus time: returns the part of the next slice that the container has had already, from 0 to `slice`.
    pub fn take_surplus(&mut self, slice: Span) -> Span {
        let paid = Span(self.0 .0.clamp(0, slice.0.max(0)));
        self.0 = Span(self.0 .0 - paid.0);
        paid
    }

    /// Returns how long the container may run before its clock does, in a slice of length `slice`; at most four times `slice`. The
    /// account forgets a greater debt: the machine stood still once, and took that time.
    pub fn take_deficit(&mut self, slice: Span) -> Span {
        const MAX_SLICES: i64 = 4;
        let most = slice.0.max(0).saturating_mul(MAX_SLICES);
        let drawn = Span(self.0 .0.saturating_neg().clamp(0, most));
        self.forget_deficit();
        drawn
    }

    /// Forgets a debt, for a container that has nothing to do: nobody took time from it.
    pub fn forget_deficit(&mut self) {
        self.0 = self.0.max(Span::ZERO);
    }

    /// Resets the account to zero.
    pub fn clear(&mut self) {
        self.0 = Span::ZERO;
    }
}

/// Time for which a container had its processors in a slice of real length `took`, from a look before it and one after it.
///
/// On one processor: if no task slept except once, at the end, the result is the time that all tasks ran. Else it is `took` less the
/// time in which tasks waited for a processor. Tasks of one container also wait for each other. While one of them ran, the container
/// had the processor; therefore the result is at least the time that all tasks ran, and at most `took`.
///
/// On several `processors`, the times that its tasks ran and waited count for as many processors as there are tasks. Nobody knows
/// how many tasks there was work for; so the hypervisor's share of a slice is not seen there.
pub fn time_received(
    took: Duration,
    before: &ContainerTasks,
    after: &ContainerTasks,
    processors: u32,
) -> Duration {
    let lanes = processors.min(after.count).max(1);
    let ran = after.ran.saturating_sub(before.ran) / lanes;
    let waited = after.waited.saturating_sub(before.waited) / lanes;
    let slept = after.slept.zip(before.slept).map(|(now, then)| now.saturating_sub(then));
    match slept {
        // Some tasks came or went; nobody knows how long those ran.
        _ if after.count != before.count => took,
        Some(slept) if lanes == 1 && slept <= u64::from(before.count) => ran,
        _ => took.saturating_sub(waited).max(ran).min(took),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn millis(millis: i64) -> Span {
        Span(millis * 1_000_000)
    }

    fn state(ran: u64, waited: u64, slept: Option<u64>) -> ContainerTasks {
        let (ran, waited) = (Duration::from_millis(ran), Duration::from_millis(waited));
        ContainerTasks { count: 1, ran, waited, slept, ..ContainerTasks::default() }
    }

    #[test]
    fn what_was_too_much_is_paid_back_in_the_next_slices() {
        let mut account = Account::default();
        account.record(Duration::from_millis(8), millis(3));
        assert_eq!(account.take_surplus(millis(3)), millis(3));
        assert_eq!(account.take_deficit(millis(3)), Span::ZERO);
        assert_eq!(account.take_surplus(millis(3)), millis(2));
        assert_eq!(account.take_surplus(millis(3)), Span::ZERO);
    }

    #[test]
    fn what_was_too_little_is_drawn_once_and_at_most_a_few_slices_of_it() {
        let mut account = Account::default();
        account.record(Duration::from_millis(1), millis(3));
        assert_eq!(account.take_surplus(millis(3)), Span::ZERO);
        assert_eq!(account.take_deficit(millis(3)), millis(2));
        assert_eq!(account.take_deficit(millis(3)), Span::ZERO);
        account.record(Duration::ZERO, millis(1000));
        assert_eq!(account.take_deficit(millis(3)), millis(12));
        assert_eq!(account.take_deficit(millis(3)), Span::ZERO);
    }

    #[test]
    fn over_many_slices_it_has_what_is_due() {
        // Every slice loses one millisecond of three to others. Its tasks run on for half a millisecond.
        let mut account = Account::default();
        let (mut due, mut had) = (0, 0);
        for _ in 0..1000 {
            let paid = account.take_surplus(millis(3));
            let drawn = account.take_deficit(millis(3));
            let got =
                Duration::from_nanos((3_000_000 - paid.0 + drawn.0 - 1_000_000 + 500_000) as u64);
            account.record(got, Span(3_000_000 - paid.0 + drawn.0));
            due += 3_000_000;
            had += got.as_nanos() as i64;
        }
        assert!((due - had).abs() < 3_000_000, "{due} {had}");
    }

    #[test]
    fn time_asleep_is_not_taken_by_others() {
        let took = Duration::from_millis(10);
        let before = state(100, 50, Some(7));
        // The task computed all the time. Three milliseconds are missing: the hypervisor took them.
        assert_eq!(
            time_received(took, &before, &state(107, 50, Some(8)), 1),
            Duration::from_millis(7)
        );
        // The task also slept. It waited two milliseconds for its processor.
        assert_eq!(
            time_received(took, &before, &state(105, 52, Some(12)), 1),
            Duration::from_millis(8)
        );
        assert_eq!(
            time_received(took, &before, &state(105, 52, None), 1),
            Duration::from_millis(8)
        );
        // Tasks waited for each other.
        assert_eq!(
            time_received(took, &before, &state(109, 59, Some(12)), 1),
            Duration::from_millis(9)
        );
        let more = ContainerTasks { count: 2, ..state(105, 52, Some(12)) };
        assert_eq!(time_received(took, &before, &more, 1), took);
    }

    #[test]
    fn two_processors_are_received_together() {
        let took = Duration::from_millis(10);
        let two = |ran, waited, slept| ContainerTasks { count: 2, ..state(ran, waited, slept) };
        let received = |after| time_received(took, &two(0, 0, Some(0)), &after, 2);
        // Two tasks compute all the time, or only one of them.
        assert_eq!(received(two(20, 0, Some(0))), took);
        assert_eq!(received(two(10, 0, Some(1))), took);
        // A program of the host had one of the processors for four milliseconds.
        assert_eq!(received(two(16, 4, Some(0))), Duration::from_millis(8));
        // Four tasks wait for each other.
        let four = |ran, waited| ContainerTasks { count: 4, ..state(ran, waited, Some(0)) };
        assert_eq!(time_received(took, &four(0, 0), &four(20, 20), 2), took);
    }
}
