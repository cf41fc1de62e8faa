//! `up`, `import`, `down`, `inspect`, `link`, `capture`, `graph`: networks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::str::SplitWhitespace;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lorentz_container::StateDir;
use lorentz_network::import::{Format, Imported, LeftOut};
use lorentz_network::plan::NetworkPlan;
use lorentz_network::topology::TopologyFile;
use lorentz_network::{
    self as network, ExecPolicy, FailedLine, Network, NetworkRefusal, NetworkStatus, Step,
};
use serde_json::{json, Value};

use super::edit;
use crate::network_args::{
    Capture, Down, Export, Graph, Import, Inspect, LinkSet, LinkShow, LinkVerb, Source, Up,
};
use crate::view;
use crate::wrong_input::WrongInput;
use crate::{print, print_network};

pub fn up(args: &Up) -> anyhow::Result<i32> {
    let mut imported = read(&args.source)?;
    let time_note = change_topology(args, &mut imported.topology)?;
    let mut plan = network::check::plan_from(&imported.name, &imported.topology)?;
    plan.layer_size = args.layer_size.unwrap_or(plan.layer_size);
    let advice: Vec<String> =
        network::neighbours::advice(&plan).into_iter().chain(time_note).collect();
    let advice = Some(advice.join("; ")).filter(|words| !words.is_empty());
    if !args.json {
        tell_left_out(&imported);
        advice.iter().for_each(|word| eprintln!("lorentz: {}: {word}", plan.name));
    }
    let state = StateDir::open()?;
    let mut failed = Vec::new();
    if !args.check {
        if args.pull {
            network::pull_missing(&plan)?;
        }
        let keeps_going = args.keep_going || (imported.format != Format::Lorentz && !args.strict);
        let policy = if keeps_going { ExecPolicy::KeepGoing } else { ExecPolicy::Strict };
        let progress = UpProgress::new(&plan, args.json);
        let show = |step: Step| progress.show(step);
        imported.topology.make_paths_absolute(&args.source.file)?;
        failed = if args.update {
            network::update(&state, &imported.topology, policy)?
        } else {
            network::up(&state, &plan, &imported.topology, policy, &show)?
        };
        progress.clear();
    }
    if args.json {
        let names: Vec<&str> = plan.nodes.iter().map(|node| node.name.as_str()).collect();
        print::out_json(&json!({
            "name": plan.name, "nodes": names, "links": plan.links.len(), "up": !args.check,
            "left_out": imported.left_out, "advice": advice, "failed": failed,
            "files": plan.files_note(),
        }))?;
        return Ok(0);
    }
    tell_of(&plan, args.check)?;
    let (left_out, failed): (Vec<_>, Vec<_>) = failed.iter().partition(|one| one.left_out);
    for line in services_left_out(&left_out) {
        eprintln!("lorentz: {}: {line}", plan.name);
    }
    if !failed.is_empty() {
        eprintln!("lorentz: {}: {}", plan.name, summary(&failed));
    }
    Ok(0)
}

/// Applies the options that change a topology. Returns a note on its time, if there is one.
fn change_topology(args: &Up, topology: &mut TopologyFile) -> anyhow::Result<Option<String>> {
    let time_note = args.time.apply(topology)?;
    if args.on_host {
        topology.put_on_host();
    }
    if args.ignore_images {
        topology.ignore_images();
    }
    if let Some(root) = &args.rootfs {
        if !root.is_dir() {
            let what = format!("--rootfs {}: expected a directory", root.display());
            return Err(WrongInput(what).into());
        }
        topology.give_rootfs(&std::path::absolute(root)?);
    }
    Ok(time_note)
}

fn tell_of(plan: &NetworkPlan, is_check: bool) -> anyhow::Result<()> {
    let NetworkPlan { name, nodes, links, .. } = plan;
    let sizes = format!("{name}: {} nodes, {} links", nodes.len(), links.len());
    if is_check {
        return Ok(print::out(&format!("{sizes}\n"))?);
    }
    let first = nodes.first().map_or("NODE", |node| node.name.as_str());
    let files = plan.files_note();
    Ok(print::out(&format!(
        "{sizes}; 'lorentz exec {name}.{first} COMMAND' runs a command in one\n{name}: {files}\n"
    ))?)
}

/// Tells in one line how many lines of exec failed, and where.
fn summary(failed: &[&FailedLine]) -> String {
    let nodes: BTreeSet<&str> = failed.iter().map(|one| one.node.as_str()).collect();
    let nodes: Vec<&str> = nodes.into_iter().collect();
    let lines = if failed.len() == 1 { "line" } else { "lines" };
    format!(
        "{} {lines} of exec failed, on {}; --strict stops at the first",
        failed.len(),
        nodes.join(", ")
    )
}

