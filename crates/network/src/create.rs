//! Creating a network.
//!
//! The emulator's process makes everything. It makes the clock, which stands still until the network is complete. For each node it
//! makes a network namespace with its interfaces, and in it the process that supervises the node's program.

use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use anyhow::Context;
use lorentz_clock::{Span, VirtualInstant};
use lorentz_container::{
    self as container, start_in_background, Container, MonitorKind, NewContainer, StateDir,
};
use lorentz_control::{Cgroup, Clock, ClockOptions, ClockSettings, HostNow};
use lorentz_emulator::{Attachment, Emulator, StationId, SwitchId};
use lorentz_experiment::{self as experiment, ComputeTime, Experiment};
use nix::fcntl::Flock;
use nix::sched::{setns, unshare, CloneFlags};
use nix::sys::resource::{getrlimit, setrlimit, Resource};

use crate::destroy::down;
use crate::directory::{container_of, NetworkDir, NetworkRecord};
use crate::exec::FailedLine;
use crate::file_systems::{self, NodeEntry};
use crate::image;
use crate::kernel_timers::{self, KernelTimers};
use crate::lines;
use crate::node::{
    enter, join_rounds, make_interface, node_status, open_log, output, set_no_new_privs,
    standing_still,
};
use crate::plan::{Endpoint, LinkPlan, NetworkPlan, NodeBind, NodePlan};
use crate::private;
use crate::serve::{EmulatorServer, Port, SendTimes};
use crate::steps::{ExecPolicy, LinkCount, Step};
use crate::tap;
use crate::topology::{Isolation, TopologyFile};
use crate::NetworkRefusal;

/// The namespaces that each node has of its own.
const NODE_NAMESPACES: CloneFlags = CloneFlags::CLONE_NEWNET.union(CloneFlags::CLONE_NEWUTS);

/// Makes the network of `plan` and starts its time. The caller must have one thread only. Returns the lines of `exec` that failed.
///
/// `topology` is the file that `plan` was made of. `progress` hears of each step: of nodes, links and [`Step::Started`] in a child
/// process.
///
/// # Errors
///
/// If this user may not do it, names are in use, a command does not exist, or a command of `exec` has failed that `policy` does not
/// let fail. After an error nothing is left.
pub fn up(
    state: &StateDir,
    plan: &NetworkPlan,
    topology: &TopologyFile,
    policy: ExecPolicy,
    progress: &dyn Fn(Step),
) -> anyhow::Result<Vec<FailedLine>> {
    check(state, plan)?;
    // 'inspect --yaml' prints the file, with the faults as a schedule that replays.
    let mut topology = topology.clone();
    topology.write_out_faults().map_err(|(_, what)| NetworkRefusal::Setting(what))?;
    let directory = NetworkDir::of(state, &plan.name)?;
    directory.make().with_context(|| format!("making the network {}", plan.name))?;
    if plan.rounds {
        experiment::create(state, &plan.name, &experiment::ExperimentOptions::default())
            .inspect_err(|_| directory.remove())?;
    }
    let made = directory.store_topology(&topology).and_then(|()| {
        let plan = image::mount_all(&directory, plan)?;
        plan.nodes.iter().try_for_each(check_command)?;
        start_emulator(state, &plan, &directory, progress)?;
        lines::run_exec(state, &plan, &directory, policy, progress)
    });
    if made.is_err() {
        down(state, &plan.name)?;
    }
    made
}

/// Checks that the program of the node exists.
pub(crate) fn check_command(node: &NodePlan) -> anyhow::Result<()> {
    let Some(word) = node.command.as_ref().and_then(|words| words.first()) else { return Ok(()) };
    let is_there = match &node.rootfs {
        Some(root) if word.contains('/') => {
            let folder = node.folder.as_deref().unwrap_or(Path::new("/"));
            file_systems::has_program(root, &folder.join(word).to_string_lossy())
        }
        Some(root) => file_systems::has_program(root, word),
        None => {
            let found =
                CString::new(word.as_str()).ok().map(|word| lorentz_inject::find_command(&word));
            matches!(found, Some(Ok(_)))
        }
    };
    let refusal = || NetworkRefusal::NoCommand { node: node.name.clone(), command: word.clone() };
    is_there.then_some(()).ok_or_else(|| refusal().into())
}

