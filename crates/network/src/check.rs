//! Checks of a topology file: they make the plan of the network, or find the first error and its place.

mod clocks;
mod compute;
mod error;
mod links;
mod movements;
mod wlan;

pub(crate) use links::link_of_loop;
pub(crate) use movements::script_text;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use lorentz_container::{is_name, Bind};
use lorentz_control::{ClockOptions, CLOCK_OPTIONS};
use lorentz_emulator::impair::Impairments;
use lorentz_emulator::SwitchKind;
use serde_saphyr::{Location, Spanned};

use compute::{check_compute, check_parallel, NodeDefaults};
use error::{refuse, PlanError};

use crate::mobility::{MobilityPlan, DEFAULT_REFRESH};
use crate::plan::{
    directions_at, ChangePlan, Endpoint, ExecLine, NetworkPlan, NodeBind, NodePlan,
    DEFAULT_LAYER_SIZE,
};
use crate::topology::{
    self, ClockKey, Isolation, Node, NodeCommand, NodeKind, State, TopologyError, TopologyFile,
};

/// Greatest number of nodes. One process cannot serve more than so many well.
const MAX_NODES: usize = 1_000;

/// Reads and checks the topology file `name` with the content `text`.
///
/// # Errors
///
/// The error in the file, with line and column.
pub fn plan_from_text(name: &str, text: &str) -> Result<NetworkPlan, TopologyError> {
    topology::parse(name, text).and_then(|file| plan_from(name, &file))
}

/// Checks the content of the file `name`.
///
/// # Errors
///
/// The first error, with line and column.
pub fn plan_from(name: &str, file: &TopologyFile) -> Result<NetworkPlan, TopologyError> {
    let mut file = file.clone();
    file.write_out_faults().map_err(|(at, what)| topology::error_at(name, at, &what))?;
    check(name, &file).map_err(|error| match error {
        PlanError::Here { at, what } => topology::error_at(name, at, &what),
        PlanError::InScript(error) => error,
    })
}

fn check(source: &str, file: &TopologyFile) -> Result<NetworkPlan, PlanError> {
    let name = &file.name;
    // The node's name follows it in a container's name, which has at most 128 characters.
    if !is_name(&name.value) || name.value.len() > 60 {
        return refuse(
            name.defined,
            format!("name: {:?}: expected up to 60 letters, digits, '.', '_' and '-', the first a letter or digit", name.value),
        );
    }
    let mut plan = NetworkPlan {
        name: name.value.clone(),
        clock: clock_options(&file.clock_keys())?,
        rounds: file.rounds,
        layer_size: DEFAULT_LAYER_SIZE,
        seed: file.seed,
        nodes: Vec::new(),
        switches: Vec::new(),
        positions: BTreeMap::new(),
        links: Vec::new(),
        schedule: Vec::new(),
        clock_schedule: Vec::new(),
        mobility: MobilityPlan { refresh: DEFAULT_REFRESH, scripts: Vec::new() },
    };
    if file.topology.nodes.is_empty() {
        return refuse(name.defined, "topology: nodes: expected at least one");
    }
    let compute = check_compute("", file.compute.as_ref(), file.rounds)?.unwrap_or_default();
    let defaults = NodeDefaults { isolation: file.isolation, compute, rounds: file.rounds };
    for (name, node) in &file.topology.nodes {
        check_node(source, name, node, &defaults, &mut plan)?;
    }
    if plan.nodes.len() > MAX_NODES {
        return refuse(
            name.defined,
            format!("topology: nodes: {}: expected at most {MAX_NODES}", plan.nodes.len()),
        );
    }
    let mut taken = HashMap::new();
    for link in &file.topology.links {
        let mut checked = links::link(link, file, &mut taken)?;
        wlan::join(link, file, &plan, &mut checked)?;
        for (side, impairments) in checked.impairments.iter().enumerate().filter(|_| plan.rounds) {
            plan.check_for_rounds(&checked, side, impairments)
                .or_else(|what| refuse(link.defined, what))?;
        }
        plan.links.push(checked);
    }
    check_shared_networks(file, &plan)?;
    links::loops(&plan, &file.topology.links)?;
    check_schedule(file, &taken, &mut plan)?;
    clocks::check(file, &mut plan)?;
    movements::check(source, file, &mut plan)?;
    Ok(plan)
}

