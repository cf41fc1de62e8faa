//! Options of a new clock, for every interface: command line, C, Python, OCI annotations.
//!
//! [`ClockOptions`] are the options as given, [`ClockSettings`] the settings that follow from them. The conversion refuses each
//! wrong combination with one line that names the flag, its value and the accepted values.

use std::io;

use lorentz_clock::{
    Pace, Policy, Rate, RealInstant, Segment, SkipMode, Span, VirtualInstant, WallTime,
};

use crate::host_time::clock_nanos;
use crate::WrongOption;

/// Latest start of a virtual monotonic clock: two years before the range of the kernel's own clocks ends. The clock can go on for
/// that long.
pub const LATEST: VirtualInstant =
    VirtualInstant(290 * 365 * 86_400 * lorentz_clock::NANOS_PER_SEC);

/// The host's clocks at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HostNow {
    /// CLOCK_MONOTONIC.
    pub real: RealInstant,
    /// CLOCK_REALTIME.
    pub wall: WallTime,
    /// CLOCK_BOOTTIME.
    pub boot: Span,
}

impl HostNow {
    /// Returns CLOCK_MONOTONIC at the time when CLOCK_REALTIME will show `wall`, if nobody sets it until then. `None` if that is
    /// beyond the range of CLOCK_MONOTONIC.
    pub fn real_at(&self, wall: WallTime) -> Option<RealInstant> {
        let ahead = wall.as_nanos() - self.wall.as_nanos();
        i64::try_from(i128::from(self.real.0) + ahead).ok().map(RealInstant)
    }

    /// Reads the clocks, and takes the narrowest of several readings. The three times belong together within a microsecond, unless
    /// the machine is very busy. The first reading is slow, because the kernel reads in its code.
    ///
    /// # Errors
    ///
    /// If the kernel has no such clock.
    pub fn read() -> io::Result<HostNow> {
        const TRIES: u32 = 5;
        let mut best: Option<(i64, HostNow)> = None;
        for _ in 0..TRIES {
            let before = clock_nanos(libc::CLOCK_MONOTONIC)?;
            let wall = clock_nanos(libc::CLOCK_REALTIME)?;
            let boot = clock_nanos(libc::CLOCK_BOOTTIME)?;
            let width = clock_nanos(libc::CLOCK_MONOTONIC)? - before;
            if best.as_ref().is_none_or(|(narrowest, _)| width < *narrowest) {
                let now = HostNow {
                    real: RealInstant(before + width / 2),
                    wall: WallTime::from_nanos(wall.into()),
                    boot: Span(boot),
                };
                best = Some((width, now));
            }
        }
        best.map(|(_, now)| now).ok_or_else(|| io::Error::other("no host clock could be read"))
    }

    /// The span by which the host's wall clock is ahead of its CLOCK_MONOTONIC.
    pub fn wall_offset(&self) -> WallTime {
        WallTime::from_nanos(self.wall.as_nanos() - i128::from(self.real.0))
    }
}

