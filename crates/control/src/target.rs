//! How far a clock is to be moved, and whether it may be moved so far. The command line and every other interface give the same
//! answer.

use lorentz_clock::{saturate, Span, VirtualInstant, WallTime};

use crate::options::{negative, LATEST};
use crate::{Reading, WrongOption};

/// The target of a leap or a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// `--by`: this span.
    By(Span),
    /// `--to`: the time that the wall clock shall show.
    To(WallTime),
    /// `--like`: the time that another container's wall clock shows now.
    Like(WallTime),
}

impl Target {
    /// Returns the span to leap from the times in `reading`. A leap moves all clocks, so it only goes forward.
    ///
    /// # Errors
    ///
    /// A target in the past, or beyond the range of the kernel's clocks.
    pub fn leap(self, reading: &Reading) -> Result<Span, WrongOption> {
        let by = self.distance(reading.wall);
        if by < 0 {
            let hint = match self {
                Target::By(_) => {
                    "expected a duration above 0 ('lorentz step' also moves the wall clock back)"
                }
                _ => "it is later than that inside ('lorentz step' also moves the wall clock back)",
            };
            return Err(WrongOption::Backwards {
                flag: self.flag(),
                value: self.value(),
                hint: hint.to_string(),
            });
        }
        let latest_clock = reading.virt.max(reading.boot);
        self.check_range(by, latest_clock, "clocks")?;
        Ok(Span(saturate(by)))
    }

    /// Returns the span to step the wall clock from its time in `reading`, forward or back.
    ///
    /// # Errors
    ///
    /// A target before 1970, or so far away that no span reaches it.
    pub fn step(self, reading: &Reading) -> Result<Span, WrongOption> {
        let by = self.distance(reading.wall);
        if reading.wall.as_nanos() + by < 0 {
            return Err(match self {
                Target::By(by) => negative(self.flag(), by, "wall clock", reading.wall.secs),
                Target::To(time) | Target::Like(time) => {
                    WrongOption::BeforeEpoch { flag: self.flag(), time }
                }
            });
        }
        self.check_range(by, VirtualInstant(0), "wall clock")?;
        Ok(Span(saturate(by)))
    }

    /// Returns the nanoseconds from `wall` to the target.
    fn distance(self, wall: WallTime) -> i128 {
        match self {
            Target::By(span) => span.0.into(),
            Target::To(time) | Target::Like(time) => time.as_nanos() - wall.as_nanos(),
        }
    }

    fn check_range(
        self,
        by: i128,
        from: VirtualInstant,
        clock: &'static str,
    ) -> Result<(), WrongOption> {
        let end = i128::from(from.0) + by;
        if (-i128::from(LATEST.0)..=i128::from(LATEST.0)).contains(&end) {
            Ok(())
        } else {
            Err(WrongOption::TooLate { flag: self.flag(), value: self.value(), clock })
        }
    }

    fn flag(self) -> &'static str {
        match self {
            Target::By(_) => "--by",
            Target::To(_) => "--to",
            Target::Like(_) => "--like",
        }
    }

    fn value(self) -> String {
        match self {
            Target::By(span) => span.to_string(),
            Target::To(time) | Target::Like(time) => time.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lorentz_clock::{Policy, Rate, RealInstant};

    fn reading() -> Reading {
        let wall = WallTime { secs: 2_000_000_000, nanos: 0 };
        Reading {
            real: RealInstant(0),
            host_wall: wall,
            host_boot: Span(0),
            virt: VirtualInstant(5_000_000_000),
            wall,
            boot: VirtualInstant(6_000_000_000),
            rate: Rate::ONE,
            frozen: false,
            limit: None,
            policy: Policy::default(),
            skipping: Default::default(),
            leaps: 0,
            leapt: Span::ZERO,
            waits: 0,
            timers: 0,
            to_come: Vec::new(),
        }
    }

    fn at(secs: i64) -> WallTime {
        WallTime { secs, nanos: 0 }
    }

    #[test]
    fn leaps_go_forward() {
        let hour = Span::from_secs(3_600);
        assert_eq!(Target::By(hour).leap(&reading()), Ok(hour));
        assert_eq!(Target::By(Span::ZERO).leap(&reading()), Ok(Span::ZERO));
        assert_eq!(Target::To(at(2_000_003_600)).leap(&reading()), Ok(hour));
        assert_eq!(Target::Like(at(2_000_003_600)).leap(&reading()), Ok(hour));
    }

    #[test]
    fn leaps_back_are_refused_with_the_way_out() {
        for (target, start) in [
            (Target::By(Span(-1)), "--by -1ns: leaps go forward; expected a duration above 0"),
            (
                Target::To(at(1_999_999_999)),
                "--to 2033-05-18T03:33:19Z: leaps go forward; it is later",
            ),
            (Target::Like(at(0)), "--like 1970-01-01T00:00:00Z: leaps go forward; it is later"),
        ] {
            let error = target.leap(&reading()).unwrap_err().to_string();
            assert!(error.starts_with(start), "{error}");
            assert!(error.contains("lorentz step"), "{error}");
        }
    }

    #[test]
    fn steps_go_either_way_but_not_before_1970() {
        let day = Span::from_secs(-86_400);
        assert_eq!(Target::By(day).step(&reading()), Ok(day));
        assert_eq!(Target::To(at(1_999_913_600)).step(&reading()), Ok(day));
        assert_eq!(Target::To(at(0)).step(&reading()), Ok(Span::from_secs(-2_000_000_000)));
        let error = Target::By(Span::from_secs(-2_000_000_001)).step(&reading()).unwrap_err();
        assert!(error.to_string().contains("wall clock negative"), "{error}");
        let error = Target::To(at(-1)).step(&reading()).unwrap_err().to_string();
        assert!(error.starts_with("--to 1969-12-31T23:59:59Z: a wall clock cannot"), "{error}");
    }

    #[test]
    fn nothing_goes_beyond_the_kernels_range() {
        let far = at(20_000_000_000);
        for refusal in [
            Target::By(Span::MAX).leap(&reading()),
            Target::To(far).leap(&reading()),
            Target::To(far).step(&reading()),
        ] {
            assert!(refusal.unwrap_err().to_string().contains("beyond 290 years"));
        }
    }
}
