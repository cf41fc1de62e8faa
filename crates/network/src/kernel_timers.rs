//! Timers of nodes that the kernel keeps in real time. This module makes them as long as their virtual durations take at the
//! network's rate, and sets them anew when the rate changes: TCP's here, others by [`namespace_timers`].
//!
//! For TCP's there are two ways, and neither can do all. Settings of a node's network namespace reach every socket that is made later, and
//! can lengthen the least retransmission timeout to any length. A BPF program (`bpf/timers.bpf.c`) at the nodes' control groups
//! sets the timeout of the first SYN, and reaches connections of listeners that existed before. It can also shorten the delay of
//! acknowledgements. The program goes with the emulator's process, which holds it.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use anyhow::Context;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags};
use lorentz_clock::{Pace, Rate, Segment, Span, NANOS_PER_SEC};
use lorentz_container::{Container, StateDir};
use lorentz_experiment::ComputeTime;
use nix::sched::{setns, CloneFlags};

use crate::directory::container_of;
use crate::namespace_timers;
use crate::plan::{NetworkPlan, NodePlan};
use crate::tap;

mod program {
    #![allow(clippy::all, missing_docs, unreachable_pub, dead_code)]
    #![allow(clippy::undocumented_unsafe_blocks)]
    include!(concat!(env!("OUT_DIR"), "/timers.skel.rs"));
}
use program::{TimersSkel, TimersSkelBuilder};

const MILLI: i64 = 1_000_000;
/// TCP's own values: the first retransmission timeout ...
const FIRST_RTO: Span = Span(NANOS_PER_SEC);
/// ... the least timeout ...
const MIN_RTO: Span = Span(200 * MILLI);
/// ... the greatest timeout, which is also the greatest that can be set ...
const MAX_RTO: Span = Span(120 * NANOS_PER_SEC);
/// ... the usual delay of an acknowledgement ...
const DELAYED_ACK: Span = Span(40 * MILLI);
/// ... and its greatest delay, which is also the greatest that can be set.
const MAX_DELAYED_ACK: Span = Span(200 * MILLI);

/// Since Linux 6.11, in microseconds.
const MIN_RTO_KEY: &str = "net.ipv4.tcp_rto_min_us";
/// Since Linux 6.15, in milliseconds.
const MAX_RTO_KEY: &str = "net.ipv4.tcp_rto_max_ms";

/// Lengths of TCP's timers in real time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct TimerLengths {
    first: Span,
    least: Span,
    most: Span,
    delack: Span,
}

impl TimerLengths {
    /// Returns the lengths at `rate`, as far as the kernel can be made to keep them; `tick` is the kernel's.
    fn at(rate: Rate, tick: Span) -> TimerLengths {
        /// Greatest value for the least timeout. The kernel doubles the timeout from there on, up to 120 s.
        const MAX_MIN_RTO: i64 = 60 * NANOS_PER_SEC;
        /// Least value for the greatest timeout that the kernel accepts.
        const MIN_MAX_RTO: i64 = NANOS_PER_SEC;
        const MIN_DELAYED_ACK: i64 = 5 * MILLI;
        let real = |span: Span| {
            let nanos = i128::from(span.0) * i128::from(rate.den()) / i128::from(rate.num());
            nanos.min(i128::from(i64::MAX)) as i64
        };
        TimerLengths {
            first: Span(real(FIRST_RTO).clamp(2 * tick.0, MAX_RTO.0)),
            // A delayed acknowledgement comes a tick or two late. A sender with a shorter timeout would send everything twice.
            least: Span(real(MIN_RTO).clamp(5 * tick.0, MAX_MIN_RTO)),
            most: Span(real(MAX_RTO).clamp(MIN_MAX_RTO, MAX_RTO.0)),
            delack: match rate.num() > rate.den() {
                true => Span(real(DELAYED_ACK).max(2 * tick.0).max(MIN_DELAYED_ACK)),
                false => MAX_DELAYED_ACK,
            },
        }
    }

    /// Returns the settings of a network namespace for these lengths. They only lengthen the least timeout. A timeout may be
    /// shorter than the peers' delay of acknowledgements only where that delay is shortened too.
    fn settings(&self) -> [(&'static str, i64); 2] {
        [(MIN_RTO_KEY, self.least.max(MIN_RTO).0 / 1_000), (MAX_RTO_KEY, self.most.0 / MILLI)]
    }

    /// Returns the parameters of the BPF program, for nodes with settings of their `own`. The program cannot set a least timeout
    /// above 200 ms.
    fn parameters(&self, tick: Span, own: OwnSettings) -> Vec<u8> {
        let least = if self.least > MIN_RTO || own.least { 0 } else { self.least.0 / 1_000 };
        let most = if own.most { 0 } else { self.most.0 / MILLI };
        let words = [self.first.0 / tick.0, least, most, self.delack.0 / 1_000];
        words.into_iter().flat_map(|word| (word as i32).to_ne_bytes()).collect()
    }
}

/// Which of TCP's timers the topology file sets for a node. These are left alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct OwnSettings {
    least: bool,
    most: bool,
}

