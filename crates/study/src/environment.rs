//! The machine that a study runs on.

use std::collections::BTreeMap;
use std::fs;

use lorentz_timers::TimeSource;
use serde::{Deserialize, Serialize};

/// The machine and its other work.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Environment {
    /// Frequency of the time-stamp counter, which is the stopwatch.
    pub tsc_hertz: u64,
    /// The processor that all measurements run on.
    pub cpu: usize,
    /// Text by name: kernel, processor, clock source, mitigations, governor and more.
    pub facts: BTreeMap<String, String>,
    /// Steal time of all processors since boot, seconds, at the start of the study.
    pub steal_begin_s: f64,
}

impl Environment {
    /// Reads the environment. A fact that the machine does not give is "unknown".
    pub fn look() -> Environment {
        let cpu = last_processor();
        let mut facts = BTreeMap::new();
        let mut fact = |name: &str, value: Option<String>| {
            let value = value.unwrap_or_else(|| "unknown".to_string());
            facts.insert(name.to_string(), value);
        };
        let governor = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
        let clocksource = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        fact("kernel", first_line("/proc/sys/kernel/osrelease"));
        fact("processor", cpuinfo("model name"));
        fact("processors", std::thread::available_parallelism().ok().map(|n| n.to_string()));
        fact("virtual machine", cpuinfo("flags").map(|flags| is_guest(&flags).to_string()));
        fact("clock source", first_line(clocksource));
        fact("governor", Some(first_line(&governor).unwrap_or_else(|| "none".to_string())));
        fact("mitigations", Some(mitigations()));
        fact("load average at the start", first_line("/proc/loadavg"));
        fact("distribution", distribution());
        fact("lorentz", Some(env!("CARGO_PKG_VERSION").to_string()));
        Environment { tsc_hertz: TimeSource::hertz(), cpu, facts, steal_begin_s: steal_seconds() }
    }
}

fn first_line(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.lines().next()?.trim().to_string())
}

fn cpuinfo(name: &str) -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.split(':').next().map(str::trim) == Some(name))?;
    Some(line.split_once(':')?.1.trim().to_string())
}

fn is_guest(flags: &str) -> &'static str {
    if flags.split(' ').any(|flag| flag == "hypervisor") {
        "yes"
    } else {
        "no"
    }
}

fn distribution() -> Option<String> {
    let text = fs::read_to_string("/etc/os-release").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(line.trim_matches('"').to_string())
}

fn mitigations() -> String {
    let files = fs::read_dir("/sys/devices/system/cpu/vulnerabilities").into_iter().flatten();
    let mut found: Vec<String> = files
        .flatten()
        .filter_map(|file| {
            let state = first_line(file.path().to_str()?)?;
            let name = file.file_name().into_string().ok()?;
            (!state.starts_with("Not affected")).then(|| format!("{name}: {state}"))
        })
        .collect();
    found.sort();
    found.join("; ")
}

/// Returns the steal time of all processors since boot, seconds.
pub fn steal_seconds() -> f64 {
    const USER_HZ: f64 = 100.0;
    const STEAL: usize = 8; // proc(5): the line's name, then user, nice, system, idle, iowait, irq, softirq, steal
    let line = first_line("/proc/stat").unwrap_or_default();
    line.split_whitespace().nth(STEAL).and_then(|word| word.parse().ok()).unwrap_or(0.0) / USER_HZ
}

/// Returns the last processor that this program may use: most other work of a machine runs on the first.
fn last_processor() -> usize {
    let allowed = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap_or_default();
    let numbers = 0..nix::sched::CpuSet::count();
    numbers.rev().find(|cpu| allowed.is_set(*cpu).unwrap_or(false)).unwrap_or(0)
}
