//! Settings of a new clock, from its options.
//!
//! [`ClockOptions`] are the options as given, [`ClockSettings`] the settings that follow from them. The conversion refuses each
//! wrong combination with one line that names the flag, its value and the accepted values.

use lorentz_clock::{
    Pace, Policy, Rate, Segment, SkipMode, Span, VirtualInstant, WallTime, NANOS_PER_SEC,
};

use crate::discipline::StartError;
use crate::host_time::HostNow;
use crate::option_table::{ClockOption, ClockOptions, OptionValue, CLOCK_OPTIONS};
use crate::WrongOption;

/// Latest start of a virtual monotonic clock: two years before the range of the kernel's own clocks ends. The clock can go on for
/// that long.
pub const LATEST: VirtualInstant =
    VirtualInstant(290 * 365 * 86_400 * lorentz_clock::NANOS_PER_SEC);

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
        let annotation = |(option, value): (&ClockOption, String)| {
            format!("lorentz.{}={value}", option.passed_as.unwrap_or(option.name))
        };
        self.given().map(annotation).collect()
    }

    /// Returns the same options as words of a command line.
    pub fn flags(&self) -> Vec<String> {
        let flag = |(option, value): (&ClockOption, String)| match option.value {
            OptionValue::Switch => option.flag.to_string(),
            _ => format!("--{}={value}", option.passed_as.unwrap_or(option.name)),
        };
        self.given().map(flag).collect()
    }

    /// Returns these options, with those of `defaults` for each value that these do not give.
    pub fn or(&self, defaults: &ClockOptions) -> ClockOptions {
        let value_of = |option: &ClockOption| option.passed_as.unwrap_or(option.name);
        let own: Vec<&str> = self.given().map(|(option, _)| value_of(option)).collect();
        let mut all = self.clone();
        for (option, text) in
            defaults.given().filter(|(option, _)| !own.contains(&value_of(option)))
        {
            let reader = CLOCK_OPTIONS.iter().find(|reader| reader.name == value_of(option));
            let reader = reader.expect("an option of the table");
            reader.read(&mut all, &text).expect("a value that an option of the table shows");
        }
        all
    }

    /// Returns the rate that `rate` or `tdf` gives. The default is the host's rate.
    pub fn rate_or_tdf(&self) -> Rate {
        self.rate.or(self.tdf).unwrap_or_default()
    }

    fn given(&self) -> impl Iterator<Item = (&'static ClockOption, String)> + '_ {
        CLOCK_OPTIONS.iter().filter_map(|option| Some((option, option.show(self)?)))
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
            _ => self.rate_or_tdf(),
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
                keeps_code: self.no_rewrite || self.in_experiment,
                may_set_clock: self.may_set_clock,
            },
            frozen: self.frozen,
            skip: self.skip_idle.unwrap_or_default(),
            read_cost: self.read_cost.unwrap_or_default(),
            offsets_only: self.is_offsets_only() && self.fits_time_namespace(host),
            error: self.clock_error,
        };
        settings.check(host)?;
        Ok(settings)
    }

    fn is_offsets_only(&self) -> bool {
        let given = self.of_a_new_clock();
        let is_offset = |flag: &&str| matches!(*flag, "--monotonic" | "--boottime");
        !given.is_empty() && given.iter().all(is_offset)
    }

    /// Whether a time namespace of the kernel can have these offsets: its clocks may stand at 146 years at most.
    fn fits_time_namespace(&self, host: &HostNow) -> bool {
        /// The kernel's KTIME_SEC_MAX / 2.
        const LATEST: i64 = i64::MAX / NANOS_PER_SEC / 2 * NANOS_PER_SEC;
        let fits =
            |now: i64, by: Option<Span>| now.saturating_add(by.unwrap_or_default().0) < LATEST;
        fits(host.real.0, self.monotonic) && fits(host.boot.0, self.boottime)
    }

    /// Returns the given flags that apply only to a new clock.
    fn of_a_new_clock(&self) -> Vec<&'static str> {
        let of_new = self.given().filter(|(option, _)| option.name != "clock");
        of_new.map(|(option, _)| option.flag).collect()
    }
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
    /// How the clock errs from the start.
    pub error: Option<StartError>,
}

impl ClockSettings {
    /// Takes the rate out, for a clock whose processes are still to be brought in: they stand still for that, and time must not run away
    /// from them. Returns the rate, to be set when all are in; `None` if there is none to set. A clock that is frozen or that an
    /// experiment moves keeps its own.
    pub fn put_off_rate(&mut self) -> Option<Rate> {
        let runs = !self.frozen && !self.policy.orders_sends;
        let rate = runs.then(|| std::mem::take(&mut self.rate))?;
        (rate != Rate::default()).then_some(rate)
    }

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
    use lorentz_clock::RealInstant;

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
    fn defaults_fill_in_values_that_are_not_given() {
        let parse = |text: &str| text.parse().ok();
        let defaults = options(|o| {
            (o.at, o.rate, o.frozen, o.real_file_times) =
                (parse("@5"), Rate::new(2, 1), true, Some(true));
        });
        assert_eq!(ClockOptions::default().or(&defaults), defaults);
        // The TDF gives the same value as the rate.
        let own = options(|o| (o.tdf, o.real_file_times) = (Rate::new(1, 10), Some(false)));
        let both = own.or(&defaults);
        assert_eq!((both.rate, both.rate_or_tdf()), (None, Rate::new(1, 10).unwrap()));
        assert_eq!((both.at, both.frozen, both.real_file_times), (parse("@5"), true, Some(false)));
    }

    #[test]
    fn each_default_means_the_same_where_it_fills_in() {
        for option in CLOCK_OPTIONS {
            let mut given = ClockOptions::default();
            // Not the same as its inverse.
            let text = if option.name == "tdf" { "4" } else { option.example() };
            option.read(&mut given, text).unwrap();
            let filled = ClockOptions::default().or(&given);
            assert_eq!(filled.rate_or_tdf(), given.rate_or_tdf(), "{}", option.flag);
            let without_rate =
                |options: &ClockOptions| ClockOptions { rate: None, tdf: None, ..options.clone() };
            assert_eq!(without_rate(&filled), without_rate(&given), "{}", option.flag);
        }
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
            o.may_set_clock = true;
        });
        let all = Policy {
            real_cpu_clocks: true,
            real_file_times: true,
            trap_tsc: true,
            counts_tasks: true,
            orders_sends: true,
            keeps_code: true,
            may_set_clock: true,
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
        assert!(!only(|o| (o.monotonic, o.read_cost) = (Some(Span(1)), Some(Span(1)))));
        assert!(!only(|o| (o.boottime, o.frozen) = (Some(Span::from_secs(1)), true)));
        // The kernel's namespaces end there, and a clock of one's own does not.
        let years = |years: i64| Some(Span::from_secs(years * 365 * 86_400));
        assert!(only(|o| o.monotonic = Some(Span::from_secs(146 * 365 * 86_400))));
        for span in [147, 289].map(years) {
            let far = ClockOptions { monotonic: span, ..Default::default() };
            assert!(!far.settings(&HOST).unwrap().offsets_only);
            let far = ClockOptions { boottime: span, ..Default::default() };
            assert!(!far.settings(&HOST).unwrap().offsets_only);
        }
    }
}