impl OwnSettings {
    fn of(node: &NodePlan) -> OwnSettings {
        let sets = |key| node.sysctls.iter().any(|(one, _)| one == key);
        OwnSettings { least: sets(MIN_RTO_KEY), most: sets(MAX_RTO_KEY) }
    }

    fn has(self, key: &str) -> bool {
        if key == MIN_RTO_KEY {
            self.least
        } else {
            self.most
        }
    }
}

/// Sets the timers in the network namespace of this thread, that of a node with `compute`, at the start of a network at `rate`.
pub(crate) fn set_initial(rate: Rate, compute: ComputeTime) {
    if rate != Rate::ONE {
        apply(&TimerLengths::at(rate, tick()), OwnSettings { least: false, most: false });
    }
    if !namespace_timers::are_usual(rate, compute) {
        namespace_timers::set(rate, compute, |_| false);
    }
}

fn apply(lengths: &TimerLengths, own: OwnSettings) {
    for (key, value) in lengths.settings().into_iter().filter(|(key, _)| !own.has(key)) {
        // An error means an older kernel without this setting.
        let _ = tap::set_sysctl(key, &value.to_string());
    }
}

/// Returns the kernel's tick: the resolution of its coarse clock.
fn tick() -> Span {
    const DEFAULT_TICK: Span = Span(4 * MILLI);
    let found = nix::time::clock_getres(nix::time::ClockId::CLOCK_MONOTONIC_COARSE);
    found.map_or(DEFAULT_TICK, |tick| Span(tick.tv_sec() * NANOS_PER_SEC + tick.tv_nsec()))
}

/// The kernel's timers of a network's nodes.
pub(crate) struct KernelTimers {
    rate: Rate,
    tick: Span,
    namespace: Option<File>,
    nodes: Vec<NodeTimers>,
    programs: Vec<TimerProgram>,
    /// The reason why some nodes have no BPF program; `None` if all have it.
    pub refused: Option<String>,
}

/// A node whose timers are to be set.
struct NodeTimers {
    name: String,
    own: OwnSettings,
    /// The keys of the settings that the topology file gives.
    sysctls: Vec<String>,
    compute: ComputeTime,
    /// The process that supervises the node's program, which is in the node's namespace.
    monitor: OwnedFd,
}

/// The BPF program for nodes that have the same settings of their own.
struct TimerProgram {
    own: OwnSettings,
    skel: TimersSkel<'static>,
    links: Vec<Link>,
}

impl KernelTimers {
    /// The timers of the nodes of `plan`, which must all exist.
    pub fn of(state: &StateDir, plan: &NetworkPlan) -> KernelTimers {
        let mut timers = KernelTimers {
            rate: plan.clock.rate_or_tdf(),
            tick: tick(),
            namespace: File::open("/proc/self/ns/net").ok(),
            nodes: Vec::new(),
            programs: Vec::new(),
            refused: None,
        };
        plan.nodes.iter().for_each(|node| timers.add_node(state, &plan.name, node));
        timers
    }

    /// Adds a node of `network`, which must exist.
    pub fn add_node(&mut self, state: &StateDir, network: &str, node: &NodePlan) {
        if let Err(error) = self.add(state, network, node) {
            self.refused = Some(format!("node {}: {error:#}", node.name));
        }
    }

    /// Sets the timers of all interfaces in the network namespace of this thread, which is that of `node`: the kernel gives those of the
    /// host to one that is made.
    pub fn set_in_namespace_of(&self, node: &NodePlan) {
        if !namespace_timers::are_usual(self.rate, node.compute) {
            namespace_timers::set(self.rate, node.compute, |key| node.sysctls.contains_key(key));
        }
    }

    /// Whether the node was added.
    pub fn has(&self, node: &str) -> bool {
        self.nodes.iter().any(|one| one.name == node)
    }

    /// Forgets a node that is gone: another may get its name.
    pub fn forget(&mut self, node: &str) {
        self.nodes.retain(|one| one.name != node);
    }

    fn add(&mut self, state: &StateDir, network: &str, node: &NodePlan) -> anyhow::Result<()> {
        let own = OwnSettings::of(node);
        let container = state.container(&container_of(network, &node.name))?;
        let sysctls = node.sysctls.keys().cloned().collect();
        let (name, monitor) = (node.name.clone(), monitor(&container)?);
        self.nodes.push(NodeTimers { name, own, sysctls, compute: node.compute, monitor });
        let group = container.cgroup().context("no control group of version 2 for it")?;
        let group = File::open(group.path())?;
        let at = match self.programs.iter().position(|program| program.own == own) {
            Some(at) => at,
            None => {
                self.programs.push(TimerProgram::load(own)?);
                self.programs.len() - 1
            }
        };
        let program = &mut self.programs[at];
        if self.rate != Rate::ONE {
            program.set(&TimerLengths::at(self.rate, self.tick), self.tick)?;
        }
        program.links.push(program.skel.progs.keep_time.attach_cgroup(group.as_raw_fd())?);
        Ok(())
    }

