//! Movements of nodes: those of the schedule, and those of mobility scripts.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use lorentz_clock::Span;
use lorentz_emulator::position::{Point, MAX_COORDINATE};
use serde_saphyr::Spanned;

use super::error::{refuse, shown, PlanError};

use crate::mobility::{MobilityScript, Movement, Waypoint, DEFAULT_REFRESH};
use crate::ns2;
use crate::plan::NetworkPlan;
use crate::topology::{NodeKind, ScheduledChange, ScriptFile, TopologyError, TopologyFile};

/// Least time between two steps of a walk.
const MIN_REFRESH: Span = Span(1_000_000);
/// Greatest speed, units of distance per virtual second.
const MAX_SPEED: f64 = 1e9;
/// Greatest size of a mobility script, bytes.
const MAX_SCRIPT_LEN: u64 = 64 << 20;

/// Checks the movements of `file`, the topology file `source`.
pub(super) fn check(
    source: &str,
    file: &TopologyFile,
    plan: &mut NetworkPlan,
) -> Result<(), PlanError> {
    if let Some(refresh) = &file.mobility.refresh {
        if refresh.value.span() < MIN_REFRESH {
            let what = format!(
                "mobility: refresh: {}: expected a duration of {MIN_REFRESH} or more",
                refresh.value
            );
            return refuse(refresh.defined, what);
        }
    }
    plan.mobility.refresh =
        file.mobility.refresh.as_ref().map_or(DEFAULT_REFRESH, |one| one.value.span());
    let mut waypoints = Vec::new();
    for change in &file.schedule {
        waypoints.extend(scheduled(file, change)?);
    }
    waypoints.sort_by_key(|one: &Waypoint| one.at);
    plan.mobility.scripts = vec![MobilityScript { waypoints, ..MobilityScript::default() }];
    for script in &file.mobility.scripts {
        let script = read_script(source, file, script)?;
        plan.mobility.scripts.push(script);
    }
    Ok(())
}

/// Makes a point of a position.
///
/// # Errors
///
/// The accepted values.
pub(super) fn point(position: [f64; 2]) -> Result<Point, String> {
    let [x, y] = position;
    let expected = || {
        format!(
            "position: [{x}, {y}]: expected two numbers from -{MAX_COORDINATE} to {MAX_COORDINATE}"
        )
    };
    Point::new(position).ok_or_else(expected)
}

/// Returns the movement of a scheduled change; `None` if it changes a link.
fn scheduled(
    file: &TopologyFile,
    change: &Spanned<ScheduledChange>,
) -> Result<Option<Waypoint>, PlanError> {
    let (at, change) = (change.defined, &change.value);
    let Some(node) = &change.node else { return Ok(None) };
    let name = &node.value;
    match file.topology.nodes.get(name) {
        Some(found) if found.value.kind == NodeKind::Process => {}
        Some(_) => {
            let what = format!("schedule: node: {name}: expected a node that runs programs");
            return refuse(node.defined, what);
        }
        None => {
            let what =
                format!("schedule: node: {name}: no such node; expected one of {}", names(file));
            return refuse(node.defined, what);
        }
    }
    let Some(position) = change.position else {
        return refuse(at, format!("schedule: node {name}: expected a position"));
    };
    let to = point(position).or_else(|what| refuse(at, format!("schedule: {what}")))?;
    let movement = match change.speed {
        None => Movement::Jump(to),
        Some(speed) if speed > 0.0 && speed <= MAX_SPEED => Movement::Walk { to, speed },
        Some(speed) => {
            let what =
                format!("schedule: speed: {speed}: expected a number above 0, at most {MAX_SPEED}");
            return refuse(at, what);
        }
    };
    Ok(Some(Waypoint { at: change.at.span(), node: name.clone(), movement }))
}

fn names(file: &TopologyFile) -> String {
    let names: Vec<&str> = file.topology.nodes.keys().map(String::as_str).collect();
    shown(&names)
}

/// Reads a mobility script. Its path is relative to the topology file `source`.
fn read_script(
    source: &str,
    file: &TopologyFile,
    script: &Spanned<ScriptFile>,
) -> Result<MobilityScript, PlanError> {
    let (at, script) = (script.defined, &script.value);
    let path = Path::new(source).parent().unwrap_or(Path::new("")).join(&script.file);
    let refused = |error: std::io::Error| {
        let what = format!(
            "scripts: file: {}: {error}; expected a mobility script of ns-2",
            path.display()
        );
        refuse(at, what)
    };
    let text = script_text(&path).or_else(refused)?;
    for (number, node) in &script.map {
        if number.parse::<u32>().is_err() {
            let what =
                format!("scripts: map: {number}: expected the number of a node in the script");
            return refuse(at, what);
        }
        if !file.topology.nodes.contains_key(node) {
            let what = format!(
                "scripts: map: {number}: {node}: no such node; expected one of {}",
                names(file)
            );
            return refuse(at, what);
        }
    }
    let name = path.display().to_string();
    let mut called = BTreeMap::new();
    let mut waypoints = Vec::new();
    for line in ns2::parse(&name, &text).map_err(PlanError::InScript)? {
        let node = match called.get(&line.node) {
            Some(node) => Option::clone(node),
            None => {
                let node = node_called(file, script, line.node).map_err(|what| {
                    PlanError::InScript(TopologyError {
                        file: name.clone(),
                        line: line.line,
                        column: 1,
                        what,
                    })
                })?;
                called.insert(line.node, node.clone());
                node
            }
        };
        if let Some(node) = node {
            waypoints.push(Waypoint { at: line.at, node, movement: line.movement });
        }
    }
    Ok(MobilityScript { start: script.start.span(), repeats: script.repeats, waypoints })
}

/// Returns the node with a number of the script. `None` if it is not in the script's map.
fn node_called(
    file: &TopologyFile,
    script: &ScriptFile,
    number: u32,
) -> Result<Option<String>, String> {
    if !script.map.is_empty() {
        return Ok(script.map.get(&number.to_string()).cloned());
    }
    let found = [number.to_string(), format!("n{number}")]
        .into_iter()
        .find(|name| file.topology.nodes.contains_key(name));
    let names = names(file);
    let refusal = || {
        format!("node {number}: no node is called {number} or n{number}; expected one of {names}, or map")
    };
    found.map(Some).ok_or_else(refusal)
}

/// Reads the text of a script: a regular file, and not too large.
pub(crate) fn script_text(path: &Path) -> std::io::Result<String> {
    // To open a FIFO would wait for its writer.
    if !path.metadata()?.is_file() {
        return Err(std::io::Error::other("no regular file"));
    }
    let mut text = String::new();
    let size = File::open(path)?.take(MAX_SCRIPT_LEN + 1).read_to_string(&mut text)?;
    if size as u64 > MAX_SCRIPT_LEN {
        return Err(std::io::Error::other(format!("larger than {} MiB", MAX_SCRIPT_LEN >> 20)));
    }
    Ok(text)
}
