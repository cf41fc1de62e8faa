//! The state machine against the kernel's, and the arithmetic of truth.

use lorentz_clock::{Rate, Span, VirtualInstant, WallTime, NANOS_PER_SEC};
use lorentz_syscalls::timex::status;
use lorentz_syscalls::{AdjModes, Timex};

use super::kernel::{Discipline, SECOND};
use super::state::{ErrorState, PARTS};

const PPM: i64 = PARTS / 1_000_000;

/// The answers of Debian's kernel 6.1 to random calls in qemu, by `scripts/adjtimex-oracle`, which names another log in the variable.
/// `tests/programs/clock_errors/oracle.c` says how the lines read.
fn oracle() -> String {
    let stored = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/adjtimex-6.1.txt");
    let log = std::env::var("LORENTZ_ADJTIMEX_LOG").unwrap_or(stored.to_string());
    std::fs::read_to_string(&log).expect("the oracle's log")
}

/// A call of the oracle's, and the kernel's answer.
struct Line<'a> {
    text: &'a str,
    monotonic: VirtualInstant,
    wall: i64,
    asked: Vec<i64>,
    answered: Vec<i64>,
}

impl Line<'_> {
    fn parse(text: &str) -> Line<'_> {
        let (asked, answered) = text.split_once(" : ").expect("an answer");
        let numbers = |text: &str| -> Vec<i64> {
            text.split(' ').filter_map(|word| word.parse().ok()).collect()
        };
        let asked = numbers(asked);
        Line {
            text,
            monotonic: VirtualInstant(asked[0]),
            wall: asked[1],
            asked: asked[2..].to_vec(),
            answered: numbers(answered),
        }
    }

    fn timex(&self) -> Timex {
        let [modes, offset, frequency, max_error, estimated_error, status, constant, secs, fraction, tick] =
            self.asked[..]
        else {
            panic!("{}", self.text)
        };
        let timex = Timex {
            status: status as u32,
            offset,
            frequency,
            max_error,
            estimated_error,
            constant,
            secs,
            fraction,
            tick,
            ..Timex::default()
        };
        timex.with_modes(AdjModes::new(modes as u32))
    }
}

/// Carries a call out as the monitor does.
fn adjust(state: &mut ErrorState, timex: &mut Timex) -> i64 {
    if let Err(refused) = timex.check(true) {
        return refused.in_register() as i64;
    }
    if let Some((secs, nanos)) = timex.step() {
        state.step(i128::from(secs) * i128::from(NANOS_PER_SEC) + i128::from(nanos));
    }
    let wall = state.wall_clock();
    state.kernel.adjust(timex, wall)
}

#[test]
fn random_calls_are_answered_as_by_the_kernel() {
    let mut state: Option<ErrorState> = None;
    let mut calls = 0;
    for text in oracle().lines() {
        let line = Line::parse(text);
        let offset = WallTime::from_nanos(i128::from(line.wall - line.monotonic.0));
        let state = state.get_or_insert_with(|| {
            ErrorState::new(line.monotonic, offset, Span::ZERO, Rate::ONE, offset)
        });
        state.advance(line.monotonic);
        // The clocks were read one after the other.
        let ahead = line.wall - state.wall_clock().0 * NANOS_PER_SEC - state.wall_clock().1;
        assert!(ahead.abs() < 10_000_000, "{ahead} ns at {text}");
        if text.starts_with("set") {
            state.step(i128::from(line.asked[0] * NANOS_PER_SEC + 200_000_000 - line.wall));
            assert_eq!(line.answered, [0], "{text}");
            continue;
        }
        let mut timex = line.timex();
        let result = adjust(state, &mut timex);
        assert_eq!(result, line.answered[0], "{text}");
        if result >= 0 {
            // The fraction of the second is the instant of the call.
            timex.fraction = line.answered[10];
            let answered = [
                result,
                timex.offset,
                timex.frequency,
                timex.max_error,
                timex.estimated_error,
                timex.status.into(),
                timex.constant,
                timex.precision,
                timex.tolerance,
                timex.secs,
                timex.fraction,
                timex.tick,
                timex.tai.into(),
            ];
            assert_eq!(answered[..], line.answered[..], "{text}\n{state:?}");
        }
        calls += 1;
    }
    assert!(calls >= 1000, "{calls}");
}

fn perfect() -> ErrorState {
    let wall = WallTime { secs: 1_900_000_000, nanos: 0 };
    ErrorState::new(VirtualInstant(0), wall, Span::ZERO, Rate::ONE, wall)
}

#[test]
fn a_drift_takes_the_clock_from_the_truth() {
    let mut state = perfect();
    state.drift = 100 * PPM;
    state.advance(VirtualInstant(1_000_100_000_000));
    // 1,000 s of truth.
    assert_eq!(state.offset(), 100_000_000);
    state.drift = -100 * PPM;
    state.advance(VirtualInstant(1_000_100_000_000 + 999_900_000_000));
    assert_eq!(state.offset(), 0);
}

#[test]
fn the_truth_does_not_depend_on_how_often_it_is_asked() {
    let mut often = perfect();
    often.drift = 123_457;
    let mut once = often.clone();
    for step in 1..=10_000 {
        often.advance(VirtualInstant(step * 7_777_777));
    }
    once.advance(VirtualInstant(10_000 * 7_777_777));
    assert_eq!(often, once);
}

#[test]
fn a_discipline_mends_a_drift() {
    let mut state = perfect();
    state.drift = 100 * PPM;
    let timex = Timex { frequency: -(100 << 16), ..Timex::default() };
    let mut timex = timex.with_modes(AdjModes::ADJ_FREQUENCY);
    adjust(&mut state, &mut timex);
    assert!(state.frequency_error().abs() < 1.1e-8, "{}", state.frequency_error());
}