    /// Sets the timers by the rate of `segment`; TCP's for connections that are made from here on.
    pub fn follow_rate(&mut self, segment: &Segment) {
        let Pace::Running(rate) = segment.pace else { return };
        if rate == self.rate {
            return;
        }
        self.rate = rate;
        let lengths = TimerLengths::at(rate, self.tick);
        for program in &self.programs {
            if let Err(error) = program.set(&lengths, self.tick) {
                self.refused = Some(format!("{error:#}"));
            }
        }
        let Some(back) = &self.namespace else { return };
        for node in &self.nodes {
            // An error means that the process has ended, and is in no namespace.
            if setns(&node.monitor, CloneFlags::CLONE_NEWNET).is_ok() {
                apply(&lengths, node.own);
                let is_own = |key: &str| node.sysctls.iter().any(|own| own == key);
                namespace_timers::set(rate, node.compute, is_own);
            }
        }
        // The thread was in this namespace a moment ago.
        setns(back, CloneFlags::empty()).expect("the emulator's own network namespace");
    }
}

impl TimerProgram {
    fn load(own: OwnSettings) -> anyhow::Result<TimerProgram> {
        libbpf_rs::set_print(None);
        // Leaked: the object stays as long as the process.
        let memory = Box::leak(Box::new(MaybeUninit::uninit()));
        let skel = TimersSkelBuilder::default().open(memory)?.load().context("a BPF program")?;
        Ok(TimerProgram { own, skel, links: Vec::new() })
    }

    fn set(&self, lengths: &TimerLengths, tick: Span) -> anyhow::Result<()> {
        let words = lengths.parameters(tick, self.own);
        Ok(self.skel.maps.timers.update(&0_u32.to_ne_bytes(), &words, MapFlags::ANY)?)
    }
}

/// Returns a descriptor of the process that supervises the program of `node`.
fn monitor(node: &Container) -> anyhow::Result<OwnedFd> {
    let monitor = node.record().monitors.first().context("nobody looks after it")?;
    // SAFETY: plain numbers in, a descriptor or -1 out.
    match unsafe { libc::syscall(libc::SYS_pidfd_open, monitor.pid, 0) } {
        -1 => Err(io::Error::last_os_error().into()),
        // SAFETY: made here, and nobody else's.
        raw => Ok(unsafe { OwnedFd::from_raw_fd(raw as i32) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Span = Span(4 * MILLI);

    fn at(num: u64, den: u64) -> TimerLengths {
        TimerLengths::at(Rate::new(num, den).unwrap(), TICK)
    }

    #[test]
    fn a_virtual_duration_takes_its_real_time() {
        let slow = at(1, 4);
        assert_eq!((slow.first, slow.least), (Span(4 * NANOS_PER_SEC), Span(800 * MILLI)));
        assert_eq!((slow.most, slow.delack), (MAX_RTO, MAX_DELAYED_ACK));
        let fast = at(4, 1);
        assert_eq!((fast.first, fast.least), (Span(250 * MILLI), Span(50 * MILLI)));
        assert_eq!((fast.most, fast.delack), (Span(30 * NANOS_PER_SEC), Span(10 * MILLI)));
    }

    #[test]
    fn what_the_kernel_would_refuse_is_not_asked_of_it() {
        let fastest = at(1_000_000, 1);
        assert_eq!((fastest.first, fastest.least), (Span(8 * MILLI), Span(20 * MILLI)));
        assert_eq!((fastest.most, fastest.delack), (Span(NANOS_PER_SEC), Span(8 * MILLI)));
        let slowest = at(1, 1_000_000);
        assert_eq!((slowest.first, slowest.most), (MAX_RTO, MAX_RTO));
        assert_eq!(slowest.least, Span(60 * NANOS_PER_SEC));
    }

    #[test]
    fn a_nodes_own_settings_are_left_alone() {
        let word = |bytes: Vec<u8>, at: usize| {
            i32::from_ne_bytes(bytes[at * 4..at * 4 + 4].try_into().unwrap())
        };
        let neither = OwnSettings { least: false, most: false };
        assert_eq!(word(at(4, 1).parameters(TICK, neither), 0), 62);
        assert_eq!(word(at(4, 1).parameters(TICK, neither), 1), 50_000);
        assert_eq!(word(at(4, 1).parameters(TICK, OwnSettings { least: true, most: false }), 1), 0);
        assert_eq!(word(at(1, 4).parameters(TICK, neither), 1), 0);
        assert_eq!(word(at(1, 1).parameters(TICK, neither), 1), 200_000);
    }
}