/// Options of a clock as given. The default is the host's time at the host's rate.
///
/// ```
/// use lorentz_control::{ClockOptions, HostNow};
///
/// let host = HostNow::read()?;
/// let asked = ClockOptions { at: Some("2038-01-19T03:14:00Z".parse()?), ..Default::default() };
/// let start = asked.settings(&host)?.segment(&host);
/// assert_eq!(start.wall_at(start.virt).to_string(), "2038-01-19T03:14:00Z");
///
/// let wrong = ClockOptions { offset: Some("1h".parse()?), ..asked };
/// assert_eq!(
///     wrong.settings(&host).unwrap_err().to_string(),
///     "--at and --offset exclude each other: give one of them",
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClockOptions {
    /// `--at`: wall time at the start.
    pub at: Option<WallTime>,
    /// `--offset`: start of the wall clock, relative to the host's.
    pub offset: Option<Span>,
    /// `--rate`: virtual seconds per real second.
    pub rate: Option<Rate>,
    /// `--tdf`: the inverse of the rate. This field holds the rate.
    pub tdf: Option<Rate>,
    /// `--monotonic`: start of CLOCK_MONOTONIC, relative to the host's.
    pub monotonic: Option<Span>,
    /// `--boottime`: start of CLOCK_BOOTTIME, relative to the host's.
    pub boottime: Option<Span>,
    /// `--frozen`: whether time stands still at the start.
    pub frozen: bool,
    /// `--skip-idle`: whether time skips idle periods.
    pub skip_idle: Option<SkipMode>,
    /// `--read-cost`: virtual cost of a clock read, with `--skip-idle`.
    pub read_cost: Option<Span>,
    /// `--cpu-clocks`: whether CPU clocks are the host's.
    pub real_cpu_clocks: Option<bool>,
    /// `--file-times`: whether file times are the host's.
    pub real_file_times: Option<bool>,
    /// `--trap-tsc`: whether `rdtsc` reads virtual time.
    pub trap_tsc: bool,
    /// `--clock`: name of a container whose clock is used instead of a new one.
    pub clock: Option<String>,
    /// `--experiment`: whether a program's sending waits until the experiment's other clocks have come as far.
    pub in_experiment: bool,
}

/// The clock that a command is to run on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WhichClock {
    /// A new clock.
    New(ClockSettings),
    /// The clock of the container of this name.
    Of(String),
}

impl ClockOptions {
    /// Returns the clock that the options ask for; for a new clock, with its settings.
    ///
    /// # Errors
    ///
    /// Options that exclude each other, and as [`ClockOptions::settings`].
    pub fn which(&self, host: &HostNow) -> Result<WhichClock, WrongOption> {
        let Some(name) = &self.clock else {
            return self.settings(host).map(WhichClock::New);
        };
        match self.of_a_new_clock().first() {
            Some(flag) => Err(WrongOption::Both { first: "--clock", second: flag }),
            None => Ok(WhichClock::Of(name.clone())),
        }
    }

    /// Returns the same options as annotations, for an OCI runtime.
    pub fn annotations(&self) -> Vec<String> {
        let real = |is_real: bool| if is_real { "real" } else { "virtual" }.to_string();
        let skip = |mode: SkipMode| match mode {
            SkipMode::Off => "off".to_string(),
            SkipMode::On => "on".to_string(),
            SkipMode::Force => "force".to_string(),
        };
        let given = [
            ("at", self.at.map(|at| at.to_string())),
            ("offset", self.offset.map(|span| span.to_string())),
            ("rate", self.rate.or(self.tdf).map(|rate| rate.to_string())),
            ("monotonic", self.monotonic.map(|span| span.to_string())),
            ("boottime", self.boottime.map(|span| span.to_string())),
            ("frozen", self.frozen.then(|| "true".to_string())),
            ("skip-idle", self.skip_idle.map(skip)),
            ("read-cost", self.read_cost.map(|span| span.to_string())),
            ("cpu-clocks", self.real_cpu_clocks.map(real)),
            ("file-times", self.real_file_times.map(real)),
            ("trap-tsc", self.trap_tsc.then(|| "true".to_string())),
            ("clock", self.clock.clone()),
        ];
        let text = |(key, value): (&str, Option<String>)| Some(format!("lorentz.{key}={}", value?));
        given.into_iter().filter_map(text).collect()
    }

