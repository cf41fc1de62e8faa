//! The answers of `lorentz clock`, for people and as JSON.

use lorentz_clock::Span;
use lorentz_control::discipline::{ErrorReading, LeapSecond};
use serde_json::{json, Value};

use crate::print;

/// A clock's error in lines.
pub fn words(name: &str, error: &ErrorReading) -> String {
    let kernel = &error.discipline;
    let mut text = format!("{name}: {}\n", print::wall(error.wall));
    text += &format!("offset      {} from the truth\n", signed(error.offset_ns));
    text += &format!("frequency   {}\n", ppm(error.frequency_error * 1e6));
    text += &format!("drift       {} of the oscillator\n", ppm(error.drift as f64 / 1e6));
    text += &format!("discipline  {} by adjtimex, {}\n", ppm(kernel.frequency_ppm()), state(error));
    text += &format!("error told  {}\n", told(error));
    if let Some(leap) = leap_second(error) {
        text += &format!("leap second {leap}\n");
    }
    text
}

/// The sentence of `check`.
pub fn verdict(name: &str, error: &ErrorReading, within: Option<bool>) -> String {
    let offset = signed(error.offset_ns);
    match within {
        None => {
            format!("{name}: no daemon has told a bound of the clock's error; it is {offset}\n")
        }
        Some(true) => format!("{name}: {offset}, within the bound of {}\n", told(error)),
        Some(false) => format!("{name}: {offset}, beyond the bound of {}\n", told(error)),
    }
}

/// The names of the columns of `log`.
pub fn log_head() -> String {
    format!("{:<30}  {:>14}  {:>14}  {:>10}  STATE\n", "TIME INSIDE", "OFFSET", "FREQUENCY", "TOLD")
}

/// One look of `log`.
pub fn log_line(error: &ErrorReading) -> String {
    let frequency = ppm(error.frequency_error * 1e6);
    let (time, offset) = (print::wall(error.wall), signed(error.offset_ns));
    format!("{time:<30}  {offset:>14}  {frequency:>14}  {:>10}  {}\n", told(error), state(error))
}

/// A clock's error as JSON.
pub fn json(name: &str, error: &ErrorReading) -> Value {
    let kernel = &error.discipline;
    json!({
        "name": name,
        "wall": error.wall.to_string(),
        "offset_ns": error.offset_ns as i64,
        "frequency_ppm": error.frequency_error * 1e6,
        "drift_ppm": error.drift as f64 / 1e6,
        "disciplined_ppm": kernel.frequency_ppm(),
        "max_error_us": kernel.max_error,
        "estimated_error_us": kernel.estimated_error,
        "synchronized": kernel.is_synchronized(),
        "status": kernel.status,
        "tai_s": kernel.tai,
        "leap_second": kernel.leap,
        "within_bound": error.is_within_bound(),
    })
}

fn state(error: &ErrorReading) -> &'static str {
    match error.discipline.is_synchronized() {
        true => "synchronized",
        false => "not synchronized",
    }
}

fn told(error: &ErrorReading) -> String {
    Span(error.discipline.max_error * 1000).to_string()
}

fn leap_second(error: &ErrorReading) -> Option<&'static str> {
    match error.discipline.leap {
        LeapSecond::No => None,
        LeapSecond::Insert => Some("one more at the end of the day"),
        LeapSecond::Delete => Some("one less at the end of the day"),
        LeapSecond::UnderWay => Some("under way"),
        LeapSecond::Over => Some("over"),
    }
}

fn ppm(value: f64) -> String {
    format!("{value:+.3} ppm")
}

/// A length with its sign.
fn signed(nanos: i128) -> String {
    format!("{:+}", Span(lorentz_clock::saturate(nanos)))
}