/// Returns a line for the services that nodes left out for the same reason.
fn services_left_out(left_out: &[&FailedLine]) -> Vec<String> {
    let mut nodes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for one in left_out {
        nodes.entry(&one.output).or_default().push(&one.node);
    }
    let line =
        |(what, nodes): (&&str, &Vec<&str>)| format!("left out on {}: {what}", nodes.join(", "));
    nodes.iter().map(line).collect()
}

/// Shows on a terminal how far `lorentz up` is. The children of `up` draw too, one after the other.
struct UpProgress {
    bar: ProgressBar,
    links: usize,
    exec_lines: u64,
}

impl UpProgress {
    fn new(plan: &NetworkPlan, is_quiet: bool) -> UpProgress {
        let target = match is_quiet {
            true => ProgressDrawTarget::hidden(),
            // Hidden too where standard error is no terminal.
            false => ProgressDrawTarget::stderr(),
        };
        let style = ProgressStyle::with_template("{prefix} {pos}/{len}{msg} {wide_bar}");
        let bar = ProgressBar::with_draw_target(Some(plan.nodes.len() as u64), target)
            .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
            .with_prefix("nodes");
        let exec_lines = plan.nodes.iter().map(|node| node.exec.len() as u64).sum();
        let progress = UpProgress { bar, links: plan.links.len(), exec_lines };
        progress.show(Step::Links(0));
        progress
    }

    fn show(&self, step: Step) {
        match step {
            Step::Nodes(count) => self.bar.set_position(count as u64),
            Step::Links(_) if self.links == 0 => {}
            Step::Links(count) => self.bar.set_message(format!(", links {count}/{}", self.links)),
            Step::Started => self.bar.finish_and_clear(),
            Step::ExecLines(count) => {
                self.bar.set_message("");
                self.bar.set_prefix("exec");
                self.bar.set_length(self.exec_lines);
                self.bar.set_position(count as u64);
            }
            // They come at the end, with what is alike.
            Step::Failed(line) if line.left_out => {}
            Step::Failed(line) => self.bar.suspend(|| eprintln!("lorentz: {line}")),
            Step::GoesOn(what) => self.bar.suspend(|| eprintln!("lorentz: {what}")),
        }
    }

    fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

fn read(source: &Source) -> anyhow::Result<Imported> {
    network::import::read(&source.file, source.format)
}

/// Prints the elements left out of the network. Equal ones share a line.
fn tell_left_out(imported: &Imported) {
    for group in grouped(&imported.left_out) {
        let mut line = format!("lorentz: {}", group[0]);
        if let [_, others @ ..] = &group[..] {
            if others.is_empty() {
                eprintln!("{line}");
                continue;
            }
            const SHOWN: usize = 8;
            let numbers = others.iter().take(SHOWN).map(|one| one.line.to_string());
            let more = if others.len() > SHOWN { ", ..." } else { "" };
            let (count, word) = (others.len(), if others.len() == 1 { "line" } else { "lines" });
            line += &format!(
                "; and {count} more like it, in {word} {}{more}",
                numbers.collect::<Vec<_>>().join(", ")
            );
        }
        eprintln!("{line}");
    }
}

/// Puts elements together that differ by names and values alone, in the order of the first of each kind.
fn grouped(all: &[LeftOut]) -> Vec<Vec<&LeftOut>> {
    let mut groups: Vec<(String, Vec<&LeftOut>)> = Vec::new();
    for one in all {
        let kind = kind_of(&one.what);
        match groups.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, group)) => group.push(one),
            None => groups.push((kind, vec![one])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Returns a description without the names and values in it.
fn kind_of(what: &str) -> String {
    const BEFORE_NAMES: [&str; 6] = ["node", "link", "device", "interface", "of", "service"];
    /// Words that tell one kind from another.
    const TELLING: usize = 4;
    let mut kind = Vec::new();
    let mut words = what.split_whitespace();
    while let Some(word) = words.next().filter(|_| kind.len() < TELLING) {
        let key = match (word.find('['), word.find(']')) {
            // Of Kathara's MACHINE[KEY]=VALUE.
            (Some(from), Some(to)) if from < to => &word[from..=to],
            _ => word.split('=').next().unwrap_or_default(),
        };
        // LAB_AUTHOR and LAB_WEB are descriptions of a lab.
        kind.push(if key.starts_with("LAB_") { "LAB_" } else { key });
        if key != word {
            break;
        }
        if BEFORE_NAMES.contains(&word) {
            words = after_name(words);
        }
    }
    kind.join(" ")
}

/// Returns the words behind a name, `NAME`, or behind the two ends of a link, `NAME - NAME` or `LINK: NAME - NAME`.
fn after_name(mut words: SplitWhitespace) -> SplitWhitespace {
    let name = words.next().unwrap_or_default();
    let mut ends = words.clone();
    if name.ends_with(':') && ends.clone().nth(1) == Some("-") {
        ends.next();
    }
    match ends.next() {
        Some("-") => {
            ends.next();
            ends
        }
        _ => words,
    }
}

pub fn import(args: &Import) -> anyhow::Result<i32> {
    let mut imported = read(&args.source)?;
    let time_note = args.time.apply(&mut imported.topology)?;
    network::check::plan_from(&imported.name, &imported.topology)?;
    let yaml = imported.topology.to_yaml()?;
    if let Some(path) = &args.write {
        std::fs::write(path, &yaml).with_context(|| format!("--write {}", path.display()))?;
    }
    if args.json {
        print::out_json(&json!({
            "topology": imported.topology, "left_out": imported.left_out,
            "format": imported.format.name(),
        }))?;
        return Ok(0);
    }
    tell_left_out(&imported);
    time_note.iter().for_each(|note| eprintln!("lorentz: {}: {note}", imported.name));
    if args.write.is_none() {
        print::out(&yaml)?;
    }
    Ok(0)
}

pub fn export(args: &Export) -> anyhow::Result<i32> {
    let imported = network::import::read(&args.file, args.from)?;
    let plan = network::check::plan_from(&imported.name, &imported.topology)?;
    tell_left_out(&imported);
    let exported = network::export::export(&plan, args.format);
    for what in &exported.left_out {
        eprintln!("lorentz: {}: left out: {what}", imported.name);
    }
    match &args.write {
        Some(path) => std::fs::write(path, &exported.text)
            .with_context(|| format!("--write {}", path.display()))?,
        None => print::out(&exported.text)?,
    }
    Ok(0)
}

pub fn down(args: &Down) -> anyhow::Result<i32> {
    let state = StateDir::open()?;
    let names = match &args.networks[..] {
        [] if args.all => Network::list(&state)?,
        [] => vec![Network::name(&state, None)?],
        some => {
            let names = some.iter().map(|name| Network::name(&state, Some(name)));
            names.collect::<Result<Vec<_>, _>>()?
        }
    };
    let mut downs = Vec::new();
    for name in &names {
        let failed = network::shut_down(&state, name)?;
        let ended = network::down(&state, name)?;
        if !args.json {
            failed.iter().for_each(|line| eprintln!("lorentz: {line}"));
        }
        downs.push(json!({ "name": name, "ended": ended, "failed": failed }));
    }
    match &downs[..] {
        _ if !args.json => Ok(()),
        [one] if !args.all => print::out_json(one),
        all => print::out_json(&Value::from(all)),
    }?;
    Ok(0)
}

pub fn inspect(args: &Inspect) -> anyhow::Result<i32> {
    if args.yaml {
        return edit::yaml(args.network.as_deref());
    }
    let state = StateDir::open()?;
    let names = match &args.network {
        Some(name) => vec![Network::name(&state, Some(name))?],
        None => Network::list(&state)?,
    };
    let mut all = Vec::new();
    for name in names {
        let status = match Network::open(&state, &name).and_then(|mut one| one.status()) {
            Ok(status) => Some(status),
            Err(error) if matches!(error.downcast_ref(), Some(NetworkRefusal::Dead(_))) => None,
            Err(error) => return Err(error),
        };
        all.push((name, status));
    }
    if !args.json {
        let states = |status: &NetworkStatus| node_states(&state, status);
        print::out(&print_network::networks(&all, states))?;
        return Ok(0);
    }
    let entry = |(name, status): &(String, Option<NetworkStatus>)| -> anyhow::Result<Value> {
        let Some(status) = status else { return Ok(json!({ "name": name, "state": "dead" })) };
        let mut value = serde_json::to_value(status)?;
        value["state"] = if status.frozen { "frozen" } else { "running" }.into();
        for (at, node) in node_states(&state, status).into_iter().enumerate() {
            let found = state.container(&status.nodes[at].container).ok();
            let layer = found.and_then(|found| network::layer_space(&found));
            value["nodes"][at]["layer"] =
                layer.map_or(Value::Null, |(bytes, free)| json!({ "bytes": bytes, "free": free }));
            value["nodes"][at]["state"] = node.into();
        }
        Ok(value)
    };
    let mut entries = all.iter().map(entry).collect::<anyhow::Result<Vec<_>>>()?;
    match args.network {
        Some(_) => print::out_json(&entries.remove(0))?,
        None => print::out_json(&Value::Array(entries))?,
    }
    Ok(0)
}

/// Whether each node runs, in the words of `lorentz ps`.
fn node_states(state: &StateDir, status: &NetworkStatus) -> Vec<String> {
    let of = |container: &str| match state.container(container).map_err(anyhow::Error::from) {
        Ok(found) => view::state_of(&found).unwrap_or("ended").to_string(),
        Err(_) => "ended".to_string(),
    };
    status.nodes.iter().map(|node| of(&node.container)).collect()
}

pub fn link(verb: &LinkVerb) -> anyhow::Result<i32> {
    match verb {
        LinkVerb::Set(args) => link_set(args),
        LinkVerb::Add(args) => edit::link_add(args),
        LinkVerb::Rm(args) => edit::link_rm(args),
        LinkVerb::Show(args) => link_show(args),
    }
}

fn link_set(args: &LinkSet) -> anyhow::Result<i32> {
    let setting = args.setting();
    if setting.set.is_empty() && setting.is_up.is_none() {
        let what =
            "link set: nothing to change; expected --rate, --delay, --loss or another of '--help'";
        return Err(WrongInput(what.into()).into());
    }
    let mut network = open(args.network.as_deref())?;
    network.set(setting)?;
    if args.json {
        let status = network.status()?;
        let found = edit::of_end(&status, &args.end)?;
        print::out_json(&serde_json::to_value(found)?)?;
    }
    Ok(0)
}

fn link_show(args: &LinkShow) -> anyhow::Result<i32> {
    let status = open(args.network.as_deref())?.status()?;
    let links = match &args.end {
        Some(end) => vec![edit::of_end(&status, end)?.clone()],
        None => status.links.clone(),
    };
    if args.json {
        print::out_json(&serde_json::to_value(&links)?)?;
    } else {
        print::out(&print_network::links(&links))?;
    }
    Ok(0)
}

pub fn capture(args: &Capture) -> anyhow::Result<i32> {
    let to_terminal = args.write.is_none() && io::stdout().is_terminal();
    if to_terminal {
        let what = "capture: pcapng is no text for a terminal; expected --write FILE, or a pipe to tcpdump -r -";
        return Err(WrongInput(what.into()).into());
    }
    let mut frames = open(args.network.as_deref())?.capture(args.end.clone())?;
    let mut out: Box<dyn Write> = match &args.write {
        Some(path) => {
            let file = File::create(path);
            Box::new(file.with_context(|| format!("--write {}", path.display()))?)
        }
        None => Box::new(io::stdout().lock()),
    };
    let mut some = vec![0; 64 * 1024];
    loop {
        let size = frames.read(&mut some)?;
        if size == 0 {
            return Ok(0);
        }
        // A reader wants each frame as it comes.
        out.write_all(&some[..size])?;
        out.flush()?;
    }
}

pub fn graph(args: &Graph) -> anyhow::Result<i32> {
    let picture = match &args.file {
        Some(file) => {
            let imported = network::import::read(file, args.format)?;
            let plan = network::check::plan_from(&imported.name, &imported.topology)?;
            network::graph::svg_of_plan(&plan)
        }
        None => network::graph::svg(&open(args.network.as_deref())?.status()?),
    };
    match &args.write {
        Some(path) => {
            std::fs::write(path, picture).with_context(|| format!("--write {}", path.display()))?;
        }
        None => print::out(&picture)?,
    }
    Ok(0)
}

fn open(given: Option<&str>) -> anyhow::Result<Network> {
    let state = StateDir::open()?;
    Network::open(&state, &Network::name(&state, given)?)
}

#[cfg(test)]
mod tests {
    use super::kind_of;

    #[test]
    fn what_differs_by_names_and_values_alone_is_one_kind() {
        for alike in [
            ["link l1: n1 - n3: an end is not there", "link l2: n1 - n4: an end is not there"],
            [
                "link a:eth2 - host:a-eth2: an end is not there",
                "link b:1 - c:2: an end is not there",
            ],
            ["link l0: an end is not there: n1", "link l1: an end is not there: n2"],
            ["LAB_AUTHOR=x", "LAB_WEB=y"],
            ["pc1[mem]=64m", "pc2[mem]=1g"],
            ["node a: cpu:", "node b: cpu:"],
        ] {
            assert_eq!(kind_of(alike[0]), kind_of(alike[1]));
        }
        for different in [
            ["link l0: ber 1000", "link l0: jitter_upstream 5"],
            ["node a: memory: 1g", "node a: cpu: 2"],
            ["link a:1: vars: {}", "link a:1 - b:1: an end is not there"],
            ["node a of kind srl, and its links", "node b of kind ceos, and its links"],
            ["pc1[mem]=64m", "pc1[cpus]=1"],
        ] {
            assert_ne!(kind_of(different[0]), kind_of(different[1]), "{different:?}");
        }
    }
}