    /// Returns the settings of a new clock.
    ///
    /// # Errors
    ///
    /// If options exclude each other. If an offset or a date would make a clock negative, or take it beyond the range of the
    /// kernel's clocks.
    pub fn settings(&self, host: &HostNow) -> Result<ClockSettings, WrongOption> {
        let wall = match (self.at, self.offset) {
            (Some(_), Some(_)) => {
                return Err(WrongOption::Both { first: "--at", second: "--offset" })
            }
            (Some(at), None) => WallStart::At(at),
            (None, offset) => WallStart::Offset(offset.unwrap_or_default()),
        };
        let rate = match (self.rate, self.tdf) {
            (Some(_), Some(_)) => {
                return Err(WrongOption::Both { first: "--rate", second: "--tdf" })
            }
            (rate, tdf) => rate.or(tdf).unwrap_or_default(),
        };
        let settings = ClockSettings {
            wall,
            monotonic: self.monotonic.unwrap_or_default(),
            boottime: self.boottime.unwrap_or_default(),
            rate,
            policy: Policy {
                real_cpu_clocks: self.real_cpu_clocks.unwrap_or(false),
                real_file_times: self.real_file_times.unwrap_or(false),
                trap_tsc: self.trap_tsc,
                counts_tasks: self.skip_idle.is_some_and(|mode| mode != SkipMode::Off),
                orders_sends: self.in_experiment,
            },
            frozen: self.frozen,
            skip: self.skip_idle.unwrap_or_default(),
            read_cost: self.read_cost.unwrap_or_default(),
            offsets_only: self.is_offsets_only(),
        };
        settings.check(host)?;
        Ok(settings)
    }

    fn is_offsets_only(&self) -> bool {
        !self.of_a_new_clock().is_empty()
            && self
                .of_a_new_clock()
                .iter()
                .all(|flag| matches!(*flag, "--monotonic" | "--boottime"))
    }

    /// Returns the given flags that apply only to a new clock.
    fn of_a_new_clock(&self) -> Vec<&'static str> {
        let given = [
            ("--at", self.at.is_some()),
            ("--offset", self.offset.is_some()),
            ("--rate", self.rate.is_some()),
            ("--tdf", self.tdf.is_some()),
            ("--monotonic", self.monotonic.is_some()),
            ("--boottime", self.boottime.is_some()),
            ("--frozen", self.frozen),
            ("--skip-idle", self.skip_idle.is_some()),
            ("--cpu-clocks", self.real_cpu_clocks.is_some()),
            ("--file-times", self.real_file_times.is_some()),
            ("--trap-tsc", self.trap_tsc),
        ];
        given.into_iter().filter(|(_, given)| *given).map(|(flag, _)| flag).collect()
    }
}

/// Parses the cost of a clock read: 0 to 1 second.
///
/// # Errors
///
/// The reason why the text is wrong.
pub fn parse_read_cost(text: &str) -> Result<Span, String> {
    const MOST: Span = Span(lorentz_clock::NANOS_PER_SEC);
    let span: Span = text.parse().map_err(|error: lorentz_clock::TextError| error.to_string())?;
    let fits = (Span::ZERO..=MOST).contains(&span);
    fits.then_some(span).ok_or_else(|| "expected a duration from 0 to 1s".to_string())
}

/// Start of a wall clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WallStart {
    /// At this date.
    At(WallTime),
    /// At this span from the host's wall clock.
    Offset(Span),
}

/// Settings of a new clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockSettings {
    /// The wall clock.
    pub wall: WallStart,
    /// The span by which CLOCK_MONOTONIC is ahead of the host's.
    pub monotonic: Span,
    /// The span by which CLOCK_BOOTTIME is ahead of the host's.
    pub boottime: Span,
    /// Virtual seconds per real second; for a frozen clock, after the unfreeze.
    pub rate: Rate,
    /// Choices that hold for the life of the clock.
    pub policy: Policy,
    /// Whether time stands still at the start.
    pub frozen: bool,
    /// How the clock treats idle time.
    pub skip: SkipMode,
    /// Virtual cost of a clock read.
    pub read_cost: Span,
    /// Whether the options are only offsets of CLOCK_MONOTONIC and CLOCK_BOOTTIME. The kernel's time namespaces do these alone:
    /// without the shim, and without any later change.
    pub offsets_only: bool,
}

impl ClockSettings {
    /// Returns the first segment of the clock, which starts when the host's clocks show `host`.
    pub fn segment(&self, host: &HostNow) -> Segment {
        let virt = VirtualInstant(host.real.0.saturating_add(self.monotonic.0));
        let start = self.wall_start(host);
        Segment {
            real: host.real,
            virt,
            pace: if self.frozen { Pace::Frozen } else { Pace::Running(self.rate) },
            wall: WallTime::from_nanos(start.as_nanos() - i128::from(virt.0)),
            boot: Span((host.boot.0.saturating_add(self.boottime.0)).saturating_sub(virt.0)),
        }
    }

