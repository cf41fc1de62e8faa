//! The answer of `lorentz run --dry-run`: how the clock of a command would start.

use lorentz_clock::{saturate, Segment};
use lorentz_control::{local_time, ClockSettings, HostNow};
use serde_json::{json, Value};

use crate::print::{self, row, table};

/// A clock that a command would have.
pub struct PlannedClock<'a> {
    /// The container whose clock it is; `None` for a new one.
    pub clock_of: Option<&'a str>,
    /// The settings of a new clock.
    pub settings: Option<&'a ClockSettings>,
    /// The host's clocks.
    pub host: &'a HostNow,
    /// The command and its arguments.
    pub command: Vec<String>,
}

impl PlannedClock<'_> {
    fn start(&self) -> Option<(&ClockSettings, Segment)> {
        self.settings.map(|settings| (settings, settings.segment(self.host)))
    }

    /// For people.
    pub fn words(&self) -> String {
        let mut rows = Vec::new();
        if let Some(name) = self.clock_of {
            rows.push(row(["clock", &format!("that of {name}")]));
        }
        if let Some((settings, start)) = self.start() {
            let wall = start.wall_at(start.virt);
            let ahead = saturate(wall.as_nanos() - self.host.wall.as_nanos());
            rows.push(row(["wall clock", &format!("{}, {}", print::wall(wall), local_time(wall))]));
            rows.push(row(["", &format!("{} from the host's", print::ahead(ahead))]));
            let tdf = settings.rate.inverse();
            rows.push(row(["rate", &format!("{} (TDF {tdf})", settings.rate)]));
            rows.push(row(["idle time", print::mode_name(settings.skip)]));
            if settings.frozen {
                rows.push(row(["frozen", "until 'lorentz unfreeze'"]));
            }
            for (name, by) in [("monotonic", settings.monotonic), ("boot time", settings.boottime)]
            {
                if by.0 != 0 {
                    rows.push(row([name, &format!("{} from the host's", print::ahead(by.0))]));
                }
            }
        }
        rows.push(row(["command", &self.command.join(" ")]));
        table(&rows)
    }

    /// As JSON, with the keys that `lorentz time --json` has for the same.
    pub fn json(&self) -> Value {
        let start = self.start();
        let of = |value: &dyn Fn(&ClockSettings, &Segment) -> Value| {
            start.as_ref().map(|(settings, start)| value(settings, start))
        };
        let whose = |real: bool| if real { "real" } else { "virtual" };
        json!({
            "clock_of": self.clock_of,
            "wall": of(&|_, start| start.wall_at(start.virt).to_string().into()),
            "wall_local": of(&|_, start| local_time(start.wall_at(start.virt)).into()),
            "monotonic_ns": of(&|_, start| start.virt.0.into()),
            "boottime_ns": of(&|_, start| (start.virt.0.saturating_add(start.boot.0)).into()),
            "rate": of(&|settings, _| settings.rate.to_string().into()),
            "tdf": of(&|settings, _| settings.rate.inverse().to_string().into()),
            "frozen": of(&|settings, _| settings.frozen.into()),
            "skip_idle": of(&|settings, _| print::mode_name(settings.skip).into()),
            "cpu_clocks": of(&|settings, _| whose(settings.policy.real_cpu_clocks).into()),
            "file_times": of(&|settings, _| whose(settings.policy.real_file_times).into()),
            "host": { "wall": self.host.wall.to_string() },
            "command": self.command,
        })
    }
}
