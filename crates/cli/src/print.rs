//! Printing: tables for people, JSON for machines.

use std::io::{self, Write};

use lorentz_clock::{saturate, Rate, SkipMode, Span, WallTime};
use lorentz_container::doctor::{Feature, Limit};
use lorentz_container::{AdoptReport, Liveness, Monitor, Refusal};
use lorentz_control::{ChangeCounts, Reading, ToCome};
use lorentz_idle::SkipReport;
use serde_json::{json, Value};

use crate::view::View;

/// Pids shown in a table before the rest is only counted.
const PIDS_SHOWN: usize = 4;
/// Characters of a command shown in a table.
const COMMAND_SHOWN: usize = 60;
const NANOS_PER_MILLI: i64 = 1_000_000;

/// Writes `text` to standard output.
pub fn out(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Writes `value` to standard output.
pub fn out_json(value: &Value) -> io::Result<()> {
    out(&format!("{value:#}\n"))
}

/// The same in one line, for streams of them.
pub fn out_json_line(value: &Value) -> io::Result<()> {
    out(&format!("{value}\n"))
}

/// A container's clocks as JSON. `state` is the clock's own or that of the whole, as the command has it.
pub fn clocks_json(view: &View, state: &str) -> Value {
    let mut object = json!({
        "name": view.record.name,
        "state": state,
        "mechanism": view.record.mechanism.name(),
        "command": view.record.command,
        "created": view.record.created,
        "uptime_ns": view.uptime.0,
        "clock_of": view.record.clock_of,
        "experiment": view.record.experiment,
        "monitor_alive": view.monitor_alive(),
        "needs_adopt": view.needs_adopt(),
        "monitors": view.record.monitors.iter().map(monitor_json).collect::<Vec<_>>(),
        "pids": view.pids(),
    });
    match &view.reading {
        Ok(reading) => add(&mut object, reading_json(reading)),
        Err(error) => add(&mut object, json!({ "error": error })),
    }
    add(&mut object, json!({ "skip": view.skip.as_ref().map(skip_json) }));
    object
}

/// The same with the rewritten call sites of each process.
pub fn time_json(view: &View) -> Value {
    let mut object = clocks_json(view, view.clock_state());
    let sites = |(pid, sites): &(u32, Option<usize>)| json!({ "pid": pid, "sites": sites });
    let sites: Vec<Value> = view.rewritten.iter().map(sites).collect();
    add(&mut object, json!({ "rewritten": sites }));
    object
}

fn skip_json(skip: &SkipReport) -> Value {
    let blocker = skip.blocker.as_ref();
    json!({
        "mode": mode_name(skip.mode),
        "skipper": skip.skipper,
        "leaps": skip.leaps,
        "skipped_ns": skip.skipped.0,
        "held_by": blocker.map(|blocker| json!({ "pid": blocker.pid, "what": blocker.what })),
    })
}

pub fn mode_name(mode: SkipMode) -> &'static str {
    match mode {
        SkipMode::Off => "off",
        SkipMode::On => "on",
        SkipMode::Force => "force",
    }
}

/// Describes the skipped idle time, or the reason why no idle time is skipped now.
fn skip_in_words(skip: &SkipReport) -> String {
    if skip.skipper.is_none() {
        return "not skipping: the process that skips is dead; 'lorentz skip NAME on' starts it"
            .into();
    }
    let done = format!("{} in {} leaps", elapsed(skip.skipped.0), skip.leaps);
    match &skip.blocker {
        None => format!("skipping, {done}"),
        Some(blocker) => format!("held: process {} {}; {done}", blocker.pid, blocker.what),
    }
}

/// The same after a change, with how much had to follow it.
pub fn changed_json(view: &View, followed: ChangeCounts) -> Value {
    let mut object = clocks_json(view, view.clock_state());
    let followed = json!({
        "waits": followed.waits,
        "timers": followed.timers,
        "dropped": followed.dropped,
    });
    add(&mut object, json!({ "followed": followed }));
    object
}