/// Checks that each node that shares another's network can do so.
fn check_shared_networks(file: &TopologyFile, plan: &NetworkPlan) -> Result<(), PlanError> {
    let found = |name: &str| plan.nodes.iter().find(|node| node.name == name);
    for (name, node) in &file.topology.nodes {
        let Some(of) = &node.value.network_of else { continue };
        let refused = |what: &str| refuse(of.defined, format!("node {name}: network-of: {what}"));
        if plan.rounds {
            return refused(
                "not in rounds: the nodes' clocks differ; expected an interface of its own",
            );
        }
        match found(&of.value) {
            None => return refused(&format!("{}: no such node; expected another node", of.value)),
            Some(other) if other.network_of.is_some() || other.name == *name => {
                return refused(&format!("{}: expected a node with a network of its own", of.value))
            }
            Some(_) => {}
        }
        let has_links = plan.links.iter().any(|link| link.ends.iter().any(|end| end.node == *name));
        if has_links || !node.value.sysctls.is_empty() {
            return refused("excludes links and sysctls of its own: they are the other node's");
        }
    }
    Ok(())
}

/// Reads clock options as the table says.
fn clock_options(given: &[ClockKey]) -> Result<ClockOptions, PlanError> {
    let mut options = ClockOptions::default();
    for (name, text) in given {
        let option =
            CLOCK_OPTIONS.iter().find(|option| option.name == *name).expect("a row of the table");
        let same = given.iter().find(|(other, _)| option.passed_as == Some(*other));
        if let Some((other, _)) = same {
            return refuse(text.defined, format!("{name}: excludes {other}: give one of them"));
        }
        option
            .read(&mut options, &text.value)
            .or_else(|error| refuse(text.defined, format!("{name}: {}: {error}", text.value)))?;
    }
    Ok(options)
}

fn check_node(
    source: &str,
    name: &str,
    node: &Spanned<Node>,
    defaults: &NodeDefaults,
    plan: &mut NetworkPlan,
) -> Result<(), PlanError> {
    let at = node.defined;
    if !is_name(name) || name.len() > 60 {
        return refuse(at, format!("node {name:?}: expected up to 60 letters, digits, '.', '_' and '-', the first a letter or digit"));
    }
    let node = &node.value;
    if let Some(position) = node.position {
        movements::point(position).or_else(|what| refuse(at, format!("node {name}: {what}")))?;
        plan.positions.insert(name.to_string(), position);
    }
    if let Some(radio) = node.radio.as_ref().filter(|_| node.kind != NodeKind::Wlan) {
        return refuse(radio.defined, format!("node {name}: radio: expected 'kind: wlan'"));
    }
    if node.kind != NodeKind::Process {
        plan.switches.push((name.to_string(), check_switch(name, at, node)?));
        return Ok(());
    }
    if node.stp {
        return refuse(at, format!("node {name}: stp: expected 'kind: switch'"));
    }
    plan.nodes.push(check_process(source, name, at, node, defaults)?);
    Ok(())
}

/// Checks a node that runs programs.
fn check_process(
    source: &str,
    name: &str,
    at: Location,
    node: &Node,
    defaults: &NodeDefaults,
) -> Result<NodePlan, PlanError> {
    let command = check_command(name, at, node)?;
    let own_clock = node.clock_keys();
    let clock = clock_options(&own_clock)?;
    if let Some((key, own)) = own_clock.first().filter(|_| !defaults.rounds) {
        return refuse(
            own.defined,
            format!("node {name}: {key} of its own: expected 'rounds: true', without which all nodes are on one clock"),
        );
    }
    let own_compute =
        check_compute(&format!("node {name}: "), node.compute.as_ref(), defaults.rounds)?;
    let compute = own_compute.unwrap_or(defaults.compute);
    let parallel = check_parallel(name, node, defaults.rounds)?;
    check_image(name, node)?;
    check_user(name, node)?;
    let isolation = node.isolation.unwrap_or(defaults.isolation);
    let binds = check_binds(name, node, isolation)?;
    if node.files.is_some() && isolation == Isolation::Host {
        return refuse(at, format!("node {name}: files: expected isolation: private beside it"));
    }
    check_sysctls(name, node)?;
    Ok(NodePlan {
        name: name.to_string(),
        clock,
        compute,
        parallel,
        isolation,
        args: node.args.clone(),
        network_of: node.network_of.as_ref().map(|other| other.value.clone()),
        command,
        shell: node.shell.as_ref().map_or_else(|| "/bin/sh".into(), |shell| shell.value.clone()),
        exec: node.exec.iter().map(|line| exec_line(source, node, line)).collect(),
        shutdown: node.shutdown.iter().map(|line| exec_line(source, node, line)).collect(),
        env: node.env.clone(),
        sysctls: node
            .sysctls
            .iter()
            .map(|(key, value)| (key.clone(), value.value.clone()))
            .collect(),
        output: node.output.clone(),
        image: node.image.as_ref().map(|image| image.value.clone()),
        user: node.user.as_ref().map(|user| user.value.clone()),
        folder: None,
        rootfs: node.rootfs.as_ref().map(PathBuf::from),
        binds,
        files: node.files.as_ref().map(PathBuf::from),
    })
}

