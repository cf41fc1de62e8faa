//! The pages that Prometheus reads of an agent: `/metrics` in its text format, and `/healthz`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use axum::Router;
use tokio::net::TcpListener;

use crate::store::{HostReport, HostState};

/// The newest reports on an agent's clocks, shared with the server of the metrics.
#[derive(Clone, Default)]
pub struct Metrics(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    has_store: bool,
    reports: BTreeMap<String, HostReport>,
}

/// The states of a host's clock, each a series of its own.
const STATES: [HostState; 5] = [
    HostState::Follows,
    HostState::Slews,
    HostState::Stands,
    HostState::Fenced,
    HostState::HeldHere,
];
const SECOND: f64 = 1e9;

impl Metrics {
    fn known(&self) -> MutexGuard<'_, Known> {
        // Plain values, whole at each moment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes whether the store answers.
    pub fn set_store(&self, has_store: bool) {
        self.known().has_store = has_store;
    }

    /// Notes the newest report on a clock.
    pub fn set_report(&self, clock: &str, report: &HostReport) {
        self.known().reports.insert(clock.to_string(), report.clone());
    }

    /// Forgets a clock.
    pub fn remove(&self, clock: &str) {
        self.known().reports.remove(clock);
    }

    /// The text that Prometheus reads.
    fn text(&self) -> String {
        let known = self.known();
        let mut text = String::new();
        let mut metric = |name: &str, help: &str, series: &[(String, f64)]| {
            // A String takes all.
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
            for (labels, value) in series {
                let _ = writeln!(text, "{name}{labels} {value}");
            }
        };
        let store = f64::from(u8::from(known.has_store));
        metric(
            "lorentz_cluster_store_connected",
            "Whether the store answers.",
            &[(String::new(), store)],
        );
        let each = |value: &dyn Fn(&HostReport) -> f64| -> Vec<(String, f64)> {
            let series = |(clock, report): (&String, &HostReport)| {
                (format!("{{clock=\"{clock}\"}}"), value(report))
            };
            known.reports.iter().map(series).collect()
        };
        let late = each(&|report| report.late_ns as f64 / SECOND);
        let ahead = each(&|report| report.ahead_ns as f64 / SECOND);
        let bound = each(&|report| report.error_bound_ns as f64 / SECOND);
        let change = each(&|report| report.change as f64);
        metric(
            "lorentz_cluster_change",
            "Number of the newest change that the clock has taken over.",
            &change,
        );
        metric(
            "lorentz_cluster_late_seconds",
            "Real time by which that change was taken over late.",
            &late,
        );
        metric(
            "lorentz_cluster_ahead_seconds",
            "Virtual time that the clock is ahead of its line.",
            &ahead,
        );
        metric(
            "lorentz_cluster_error_bound_seconds",
            "Bound of the virtual clock's error.",
            &bound,
        );
        let state = |(clock, report): (&String, &HostReport)| {
            let state = report.state;
            STATES.map(|one| {
                let labels = format!("{{clock=\"{clock}\",state=\"{}\"}}", one.name());
                (labels, f64::from(u8::from(one == state)))
            })
        };
        let states: Vec<(String, f64)> = known.reports.iter().flat_map(state).collect();
        metric(
            "lorentz_cluster_state",
            "1 for the state in which the clock is, 0 for the others.",
            &states,
        );
        text
    }
}

/// Begins to answer Prometheus at `address`, a `HOST:PORT`.
///
/// # Errors
///
/// If the address cannot be used.
pub async fn serve(address: &str, metrics: Metrics) -> anyhow::Result<()> {
    let listener =
        TcpListener::bind(address).await.with_context(|| format!("--metrics {address}"))?;
    let page = |State(metrics): State<Metrics>| async move {
        ([(CONTENT_TYPE, "text/plain; version=0.0.4")], metrics.text()).into_response()
    };
    let router =
        Router::new().route("/metrics", get(page)).route("/healthz", get(|| async { "ok\n" }));
    let server = axum::serve(listener, router.with_state(metrics));
    tokio::spawn(async move {
        // A listener's errors pass; it ends with the agent.
        let _ = server.await;
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::TaiInstant;

    #[test]
    fn a_clock_has_one_state_and_seconds() {
        let metrics = Metrics::default();
        metrics.set_store(true);
        let report = HostReport {
            change: 3,
            state: HostState::Slews,
            late_ns: 1_500_000_000,
            ahead_ns: -20,
            error_bound_ns: 1_000_000,
            seen_at_tai_ns: TaiInstant(0),
        };
        metrics.set_report("lab", &report);
        let text = metrics.text();
        for line in [
            "lorentz_cluster_store_connected 1",
            "lorentz_cluster_change{clock=\"lab\"} 3",
            "lorentz_cluster_late_seconds{clock=\"lab\"} 1.5",
            "lorentz_cluster_ahead_seconds{clock=\"lab\"} -0.00000002",
            "lorentz_cluster_error_bound_seconds{clock=\"lab\"} 0.001",
            "lorentz_cluster_state{clock=\"lab\",state=\"follows\"} 0",
            "lorentz_cluster_state{clock=\"lab\",state=\"slews\"} 1",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}\n{text}");
        }
        metrics.remove("lab");
        assert!(!metrics.text().contains("lab"));
    }
}
