//! `/metrics`: everything that runs, as text for Prometheus (format 0.0.4). `--metrics-token-file` names the file with its token.

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::State as Shared;
use axum::http::{header, HeaderMap, StatusCode};
use lorentz_container::StateDir;
use lorentz_experiment::{prometheus, Experiment, ExperimentStatus};

use crate::app::App;
use crate::reply::{self, Answer, Refusal};
use crate::system::{time_of, virtual_at};
use crate::types::{Life, State, Word};

/// `GET /metrics`.
pub async fn metrics(Shared(app): Shared<Arc<App>>, headers: HeaderMap) -> Answer {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = given.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
    match app.metrics_token.as_ref().map(|known| known.is(token)) {
        None => {
            return Err(Refusal::unknown(
                "metrics: 'lorentz web --metrics-token-file FILE' serves them",
            ))
        }
        Some(false) => {
            let what = "Authorization: expected the bearer token of --metrics-token-file";
            return Err(Refusal(StatusCode::UNAUTHORIZED, what.into()));
        }
        Some(true) => {}
    }
    let state = app.live.look(true).await?;
    let page = tokio::task::spawn_blocking(move || {
        let statuses = experiments(&app.state);
        page(&state) + &prometheus(&statuses.iter().collect::<Vec<_>>())
    });
    let page = page.await.map_err(Refusal::failed)?;
    Ok(reply::with_type(page, "text/plain; version=0.0.4"))
}

/// One that has ended has no figures.
fn experiments(state: &StateDir) -> Vec<ExperimentStatus> {
    let names = Experiment::list(state).unwrap_or_default();
    let status = |name: &String| Experiment::open(state, name).ok()?.status().ok();
    names.iter().filter_map(status).collect()
}

/// A metric's rows: labels and value of each.
type Rows = Vec<(String, f64)>;

/// Formats networks and containers.
fn page(state: &State) -> String {
    let mut page = String::new();
    let mut add = |name: &str, kind: &str, help: &str, rows: Rows| {
        if rows.is_empty() {
            return;
        }
        let _ = writeln!(page, "# HELP lorentz_{name} {help}\n# TYPE lorentz_{name} {kind}");
        for (labels, value) in rows {
            let _ = writeln!(page, "lorentz_{name}{{{labels}}} {value}");
        }
    };
    network_rows(state, &mut add);
    link_rows(state, &mut add);
    container_rows(state, &mut add);
    page
}

fn network_rows(state: &State, add: &mut impl FnMut(&str, &str, &str, Rows)) {
    let real = state.now.real_ns.0;
    let each = |value: &dyn Fn(&crate::types::Network) -> Option<f64>| -> Rows {
        let row = |network| Some((label("network", network_name(network)), value(network)?));
        state.networks.iter().filter_map(row).collect()
    };
    add(
        "network_up",
        "gauge",
        "Whether the emulator runs.",
        each(&|one| Some(f64::from(one.emulator.is_some()))),
    );
    add(
        "network_keeps_up",
        "gauge",
        "Whether the machine keeps up.",
        each(&|one| Some(f64::from(one.verdict.word == Word::KeepsUp))),
    );
    add(
        "network_virtual_seconds_total",
        "counter",
        "Virtual time since the start.",
        each(&|one| one.emulator.map(|_| seconds(time_of(one, real)))),
    );
    add(
        "network_frames_total",
        "counter",
        "Frames delivered.",
        each(&|one| one.emulator.map(|_| one.lateness.count as f64)),
    );
    add(
        "network_lateness_p99_seconds",
        "gauge",
        "99 of 100 frames were at most so late, virtual time.",
        each(&|one| one.emulator.map(|_| seconds(one.lateness.p99_ns))),
    );
    add(
        "network_emulator_cpu_share",
        "gauge",
        "Processor of the emulator over the last second.",
        each(&|one| one.emulator.and_then(|emulator| emulator.cpu_share)),
    );
    add(
        "network_behind_seconds",
        "gauge",
        "Virtual time by which nodes are behind, in rounds.",
        each(&|one| one.rounds.as_ref().map(|rounds| seconds(rounds.behind_ns))),
    );
}

fn network_name(network: &crate::types::Network) -> &str {
    &network.name
}