/// Checks that the host's files and directories exist that the node is to see.
fn check_files(node: &NodePlan) -> Result<(), NetworkRefusal> {
    let missing = |key, path: &Path, expected| {
        let (node, path) = (node.name.clone(), path.display().to_string());
        Err(NetworkRefusal::NoFile { node, key, path, expected })
    };
    if let Some(root) = node.rootfs.as_ref().filter(|root| !root.is_dir()) {
        return missing("rootfs", root, "a directory with a root file system");
    }
    if let Some(files) = node.files.as_ref().filter(|files| !files.is_dir()) {
        return missing("files", files, "a directory");
    }
    for NodeBind { bind, .. } in &node.binds {
        if !bind.source.exists() {
            return missing("binds", &bind.source, "a file or directory");
        }
        let is_shared = node.rootfs.is_none() && node.isolation == Isolation::Host;
        if is_shared && !bind.target.exists() {
            return missing("binds", &bind.target, "a place for it, where there is no rootfs");
        }
    }
    Ok(())
}

/// Checks that the network can be made, as far as this is known before anything is made.
fn check(state: &StateDir, plan: &NetworkPlan) -> anyhow::Result<()> {
    if !nix::unistd::geteuid().is_root() {
        return Err(NetworkRefusal::NotRoot.into());
    }
    if NetworkDir::of(state, &plan.name)?.exists() {
        return Err(NetworkRefusal::NameInUse(plan.name.clone()).into());
    }
    state.check_new_name(&plan.name)?;
    check_new_nodes(state, plan)?;
    let host = HostNow::read()?;
    clock_settings(&plan.clock, &host)?;
    let mut own = plan.nodes.iter().map(|node| node.clock.or(&plan.clock));
    own.try_for_each(|clock| clock_settings(&clock, &host).map(drop))
}

/// Starts the emulator's process, and returns when the network's time runs.
fn start_emulator(
    state: &StateDir,
    plan: &NetworkPlan,
    directory: &NetworkDir,
    progress: &dyn Fn(Step),
) -> anyhow::Result<()> {
    let listener = directory.listen()?;
    // The background process has no standard streams. Progress is shown until time runs.
    let stderr = io::stderr();
    let terminal = match stderr.is_terminal() {
        true => Some(stderr.as_fd().try_clone_to_owned()?),
        false => None,
    };
    // The emulator has it from its first instruction on. `up` may be killed at any moment.
    let starting = directory.begin_making()?;
    let kept = [Some(listener.as_fd()), Some(starting.as_fd()), terminal.as_ref().map(AsFd::as_fd)];
    let kept: Vec<BorrowedFd> = kept.into_iter().flatten().collect();
    start_in_background(&kept, |ready| {
        if let Some(terminal) = &terminal {
            nix::unistd::dup2_stderr(terminal)?;
            // This process ends without dropping `terminal`.
            nix::unistd::close(terminal.as_raw_fd())?;
        }
        let null = OpenOptions::new().write(true).open("/dev/null")?;
        let started = || {
            progress(Step::Started);
            // An error would leave the terminal open, and nothing else.
            let _ = nix::unistd::dup2_stderr(&null);
            ready.done();
        };
        let making = ManuallyDrop::new(directory.begin_making()?);
        nix::unistd::close(starting.as_raw_fd())?;
        emulate(state, plan, directory, listener.try_clone()?, making, progress, started)
    })
}

