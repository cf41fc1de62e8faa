//! `latency`: what the network stack of containers adds to packets.

use std::io::{self, IsTerminal, Write};
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use lorentz_container::{Container, ForeignContainer, StateDir};
use lorentz_packets::{
    aggregate, correct, json_line, prometheus, Audience, Counters, LatencyMethod, Namespace,
    OuterDevice, Packet, PacketsError, Rule, Service, SocketLocation, ToVirtual, Watched, Watcher,
};
use serde_json::Value;

use crate::latency_args::{Latency, Measure, OrderArgs, Serve, Watch};
use crate::wrong_input::WrongInput;
use crate::{print, print_latency};

/// Clears a terminal and goes to its upper left corner.
const CLEAR: &str = "\x1b[H\x1b[2J";

pub fn latency(verb: &Latency) -> anyhow::Result<i32> {
    match verb {
        Latency::Watch(args) => watch(args),
        Latency::Serve(args) => serve(args),
        Latency::Ping(args) => corrected("ping", "ping", &args.arguments),
        Latency::Run(args) => corrected(&args.rule, &args.command[0], &args.command[1..]),
        Latency::On(args) => order(args, lorentz_packets::WatchOrder::On),
        Latency::Off(args) => order(args, lorentz_packets::WatchOrder::Off),
        Latency::Reset(args) => order(args, lorentz_packets::WatchOrder::Reset),
    }
}

fn watch(args: &Watch) -> anyhow::Result<i32> {
    let place = if args.serve { SocketLocation::Inside } else { SocketLocation::Nowhere };
    let mut service = start(&args.measure, &place)?;
    let live = !args.json && !args.summary && !args.prometheus && io::stdout().is_terminal();
    let mut screen = Screen { args, live, past: Vec::new() };
    service.run(limit(&args.measure), &mut screen)?;
    screen.close(service.watcher())?;
    Ok(0)
}

fn serve(args: &Serve) -> anyhow::Result<i32> {
    if args.at.is_some() && args.measure.targets.len() > 1 {
        return Err(WrongInput("--at: expected one namespace".into()).into());
    }
    let place = match &args.at {
        Some(path) => SocketLocation::At(path.clone()),
        None if args.files => SocketLocation::InsideWithFiles,
        None => SocketLocation::Inside,
    };
    let mut service = start(&args.measure, &place)?;
    if args.paused {
        service.pause()?;
    }
    service.run(limit(&args.measure), &mut Nobody)?;
    Ok(0)
}

fn limit(args: &Measure) -> Option<Duration> {
    args.limit.map(|limit| Duration::from_nanos(limit.0.unsigned_abs()))
}

/// Begins to measure all that was asked for.
fn start(args: &Measure, place: &SocketLocation) -> anyhow::Result<Service> {
    let outers = match args.outer.as_slice() {
        [] => OuterDevice::of_default_routes()?,
        names => names.iter().map(|name| OuterDevice::named(name)).collect::<Result<_, _>>()?,
    };
    if args.hardware {
        outers.iter().try_for_each(OuterDevice::check_hardware_timestamps)?;
    }
    let found: Vec<_> = args.targets.iter().map(|name| find(name)).collect::<Result<_, _>>()?;
    let way = if args.in_band { LatencyMethod::InBand } else { LatencyMethod::Traced };
    let mut service = Service::new(Watcher::new(outers, way, args.ring)?)?;
    for (namespace, clock) in found {
        service.add(namespace, clock, place)?;
    }
    Ok(service)
}