fn link_rows(state: &State, add: &mut impl FnMut(&str, &str, &str, Rows)) {
    let each = |value: &dyn Fn(&crate::types::LinkDirection) -> Option<f64>| -> Rows {
        let mut rows = Rows::new();
        for network in &state.networks {
            for way in network.links.iter().flat_map(|link| &link.directions) {
                let labels =
                    [("network", network.name.as_str()), ("from", &way.from), ("to", &way.to)];
                let labels = labels.map(|(key, value)| label(key, value)).join(",");
                rows.extend(value(way).map(|value| (labels, value)));
            }
        }
        rows
    };
    add(
        "link_delivered_total",
        "counter",
        "Frames delivered.",
        each(&|way| Some(way.counts.delivered as f64)),
    );
    add(
        "link_bytes_total",
        "counter",
        "Bytes delivered.",
        each(&|way| Some(way.counts.bytes as f64)),
    );
    add(
        "link_lost_total",
        "counter",
        "Frames lost on the wire.",
        each(&|way| Some(way.counts.lost as f64)),
    );
    add(
        "link_dropped_total",
        "counter",
        "Frames dropped by the queue.",
        each(&|way| Some(way.counts.dropped as f64)),
    );
    add("link_utilisation", "gauge", "Part of the rate in use.", each(&|way| way.utilisation));
}

fn container_rows(state: &State, add: &mut impl FnMut(&str, &str, &str, Rows)) {
    let real = state.now.real_ns.0;
    let each = |value: &dyn Fn(&crate::types::Container) -> Option<f64>| -> Rows {
        let row =
            |one: &crate::types::Container| Some((label("container", &one.name), value(one)?));
        state.containers.iter().filter_map(row).collect()
    };
    add(
        "container_virtual_seconds",
        "gauge",
        "CLOCK_MONOTONIC inside.",
        each(&|one| one.clock.as_ref().map(|clock| seconds(virtual_at(clock, real)))),
    );
    add(
        "container_rate",
        "gauge",
        "Virtual per real time; 0 while frozen.",
        each(&|one| {
            let rate =
                |clock: &crate::types::Clock| clock.rate[0] as f64 / clock.rate[1].max(1) as f64;
            one.clock.as_ref().map(|clock| if clock.frozen { 0.0 } else { rate(clock) })
        }),
    );
    let error = |one: &crate::types::Container| one.clock.as_ref()?.error.clone();
    add(
        "container_clock_offset_seconds",
        "gauge",
        "By how much the wall clock is ahead of the truth, of clocks that err or are disciplined.",
        each(&|one| error(one).map(|error| seconds(error.offset_ns.0))),
    );
    add(
        "container_clock_frequency_ratio",
        "gauge",
        "By how much the clock is too fast, as a ratio.",
        each(&|one| error(one).map(|error| error.frequency_ppb as f64 / 1e9)),
    );
    add(
        "container_cpu_seconds_total",
        "counter",
        "CPU time of its processes.",
        each(&|one| Some(one.cpu_ns as f64 / 1e9)),
    );
    add("container_tasks", "gauge", "Processes.", each(&|one| Some(f64::from(one.tasks))));
    add(
        "container_crashed",
        "gauge",
        "Whether its monitor has died.",
        each(&|one| Some(f64::from(one.state == Life::Crashed))),
    );
}

fn seconds(nanos: i64) -> f64 {
    nanos as f64 / 1e9
}

fn label(key: &str, value: &str) -> String {
    format!("{key}=\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Clock, ClockError, Container, Nanos};

    #[test]
    fn a_container_has_its_time_and_rate() {
        let error =
            ClockError { offset_ns: Nanos(-500_000_000), frequency_ppb: 200_000, told_ns: None };
        let clock = Clock {
            v0_ns: Nanos(2_000_000_000),
            rate: [1, 10],
            error: Some(error),
            ..Clock::default()
        };
        let container = Container {
            name: "a\"b".into(),
            pid: None,
            command: Vec::new(),
            state: Life::Runs,
            clock: Some(clock),
            network: None,
            node: None,
            experiment: None,
            tasks: 3,
            cpu_ns: 1_500_000_000,
            leaps: None,
        };
        let mut state = State { containers: vec![container], ..State::default() };
        state.now.real_ns = Nanos(5_000_000_000);
        let page = page(&state);
        for line in [
            "# TYPE lorentz_container_rate gauge",
            "lorentz_container_virtual_seconds{container=\"a\\\"b\"} 2.5",
            "lorentz_container_rate{container=\"a\\\"b\"} 0.1",
            "lorentz_container_clock_offset_seconds{container=\"a\\\"b\"} -0.5",
            "lorentz_container_clock_frequency_ratio{container=\"a\\\"b\"} 0.0002",
            "lorentz_container_cpu_seconds_total{container=\"a\\\"b\"} 1.5",
        ] {
            assert!(page.lines().any(|one| one == line), "{line} in {page}");
        }
        assert!(!page.contains("network"), "{page}");
    }
}