/// Checks a node that runs nothing. Returns its kind.
fn check_switch(name: &str, at: Location, node: &Node) -> Result<SwitchKind, PlanError> {
    let is_bare = node.command.is_none()
        && node.exec.is_empty()
        && node.shutdown.is_empty()
        && node.user.is_none()
        && node.shell.is_none()
        && node.env.is_empty()
        && node.sysctls.is_empty()
        && node.output.is_none()
        && node.image.is_none()
        && node.rootfs.is_none()
        && node.binds.is_empty()
        && node.files.is_none()
        && node.args.is_empty()
        && node.network_of.is_none()
        && node.isolation.is_none()
        && node.compute.is_none()
        && node.parallel.is_none()
        && node.clock_keys().is_empty();
    if !is_bare {
        return refuse(
            at,
            format!(
                "node {name}: a switch, hub or wlan runs nothing; expected kind, stp, radio and position alone"
            ),
        );
    }
    let kind = match node.kind {
        NodeKind::Wlan if !node.stp => wlan::kind(name, at, node)?,
        NodeKind::Switch if node.stp => SwitchKind::SpanningTree,
        NodeKind::Switch => SwitchKind::Learning,
        _ if node.stp => return refuse(at, format!("node {name}: stp: expected 'kind: switch'")),
        _ => SwitchKind::Hub,
    };
    Ok(kind)
}

/// Checks the shell, the command and the arguments of a node. Returns the command.
fn check_command(name: &str, at: Location, node: &Node) -> Result<Option<Vec<String>>, PlanError> {
    let command = match &node.command {
        None => None,
        Some(NodeCommand::Line(line)) => Some(vec!["/bin/sh".into(), "-c".into(), line.clone()]),
        Some(NodeCommand::Words(words)) if words.is_empty() => {
            return refuse(at, format!("node {name}: command: expected at least one word"))
        }
        Some(NodeCommand::Words(words)) => Some(words.clone()),
    };
    if let Some(shell) = node.shell.as_ref().filter(|shell| {
        shell.value.is_empty() || shell.value.starts_with('-') || shell.value.contains(' ')
    }) {
        let what = format!("node {name}: shell: {:?}: expected a shell such as bash", shell.value);
        return refuse(shell.defined, what);
    }
    if node.command.is_some() && !node.args.is_empty() {
        return refuse(at, format!("node {name}: args: excludes command: give one of them"));
    }
    // The command of an image is known when it is mounted.
    Ok(match node.image {
        None if !node.args.is_empty() => Some(node.args.clone()),
        _ => command,
    })
}

/// Checks the image of a node.
fn check_image(name: &str, node: &Node) -> Result<(), PlanError> {
    if let Some(image) = node.image.as_ref().filter(|_| node.rootfs.is_some()) {
        return refuse(
            image.defined,
            format!("node {name}: image: excludes rootfs: give one of them"),
        );
    }
    // As an argument of a command the name must not look like an option. No name contains white space.
    let is_image = |text: &str| {
        !text.is_empty() && !text.starts_with('-') && !text.contains(char::is_whitespace)
    };
    if let Some(image) = node.image.as_ref().filter(|image| !is_image(&image.value)) {
        return refuse(
            image.defined,
            format!(
                "node {name}: image: {:?}: expected an image such as docker.io/library/alpine:3.20",
                image.value
            ),
        );
    }
    Ok(())
}

