//! `up`, `import`, `down`, `inspect`, `link`, `capture`, `graph`: networks.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};

use anyhow::Context;
use lorentz_container::StateDir;
use lorentz_network::import::Imported;
use lorentz_network::plan::Endpoint;
use lorentz_network::{self as network, LinkStatus, Network, NetworkRefusal, NetworkStatus};
use serde_json::{json, Value};

use crate::diagnostics::WrongInput;
use crate::network_args::{
    Capture, Down, Graph, Import, Inspect, LinkSet, LinkShow, LinkVerb, Source, Up,
};
use crate::view;
use crate::{print, print_network};

pub fn up(args: &Up) -> anyhow::Result<i32> {
    let mut imported = read(&args.source)?;
    imported.topology.rounds |= args.rounds;
    if args.on_host {
        imported.topology.put_on_host();
    }
    if args.ignore_images {
        imported.topology.ignore_images();
    }
    let mut plan = network::check::plan_from(&imported.name, &imported.topology)?;
    plan.layer_size = args.layer_size.unwrap_or(plan.layer_size);
    let advice = network::neighbours::advice(&plan);
    if !args.json {
        tell_left_out(&imported);
        advice.iter().for_each(|word| eprintln!("lorentz: {}: {word}", plan.name));
    }
    let state = StateDir::open()?;
    if !args.check {
        if args.pull {
            network::pull_missing(&plan)?;
        }
        network::up(&state, &plan)?;
    }
    if args.json {
        let names: Vec<&str> = plan.nodes.iter().map(|node| node.name.as_str()).collect();
        print::out_json(&json!({
            "name": plan.name, "nodes": names, "links": plan.links.len(), "up": !args.check,
            "left_out": imported.left_out, "advice": advice, "files": plan.files_note(),
        }))?;
    } else if args.check {
        print::out(&format!(
            "{}: {} nodes, {} links\n",
            plan.name,
            plan.nodes.len(),
            plan.links.len()
        ))?;
    } else {
        let first = plan.nodes.first().map_or("NODE", |node| node.name.as_str());
        print::out(&format!(
            "{}: {} nodes, {} links; 'lorentz exec {0}.{first} COMMAND' runs a command in one\n\
             {0}: {}\n",
            plan.name,
            plan.nodes.len(),
            plan.links.len(),
            plan.files_note()
        ))?;
    }
    Ok(0)
}

fn read(source: &Source) -> anyhow::Result<Imported> {
    network::import::read(&source.file, source.format)
}

fn tell_left_out(imported: &Imported) {
    for one in &imported.left_out {
        eprintln!("lorentz: {one}");
    }
}

pub fn import(args: &Import) -> anyhow::Result<i32> {
    let imported = read(&args.source)?;
    network::check::plan_from(&imported.name, &imported.topology)?;
    let yaml = imported.topology.to_yaml()?;
    if let Some(path) = &args.write {
        std::fs::write(path, &yaml).with_context(|| format!("--write {}", path.display()))?;
    }
    if args.json {
        print::out_json(&json!({
            "topology": imported.topology, "left_out": imported.left_out,
        }))?;
        return Ok(0);
    }
    tell_left_out(&imported);
    if args.write.is_none() {
        print::out(&yaml)?;
    }
    Ok(0)
}

pub fn down(args: &Down) -> anyhow::Result<i32> {
    let state = StateDir::open()?;
    let name = Network::name(&state, args.network.as_deref())?;
    let ended = network::down(&state, &name)?;
    if args.json {
        print::out_json(&json!({ "name": name, "ended": ended }))?;
    }
    Ok(0)
}

pub fn inspect(args: &Inspect) -> anyhow::Result<i32> {
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
        let found = of_end(&status, &args.end)?;
        print::out_json(&serde_json::to_value(found)?)?;
    }
    Ok(0)
}

fn link_show(args: &LinkShow) -> anyhow::Result<i32> {
    let status = open(args.network.as_deref())?.status()?;
    let links = match &args.end {
        Some(end) => vec![of_end(&status, end)?.clone()],
        None => status.links.clone(),
    };
    if args.json {
        print::out_json(&serde_json::to_value(&links)?)?;
    } else {
        print::out(&print_network::links(&links))?;
    }
    Ok(0)
}

fn of_end<'a>(status: &'a NetworkStatus, end: &Endpoint) -> anyhow::Result<&'a LinkStatus> {
    let found = status.links.iter().find(|link| link.directions.iter().any(|one| one.from == *end));
    found.ok_or_else(|| {
        let what =
            format!("{end}: no link ends there; expected an end of one of 'lorentz link show'");
        NetworkRefusal::Setting(what).into()
    })
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
    let picture = network::graph::svg(&open(args.network.as_deref())?.status()?);
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