    fn wall_start(&self, host: &HostNow) -> WallTime {
        match self.wall {
            WallStart::At(at) => at,
            WallStart::Offset(offset) => host.wall.plus(offset),
        }
    }

    fn check(&self, host: &HostNow) -> Result<(), WrongOption> {
        if self.wall_start(host).secs < 0 {
            return Err(match self.wall {
                WallStart::At(at) => WrongOption::BeforeEpoch { flag: "--at", time: at },
                WallStart::Offset(by) => negative("--offset", by, "wall clock", host.wall.secs),
            });
        }
        check_offset("--monotonic", self.monotonic, "monotonic clock", Span(host.real.0))?;
        check_offset("--boottime", self.boottime, "boot time clock", host.boot)
    }
}

/// Checks that a clock that stands at `now` may be moved by `by`.
fn check_offset(
    flag: &'static str,
    by: Span,
    clock: &'static str,
    now: Span,
) -> Result<(), WrongOption> {
    let sum = i128::from(now.0) + i128::from(by.0);
    if sum < 0 {
        return Err(negative(flag, by, clock, now.0 / lorentz_clock::NANOS_PER_SEC));
    }
    if sum > i128::from(LATEST.0) {
        return Err(WrongOption::TooLate { flag, value: format!("{by:+}"), clock });
    }
    Ok(())
}

