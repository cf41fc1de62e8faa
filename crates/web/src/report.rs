//! `GET /api/v1/report`: what happened in a network, as one HTML file for a paper's appendix. It loads nothing.

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::{header, HeaderValue};
use lorentz_control::HostNow;
use lorentz_network::{graph, LinkStatus, Network, NetworkStatus};
use serde::Deserialize;

use crate::app::App;
use crate::reply::{self, Answer, Refusal};
use crate::types::{self, HistoryPoint};

/// Its own policy: nothing but its style.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; sandbox";
const STYLE: &str = "body{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#123}\
    table{border-collapse:collapse;margin:1em 0}td,th{border:1px solid #bcd;padding:.2em .6em;text-align:left;\
    font-variant-numeric:tabular-nums}svg{max-width:100%;height:auto}figure{margin:1em 0}figcaption{color:#567}";
/// Size of a plot, and the room for its labels.
const PLOT: (f64, f64) = (720.0, 200.0);
const ROOM: (f64, f64) = (70.0, 24.0);

/// The query of a report.
#[derive(Deserialize)]
pub struct ReportQuery {
    network: String,
}

/// `GET /api/v1/report`.
pub async fn report(State(app): State<Arc<App>>, Query(query): Query<ReportQuery>) -> Answer {
    let place = app.work.clone().try_acquire_owned();
    let _place =
        place.map_err(|_| Refusal::too_many("report: expected at most 8 actions at once"))?;
    let state = app.live.look(true).await?;
    let history = app.live.past("network", &query.network);
    let page = tokio::task::spawn_blocking(move || {
        let unknown =
            |error: anyhow::Error| Refusal::unknown(reply::one_line(&format!("{error:#}")));
        let status = Network::open(&app.state, &query.network).and_then(|mut one| one.status());
        let status = status.map_err(unknown)?;
        let shown = state.networks.iter().find(|network| network.name == query.network);
        let shown = shown.ok_or_else(|| Refusal::unknown("network: no such network"))?;
        Ok(page(&status, shown, &history.points))
    });
    let page = page.await.map_err(Refusal::failed)??;
    let mut answer = reply::with_type(page, "text/html; charset=utf-8");
    let head = answer.headers_mut();
    head.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    Ok(answer)
}

fn page(status: &NetworkStatus, shown: &types::Network, points: &[HistoryPoint]) -> String {
    let name = escaped(&status.name);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{name}: report of Lorentz</title>\n\
         <style>{STYLE}</style>\n<h1>{name}</h1>\n<p>{}</p>\n",
        escaped(&verdict(shown))
    );
    let _ = write!(
        page,
        "<h2>Settings</h2>\n{}",
        table(&["setting", "value"], &settings(status, shown))
    );
    let _ = write!(page, "<h2>Topology</h2>\n<figure>{}</figure>\n", graph::svg(status));
    let rows: Vec<Vec<String>> = status.links.iter().flat_map(link_rows).collect();
    let head = ["from", "to", "impairments", "sent", "delivered", "lost", "dropped", "bytes"];
    let _ = write!(page, "<h2>Links</h2>\n{}", table(&head, &rows));
    let _ = write!(
        page,
        "<h2>Nodes</h2>\n{}",
        table(&["node", "TDF", "behind", "wanted", "got"], &node_rows(shown))
    );
    page += "<h2>Over virtual time</h2>\n";
    page += &plots(points);
    page + "</html>\n"
}

fn verdict(shown: &types::Network) -> String {
    let word = serde_json::to_value(shown.verdict.word).ok();
    let word = word.as_ref().and_then(|word| word.as_str()).unwrap_or_default().to_string();
    let advice =
        shown.verdict.advice.iter().map(|advice| format!(" ({advice})")).collect::<String>();
    format!("{word}: {}{advice}", shown.verdict.text)
}

fn settings(status: &NetworkStatus, shown: &types::Network) -> Vec<Vec<String>> {
    let wall = HostNow::read().unwrap_or_default().wall;
    let tdf = shown.clock.as_ref().map(|clock| clock.rate[1] as f64 / clock.rate[0].max(1) as f64);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let lateness = &status.lateness;
    let mut rows = vec![
        ("written", wall.to_string()),
        ("lorentz", env!("CARGO_PKG_VERSION").to_string()),
        ("host", format!("Linux {}, {cpus} processors", kernel.trim())),
        ("TDF", tdf.map_or("-".into(), |tdf| format!("{tdf}"))),
        ("seed of random decisions", status.seed.to_string()),
        ("virtual time", format!("{} s", status.virtual_ns as f64 / 1e9)),
        ("frames delivered", lateness.count.to_string()),
        (
            "lateness of frames, virtual time",
            format!(
                "median {} us, 99 % {} us, greatest {} us",
                micros(lateness.median_ns),
                micros(lateness.p99_ns),
                micros(lateness.max_ns)
            ),
        ),
        ("changes of links to come", status.changes_to_come.to_string()),
    ];
    if let Some(rounds) = &status.rounds {
        rows.push((
            "rounds",
            format!("{}, nodes {} us behind", rounds.count, micros(rounds.behind_ns)),
        ));
    }
    rows.extend(status.changes_refused.iter().map(|why| ("change that failed", why.clone())));
    rows.into_iter().map(|(key, value)| vec![key.to_string(), value]).collect()
}

fn micros(nanos: i64) -> f64 {
    nanos as f64 / 1e3
}