/// Checks the user of a node.
fn check_user(name: &str, node: &Node) -> Result<(), PlanError> {
    if let Some(user) = &node.user {
        let what = match &user.value {
            _ if node.image.is_none() && node.rootfs.is_none() => {
                "expected image or rootfs beside it"
            }
            text if text.is_empty() || text.starts_with('-') || text.contains(' ') => {
                "expected USER or USER:GROUP"
            }
            _ => "",
        };
        if !what.is_empty() {
            let text = &user.value;
            return refuse(user.defined, format!("node {name}: user: {text:?}: {what}"));
        }
    }
    Ok(())
}

/// Checks that a node sets only sysctls of its network.
fn check_sysctls(name: &str, node: &Node) -> Result<(), PlanError> {
    for (key, value) in &node.sysctls {
        let good = key.starts_with("net.") && !key.contains('/') && !key.contains("..");
        if !good {
            return refuse(
                value.defined,
                format!("node {name}: sysctls: {key}: expected one of the network's, net.*"),
            );
        }
    }
    Ok(())
}

fn exec_line(source: &str, node: &Node, line: &Spanned<String>) -> ExecLine {
    let (text, number) = (line.value.clone(), line.defined.line().max(1));
    match node.script_files.get(&text) {
        Some(file) => ExecLine { file: file.clone(), line: number, text, is_script: true },
        // In YAML a text of several lines begins behind the line of its key.
        None => {
            let line = number + u64::from(text.contains('\n'));
            ExecLine { file: source.into(), line, text, is_script: false }
        }
    }
}

fn check_binds(name: &str, node: &Node, isolation: Isolation) -> Result<Vec<NodeBind>, PlanError> {
    let mut binds = Vec::new();
    for bind in &node.binds {
        let (text, layered) = topology::without_layer(&bind.value);
        let read = match layered && isolation == Isolation::Host {
            true => Err("O is for nodes with isolation: private; expected ro, or nothing"),
            false => text.parse::<Bind>(),
        };
        let bind = read.or_else(|what| {
            refuse(bind.defined, format!("node {name}: binds: {:?}: {what}", bind.value))
        })?;
        binds.push(NodeBind { bind, layered });
    }
    Ok(binds)
}

fn check_schedule(
    file: &TopologyFile,
    taken: &HashMap<Endpoint, u64>,
    plan: &mut NetworkPlan,
) -> Result<(), PlanError> {
    let mut all = Vec::new();
    for change in &file.schedule {
        let (at, change) = (change.defined, &change.value);
        let link =
            match (&change.link, &change.node) {
                _ if clocks::is_of_clocks(at, change)? => continue,
                (Some(link), None) if change.position.is_none() && change.speed.is_none() => link,
                // A movement.
                (None, Some(_)) if change.set.is_empty() && change.state.is_none() => continue,
                _ => return refuse(
                    at,
                    "schedule: expected link with set or state, node with position and speed, or clock with a fault",
                ),
            };
        let end = link.value.parse::<Endpoint>().ok().filter(|end| taken.contains_key(end));
        let Some(end) = end else {
            return refuse(
                link.defined,
                format!(
                    "schedule: link: {}: no link ends there; expected one of the endpoints",
                    link.value
                ),
            );
        };
        if change.set.is_empty() && change.state.is_none() {
            return refuse(at, "schedule: changes nothing; expected set or state");
        }
        let is_up = change.state.map(|state| state == State::Up);
        all.push((
            at,
            ChangePlan {
                at: change.at.span(),
                end,
                both: change.both,
                set: change.set.clone(),
                is_up,
            },
        ));
    }
    all.sort_by_key(|(_, change)| change.at);
    check_in_force(&all, plan)?;
    plan.schedule = all.into_iter().map(|(_, change)| change).collect();
    Ok(())
}