/// The error for a clock that stands at `secs` and would be moved back to before 0.
pub(crate) fn negative(
    flag: &'static str,
    by: Span,
    clock: &'static str,
    secs: i64,
) -> WrongOption {
    WrongOption::Negative { flag, by, clock, least: Span::from_secs(-secs) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: HostNow = HostNow {
        real: RealInstant(1_000_000_000_000),
        wall: WallTime { secs: 1_700_000_000, nanos: 500_000_000 },
        boot: Span(1_500_000_000_000),
    };

    fn options(fill: impl FnOnce(&mut ClockOptions)) -> ClockOptions {
        let mut options = ClockOptions::default();
        fill(&mut options);
        options
    }

    fn start(fill: impl FnOnce(&mut ClockOptions)) -> Segment {
        options(fill).settings(&HOST).unwrap().segment(&HOST)
    }

    fn refusal(fill: impl FnOnce(&mut ClockOptions)) -> String {
        options(fill).which(&HOST).unwrap_err().to_string()
    }

    #[test]
    fn nothing_asked_is_the_hosts_time() {
        let start = start(|_| ());
        assert_eq!(start.virt.0, HOST.real.0);
        assert_eq!(start.wall_at(start.virt), HOST.wall);
        assert_eq!(start.virt.0 + start.boot.0, HOST.boot.0);
        assert_eq!(start.pace, Pace::Running(Rate::ONE));
    }

    #[test]
    fn each_clock_starts_where_asked() {
        let at = WallTime { secs: 2_147_483_640, nanos: 0 };
        let start = start(|o| {
            o.at = Some(at);
            o.monotonic = Some(Span::from_secs(-900));
            o.boottime = Some(Span::from_secs(86_400));
            o.tdf = Rate::new(1, 10);
        });
        assert_eq!(start.wall_at(start.virt), at);
        assert_eq!(start.virt.0, 100_000_000_000);
        assert_eq!(start.virt.0 + start.boot.0, (1_500 + 86_400) * 1_000_000_000);
        assert_eq!(start.pace, Pace::Running(Rate::new(1, 10).unwrap()));
    }

    #[test]
    fn an_offset_moves_the_wall_clock_alone() {
        let start = start(|o| o.offset = Some(Span::from_secs(-5_400)));
        assert_eq!(start.virt.0, HOST.real.0);
        assert_eq!(start.wall_at(start.virt), WallTime { secs: 1_699_994_600, nanos: 500_000_000 });
    }

    #[test]
    fn a_date_beyond_the_range_of_nanoseconds_is_exact() {
        let at = WallTime { secs: 10_000_000_000_000, nanos: 7 };
        let start = start(|o| o.at = Some(at));
        assert_eq!(start.wall_at(start.virt), at);
    }

    #[test]
    fn frozen_keeps_its_rate_for_later() {
        let asked = options(|o| {
            o.frozen = true;
            o.rate = Rate::new(60, 1);
        });
        let settings = asked.settings(&HOST).unwrap();
        assert_eq!(settings.segment(&HOST).pace, Pace::Frozen);
        assert_eq!(settings.rate, Rate::new(60, 1).unwrap());
    }

    #[test]
    fn policies_are_virtual_unless_asked() {
        assert_eq!(ClockOptions::default().settings(&HOST).unwrap().policy, Policy::default());
        let asked = options(|o| {
            o.real_cpu_clocks = Some(true);
            o.real_file_times = Some(true);
            o.trap_tsc = true;
            o.skip_idle = Some(SkipMode::On);
            o.in_experiment = true;
        });
        let all = Policy {
            real_cpu_clocks: true,
            real_file_times: true,
            trap_tsc: true,
            counts_tasks: true,
            orders_sends: true,
        };
        assert_eq!(asked.settings(&HOST).unwrap().policy, all);
    }

    #[test]
    fn negative_clocks_are_refused_by_flag() {
        let cases = [
            (
                refusal(|o| o.monotonic = Some(Span::from_secs(-1_001))),
                "--monotonic -16m41s: would make the container's monotonic clock negative; \
                 expected -16m40s or more",
            ),
            (
                refusal(|o| o.boottime = Some(Span::from_secs(-86_400))),
                "--boottime -1d: would make the container's boot time clock negative; \
                 expected -25m or more",
            ),
            (
                refusal(|o| o.offset = Some(Span::from_secs(-1_700_000_001))),
                "--offset -19675d22h13m21s: would make the container's wall clock negative; \
                 expected -19675d22h13m20s or more",
            ),
            (
                refusal(|o| o.at = Some(WallTime { secs: -1, nanos: 0 })),
                "--at 1969-12-31T23:59:59Z: a wall clock cannot show a time before \
                 1970-01-01T00:00:00Z",
            ),
            (
                refusal(|o| o.monotonic = Some(Span::MAX)),
                "--monotonic +106751d23h47m16.854775807s: would take the container's monotonic \
                 clock beyond 290 years, where the kernel's clocks end",
            ),
        ];
        for (refusal, expected) in cases {
            assert_eq!(refusal, expected);
        }
        assert_eq!(start(|o| o.monotonic = Some(Span::from_secs(-1_000))).virt.0, 0);
    }

    #[test]
    fn exclusions_name_both_flags() {
        let pair = |first: &str, second: &str| {
            format!("{first} and {second} exclude each other: give one of them")
        };
        let of_other = |fill: fn(&mut ClockOptions)| {
            refusal(|o| {
                o.clock = Some("web".into());
                fill(o);
            })
        };
        assert_eq!(
            refusal(|o| (o.rate, o.tdf) = (Some(Rate::ONE), Some(Rate::ONE))),
            pair("--rate", "--tdf")
        );
        assert_eq!(of_other(|o| o.frozen = true), pair("--clock", "--frozen"));
        assert_eq!(of_other(|o| o.offset = Some(Span::ZERO)), pair("--clock", "--offset"));
        assert_eq!(of_other(|o| o.real_file_times = Some(false)), pair("--clock", "--file-times"));
        let alone = options(|o| o.clock = Some("web".into()));
        assert_eq!(alone.which(&HOST), Ok(WhichClock::Of("web".into())));
    }

    #[test]
    fn offsets_alone_need_no_shim() {
        let only =
            |fill: fn(&mut ClockOptions)| options(fill).settings(&HOST).unwrap().offsets_only;
        assert!(only(|o| o.monotonic = Some(Span::from_secs(1))));
        assert!(!only(|_| ()));
        assert!(!only(|o| (o.boottime, o.frozen) = (Some(Span::from_secs(1)), true)));
    }
}