/// The namespace called `name`, and the clock of the container it belongs to where that is a virtual one.
fn find(name: &str) -> anyhow::Result<(Namespace, Option<ToVirtual>)> {
    let state = StateDir::open()?;
    let of_lorentz = state.find(name).ok();
    let first =
        |container: &Container| -> Option<u32> { Some(container.processes().ok()?.first()?.pid) };
    let namespace = match of_lorentz.as_ref().and_then(first) {
        Some(pid) => Namespace::of_process(name, pid)?,
        None => match Namespace::find(name) {
            Err(unknown @ PacketsError::NoSuchNamespace(_)) => {
                let pid = ForeignContainer::first_process_named(name).ok_or(unknown)?;
                Namespace::of_process(name, pid)?
            }
            found => found?,
        },
    };
    let by_process = || state.find(&namespace.process?.to_string()).ok();
    let clock = of_lorentz.or_else(by_process).and_then(|container| container.clock().ok());
    let to_virtual = clock.map(|clock| -> ToVirtual {
        Box::new(move |real| {
            let rate = clock.reading().rate;
            (u128::from(real) * u128::from(rate.num()) / u128::from(rate.den())) as u64
        })
    });
    Ok((namespace, to_virtual))
}

fn order(args: &OrderArgs, order: lorentz_packets::WatchOrder) -> anyhow::Result<i32> {
    let (namespace, _) = find(&args.target)?;
    let answers = lorentz_packets::send_order(order, &namespace)?;
    if args.json {
        print::out_json(&Value::Array(answers))?;
    }
    Ok(0)
}

/// Runs a tool and corrects what it says; its exit status.
fn corrected(rule: &str, command: &str, arguments: &[String]) -> anyhow::Result<i32> {
    const SIGNAL: i32 = 128;
    let rule = Rule::find(rule)?;
    let status = correct(&rule, command, arguments, &mut io::stdout().lock())?;
    Ok(status.code().or(status.signal().map(|signal| SIGNAL + signal)).unwrap_or(SIGNAL))
}

/// Reads the counters of every watched namespace.
fn read_counters(watcher: &Watcher) -> Result<Vec<(&Watched, Counters)>, PacketsError> {
    let counters = |watched: &Watched| watcher.counters(watched.namespace.cookie);
    watcher.watched().iter().map(|watched| Ok((watched, counters(watched)?))).collect()
}

/// Standard output.
struct Screen<'a> {
    args: &'a Watch,
    /// The table is written again and again.
    live: bool,
    /// Of namespaces that have ended.
    past: Vec<String>,
}

impl Screen<'_> {
    fn show(&self, all: &[(&Watched, Counters)]) -> String {
        if self.args.prometheus {
            prometheus(all)
        } else if self.args.summary {
            let one = |(watched, counters): &(&Watched, Counters)| {
                format!("{}\n", aggregate(watched, *counters, self.args.histogram))
            };
            all.iter().map(one).collect()
        } else {
            print_latency::namespaces(all, self.args.histogram)
        }
    }

    /// Prints the counters at the end, for people.
    fn close(&self, watcher: &Watcher) -> anyhow::Result<()> {
        if self.args.json {
            return Ok(());
        }
        if self.live {
            print::out(CLEAR)?;
        }
        let all = read_counters(watcher)?;
        print::out(&self.past.concat())?;
        if !all.is_empty() {
            print::out(&self.show(&all))?;
        }
        Ok(())
    }
}

impl Audience for Screen<'_> {
    fn packet(&mut self, watched: &Watched, packet: &Packet, offset: u64) -> io::Result<()> {
        match self.args.json {
            true => {
                let line = json_line(packet, &watched.namespace.name, offset);
                writeln!(io::stdout().lock(), "{line}")
            }
            false => Ok(()),
        }
    }

    fn tick(&mut self, watcher: &Watcher) -> io::Result<()> {
        if self.live {
            let all = read_counters(watcher).map_err(io::Error::other)?;
            print::out(&format!("{CLEAR}{}", self.show(&all)))?;
        }
        Ok(())
    }

    fn ended(&mut self, watched: &Watched, counters: Counters) -> io::Result<()> {
        self.past.push(self.show(&[(watched, counters)]));
        Ok(())
    }
}

/// No audience here: the readers are inside the containers.
struct Nobody;

impl Audience for Nobody {
    fn packet(&mut self, _: &Watched, _: &Packet, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn tick(&mut self, _: &Watcher) -> io::Result<()> {
        Ok(())
    }

    fn ended(&mut self, _: &Watched, _: Counters) -> io::Result<()> {
        Ok(())
    }
}