fn emulate(
    state: &StateDir,
    plan: &NetworkPlan,
    directory: &NetworkDir,
    listener: UnixListener,
    // After an error the lock stays until this process, and those that make nodes, have ended.
    making: ManuallyDrop<Flock<File>>,
    progress: &dyn Fn(Step),
    ready: impl FnOnce(),
) -> anyhow::Result<()> {
    let names = plan.nodes.iter().map(|node| node.name.clone()).collect();
    let mut record = NetworkRecord::of_this_process(names)?;
    record.rounds = plan.rounds;
    let entry =
        |node: &NodePlan| (node.name.clone(), NodeEntry::of(node, &directory.root(&node.name)));
    let on_host = |node: &&NodePlan| node.isolation == Isolation::Host;
    record.entries = plan.nodes.iter().filter(on_host).map(entry).collect();
    record.shutdown = lines::of_shutdown(plan, directory);
    directory.store(&record)?;
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
    // All clocks begin at one instant.
    let host = HostNow::read()?;
    let plan = &with_fixed_start(plan, &host);
    let owner = make_clock(state, plan, &host)?;
    let (emulator, stations) = build_emulator(plan);
    let ports = make_nodes(state, plan, directory, &stations, &host, making.as_fd(), progress)?;
    drop(ManuallyDrop::into_inner(making));
    let mut rounds = None;
    if plan.rounds {
        rounds = Some(hold_nodes(state, plan, &owner.clock()?, &ports)?);
        record.made = creation_times(state, plan)?;
        directory.store(&record)?;
    }
    let private_groups = private::start_all(state, plan)?;
    raise_priority();
    // Nobody waits for the processes that supervise nodes.
    // SAFETY: no handler is set.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    let server = EmulatorServer {
        nodes: plan.nodes.iter().map(|node| node_status(plan, directory, node)).collect(),
        plan: plan.clone(),
        emulator,
        ports,
        timers: KernelTimers::of(state, plan),
        clock: owner.clock()?,
        clock_path: owner.clock_path(),
        listener,
        state: state.clone(),
        directory: directory.clone(),
        rounds,
    };
    server.serve(|| {
        owner.clock()?.unfreeze()?;
        private_groups.iter().for_each(Cgroup::thaw);
        ready();
        Ok(())
    })
}

/// Raises the priority of the emulator: a late frame is late for every node, so the emulator gets its processor before programs
/// that compute.
fn raise_priority() {
    // SAFETY: plain numbers; 0 is this process. Without the right to do so the call fails, and the priority stays.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -10) };
}

/// Makes the container with the network's clock, which stands still.
fn make_clock(state: &StateDir, plan: &NetworkPlan, host: &HostNow) -> anyhow::Result<Container> {
    // The truth, by which the nodes' clocks are moved.
    let options = ClockOptions { clock_error: None, ..plan.clock.clone() };
    let words = ["lorentz".into(), "up".into()];
    let new = NewContainer {
        name: Some(&plan.name),
        command: &words,
        ..NewContainer::monitored_by(MonitorKind::Run)
    };
    Ok(state.create(&new, &clock_settings(&options, host)?)?)
}

/// CLOCK_MONOTONIC of all nodes at the start, where computing takes no time: programs see the same instants in every run. The
/// nodes' clocks are made within the time before it.
const FIXED_START: VirtualInstant = VirtualInstant(1_000_000_000_000);

fn has_fixed_start(plan: &NetworkPlan) -> bool {
    plan.nodes.iter().any(|node| node.compute == ComputeTime::None)
}

/// The plan, whose clocks begin near zero if there is a fixed start. `host` is the present time.
fn with_fixed_start(plan: &NetworkPlan, host: &HostNow) -> NetworkPlan {
    let mut plan = plan.clone();
    if has_fixed_start(&plan) {
        plan.clock.monotonic = Some(Span(-host.real.0));
        plan.clock.boottime = Some(Span(-host.boot.0));
    }
    plan
}

/// Settings of a clock that stands still at the network's start.
fn clock_settings(options: &ClockOptions, host: &HostNow) -> anyhow::Result<ClockSettings> {
    Ok(standing_still(options).settings(host)?)
}