/// The same after an adoption, with the processes that it concerned.
pub fn adopted_json(view: &View, report: &AdoptReport) -> Value {
    let refused = |one: &Refusal| json!({ "pid": one.pid, "why": one.why });
    let mut object = clocks_json(view, view.clock_state());
    let refused: Vec<Value> = report.refused.iter().map(refused).collect();
    add(&mut object, json!({ "adopted": report.adopted, "refused": refused }));
    object
}

fn monitor_json(monitor: &Monitor) -> Value {
    json!({
        "pid": monitor.pid,
        "kind": monitor.kind.name(),
        "alive": monitor.is_alive(),
        "program": monitor.program,
    })
}

fn reading_json(reading: &Reading) -> Value {
    let whose = |real: bool| if real { "real" } else { "virtual" };
    json!({
        "rate": reading.rate.to_string(),
        "tdf": reading.rate.inverse().to_string(),
        "wall": reading.wall.to_string(),
        "monotonic_ns": reading.virt.0,
        "boottime_ns": reading.boot.0,
        "limit_ns": reading.limit.map(|limit| limit.0),
        "host": {
            "wall": reading.host_wall.to_string(),
            "monotonic_ns": reading.real.0,
            "boottime_ns": reading.host_boot.0,
        },
        "waits": reading.waits,
        "timers": reading.timers,
        "to_come": reading.to_come.iter().map(to_come_json).collect::<Vec<_>>(),
        "cpu_clocks": whose(reading.policy.real_cpu_clocks),
        "file_times": whose(reading.policy.real_file_times),
        "trap_tsc": reading.policy.trap_tsc,
        "no_rewrite": reading.policy.keeps_code,
    })
}

fn to_come_json(change: &ToCome) -> Value {
    json!({
        "at": change.at.to_string(),
        "in_ns": change.left.0,
        "rate": change.rate.to_string(),
        "tdf": change.rate.inverse().to_string(),
        "frozen": change.frozen,
        "leap_ns": change.leap.0,
        "step_ns": change.step.0,
    })
}

/// The same for people: when, and what it does. `before` is the rate until then, none while frozen.
fn to_come_in_words(change: &ToCome, before: Option<Rate>) -> String {
    let mut does = Vec::new();
    match (before, change.frozen) {
        (Some(_), true) => does.push("freeze".to_string()),
        (None, false) => does.push(format!("unfreeze, at rate {}", rate(change.rate))),
        (Some(old), false) if old != change.rate => {
            does.push(format!("rate {}", rate(change.rate)))
        }
        _ => (),
    }
    if change.leap != Span::ZERO {
        does.push(format!("leap by {}", change.leap));
    }
    if change.step != Span::ZERO {
        does.push(format!("step by {}", change.step));
    }
    if does.is_empty() {
        does.push("no difference".to_string());
    }
    format!("{} (in {}): {}", wall(change.at), elapsed(change.left.0), does.join(", "))
}

fn add(object: &mut Value, more: Value) {
    if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
        object.extend(more);
    }
}

/// A container's clocks beside the host's, for people.
pub fn clocks(view: &View) -> String {
    let mut rows = vec![
        row(["container", &view.record.name]),
        row(["command", &view.record.command.join(" ")]),
        row(["mechanism", view.record.mechanism.name()]),
        row(["state", &state_in_words(view)]),
    ];
    let reading = match &view.reading {
        Ok(reading) => reading,
        Err(error) => {
            rows.push(row(["clock", error]));
            return table(&rows);
        }
    };
    let tdf = rate(reading.rate.inverse());
    if let Some(experiment) = &view.record.experiment {
        rows.push(row(["experiment", experiment]));
    }
    if let Some(skip) = &view.skip {
        rows.push(row(["idle time", &skip_in_words(skip)]));
    }
    rows.push(row(["rate", &format!("{} (TDF {tdf})", rate(reading.rate))]));
    let [waits, timers] = [counted(reading.waits, "wait"), counted(reading.timers, "timer")];
    rows.push(row(["waiting", &format!("{waits}, {timers}")]));
    for (pid, sites) in &view.rewritten {
        let sites = sites.map_or("cannot be read".into(), |sites| format!("{sites} rewritten"));
        rows.push(row(["call sites", &format!("{sites}, process {pid}")]));
    }
    if let Some(limit) = reading.limit {
        rows.push(row(["limit", &elapsed(limit.0)]));
    }
    let mut before = (!reading.frozen).then_some(reading.rate);
    for change in &reading.to_come {
        rows.push(row(["to come", &to_come_in_words(change, before)]));
        before = (!change.frozen).then_some(change.rate);
    }
    let wall_ahead = saturate(reading.wall.as_nanos() - reading.host_wall.as_nanos());
    let pair = |name: &str, inside: i64, host: i64| {
        row([name, &elapsed(inside), &elapsed(host), &ahead(inside.saturating_sub(host))])
    };
    let clocks = [
        row(["", "inside", "host", "difference"]),
        row(["wall clock", &wall(reading.wall), &wall(reading.host_wall), &ahead(wall_ahead)]),
        pair("monotonic", reading.virt.0, reading.real.0),
        pair("boot time", reading.boot.0, reading.host_boot.0),
    ];
    format!("{}\n{}", table(&rows), table(&clocks))
}