fn link_rows(link: &LinkStatus) -> Vec<Vec<String>> {
    let row = |way: &lorentz_network::DirectionStatus| {
        let counts = &way.counts;
        let settings = graph::describe(&way.impairments);
        let settings = if link.up { settings } else { format!("down {settings}") };
        let numbers = [
            counts.sent,
            counts.delivered,
            counts.lost,
            counts.dropped + counts.cut,
            counts.delivered_bytes,
        ];
        let mut row = vec![way.from.to_string(), way.to.to_string(), settings];
        row.extend(numbers.map(|number| number.to_string()));
        row
    };
    link.directions.iter().map(row).collect()
}

fn node_rows(shown: &types::Network) -> Vec<Vec<String>> {
    let optional = |value: Option<String>| value.unwrap_or_else(|| "-".into());
    let row = |node: &types::NetworkNode| {
        let share = |of: fn(&types::CpuShare) -> f64| {
            optional(node.cpu_share.as_ref().map(|share| format!("{:.1} %", of(share) * 100.0)))
        };
        vec![
            node.name.clone(),
            optional(node.tdf.map(|tdf| tdf.to_string())),
            optional(node.lag_ns.map(|lag| format!("{} us", micros(lag)))),
            share(|share| share.wanted),
            share(|share| share.got),
        ]
    };
    shown.nodes.iter().map(row).collect()
}

fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let cells = |tag: &str, row: &mut dyn Iterator<Item = String>| {
        row.map(|cell| format!("<{tag}>{}</{tag}>", escaped(&cell))).collect::<String>()
    };
    let mut text =
        format!("<table>\n<tr>{}</tr>\n", cells("th", &mut head.iter().map(ToString::to_string)));
    for row in rows {
        let _ = writeln!(text, "<tr>{}</tr>", cells("td", &mut row.iter().cloned()));
    }
    text + "</table>\n"
}

fn plots(points: &[HistoryPoint]) -> String {
    type Value = fn(&HistoryPoint) -> Option<f64>;
    let all: [(&str, Value); 4] = [
        ("virtual seconds per real second", |point| point.rate),
        ("99 % of frames at most so late, us of virtual time", |point| {
            point.lateness_p99_ns.map(micros)
        }),
        ("nodes behind the network's clock, ms of virtual time", |point| {
            point.behind_ns.map(|ns| ns as f64 / 1e6)
        }),
        ("the emulator's share of a processor", |point| point.cpu),
    ];
    let mut text = String::new();
    for (title, value) in all {
        let line: Vec<(f64, f64)> = points
            .iter()
            .filter_map(|point| Some((point.virtual_ns.0 as f64 / 1e9, value(point)?)))
            .collect();
        if line.len() >= 2 {
            let _ = writeln!(
                text,
                "<figure>{}<figcaption>{title}</figcaption></figure>",
                plot(title, &line)
            );
        }
    }
    match text.is_empty() {
        true => "<p>No page was open for long enough: the server keeps the past only while one is.</p>\n".into(),
        false => text,
    }
}

/// Draws a line over virtual time.
fn plot(title: &str, line: &[(f64, f64)]) -> String {
    let of = |value: fn(&(f64, f64)) -> f64, start: f64, fold: fn(f64, f64) -> f64| {
        line.iter().map(value).fold(start, fold)
    };
    let (left, right) = (of(|p| p.0, f64::MAX, f64::min), of(|p| p.0, f64::MIN, f64::max));
    let top = of(|p| p.1, 0.0, f64::max);
    let top = if top > 0.0 { top } else { 1.0 };
    let width = (right - left).max(1e-9);
    let x = |value: f64| ROOM.0 + (value - left) / width * (PLOT.0 - ROOM.0 - 10.0);
    let y = |value: f64| (PLOT.1 - ROOM.1) - value.max(0.0) / top * (PLOT.1 - ROOM.1 - 10.0);
    let points: Vec<String> =
        line.iter().map(|(time, value)| format!("{:.1},{:.1}", x(*time), y(*value))).collect();
    let (bottom, end) = (PLOT.1 - ROOM.1, PLOT.0 - 10.0);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{title}\" font-size=\"12\">\
         <path d=\"M{x0},10V{bottom}H{end}\" fill=\"none\" stroke=\"#789\"/>\
         <polyline points=\"{}\" fill=\"none\" stroke=\"#15c\" stroke-width=\"1.5\"/>\
         <text x=\"{label}\" y=\"20\" text-anchor=\"end\">{}</text><text x=\"{label}\" y=\"{bottom}\" text-anchor=\"end\">0</text>\
         <text x=\"{x0}\" y=\"{under}\">{left:.1} s</text><text x=\"{end}\" y=\"{under}\" text-anchor=\"end\">{right:.1} s</text></svg>",
        PLOT.0,
        PLOT.1,
        points.join(" "),
        short(top),
        x0 = ROOM.0,
        label = ROOM.0 - 6.0,
        under = PLOT.1 - 6.0,
    )
}

/// Writes a number with three digits or so.
fn short(number: f64) -> String {
    let digits = (2.0 - number.abs().log10().floor()).clamp(0.0, 9.0) as usize;
    format!("{number:.digits$}")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_lies_within_its_picture() {
        let svg = plot("rate", &[(0.0, 0.0), (1.0, 2.0), (4.0, 1.0)]);
        let points = svg.split("points=\"").nth(1).unwrap().split('"').next().unwrap();
        let points: Vec<Vec<f64>> = points
            .split(' ')
            .map(|pair| pair.split(',').map(|number| number.parse().unwrap()).collect())
            .collect();
        assert_eq!(points, [[70.0, 176.0], [230.0, 10.0], [710.0, 93.0]]);
    }

    #[test]
    fn what_programs_could_write_is_escaped() {
        let text = table(&["a"], &[vec!["<script>alert(\"x\")</script>".into()]]);
        assert!(!text.contains("<script>") && text.contains("&lt;script&gt;"), "{text}");
    }
}