/// Holds the clocks of all nodes at one instant, in the experiment that moves them from here on, and moves the network's
/// own clock there. Also returns the instants at which frames leave their ports.
fn hold_nodes(
    state: &StateDir,
    plan: &NetworkPlan,
    clock: &Clock,
    ports: &[Port],
) -> anyhow::Result<(Experiment, Vec<SendTimes>)> {
    let mut experiment = Experiment::open(state, &plan.name)?;
    match has_fixed_start(plan) {
        true => experiment.synchronize_at(FIXED_START)?,
        false => experiment.synchronize()?,
    }
    if let Some(node) = plan.nodes.first() {
        let nodes = state.container(&container_of(&plan.name, &node.name))?.clock()?.look().now();
        // It stands, and its wall clock shows the time of the start already.
        let later = nodes.since(clock.look().now());
        clock.leap(later)?;
        clock.step(Span(-later.0))?;
    }
    let source = |port: &Port| SendTimes::of(state, &plan.name, &port.end, port.tap()?);
    let send_times = ports.iter().map(source).collect::<anyhow::Result<_>>()?;
    Ok((experiment, send_times))
}

fn creation_times(state: &StateDir, plan: &NetworkPlan) -> anyhow::Result<BTreeMap<String, i64>> {
    let names = plan.nodes.iter().map(|node| container_of(&plan.name, &node.name));
    let mut made = BTreeMap::new();
    for name in names {
        let found = state.container(&name)?;
        made.insert(name, found.record().created_boot_ns);
    }
    Ok(made)
}

/// Makes the emulator. Also returns, for each of its stations, the interface of a node that it is.
fn build_emulator(plan: &NetworkPlan) -> (Emulator, Vec<Endpoint>) {
    let mut emulator = Emulator::new(plan.seed);
    let mut stations = Vec::new();
    let switches: Vec<(&str, SwitchId)> = plan
        .switches
        .iter()
        .map(|(name, kind)| (name.as_str(), emulator.add_switch(*kind)))
        .collect();
    for link in &plan.links {
        let attachments = link.ends.each_ref().map(|end| {
            match switches.iter().find(|(name, _)| *name == end.node) {
                Some((_, switch)) => Attachment::Switch(*switch),
                None => {
                    stations.push(end.clone());
                    Attachment::Station(emulator.add_station())
                }
            }
        });
        emulator.connect(attachments, link.impairments.each_ref());
    }
    (emulator, stations)
}

/// Makes for each node its namespaces, its interfaces, and a process that supervises its program, which has `making` open until the
/// node's container is there. Returns the interfaces in the order of `stations`.
fn make_nodes(
    state: &StateDir,
    plan: &NetworkPlan,
    directory: &NetworkDir,
    stations: &[Endpoint],
    host: &HostNow,
    making: BorrowedFd,
    progress: &dyn Fn(Step),
) -> anyhow::Result<Vec<Port>> {
    let own = ["net", "uts"].map(|kind| File::open(format!("/proc/self/ns/{kind}")));
    let mut ports: Vec<(StationId, Port)> = Vec::new();
    let mut shared: BTreeMap<&str, File> = BTreeMap::new();
    let mut links = LinkCount::new(plan);
    // A node whose network others share comes before them.
    let (sharing, first): (Vec<_>, Vec<_>) =
        plan.nodes.iter().partition(|node| node.network_of.is_some());
    for (number, node) in first.into_iter().chain(sharing).enumerate() {
        unshare(NODE_NAMESPACES).context("a network namespace for each node, which needs root")?;
        let set_up = match &node.network_of {
            None => set_up_namespaces(plan, node, stations, &mut ports),
            Some(other) => share_network(node, &shared[other.as_str()]),
        };
        if plan.nodes.iter().any(|other| other.network_of.as_ref() == Some(&node.name)) {
            shared.insert(&node.name, File::open("/proc/self/ns/net")?);
        }
        let made = set_up
            .and_then(|()| match node.isolation {
                Isolation::Host => start_node(state, plan, directory, node, host, making),
                Isolation::Private => private::create(state, plan, directory, node, making),
            })
            .with_context(|| format!("node {}", node.name));
        for namespace in &own {
            let namespace = namespace.as_ref().map_err(|error| io::Error::from(error.kind()))?;
            setns(namespace, CloneFlags::empty())?;
        }
        made?;
        progress(Step::Nodes(number + 1));
        progress(Step::Links(links.add_node(&node.name)));
    }
    ports.sort_by_key(|(station, _)| *station);
    Ok(ports.into_iter().map(|(_, port)| port).collect())
}

