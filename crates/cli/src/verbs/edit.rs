//! `link add`, `link rm`, `node add`, `node rm`, `schedule`, `inspect --yaml`: changes of a running network's nodes, links and
//! schedule.

use lorentz_container::StateDir;
use lorentz_network::plan::Endpoint;
use lorentz_network::topology::ScheduledChange;
use lorentz_network::{
    self as network, ExecPolicy, LinkStatus, Network, NetworkRefusal, NetworkStatus, NewSchedule,
    NodeStatus,
};
use serde_json::json;

use crate::edit_args::{LinkAdd, LinkRm, NodeAdd, NodeRm, NodeVerb, ScheduleOf, ScheduleVerb};
use crate::{print, print_network};

pub fn link_add(args: &LinkAdd) -> anyhow::Result<i32> {
    let state = StateDir::open()?;
    let name = Network::name(&state, args.network.as_deref())?;
    network::add_link(&state, &name, args.link())?;
    if args.json {
        let status = Network::open(&state, &name)?.status()?;
        print::out_json(&serde_json::to_value(of_end(&status, &args.end)?)?)?;
    }
    Ok(0)
}

pub fn link_rm(args: &LinkRm) -> anyhow::Result<i32> {
    let state = StateDir::open()?;
    let name = Network::name(&state, args.network.as_deref())?;
    let ends = network::remove_link(&state, &name, &args.end)?;
    if args.json {
        print::out_json(&json!({ "network": name, "removed": ends }))?;
    }
    Ok(0)
}

pub fn node(verb: &NodeVerb) -> anyhow::Result<i32> {
    match verb {
        NodeVerb::Add(args) => node_add(args),
        NodeVerb::Rm(args) => node_rm(args),
    }
}

fn node_add(args: &NodeAdd) -> anyhow::Result<i32> {
    let state = StateDir::open()?;
    let name = Network::name(&state, args.network.as_deref())?;
    let failed = network::add_node(&state, &name, args.new_node(), ExecPolicy::Strict)?;
    if args.json {
        let status = Network::open(&state, &name)?.status()?;
        let is_it = |node: &&NodeStatus| node.name == args.name;
        let found = status.nodes.iter().find(is_it);
        print::out_json(&json!({ "network": name, "node": found, "failed": failed }))?;
    }
    Ok(0)
}

fn node_rm(args: &NodeRm) -> anyhow::Result<i32> {
    let state = StateDir::open()?;
    let name = Network::name(&state, args.network.as_deref())?;
    let (ended, failed) = network::remove_node(&state, &name, &args.name)?;
    if args.json {
        print::out_json(&json!({ "network": name, "ended": ended, "failed": failed }))?;
    } else {
        failed.iter().for_each(|line| eprintln!("lorentz: {line}"));
    }
    Ok(0)
}

pub fn schedule(verb: &ScheduleVerb) -> anyhow::Result<i32> {
    let nothing = NewSchedule::default;
    match verb {
        ScheduleVerb::Show(of) => schedule_show(of),
        ScheduleVerb::Add(args) => {
            let (added, from_now) = (args.changes.clone(), args.from_now);
            reschedule(&args.of, NewSchedule { added, from_now, ..nothing() })
        }
        ScheduleVerb::Rm(args) => {
            reschedule(&args.of, NewSchedule { removed: args.changes.clone(), ..nothing() })
        }
        ScheduleVerb::Move(args) => {
            let moved = ScheduledChange { at: args.at, ..args.change.clone() };
            let (removed, added) = (vec![args.change.clone()], vec![moved]);
            reschedule(&args.of, NewSchedule { removed, added, ..nothing() })
        }
        ScheduleVerb::Set(args) => {
            let added = network::read_schedule(&args.file)?;
            let from_now = args.from_now;
            reschedule(&args.of, NewSchedule { added, replaces: true, from_now, ..nothing() })
        }
        ScheduleVerb::Clear(of) => reschedule(of, NewSchedule { replaces: true, ..nothing() }),
    }
}

fn schedule_show(of: &ScheduleOf) -> anyhow::Result<i32> {
    let state = StateDir::open()?;
    let name = Network::name(&state, of.network.as_deref())?;
    let to_come = network::schedule_of(&state, &name)?;
    match of.json {
        true => print::out_json(&serde_json::to_value(&to_come)?)?,
        false => print::out(&print_network::schedule(&to_come))?,
    }
    Ok(0)
}

fn reschedule(of: &ScheduleOf, new: NewSchedule) -> anyhow::Result<i32> {
    let state = StateDir::open()?;
    let name = Network::name(&state, of.network.as_deref())?;
    let to_come: Vec<ScheduledChange> = network::schedule(&state, &name, new)?;
    if of.json {
        print::out_json(&serde_json::to_value(&to_come)?)?;
    }
    Ok(0)
}

/// Prints the topology file of a network as it runs.
pub fn yaml(given: Option<&str>) -> anyhow::Result<i32> {
    let state = StateDir::open()?;
    let name = Network::name(&state, given)?;
    print::out(&network::topology_of(&state, &name)?.to_yaml()?)?;
    Ok(0)
}

/// Returns the link that ends at `end`.
pub fn of_end<'a>(status: &'a NetworkStatus, end: &Endpoint) -> anyhow::Result<&'a LinkStatus> {
    let found = status.links.iter().find(|link| link.directions.iter().any(|one| one.from == *end));
    found.ok_or_else(|| {
        let what =
            format!("{end}: no link ends there; expected an end of one of 'lorentz link show'");
        NetworkRefusal::Setting(what).into()
    })
}