#[test]
fn adjtime_slews_half_a_millisecond_in_a_second() {
    let mut state = perfect();
    let mut timex = Timex { offset: 2_500, ..Timex::default() }
        .with_modes(AdjModes::ADJ_ADJTIME.with(AdjModes::ADJ_SINGLESHOT));
    adjust(&mut state, &mut timex);
    let course = state.course(8);
    // Nothing until the next second, 500 ppm for five, nothing.
    let starts: Vec<i64> = course.iter().map(|one| one.from.0).collect();
    assert_eq!(starts, [0, SECOND, 6 * SECOND]);
    assert_eq!(course[1].rate, Rate::new(2001, 2000).unwrap());
    state.advance(VirtualInstant(10 * SECOND));
    assert_eq!(state.offset().abs_diff(2_500_000), 1_249, "{}", state.offset());
}

#[test]
fn a_course_that_is_cut_off_slews_no_further() {
    let mut state = perfect();
    let timex =
        Timex { status: status::PLL | status::NANO, offset: 100_000_000, ..Timex::default() };
    let mut timex = timex.with_modes(AdjModes::ADJ_STATUS.with(AdjModes::ADJ_OFFSET));
    adjust(&mut state, &mut timex);
    let course = state.course(4);
    assert_eq!(course.len(), 5);
    assert_ne!(course[3].rate, state.rate());
    assert_eq!(course[4].rate, state.rate());
}

#[test]
fn a_drift_that_ends_and_a_leap_second_are_in_the_course() {
    let mut state = perfect();
    state.drift_for(10 * PPM, Span::from_secs(60));
    let course = state.course(8);
    assert_eq!(course[1].from, VirtualInstant(60 * SECOND));
    assert_eq!(course[1].rate, Rate::ONE);
    state.reset();
    state.kernel.ask_leap_second(Some(true));
    let course = state.course(8);
    // 1,900,000,000 is 17:46:40.
    let midnight = 22_400 * SECOND;
    assert_eq!(course[1].from, VirtualInstant(midnight));
    assert_eq!(course[1].wall.plus(Span(SECOND)), state.wall());
    let before = state.wall_clock().0;
    state.advance(VirtualInstant(midnight + SECOND / 2));
    assert_eq!(state.wall_clock(), (before + 22_399, SECOND / 2));
}

#[test]
fn a_drift_wanders_as_its_seed_decides() {
    let walk = |seed: u64, steps: i64| {
        let mut state = perfect();
        state.wander(PPM / 1000, seed);
        for step in 1..=steps {
            state.advance(VirtualInstant(step * 3_600 * SECOND / steps));
        }
        (state.offset(), state.frequency_error())
    };
    assert_eq!(walk(7, 1), walk(7, 1_000));
    assert_ne!(walk(7, 1), walk(8, 1));
    // 60 ppb after an hour, as the square root of its seconds.
    let squares: f64 = (0..200).map(|seed| walk(seed, 1).1.powi(2)).sum();
    let deviation = (squares / 200.0).sqrt();
    assert!((50e-9..70e-9).contains(&deviation), "{deviation}");
}

#[test]
fn a_rate_that_stands_for_another_is_known_again() {
    let mut state = perfect();
    state.drift = 100 * PPM;
    state.set_rate(Rate::new(10, 1).unwrap());
    let with = state.rate();
    state.note_rate(with, None);
    state.notice_rate(with);
    assert_eq!(state.rate(), with);
    // Somebody who knows nothing of errors sets a rate.
    state.notice_rate(Rate::new(3, 1).unwrap());
    assert_eq!(state.rate(), Rate::new(30_003, 10_000).unwrap());
}

#[test]
fn a_clock_of_the_host_tells_the_hosts_bound() {
    let host = Discipline::of_host(status::PLL | status::NANO, 1_000, 500, 37);
    assert_eq!((host.status, host.max_error, host.tai), (status::NANO, 1_000, 37));
    assert_eq!(host.second_length(), SECOND << 32);
}

#[test]
fn a_slew_that_is_published_late_is_whole() {
    let wall = WallTime { secs: 1_000_000_000, nanos: 900_000_000 };
    let mut state = ErrorState::new(VirtualInstant(0), wall, Span::ZERO, Rate::ONE, wall);
    let before = state.kernel;
    let adjtime = AdjModes::ADJ_ADJTIME.with(AdjModes::ADJ_SINGLESHOT);
    let mut timex = Timex { offset: 2_500, ..Timex::default() }.with_modes(adjtime);
    state.adjust(&mut timex);
    state.go_on_by(before);
    // A second has begun when the change comes into force.
    state.advance(VirtualInstant(NANOS_PER_SEC / 5));
    assert_eq!(state.course(8).len(), 3, "now, from the next second on, and its end");
    state.is_published();
    state.advance(VirtualInstant(10 * NANOS_PER_SEC));
    // Five seconds of the clock, each 500 us longer than one of its oscillator.
    assert_eq!(state.offset(), 2_498_751);
}

#[test]
fn a_suspend_is_no_error() {
    let hour = Span::from_secs(3600);
    let mut state = perfect();
    state.err_by(5);
    let wall = state.wall();
    state.suspend(hour);
    assert_eq!((state.offset(), state.boot(), state.wall()), (5, hour, wall.plus(hour)));
    // The process that suspended the clock died before it published that.
    state.notice_boot(Span::ZERO);
    assert_eq!((state.offset(), state.boot(), state.wall()), (5, Span::ZERO, wall));
}