/// A rate for people: the ratio of two long numbers, as that of a clock that errs, is rounded to a billionth.
pub fn rate(exact: Rate) -> String {
    const MAX_SHOWN: usize = 12;
    let text = exact.to_string();
    match text.len() {
        0..=MAX_SHOWN => text,
        _ => format!("~{:.9}", exact.as_f64()),
    }
}

fn state_in_words(view: &View) -> String {
    let name = &view.record.name;
    match view.life {
        Liveness::Alive if view.needs_adopt() => format!(
            "{}; a monitor is dead: programs that it supervised can start no other; 'lorentz adopt {name}' gives them a new one",
            view.clock_state(),
        ),
        Liveness::Alive => view.clock_state().to_string(),
        Liveness::MonitorDead => format!(
            "{}; its monitor is dead: what runs goes on, no program can be started; 'lorentz adopt {name}' gives it a new one, \
             'lorentz rm {name}' ends it",
            view.clock_state(),
        ),
        Liveness::Ended => format!("ended; 'lorentz rm {name}' clears what is left"),
    }
}

/// All containers, for people.
pub fn containers(views: &[View]) -> String {
    let head = row(["NAME", "STATE", "RATE", "TIME INSIDE", "UPTIME", "PIDS", "COMMAND"]);
    let rows = views.iter().map(|view| {
        let (speed, inside) = match &view.reading {
            Ok(reading) => (rate(reading.rate), wall(whole_seconds(reading.wall))),
            Err(_) => ("-".to_string(), "-".to_string()),
        };
        let uptime = Span::from_secs(view.uptime.0 / lorentz_clock::NANOS_PER_SEC).to_string();
        let command = cut(&view.record.command.join(" "), COMMAND_SHOWN);
        row([&view.record.name, view.state(), &speed, &inside, &uptime, &pids(view), &command])
    });
    let mut text = table(&std::iter::once(head).chain(rows).collect::<Vec<_>>());
    let skips = views.iter().filter_map(|view| Some((view, view.skip.as_ref()?)));
    let lines: Vec<_> =
        skips.map(|(view, skip)| row([&view.record.name, &skip_in_words(skip)])).collect();
    if !lines.is_empty() {
        text += "\nidle time:\n";
        text += &table(&lines);
    }
    let needy = views.iter().filter(|view| view.needs_adopt());
    let lines: Vec<_> = needy
        .map(|view| {
            let name = &view.record.name;
            row([
                name,
                &format!("can start no program; 'lorentz adopt {name}' gives it a new monitor"),
            ])
        })
        .collect();
    if !lines.is_empty() {
        text += "\nmonitor dead:\n";
        text += &table(&lines);
    }
    text
}

fn pids(view: &View) -> String {
    let pids = view.pids();
    let mut shown: Vec<String> = pids.iter().take(PIDS_SHOWN).map(u32::to_string).collect();
    match pids.len() {
        0 => return "-".to_string(),
        all if all > PIDS_SHOWN => shown.push(format!("+{}", all - PIDS_SHOWN)),
        _ => (),
    }
    shown.join(" ")
}