/// Sets up this thread's namespaces for a node that shares the network namespace `network`.
fn share_network(node: &NodePlan, network: &File) -> anyhow::Result<()> {
    set_hostname(node)?;
    Ok(setns(network, CloneFlags::CLONE_NEWNET)?)
}

/// Sets the host name of this thread's namespace to the name of `node`.
fn set_hostname(node: &NodePlan) -> nix::Result<()> {
    let label: String = node.name.chars().take(63).collect();
    nix::unistd::sethostname(&label)
}

/// Sets up this thread's namespaces for `node`.
fn set_up_namespaces(
    plan: &NetworkPlan,
    node: &NodePlan,
    stations: &[Endpoint],
    ports: &mut Vec<(StationId, Port)>,
) -> anyhow::Result<()> {
    begin_namespaces(node)?;
    for (number, end) in stations.iter().enumerate().filter(|(_, end)| end.node == node.name) {
        let (link, side) = link_of(plan, end);
        let tap = make_interface(link, side, number)?;
        ports.push((StationId(number), Port::new(tap, end.clone())));
    }
    complete_namespaces(plan, node)
}

/// Gives this thread's namespaces, which are those of `node`, what they have before any interface of a link.
fn begin_namespaces(node: &NodePlan) -> anyhow::Result<()> {
    set_hostname(node)?;
    tap::loopback_up().context("lo")
}

/// Gives this thread's network namespace, which is that of `node` and has its interfaces, its timers and settings.
fn complete_namespaces(plan: &NetworkPlan, node: &NodePlan) -> anyhow::Result<()> {
    kernel_timers::set_initial(plan.clock.rate_or_tdf(), node.compute);
    // A new namespace copies the settings of the host, which may forward packets for its own purposes.
    tap::set_sysctl("net.ipv4.ip_forward", "0").context("net.ipv4.ip_forward")?;
    for (key, value) in &node.sysctls {
        tap::set_sysctl(key, value).with_context(|| format!("sysctls: {key}: {value}"))?;
    }
    Ok(())
}

/// Returns the link that ends at an interface, and the side of that end.
fn link_of<'a>(plan: &'a NetworkPlan, end: &Endpoint) -> (&'a LinkPlan, usize) {
    let side = |link: &'a LinkPlan| Some((link, link.ends.iter().position(|one| one == end)?));
    plan.links.iter().find_map(side).expect("stations are ends of links")
}

