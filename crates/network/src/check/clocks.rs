//! Scheduled changes of nodes' clocks.

use lorentz_clock::Span;
use lorentz_control::discipline::{parse_frequency, ClockErrorChange, MAX_DRIFT};
use serde_saphyr::{Location, Spanned};

use super::error::{refuse, shown, PlanError};
use crate::plan::{ClockChangePlan, NetworkPlan};
use crate::topology::{LeapSecondFault, NodeKind, ScheduledChange, TopologyFile};

/// Most steps that one strobe makes.
const MAX_STROBE_STEPS: i64 = 100_000;

/// Checks the errors and the changes of clocks in `file`.
pub(super) fn check(file: &TopologyFile, plan: &mut NetworkPlan) -> Result<(), PlanError> {
    if let Some(error) = file.clock_error.as_ref().filter(|_| !file.rounds) {
        let what = "clock-error: expected 'rounds: true', without which all nodes are on one clock";
        return refuse(error.defined, what);
    }
    let mut all = Vec::new();
    for change in &file.schedule {
        let (at, change) = (change.defined, &change.value);
        let Some(clocks) = &change.clock else { continue };
        if !file.rounds {
            let what = "schedule: clock: expected 'rounds: true', without which all nodes are on one clock";
            return refuse(clocks.defined, what);
        }
        let nodes = nodes_of(file, clocks.defined, clocks.value.all())?;
        for (after, fault) in changes(at, change)? {
            let node_change = |node: &String| ClockChangePlan {
                at: Span(change.at.span().0.saturating_add(after.0)),
                node: node.clone(),
                change: fault,
            };
            all.extend(nodes.iter().map(node_change));
        }
    }
    all.sort_by_key(|change: &ClockChangePlan| change.at);
    plan.clock_schedule = all;
    Ok(())
}

/// Whether a scheduled change is one of clocks.
pub(super) fn is_of_clocks(at: Location, change: &ScheduledChange) -> Result<bool, PlanError> {
    let is_another = change.link.is_some()
        || change.node.is_some()
        || change.position.is_some()
        || change.speed.is_some()
        || change.state.is_some()
        || !change.set.is_empty();
    let has_fault = change.bump.is_some()
        || change.slew.is_some()
        || change.drift.is_some()
        || change.length.is_some()
        || change.strobe.is_some()
        || change.suspend.is_some()
        || change.leap_second.is_some()
        || change.reset;
    match change.clock.is_some() {
        true if is_another => {
            refuse(at, "schedule: clock: excludes changes of links and positions")
        }
        false if has_fault => refuse(at, "schedule: expected clock, the nodes whose clocks change"),
        is_of_clocks => Ok(is_of_clocks),
    }
}

/// Returns the nodes whose clocks change: those of these names, or all.
fn nodes_of(file: &TopologyFile, at: Location, names: &[String]) -> Result<Vec<String>, PlanError> {
    let has_clock = |name: &&String| file.topology.nodes[*name].value.kind == NodeKind::Process;
    let all: Vec<String> = file.topology.nodes.keys().filter(has_clock).cloned().collect();
    if names == ["all"] {
        return Ok(all);
    }
    match names.iter().find(|name| !all.contains(name)) {
        None if !names.is_empty() => Ok(names.to_vec()),
        wrong => {
            let known: Vec<&str> = all.iter().map(String::as_str).collect();
            let wrong = wrong.map_or("", String::as_str);
            let what =
                format!("schedule: clock: {wrong:?}: expected all, or some of {}", shown(&known));
            refuse(at, what)
        }
    }
}

/// Returns the changes that a fault consists of, each with the time from its start.
fn changes(
    at: Location,
    change: &ScheduledChange,
) -> Result<Vec<(Span, ClockErrorChange)>, PlanError> {
    let ScheduledChange { bump, slew, drift, length, leap_second, strobe, suspend, reset, .. } =
        change;
    let given = [
        bump.is_some(),
        drift.is_some(),
        leap_second.is_some(),
        strobe.is_some(),
        suspend.is_some(),
        *reset,
    ];
    let is_of_bump = slew.is_none() || bump.is_some();
    let is_of_drift = length.is_none() || drift.is_some();
    if given.iter().filter(|given| **given).count() != 1 || !is_of_bump || !is_of_drift {
        let what = "schedule: clock: expected one of bump (with slew), drift (with for), strobe, suspend, leap-second, reset";
        return refuse(at, what);
    }
    let slew = span("slew", slew.as_ref())?.map(|slew| positive("slew", at, slew)).transpose()?;
    let length = span("for", length.as_ref())?.map(|one| positive("for", at, one)).transpose()?;
    let change = if let Some(by) = span("bump", bump.as_ref())? {
        let drift =
            slew.map_or(0, |slew| i128::from(by.0) * 1_000_000_000_000 / i128::from(slew.0));
        if drift.abs() > i128::from(MAX_DRIFT) {
            return refuse(at, "schedule: slew: expected a drift of at most 10 %");
        }
        ClockErrorChange::Bump(by, slew)
    } else if let Some(drift) = drift {
        let parts = parse_frequency(&drift.value).or_else(|what| {
            refuse(drift.defined, format!("schedule: drift: {}: {what}", drift.value))
        })?;
        ClockErrorChange::Drift(parts, length)
    } else if let Some(leap_second) = leap_second {
        ClockErrorChange::LeapSecond(match leap_second {
            LeapSecondFault::Insert => Some(true),
            LeapSecondFault::Delete => Some(false),
            LeapSecondFault::None => None,
        })
    } else if let Some(length) = span("suspend", suspend.as_ref())? {
        ClockErrorChange::Suspend(positive("suspend", at, length)?)
    } else if let Some(strobe) = strobe {
        let by = required("strobe: by", &strobe.by)?;
        let period = positive("strobe: period", at, required("strobe: period", &strobe.period)?)?;
        let length = positive("strobe: for", at, required("strobe: for", &strobe.length)?)?;
        return strobe_steps(at, by, period, length);
    } else {
        ClockErrorChange::Reset
    };
    Ok(vec![(Span::ZERO, change)])
}

/// The steps of a clock that goes forth and back each `period`, for `length`. It ends where it began.
fn strobe_steps(
    at: Location,
    by: Span,
    period: Span,
    length: Span,
) -> Result<Vec<(Span, ClockErrorChange)>, PlanError> {
    let moves = length.0 / period.0;
    let moves = moves + moves % 2;
    if moves > MAX_STROBE_STEPS {
        let what = format!("schedule: strobe: {moves} steps: expected at most {MAX_STROBE_STEPS}");
        return refuse(at, what);
    }
    let step = |number: i64| {
        let by = if number % 2 == 0 { by } else { Span(-by.0) };
        (Span(period.0 * number), ClockErrorChange::Bump(by, None))
    };
    Ok((0..moves).map(step).collect())
}

fn required(key: &str, text: &Spanned<String>) -> Result<Span, PlanError> {
    text.value
        .parse()
        .or_else(|error| refuse(text.defined, format!("schedule: {key}: {}: {error}", text.value)))
}

fn span(key: &str, text: Option<&Spanned<String>>) -> Result<Option<Span>, PlanError> {
    text.map(|text| required(key, text)).transpose()
}

fn positive(key: &str, at: Location, span: Span) -> Result<Span, PlanError> {
    match span.0 > 0 {
        true => Ok(span),
        false => refuse(at, format!("schedule: {key}: {span}: expected more than 0")),
    }
}
