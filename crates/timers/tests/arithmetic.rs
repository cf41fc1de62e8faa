//! The arithmetic of intervals and moments, by properties, on the time source in force here.

use lorentz_clock::Span;
use lorentz_timers::{Interval, Moment, OutOfRange, Parts, TimeSource};
use proptest::prelude::*;
use std::time::Duration;

const SECOND: i64 = 1_000_000_000;
/// A hundred years, ns: within the range of every source.
const LONG: i64 = 100 * 365 * 86_400 * SECOND;

fn tick() -> i128 {
    1 + i128::from(SECOND) / i128::from(TimeSource::hertz())
}

proptest! {
    #[test]
    fn nanoseconds_come_back(nanos in -LONG..LONG) {
        let interval = Interval::from_nanos(nanos).unwrap();
        prop_assert!((interval.nanos() - i128::from(nanos)).abs() <= tick());
        prop_assert_eq!(interval.is_negative(), interval.nanos() < 0);
        prop_assert_eq!(-interval, Interval::from_nanos(-nanos).unwrap());
    }

    #[test]
    fn parts_say_the_same(nanos in -LONG..LONG) {
        let interval = Interval::from_nanos(nanos).unwrap();
        let parts = interval.parts();
        let total = i128::from(parts.secs) * i128::from(SECOND) + i128::from(parts.nanos);
        prop_assert_eq!(if parts.negative { -total } else { total }, interval.nanos());
        prop_assert!(parts.nanos < SECOND as u32);
        let again = Interval::from_parts(parts).unwrap();
        prop_assert!((again.nanos() - interval.nanos()).abs() <= tick());
    }

    #[test]
    fn timespec_and_timeval_are_normal_for_negatives_too(nanos in -LONG..LONG) {
        let interval = Interval::from_nanos(nanos).unwrap();
        let (spec, val) = (interval.timespec(), interval.timeval());
        prop_assert!((0..SECOND).contains(&spec.tv_nsec) && (0..1_000_000).contains(&val.tv_usec));
        let whole = i128::from(spec.tv_sec) * i128::from(SECOND) + i128::from(spec.tv_nsec);
        prop_assert_eq!(whole, interval.nanos());
        prop_assert_eq!((val.tv_sec, val.tv_usec), (spec.tv_sec, spec.tv_nsec / 1_000));
        let back = Interval::try_from(spec).unwrap();
        prop_assert!((back.nanos() - interval.nanos()).abs() <= tick());
        let back = Interval::try_from(val).unwrap();
        prop_assert!((back.nanos() - interval.nanos()).abs() <= 1_000 + tick());
    }

    #[test]
    fn fields_out_of_range_are_carried(secs in -1_000_000i64..1_000_000, nanos in -LONG..LONG) {
        let spec = libc::timespec { tv_sec: secs, tv_nsec: nanos };
        let sum = Interval::from_nanos(secs * SECOND + nanos).unwrap();
        prop_assert_eq!(Interval::try_from(spec).unwrap(), sum);
    }

    #[test]
    fn sums_are_those_of_the_ticks(a: i64, b: i64) {
        let (x, y) = (Interval::from_ticks(a), Interval::from_ticks(b));
        prop_assert_eq!(x.checked_add(y).map(Interval::ticks), a.checked_add(b));
        prop_assert_eq!(x.checked_sub(y).map(Interval::ticks), a.checked_sub(b));
        prop_assert_eq!(x.checked_mul(b).map(Interval::ticks), a.checked_mul(b));
        prop_assert_eq!(x.checked_div(b).map(Interval::ticks), a.checked_div(b));
        prop_assert_eq!(x.checked_neg().map(Interval::ticks), a.checked_neg());
        prop_assert_eq!(x.checked_abs().map(Interval::ticks), a.checked_abs());
        prop_assert_eq!(x.saturating_add(y).ticks(), a.saturating_add(b));
        prop_assert_eq!(x.saturating_sub(y).ticks(), a.saturating_sub(b));
        prop_assert_eq!(x.cmp(&y), a.cmp(&b));
        prop_assert_eq!(x.add_ticks(b).ok(), x.checked_add(y));
        prop_assert_eq!(x.sub_ticks(b).ok(), x.checked_sub(y));
        let moment = Moment::from_ticks(a);
        prop_assert_eq!(moment.checked_add(y).map(Moment::ticks), a.checked_add(b));
        prop_assert_eq!(moment.checked_sub(y).map(Moment::ticks), a.checked_sub(b));
        prop_assert_eq!(moment.since(Moment::from_ticks(b)).ticks(), a.saturating_sub(b));
    }

    #[test]
    fn units_agree(amount in -3_000_000_000i64..3_000_000_000) {
        let zero = Interval::ZERO;
        let secs = Interval::from_secs(amount).unwrap();
        prop_assert_eq!(Interval::from_millis(amount * 1_000).unwrap(), secs);
        prop_assert_eq!(Interval::from_micros(amount * 1_000_000).unwrap(), secs);
        prop_assert_eq!(Interval::from_nanos(amount * SECOND).unwrap(), secs);
        prop_assert_eq!(zero.add_secs(amount).unwrap(), secs);
        prop_assert_eq!(zero.sub_secs(-amount).unwrap(), secs);
        prop_assert_eq!(zero.add_micros(amount).unwrap(), Interval::from_micros(amount).unwrap());
        prop_assert_eq!(zero.sub_micros(-amount).unwrap(), Interval::from_micros(amount).unwrap());
        prop_assert_eq!(zero.add_nanos(amount).unwrap(), Interval::from_nanos(amount).unwrap());
        prop_assert_eq!(zero.sub_nanos(-amount).unwrap(), Interval::from_nanos(amount).unwrap());
        prop_assert_eq!(Span::try_from(secs).unwrap().0 as i128, secs.nanos());
    }

    #[test]
    fn doubles_are_good_to_their_own_precision(secs in -3e9..3e9f64) {
        let interval = Interval::from_secs_f64(secs).unwrap();
        prop_assert!((interval.secs_f64() - secs).abs() <= secs.abs() * 1e-15 + 2e-9 + tick() as f64 * 1e-9);
    }

    #[test]
    fn durations_come_back_where_they_can(nanos in -LONG..LONG) {
        let interval = Interval::from_nanos(nanos).unwrap();
        match Duration::try_from(interval) {
            Ok(duration) => {
                prop_assert_eq!(duration.as_nanos() as i128, interval.nanos());
                prop_assert!(Interval::try_from(duration).unwrap().checked_sub(interval).is_some());
            }
            Err(OutOfRange) => prop_assert!(interval.is_negative()),
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    assert_eq!(Interval::from_secs(i64::MAX), Err(OutOfRange));
    assert_eq!(Interval::from_secs(i64::MIN), Err(OutOfRange));
    for secs in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, -1e300] {
        assert_eq!(Interval::from_secs_f64(secs), Err(OutOfRange), "{secs}");
    }
    assert_eq!(Interval::try_from(Duration::MAX), Err(OutOfRange));
    let most = Parts { negative: true, secs: u64::MAX, nanos: u32::MAX };
    assert_eq!(Interval::from_parts(most), Err(OutOfRange));
    assert!(std::panic::catch_unwind(|| Interval::MAX + Interval::from_ticks(1)).is_err());
    assert!(std::panic::catch_unwind(|| Interval::MIN - Interval::from_ticks(1)).is_err());
    assert!(std::panic::catch_unwind(|| -Interval::MIN).is_err());
    assert!(Interval::MIN.nanos() < 0 && Interval::MAX.nanos() > 0);
}

#[test]
fn text_has_the_sign_of_the_whole() {
    assert_eq!(Interval::ZERO.to_string(), "0.000000000");
    let text = Interval::from_millis(-1_500).unwrap().to_string();
    assert!(text.starts_with("-1.5") || text.starts_with("-1.4999"), "{text}");
    let text = Interval::from_micros(-1_500).unwrap().to_string();
    assert!(text.starts_with("-0.0015") || text.starts_with("-0.001499"), "{text}");
    assert_eq!(format!("{:>14}", Interval::ZERO), "   0.000000000");
}

#[test]
fn moments_are_dates() {
    let now = Moment::now();
    let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert!((now.wall().secs - since_1970.as_secs() as i64).abs() <= 2);
    let again = Moment::from_wall(now.wall()).unwrap();
    let off = again.since(now).nanos();
    assert!(off.abs() < 100_000_000, "{off} ns off");
    assert!(now.to_string().ends_with('Z'), "{now}");
}