/// Describes the host's abilities, for people.
pub fn features(features: &[Feature], limits: &[Limit]) -> String {
    let rows: Vec<Vec<String>> = features
        .iter()
        .map(|feature| {
            let mark = match (feature.available, feature.needed) {
                (true, _) => "yes",
                (false, true) => "NO",
                (false, false) => "no",
            };
            row([mark, feature.name, &feature.detail, feature.purpose])
        })
        .collect();
    let mut text = table(&rows);
    let missing: Vec<Vec<String>> = features
        .iter()
        .filter(|feature| !feature.available)
        .map(|feature| row(["", feature.name, feature.how_to_get]))
        .collect();
    if !missing.is_empty() {
        text += "\nhow to get what is missing:\n";
        text += &table(&missing);
    }
    text += "\nstays real, or is refused (docs/limits.md):\n";
    let limits: Vec<_> =
        limits.iter().map(|limit| row(["", &limit.what, &limit.instead])).collect();
    text + &table(&limits)
}

/// The same as JSON.
pub fn features_json(features: &[Feature], limits: &[Limit]) -> Value {
    let features: Vec<Value> = features
        .iter()
        .map(|feature| {
            json!({
                "name": feature.name,
                "purpose": feature.purpose,
                "needed": feature.needed,
                "available": feature.available,
                "detail": feature.detail,
                "how_to_get": feature.how_to_get,
            })
        })
        .collect();
    let limits: Vec<Value> = limits
        .iter()
        .map(|limit| json!({ "what": limit.what, "instead": limit.instead }))
        .collect();
    json!({ "features": features, "not_virtual_yet": limits })
}

pub fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(printable).to_vec()
}

/// Replaces control characters: a program chooses its own name, and a terminal would obey them.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Lines with their cells below one another, the last of each as long as it likes.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells =
            rows.iter().filter(|row| column + 1 < row.len()).filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let padded = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}"));
        text += padded.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// A wall time to the millisecond.
pub fn wall(time: WallTime) -> String {
    WallTime { nanos: time.nanos / NANOS_PER_MILLI as u32 * NANOS_PER_MILLI as u32, ..time }
        .to_string()
}

pub fn whole_seconds(time: WallTime) -> WallTime {
    WallTime { nanos: 0, ..time }
}

/// Time since boot to the millisecond.
pub fn elapsed(nanos: i64) -> String {
    Span(nanos / NANOS_PER_MILLI * NANOS_PER_MILLI).to_string()
}

/// A difference to the millisecond, which is finer than two clocks are read together.
pub fn ahead(nanos: i64) -> String {
    let half = NANOS_PER_MILLI / 2 * nanos.signum();
    format!("{:+}", Span(nanos.saturating_add(half) / NANOS_PER_MILLI * NANOS_PER_MILLI))
}

/// `1 wait`, `2 waits`.
fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn cut(text: &str, length: usize) -> String {
    if text.chars().count() <= length {
        return text.to_string();
    }
    let kept: String = text.chars().take(length - 3).collect();
    kept + "..."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_stand_below_one_another() {
        let rows = [row(["a", "long cell", "x"]), row(["name", "b"]), row(["", "c", "y z"])];
        assert_eq!(table(&rows), "a     long cell  x\nname  b\n      c          y z\n");
    }

    #[test]
    fn one_is_counted_as_one() {
        assert_eq!([0, 1, 2].map(|count| counted(count, "wait")), ["0 waits", "1 wait", "2 waits"]);
    }

    #[test]
    fn names_of_programs_cannot_drive_the_terminal() {
        assert_eq!(row(["\u{1b}[2Ja\nb"]), ["?[2Ja?b"]);
    }

    #[test]
    fn times_are_cut_to_milliseconds() {
        assert_eq!(wall(WallTime { secs: 0, nanos: 123_456_789 }), "1970-01-01T00:00:00.123Z");
        assert_eq!(elapsed(61_000_999_999), "1m1s");
        assert_eq!(ahead(-1_000_000_400), "-1s");
        assert_eq!(ahead(999_999_900), "+1s");
        assert_eq!(ahead(-300), "+0s");
    }

    #[test]
    fn long_commands_are_cut() {
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("ääääääää", 6), "äää...");
    }
}