/// Starts the program of `node` in this thread's namespaces. It begins when the clock runs.
fn start_node(
    state: &StateDir,
    plan: &NetworkPlan,
    directory: &NetworkDir,
    node: &NodePlan,
    host: &HostNow,
    making: BorrowedFd,
) -> anyhow::Result<()> {
    let path = output(directory, node);
    let log = open_log(&path)?;
    let idle = || vec!["sleep".to_string(), "infinity".to_string()];
    let command = node.command.clone().unwrap_or_else(idle).into_iter();
    let mut command: Vec<OsString> = command.map(OsString::from).collect();
    let name = container_of(&plan.name, &node.name);
    start_in_background(&[log.as_fd(), making], |ready| {
        nix::unistd::dup2_stdout(&log)?;
        nix::unistd::dup2_stderr(&log)?;
        file_systems::mount_all(node, &directory.root(&node.name))?;
        // A node without a command waits in a program of the host.
        if node.command.is_some() {
            command = NodeEntry::of(node, &directory.root(&node.name)).enter(&command);
        }
        set_no_new_privs()?;
        let new = NewContainer {
            name: Some(&name),
            command: &command,
            has_programs: true,
            ..NewContainer::monitored_by(MonitorKind::Run)
        };
        let clock = node.clock.or(&plan.clock);
        let made = if plan.rounds {
            state.create(&new, &clock_settings(&clock, host)?)
        } else {
            state.join(&new, &plan.name)
        };
        // `lorentz down` finds the container from here on.
        nix::unistd::close(making.as_raw_fd())?;
        let ran = made.map_err(anyhow::Error::from).and_then(|container| {
            container::run(container, &command, !plan.rounds, |node_container| {
                join_rounds(state, plan, node, node_container.name())?;
                ready.done();
                Ok(())
            })
        });
        if let Err(error) = &ran {
            let _ = writeln!(io::stderr(), "lorentz: {error:#}");
        }
        ran.map(drop)
    })
}

/// Makes the node of `plan`, which has it alone, for a network that runs. `join` links it, once it has its network namespace: it gets
/// that namespace as a path. The caller must have one thread only.
///
/// # Errors
///
/// As for [`up`]. Part of the node may be there then.
pub(crate) fn add_node(
    state: &StateDir,
    plan: &NetworkPlan,
    directory: &NetworkDir,
    join: &mut dyn FnMut(PathBuf) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let Some(node) = plan.nodes.first() else { return Ok(()) };
    let host = HostNow::read()?;
    let making = directory.begin_making()?;
    let own = ["net", "uts"].map(|kind| File::open(format!("/proc/self/ns/{kind}")));
    unshare(NODE_NAMESPACES).context("a network namespace for the node, which needs root")?;
    let made = begin_namespaces(node)
        .and_then(|()| join(format!("/proc/{}/ns/net", std::process::id()).into()))
        .and_then(|()| complete_namespaces(plan, node))
        .and_then(|()| match node.isolation {
            Isolation::Host => start_node(state, plan, directory, node, &host, making.as_fd()),
            Isolation::Private => private::create(state, plan, directory, node, making.as_fd()),
        });
    for namespace in own {
        setns(namespace?, CloneFlags::empty())?;
    }
    made?;
    private::start_all(state, plan)?.iter().for_each(Cgroup::thaw);
    Ok(())
}

/// Checks that the nodes of `plan` can be made.
pub(crate) fn check_new_nodes(state: &StateDir, plan: &NetworkPlan) -> anyhow::Result<()> {
    for node in &plan.nodes {
        check_node(state, plan, node)?;
    }
    image::check_all(plan)?;
    Ok(())
}

fn check_node(state: &StateDir, plan: &NetworkPlan, node: &NodePlan) -> anyhow::Result<()> {
    state.check_new_name(&container_of(&plan.name, &node.name))?;
    check_files(node)?;
    // The programs of an image are known only after the mount.
    match node.image {
        None => check_command(node),
        Some(_) => Ok(()),
    }
}

/// Moves this process into the namespaces of a node, so that the programs it starts are there. Returns the words that run `command`
/// there. Does nothing for a container that is no node.
///
/// # Errors
///
/// If no process supervises the node's programs.
pub fn enter_node(
    state: &StateDir,
    found: &Container,
    command: &[OsString],
) -> anyhow::Result<Vec<OsString>> {
    for network in NetworkDir::names(state)? {
        let Some(node) = found.name().strip_prefix(&network) else { continue };
        let Some(node) = node.strip_prefix('.') else { continue };
        let record = NetworkDir::of(state, &network)?.record().unwrap_or_default();
        if let Some(entry) = record.entries.get(node) {
            enter(found)?;
            return Ok(entry.enter(command));
        }
    }
    Ok(command.to_vec())
}