/// Checks that each change makes sense with the impairments in force at its time. `all` is in the order of time.
fn check_in_force(all: &[(Location, ChangePlan)], plan: &NetworkPlan) -> Result<(), PlanError> {
    let mut impairments: Vec<[Impairments; 2]> =
        plan.links.iter().map(|link| link.impairments.clone()).collect();
    for (at, change) in all {
        for (link, side) in directions_at(&plan.links, &change.end, change.both) {
            impairments[link][side] = impairments[link][side].with(&change.set);
            let refused = |what| refuse(*at, format!("schedule: {what}"));
            impairments[link][side].check().or_else(refused)?;
            if plan.rounds {
                plan.check_for_rounds(&plan.links[link], side, &impairments[link][side])
                    .or_else(refused)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "\
name: lab
tdf: 10
at: 2038-01-19T03:14:00Z
seed: 7
topology:
  nodes:
    r1: {command: [sleep, '60'], sysctls: {net.ipv4.ip_forward: 1}, env: {A: b}}
    r2:
      kind: process
      exec: [ip route add default via 10.0.0.1]
    s1: {kind: switch}
  links:
    - endpoints: ['r1:eth1', 'r2:eth1']
      ipv4: [10.0.0.1/24, 10.0.0.2/24]
      rate: 10mbit
      delay: 5ms
      from:
        r2:eth1: {rate: 1mbit, loss: 0.5%}
    - endpoints: ['r1:eth2', 's1:1']
      mtu: 9000
      state: down
schedule:
  - {at: 20s, link: 'r1:eth1', set: {delay: 30ms}, both: true}
  - {at: 10s, link: 'r1:eth2', state: up}
";

    #[test]
    fn a_whole_file_is_understood() {
        let plan = plan_from_text("lab.yaml", WHOLE).unwrap();
        assert_eq!(
            (plan.name.as_str(), plan.clock.rate_or_tdf().to_string().as_str(), plan.seed),
            ("lab", "0.1", 7)
        );
        assert_eq!(plan.clock.at.unwrap().to_string(), "2038-01-19T03:14:00Z");
        assert_eq!(plan.nodes[0].command.as_deref().unwrap(), ["sleep", "60"]);
        assert_eq!(plan.nodes[0].sysctls["net.ipv4.ip_forward"], "1");
        let line = &plan.nodes[1].exec[0];
        assert_eq!((line.text.as_str(), line.line), ("ip route add default via 10.0.0.1", 10));
        assert_eq!((line.file.as_str(), plan.nodes[1].shell.as_str()), ("lab.yaml", "/bin/sh"));
        assert_eq!(plan.switches, [("s1".to_string(), SwitchKind::Learning)]);
        let link = &plan.links[0];
        assert_eq!(
            link.impairments.each_ref().map(|one| one.rate.unwrap().to_string()),
            ["10mbit", "1mbit"]
        );
        assert_eq!(
            link.impairments.each_ref().map(|one| one.delay.unwrap().to_string()),
            ["5ms", "5ms"]
        );
        assert_eq!(link.addresses[1][0], ("10.0.0.2".parse().unwrap(), 24));
        assert_eq!((plan.links[1].mtu, plan.links[1].is_up), (9000, false));
        assert_eq!(plan.schedule[0].is_up, Some(true));
        assert_eq!(plan.schedule[1].at, lorentz_clock::Span::from_secs(20));
    }

    /// The table decides which options a network and its nodes have.
    #[test]
    fn clock_options_of_a_network_are_those_of_the_table() {
        for option in CLOCK_OPTIONS {
            let name = option.name;
            let value = option.example();
            let of_network = format!(
                "name: l\nrounds: true\n{name}: '{value}'\ntopology: {{nodes: {{a: {{}}}}}}\n"
            );
            let of_node = format!(
                "name: l\nrounds: true\ntopology: {{nodes: {{a: {{{name}: '{value}'}}}}}}\n"
            );
            match option.topology_key {
                Some(key) => {
                    let mut expected = ClockOptions::default();
                    option.read(&mut expected, value).unwrap();
                    assert_eq!(key.replace('_', "-"), name);
                    assert_eq!(plan_from_text("x", &of_network).unwrap().clock, expected);
                    assert_eq!(plan_from_text("x", &of_node).unwrap().nodes[0].clock, expected);
                }
                None => {
                    for text in [of_network, of_node] {
                        let refusal = plan_from_text("x", &text).unwrap_err().what;
                        assert!(
                            refusal.contains("unknown field") && refusal.contains(name),
                            "{refusal}"
                        );
                    }
                }
            }
        }
    }

    /// Each row: the file, the line and column of the error, and words that the message must contain.
    #[test]
    fn what_is_wrong_is_pointed_at() {
        let nodes = "name: l\ntopology:\n  nodes: {a: {}, b: {}, s: {kind: switch}, t: {kind: switch}}\n  links:\n";
        let with = |links: &str| format!("{nodes}{links}");
        let cases = [
            ("name: [\n".to_string(), (1, 7), "string"),
            ("name: l\ntopology: {nodes: {a: {imge: x}}}\n".to_string(), (2, 24), "imge"),
            ("name: -l\ntopology: {nodes: {a: {}}}\n".to_string(), (1, 7), "letters"),
            ("name: l\ntopology: {nodes: {}}\n".to_string(), (1, 7), "at least one"),
            ("name: l\nrate: 0\ntopology: {nodes: {a: {}}}\n".to_string(), (2, 7), "above 0"),
            ("name: l\nrate: 2\ntdf: 3\ntopology: {nodes: {a: {}}}\n".to_string(), (3, 6), "excludes"),
            ("name: l\ntopology: {nodes: {a: {kind: vm}}}\n".to_string(), (2, 30), "process"),
            ("name: l\ntopology: {nodes: {a: {kind: hub, exec: [x]}}}\n".to_string(), (2, 23), "runs nothing"),
            ("name: l\ntopology: {nodes: {a: {sysctls: {kernel.x: 1}}}}\n".to_string(), (2, 44), "net.*"),
            (with("  - endpoints: ['a:e', 'c:e']\n"), (5, 24), "expected one of a, b, s, t"),
            (with("  - endpoints: ['a:e', 'b']\n"), (5, 24), "NODE:INTERFACE"),
            (with("  - endpoints: ['a:e']\n"), (5, 5), "expected two"),
            (with("  - endpoints: ['a:e', 'b:e']\n  - endpoints: ['b:f', 'a:e']\n"), (6, 24), "in line 5"),
            (with("  - endpoints: ['a:e', 'b:e']\n    rate: 0\n"), (6, 11), "8bit to 1tbit"),
            (with("  - endpoints: ['a:e', 'b:e']\n    loss: 2\n"), (6, 11), "percentage"),
            (with("  - endpoints: ['a:e', 'b:e']\n    delay: -1ms\n"), (6, 12), "duration from 0"),
            (with("  - endpoints: ['a:e', 'b:e']\n    mtu: 9\n"), (6, 10), "68 to 65521"),
            (with("  - endpoints: ['a:e', 'b:e']\n    reorder: 1%\n"), (5, 5), "delay above 0"),
            (with("  - endpoints: ['a:e', 'b:e']\n    ipv4: [10.0.0.1, 10.0.0.2/24]\n"), (6, 12), "prefix length"),
            (with("  - endpoints: ['a:e', 's:e']\n    ipv4: [null, 10.0.0.2/24]\n"), (6, 18), "expected null"),
            (with("  - endpoints: ['a:e', 'b:e']\n    from: {'c:e': {rate: 1mbit}}\n"), (6, 19), "a:e or b:e"),
            (with("  - endpoints: ['s:1', 't:1']\n  - endpoints: ['t:2', 's:2']\n"), (6, 5), "stp: true"),
            ("name: l\ntopology: {nodes: {a: {stp: true}}}\n".to_string(), (2, 23), "kind: switch"),
            ("name: l\ntopology: {nodes: {a: {kind: hub, stp: true}}}\n".to_string(), (2, 23), "kind: switch"),
            (with("  - endpoints: ['a:e', 'b:e']\nschedule:\n  - {at: 1s, link: 'a:x', state: up}\n"), (7, 20), "no link ends there"),
            (with("  - endpoints: ['a:e', 'b:e']\nschedule:\n  - {at: 1s, link: 'a:e'}\n"), (7, 5), "set or state"),
        ];
        let mut failed = String::new();
        for (text, place, words) in cases {
            let wrong = plan_from_text("x.yaml", &text).unwrap_err();
            let good = (wrong.line, wrong.column) == place && wrong.what.contains(words);
            if !good || wrong.what.contains('\n') {
                failed += &format!("{text}{wrong}; expected {place:?} {words:?}\n\n");
            }
        }
        assert!(failed.is_empty(), "{failed}");
    }
}
