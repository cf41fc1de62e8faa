//! `lorentz-probe` measures at the level it runs at.
//!
//! ```text
//! lorentz-probe CPU                 writes a greeting, then answers requests until its input ends
//! lorentz-probe load cpu|io FOLDER  puts the machine under a load until its input ends
//! ```
//!
//! The program is dynamically linked and calls libc where libc has a function, as most programs do: preloaded libraries
//! can then take effect. Its stopwatch is the time-stamp counter.

mod calls;
mod cold;
mod load;
mod precise;
mod stopwatch;

use std::io::{self, BufRead, Write};
use std::path::Path;
use std::process::ExitCode;

use lorentz_study::protocol::{Greeting, ProbeAnswer, ProbeRequest, Sample};
use lorentz_study::{Metric, Unit};
use nix::sched::{sched_setaffinity, CpuSet};
use nix::unistd::Pid;
use serde::Serialize;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["load", kind, folder] => load::run(kind, Path::new(folder)),
        [cpu] => serve(cpu),
        _ => Err(io::Error::other("usage: lorentz-probe CPU | load cpu|io FOLDER")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lorentz-probe: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(cpu: &str) -> io::Result<()> {
    let cpu = cpu.parse().map_err(|_| io::Error::other("CPU: expected a number"))?;
    let mut set = CpuSet::new();
    set.set(cpu)?;
    sched_setaffinity(Pid::from_raw(0), &set)?;
    say(&Greeting::own()?)?;
    for line in io::stdin().lock().lines() {
        let ask: ProbeRequest = serde_json::from_str(&line?)?;
        say(&match measure(ask) {
            Ok(samples) => ProbeAnswer::Samples(samples),
            Err(error) => ProbeAnswer::Failed(error.to_string()),
        })?;
    }
    Ok(())
}

fn say<T: Serialize>(what: &T) -> io::Result<()> {
    let mut output = io::stdout().lock();
    writeln!(output, "{}", serde_json::to_string(what)?)?;
    output.flush()
}

fn measure(ask: ProbeRequest) -> io::Result<Vec<Sample>> {
    let count = u64::from(ask.amount);
    match (ask.metric, ask.metric.unit()) {
        (Metric::ColdMonotonic, _) => cold::reads(count),
        (metric, Unit::Samples) => precise::samples(metric, count),
        (metric, Unit::Millis) => calls::in_a_row(metric, count).map(|sample| vec![sample]),
        (metric, _) => calls::mean(metric, count).map(|sample| vec![sample]),
    }
}
