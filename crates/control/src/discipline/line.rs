//! The line between a clock that errs and the truth, both ways: for a holder that moves clocks by the truth.
//!
//! The line is straight between two events of the clock's state: a drift ends or wanders, a second begins that NTP makes longer or
//! shorter. Parts to come are computed as far as somebody asks.

use std::collections::VecDeque;

use lorentz_clock::{VirtualInstant, WallTime};

use super::part::Part;
use super::state::ErrorState;

/// Straight parts that are kept of the past.
const PARTS_KEPT: usize = 8;

/// The line of one clock.
pub(crate) struct ErrorLine {
    /// The state where the clock has come to.
    state: ErrorState,
    /// The state at the start of the last part.
    ahead: ErrorState,
    /// Never empty; the earliest first.
    parts: VecDeque<Part>,
}

impl ErrorLine {
    /// The line of a clock in `state`.
    pub(super) fn new(state: ErrorState) -> ErrorLine {
        ErrorLine { ahead: state.clone(), parts: VecDeque::from([state.part()]), state }
    }

    /// The state where the clock has come to.
    pub(super) fn state(&self) -> &ErrorState {
        &self.state
    }

    /// Returns the truth when the clock shows `own`, rounded up.
    pub fn truth_at(&mut self, own: VirtualInstant) -> VirtualInstant {
        if own == VirtualInstant::NEVER {
            return own;
        }
        self.extend(|end, _| end <= own.0);
        let found = self.parts.iter().rev().find(|part| part.own <= own.0);
        VirtualInstant(found.unwrap_or(&self.parts[0]).truth_at(own.0))
    }

    /// Returns the clock's time at `truth`, rounded down. So a clock that stands at `own_at(truth_at(deadline))` has come to
    /// `deadline`, and none is ahead of its line.
    pub fn own_at(&mut self, truth: VirtualInstant) -> VirtualInstant {
        if truth == VirtualInstant::NEVER {
            return truth;
        }
        self.extend(|_, end| end <= truth.0);
        let found = self.parts.iter().rev().find(|part| part.truth <= truth.0);
        VirtualInstant(found.unwrap_or(&self.parts[0]).own_at(truth.0))
    }

    /// Computes further parts while `needs` one from the end of the last part on: it gets the clock's time and the truth there.
    fn extend(&mut self, needs: impl Fn(i64, i64) -> bool) {
        loop {
            let last = self.parts[self.parts.len() - 1];
            let end = self.ahead.next_event();
            if end == i64::MAX || !needs(end, last.truth_at(end)) {
                return;
            }
            self.ahead.advance(VirtualInstant(end));
            let next = self.ahead.part();
            if next.length != last.length {
                self.parts.push_back(next);
            }
        }
    }

    /// The clock has come to `own`.
    pub fn advance(&mut self, own: VirtualInstant) {
        self.state.advance(own);
        let passed =
            |parts: &VecDeque<Part>| parts.get(PARTS_KEPT).is_some_and(|part| part.own <= own.0);
        while passed(&self.parts) {
            self.parts.pop_front();
        }
    }

    /// Changes the state where the clock has come to, and with it the line from there on.
    pub(super) fn change<T>(&mut self, change: impl FnOnce(&mut ErrorState) -> T) -> T {
        let result = change(&mut self.state);
        let now = self.state.part();
        while self.parts.back().is_some_and(|part| part.own >= now.own) {
            self.parts.pop_back();
        }
        self.parts.push_back(now);
        self.ahead = self.state.clone();
        result
    }

    /// The clock and the truth leap to `truth` together, and true wall time shows `wall` there. The errors stay as they are. Returns the
    /// clock's time there.
    pub fn leap(&mut self, truth: VirtualInstant, wall: Option<WallTime>) -> VirtualInstant {
        self.state.leap(truth, wall);
        self.parts.clear();
        self.change(|_| ());
        VirtualInstant(self.state.part().own)
    }

    /// Returns true wall time.
    pub fn true_wall(&self) -> WallTime {
        self.state.true_wall_clock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lorentz_clock::{Rate, Span, NANOS_PER_SEC};

    const SECOND: i64 = NANOS_PER_SEC;

    fn state(change: impl FnOnce(&mut ErrorState)) -> ErrorState {
        let zero = WallTime { secs: 0, nanos: 0 };
        let mut state =
            ErrorState::new(VirtualInstant(1_000 * SECOND), zero, Span::ZERO, Rate::ONE, zero);
        change(&mut state);
        state
    }

    fn line(change: impl FnOnce(&mut ErrorState)) -> ErrorLine {
        ErrorLine::new(state(change))
    }

    /// Walks over a line of some events, back and forth.
    fn check_both_ways(mut line: ErrorLine) {
        let start = 1_000 * SECOND;
        let mut before = VirtualInstant(i64::MIN);
        for step in 0..4_000 {
            // Instants near seconds, and others.
            let own = VirtualInstant(start + step * 17_000_003 - step % 3);
            let truth = line.truth_at(own);
            assert!(truth >= before, "the truth goes back at {own:?}");
            before = truth;
            let back = line.own_at(truth);
            assert!(back >= own, "{own:?}: {truth:?} is {back:?}");
            assert_eq!(line.truth_at(back), truth);
            assert!(line.truth_at(back.plus(Span(1))) > truth);
        }
    }

    #[test]
    fn the_line_leads_there_and_back() {
        check_both_ways(line(|_| ()));
        check_both_ways(line(|state| state.drift = 100_000_000));
        check_both_ways(line(|state| state.drift = -100_000_000_000));
        check_both_ways(line(|state| {
            state.drift = 77_777;
            state.wander(5_000_000, 7);
            state.drift_for(-3_000_000_000, Span(5 * SECOND / 3));
        }));
    }

    #[test]
    fn the_line_is_the_way_of_the_state() {
        let change = |state: &mut ErrorState| {
            state.drift = 33_333_333;
            state.wander(9_000_000, 3);
        };
        let mut line = line(change);
        for at in [1, 5, 8, 9, 23, 24, 400, 401] {
            let own = VirtualInstant(1_000 * SECOND + at * SECOND + 7);
            let mut state = state(change);
            state.advance(own);
            assert_eq!(line.truth_at(own).0, state.part().truth_at(own.0), "after {at} s");
        }
    }

    #[test]
    fn a_change_counts_from_where_the_clock_has_come_to() {
        let mut line = line(|_| ());
        let now = VirtualInstant(1_010 * SECOND);
        line.advance(now);
        line.change(|state| state.drift = 100_000_000_000);
        assert_eq!(line.truth_at(now), now);
        assert_eq!(line.own_at(VirtualInstant(1_020 * SECOND)).0, 1_021 * SECOND);
        // The line up to there stays.
        assert_eq!(line.truth_at(VirtualInstant(1_005 * SECOND)).0, 1_005 * SECOND);
    }

    #[test]
    fn a_leap_moves_both_and_keeps_the_error() {
        let mut line = line(|state| state.drift = 100_000_000_000);
        line.advance(VirtualInstant(1_011 * SECOND));
        assert_eq!(line.state().offset(), i128::from(SECOND));
        let wall = WallTime { secs: 1_900_000_000, nanos: 0 };
        let own = line.leap(VirtualInstant(5_000 * SECOND), Some(wall));
        assert_eq!(own.0, 5_001 * SECOND);
        assert_eq!(line.truth_at(own).0, 5_000 * SECOND);
        assert_eq!(line.state().offset(), i128::from(SECOND));
        assert_eq!(line.true_wall(), wall);
        assert_eq!(line.state().wall_clock(), (1_900_000_001, 0));
    }
}
