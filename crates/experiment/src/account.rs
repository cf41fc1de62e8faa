//! What a container has had of its processor, against what was due to it: the real time in which its clock ran, in its slices.
//!
//! Tasks run on for a moment when their slice is over, and others on the machine take from a slice, the machine's host among
//! them. Short slices lose a greater part by that than long ones. So it is kept, and made up for in the next slices: what was too
//! much by time that goes by without the container, what was too little by a time that its tasks run while its clock stands.

use std::time::Duration;

use lorentz_clock::Span;

use crate::member::State;

/// What it has had too much; negative where that was too little. Real time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Account(Span);

impl Account {
    /// Notes what it had in a slice in which `due` was to be had.
    pub fn note(&mut self, had: Duration, due: Span) {
        let had = i64::try_from(had.as_nanos()).unwrap_or(i64::MAX);
        self.0 = Span(self.0 .0.saturating_add(had).saturating_sub(due.0));
    }

    /// The part of its next slice, of at most `slice`, that it has had already.
    pub fn pay(&mut self, slice: Span) -> Span {
        let paid = Span(self.0 .0.clamp(0, slice.0.max(0)));
        self.0 = Span(self.0 .0 - paid.0);
        paid
    }

    /// How long it may run before its clock does, in a slice that takes `slice`. What is more than a few slices is forgotten:
    /// it was taken once, by a machine that stood still.
    pub fn draw(&mut self, slice: Span) -> Span {
        const SLICES: i64 = 4;
        let most = slice.0.max(0).saturating_mul(SLICES);
        let drawn = Span(self.0 .0.saturating_neg().clamp(0, most));
        self.forgive();
        drawn
    }

    /// Nothing was taken from one that has nothing to do.
    pub fn forgive(&mut self) {
        self.0 = self.0.max(Span::ZERO);
    }

    /// Begins anew.
    pub fn clear(&mut self) {
        self.0 = Span::ZERO;
    }
}

/// What a container had in a slice that took `took`, as two looks tell, before and after it: all the time that its tasks ran,
/// if none went to sleep but once, at the end; else all in which they did not wait for a processor. Several wait for one another
/// too: while one of them ran, they had it.
pub fn had(took: Duration, before: &State, after: &State) -> Duration {
    let ran = after.ran.saturating_sub(before.ran);
    let waited = after.waited.saturating_sub(before.waited);
    let slept = after.slept.zip(before.slept).map(|(now, then)| now.saturating_sub(then));
    match slept {
        // What those did that have come and gone is not known.
        _ if after.tasks != before.tasks => took,
        Some(slept) if slept <= u64::from(before.tasks) => ran,
        _ => took.saturating_sub(waited).max(ran).min(took),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn millis(millis: i64) -> Span {
        Span(millis * 1_000_000)
    }

    fn state(ran: u64, waited: u64, slept: Option<u64>) -> State {
        let (ran, waited) = (Duration::from_millis(ran), Duration::from_millis(waited));
        State { tasks: 1, ran, waited, slept, ..State::default() }
    }

    #[test]
    fn what_was_too_much_is_paid_back_in_the_next_slices() {
        let mut account = Account::default();
        account.note(Duration::from_millis(8), millis(3));
        assert_eq!(account.pay(millis(3)), millis(3));
        assert_eq!(account.draw(millis(3)), Span::ZERO);
        assert_eq!(account.pay(millis(3)), millis(2));
        assert_eq!(account.pay(millis(3)), Span::ZERO);
    }

    #[test]
    fn what_was_too_little_is_drawn_once_and_at_most_a_few_slices_of_it() {
        let mut account = Account::default();
        account.note(Duration::from_millis(1), millis(3));
        assert_eq!(account.pay(millis(3)), Span::ZERO);
        assert_eq!(account.draw(millis(3)), millis(2));
        assert_eq!(account.draw(millis(3)), Span::ZERO);
        account.note(Duration::ZERO, millis(1000));
        assert_eq!(account.draw(millis(3)), millis(12));
        assert_eq!(account.draw(millis(3)), Span::ZERO);
    }

    #[test]
    fn over_many_slices_it_has_what_is_due() {
        // Every slice loses a millisecond of three to others, and half a millisecond is run on for.
        let mut account = Account::default();
        let (mut due, mut had) = (0, 0);
        for _ in 0..1000 {
            let paid = account.pay(millis(3));
            let drawn = account.draw(millis(3));
            let got =
                Duration::from_nanos((3_000_000 - paid.0 + drawn.0 - 1_000_000 + 500_000) as u64);
            account.note(got, Span(3_000_000 - paid.0 + drawn.0));
            due += 3_000_000;
            had += got.as_nanos() as i64;
        }
        assert!((due - had).abs() < 3_000_000, "{due} {had}");
    }

    #[test]
    fn time_asleep_is_not_taken_by_others() {
        let took = Duration::from_millis(10);
        let before = state(100, 50, Some(7));
        // It computed all the time; three milliseconds are missing, the host has them.
        assert_eq!(had(took, &before, &state(107, 50, Some(8))), Duration::from_millis(7));
        // It slept too; two milliseconds it waited for its processor.
        assert_eq!(had(took, &before, &state(105, 52, Some(12))), Duration::from_millis(8));
        assert_eq!(had(took, &before, &state(105, 52, None)), Duration::from_millis(8));
        // Tasks that waited for one another.
        assert_eq!(had(took, &before, &state(109, 59, Some(12))), Duration::from_millis(9));
        let more = State { tasks: 2, ..state(105, 52, Some(12)) };
        assert_eq!(had(took, &before, &more), took);
    }
}
