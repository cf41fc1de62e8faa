//! Experiments as tables for people.

use std::time::Duration;

use lorentz_clock::Span;
use lorentz_experiment::{ComputeTime, ContainerStatus, ExperimentStatus};

use crate::print::{row, table};

/// One experiment.
pub fn status(status: &ExperimentStatus) -> String {
    let pace = match status.as_fast_as_possible {
        true => "as fast as possible",
        false => "no faster than its leader's clock",
    };
    let source = if status.told_by_kernel { "by the kernel" } else { "by /proc: no BPF here" };
    let mut rows = vec![
        row(["experiment", &status.name]),
        row(["phase", status.phase.name()]),
        row(["timeslice", &format!("{}, {pace}", Span(status.timeslice_ns))]),
        row(["processors", &format!("{}; idle tasks reported {source}", status.cpus)]),
        row(["rounds", &status.rounds.to_string()]),
        row(["virtual time", &short(status.virtual_ns)]),
        row(["real time", &short(status.real_ns)]),
    ];
    let containers = status.containers.iter();
    let without = containers.filter(|one| one.compute == ComputeTime::None).count();
    if without > 0 {
        let all = status.containers.len();
        rows.push(row(["compute", &format!("none, for {without} of {all} containers")]));
    }
    if let Some(slowdown) = status.slowdown {
        rows.push(row(["slowdown", &format!("{slowdown:.3}")]));
    }
    if let Some(ratio) = status.overhead_ratio {
        rows.push(row(["overhead ratio", &format!("{ratio:.2}")]));
    }
    if let Some(leader) = &status.leader {
        rows.push(row(["leader", leader]));
    }
    let head = row([
        "CONTAINER",
        "TDF",
        "TIMELINE",
        "TIME",
        "CPU WANTED",
        "CPU GOT",
        "SLICES",
        "AT LIMIT",
        "OVERSHOOT",
        "STOPPED AFTER",
        "99 %",
    ]);
    let containers = std::iter::once(head).chain(status.containers.iter().map(container_row));
    format!("{}\n{}", table(&rows), table(&containers.collect::<Vec<_>>()))
}

fn container_row(one: &ContainerStatus) -> Vec<String> {
    let timeline = one.timeline.map_or("-".to_string(), |timeline| timeline.to_string());
    let micros = |nanos: Option<i64>| match nanos {
        Some(nanos) => format!("{:.1}us", nanos as f64 / 1e3),
        None => "-".to_string(),
    };
    row([
        &one.name,
        &format!("{}", (one.tdf * 1e6).round() / 1e6),
        &timeline,
        &short(one.virtual_ns),
        &short(one.cpu_wanted_ns),
        &short(one.cpu_got_ns),
        &one.slices.to_string(),
        &one.at_limit.to_string(),
        &format!("{}ns", one.perceived_overshoot_ns),
        &micros(one.overrun_median_ns),
        &micros(one.overrun_p99_ns),
    ])
}

/// All experiments; those whose process has died have no status.
pub fn all(found: &[(String, Option<ExperimentStatus>)]) -> String {
    let head = row(["NAME", "PHASE", "CONTAINERS", "ROUNDS", "VIRTUAL TIME", "SLOWDOWN"]);
    let rows = found.iter().map(|(name, status)| match status {
        None => row([name, "dead", "-", "-", "-", "-"]),
        Some(status) => row([
            name,
            status.phase.name(),
            &status.containers.len().to_string(),
            &status.rounds.to_string(),
            &short(status.virtual_ns),
            &status.slowdown.map_or("-".to_string(), |slowdown| format!("{slowdown:.3}")),
        ]),
    });
    table(&std::iter::once(head).chain(rows).collect::<Vec<_>>())
}

/// To the microsecond.
fn short(nanos: i64) -> String {
    let micros = Duration::from_nanos(nanos.max(0) as u64).as_micros() as i64;
    Span(micros * 1_000).to_string()
}
