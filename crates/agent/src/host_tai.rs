//! This host's International Atomic Time, beside its CLOCK_MONOTONIC.
//!
//! TAI is CLOCK_REALTIME plus the leap seconds so far, 37 since 2017. The kernel knows their number if an NTP or PTP daemon has said it.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use lorentz_clock::{saturate, RealInstant, Span, NANOS_PER_SEC};
use lorentz_control::{host_time, Line};

use crate::record::{LineSegment, TaiInstant};

/// TAI minus UTC, seconds, where the kernel has not been told: the value since 2017.
const LEAP_SECONDS: i64 = 37;

/// An error of the host's clock that a test adds to it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct InjectedError {
    /// A file with the present error, ns. A test that writes another number steps the clock.
    pub offset: Option<PathBuf>,
    /// Growth, ns for each second.
    pub drift: i64,
}

impl InjectedError {
    /// The error `seconds` after the agent's start.
    fn after(&self, seconds: i64) -> anyhow::Result<Span> {
        let offset = match &self.offset {
            None => 0,
            Some(file) => {
                let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
                text.trim().parse::<i64>().with_context(|| file.display().to_string())?
            }
        };
        Ok(Span(offset + self.drift * seconds))
    }
}

/// The host's clock, as the agent believes it.
#[derive(Clone, Debug)]
pub struct HostTai {
    injected: InjectedError,
    begun: RealInstant,
    /// Bound of the clock's error that the user has told, in place of the kernel's.
    told_bound: Option<Span>,
}

/// A moment of the host: both clocks at one instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostReading {
    /// CLOCK_MONOTONIC.
    pub real: RealInstant,
    /// By how much TAI is ahead of CLOCK_MONOTONIC, ns.
    ahead: i128,
}

impl HostReading {
    /// TAI.
    pub fn tai(&self) -> TaiInstant {
        TaiInstant(saturate(i128::from(self.real.0) + self.ahead))
    }

    /// Returns CLOCK_MONOTONIC at `tai`, if nobody sets the host's wall clock until then.
    pub fn real_at(&self, tai: TaiInstant) -> RealInstant {
        RealInstant(saturate(i128::from(tai.0) - self.ahead))
    }

    /// By how much TAI is further ahead of CLOCK_MONOTONIC than at `other`: somebody has set the wall clock.
    pub fn stepped_since(&self, other: &HostReading) -> Span {
        Span(saturate(self.ahead - other.ahead))
    }

    /// Returns the line of `segment` by the host's CLOCK_MONOTONIC.
    pub fn line(&self, segment: &LineSegment) -> Line {
        Line {
            from: self.real_at(segment.at_tai_ns),
            virt: lorentz_clock::VirtualInstant(segment.virtual_ns),
            rate: segment.rate(),
            limit: segment.limit(),
            wall: segment.wall(),
        }
    }
}

impl HostTai {
    /// The host's clock with an injected error. `told_bound` replaces the kernel's bound of the clock's error.
    pub fn new(injected: InjectedError, told_bound: Option<Span>) -> HostTai {
        HostTai { injected, begun: host_time::now(), told_bound }
    }

    /// Reads both clocks.
    ///
    /// # Errors
    ///
    /// If the kernel's clocks cannot be read together.
    pub fn read(&self) -> anyhow::Result<HostReading> {
        let wall = host_time::wall_ahead().context("the host's clocks cannot be read together")?;
        let real = host_time::now();
        let leap_seconds =
            i128::from(leap_seconds(&host_time::kernel_clock_state().context("adjtimex")?))
                * i128::from(NANOS_PER_SEC);
        let injected = self.injected.after(real.since(self.begun).0 / NANOS_PER_SEC)?;
        Ok(HostReading { real, ahead: wall.as_nanos() + leap_seconds + i128::from(injected.0) })
    }

    /// The bound of the clock's error: `--error-bound`, or adjtimex(2)'s `maxerror`, which an NTP daemon keeps and which grows to 16 s
    /// without one.
    pub fn error_bound(&self) -> Span {
        let kernels = || {
            host_time::kernel_clock_state().map_or(Span::MAX, |state| Span(state.maxerror * 1_000))
        };
        self.told_bound.unwrap_or_else(kernels)
    }
}

fn leap_seconds(state: &libc::timex) -> i64 {
    match state.tai {
        0 => LEAP_SECONDS,
        told => told.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_goes_to_the_hosts_clock_and_back() {
        let reading = HostTai::new(InjectedError::default(), None).read().unwrap();
        assert_eq!(reading.real_at(reading.tai()), reading.real);
        let later = reading.tai().plus(Span(5));
        assert_eq!(reading.real_at(later), reading.real.plus(Span(5)));
    }

    #[test]
    fn an_injected_error_is_in_each_reading() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "3000000\n").unwrap();
        let injected = InjectedError { offset: Some(file.path().to_path_buf()), drift: 20_000 };
        assert_eq!(injected.after(2).unwrap(), Span(3_040_000));
        let honest = HostTai::new(InjectedError::default(), None).read().unwrap();
        let wrong = HostTai::new(injected, None).read().unwrap();
        assert_eq!(wrong.stepped_since(&honest), Span(3_000_000));
    }

    #[test]
    fn a_told_bound_replaces_the_kernels() {
        let told = HostTai::new(InjectedError::default(), Some(Span(7)));
        assert_eq!(told.error_bound(), Span(7));
        let kernels = HostTai::new(InjectedError::default(), None).error_bound();
        assert!((Span::ZERO..=Span(16_000_000_000)).contains(&kernels), "{kernels:?}");
    }
}
