//! Private nodes: containers of `lorentz-runtime`, the OCI runtime.
//!
//! Such a node has process ids of its own, docker's capabilities with CAP_NET_ADMIN, and a [`Layer`] above its root file system. The
//! emulator's process has made its network namespace already: the runtime is started in it. All mounts are in a mount namespace
//! that ends with the container; nothing is mounted for the host.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context;
use lorentz_container::{
    self as container, bundle_config, own_mounts, runtime, runtime_root, start_in_background,
    write_config, Container, Layer, RootOptions, StateDir, IDLE_ANNOTATION,
    NARROW_CAPSET_ANNOTATION,
};
use lorentz_control::processes::{self, Process};
use lorentz_control::Cgroup;
use nix::mount::MsFlags;
use serde_json::{json, Value};

use crate::directory::{container_of, NetworkDir};
use crate::image;
use crate::node::{join_rounds, open_log, output, standing_still};
use crate::plan::{NetworkPlan, NodeBind, NodePlan};
use crate::topology::Isolation;

/// Docker's default capabilities, and the one to set up interfaces and routes. They reach the node's own network alone.
const CAPABILITIES: [&str; 15] = [
    "CAP_AUDIT_WRITE",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_MKNOD",
    "CAP_NET_ADMIN",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_RAW",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
];
/// System calls that reach beyond the node whatever its capabilities are, or that only the machine's administrator needs. Docker
/// refuses them too.
const REFUSED_CALLS: [&str; 22] = [
    "acct",
    "add_key",
    "bpf",
    "delete_module",
    "finit_module",
    "init_module",
    "ioperm",
    "iopl",
    "kexec_file_load",
    "kexec_load",
    "keyctl",
    "lookup_dcookie",
    "open_by_handle_at",
    "perf_event_open",
    "quotactl",
    "quotactl_fd",
    "reboot",
    "request_key",
    "swapoff",
    "swapon",
    "syslog",
    "userfaultfd",
];
/// A node's free share of its layer, below which the layer counts as full.
const FULL_BELOW: f64 = 0.01;

/// Makes the container of `node` in this process's network namespace. Its program waits for [`start_all`].
pub(crate) fn create(
    state: &StateDir,
    plan: &NetworkPlan,
    directory: &NetworkDir,
    node: &NodePlan,
    making: BorrowedFd,
) -> anyhow::Result<()> {
    let log = open_log(&output(directory, node))?;
    let emulator = std::process::id();
    start_in_background(&[log.as_fd(), making], |ready| {
        die_with(emulator)?;
        let base = directory.root(&node.name);
        let bundle = directory.bundle(&node.name);
        fs::create_dir(&base)?;
        fs::create_dir(&bundle)?;
        own_mounts()?;
        let (root, binds) = assemble(node, &base, plan.layer_size)?;
        write_config(&bundle, &config(plan, node, &root, binds)?)?;
        let id = container_of(&plan.name, &node.name);
        run_runtime(&bundle, &id, &log)?;
        join_rounds(state, plan, node, &id)?;
        ready.done();
        Ok(())
    })
}

/// Has the kernel kill this process when the process `parent` has ended. A killed emulator must not make anything
/// after 'lorentz down'.
fn die_with(parent: u32) -> io::Result<()> {
    // SAFETY: plain numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
    // Race: the parent may have ended before the call.
    match std::os::unix::process::parent_id() == parent {
        true => Ok(()),
        false => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

/// Assembles the root file system of `node` below `base`. Returns its path, and the OCI mounts of its binds.
fn assemble(node: &NodePlan, base: &Path, size: u64) -> anyhow::Result<(PathBuf, Vec<Value>)> {
    let mut layer =
        Layer::make(base, Some(size), MsFlags::MS_NODEV).context("a layer in memory")?;
    let seen = base.join("root");
    fs::create_dir(&seen)?;
    let files = node.files.as_deref();
    let made = match &node.rootfs {
        Some(root) => fs::canonicalize(root)
            .map_err(anyhow::Error::from)
            .and_then(|root| layer.over(&root, files, &seen)),
        None => layer.host_root(files, &seen),
    };
    made.context(
        "a private layer cannot be made; 'lorentz up --on-host' has nodes see the host's files",
    )?;
    let binds = node.binds.iter().map(|one| {
        let shown = format!("binds: {}:{}", one.bind.source.display(), one.bind.target.display());
        bind(one, &mut layer, base).context(shown)
    });
    Ok((seen, binds.collect::<anyhow::Result<_>>()?))
}

/// Returns the OCI mount of a bind.
fn bind(one: &NodeBind, layer: &mut Layer, base: &Path) -> anyhow::Result<Value> {
    let mut source = fs::canonicalize(&one.bind.source)?;
    if one.layered && source.is_dir() {
        let place = tempfile_in(base)?;
        layer.over(&source, None, &place)?;
        source = place;
    } else if one.layered {
        source = layer.copy(&source)?;
    }
    let access = if one.bind.read_only { "ro" } else { "rw" };
    Ok(json!({
        "destination": one.bind.target, "type": "bind", "source": source,
        "options": ["rbind", "rprivate", "nodev", access],
    }))
}

/// Makes a mount point in `base` that no other bind has.
fn tempfile_in(base: &Path) -> io::Result<PathBuf> {
    let names = (0_u32..).map(|number| base.join(format!("bind{number}")));
    for place in names {
        match fs::create_dir(&place) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| place),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Returns the node's config.json.
fn config(
    plan: &NetworkPlan,
    node: &NodePlan,
    root: &Path,
    binds: Vec<Value>,
) -> anyhow::Result<Value> {
    let hostname: String = node.name.chars().take(63).collect();
    let options = RootOptions {
        hostname: Some(hostname),
        variables: node.env.iter().map(|(key, value)| format!("{key}={value}")).collect(),
        directory: node.folder.clone(),
        user: Some(image::user_ids(node)?),
        ..RootOptions::default()
    };
    // The first process of an idle node executes nothing, and the runtime does not look at its words.
    let idle = ["idle".to_string()];
    let words: Vec<&str> =
        node.command.as_deref().unwrap_or(&idle).iter().map(String::as_str).collect();
    let id = container_of(&plan.name, &node.name);
    let mut config = bundle_config(&id, &options, root, &words)?;
    let process = &mut config["process"];
    // Without this promise the shim could not install its filter for packet timestamps in a program that has given up its rights.
    process["noNewPrivileges"] = true.into();
    process["capabilities"]["bounding"] = json!(CAPABILITIES);
    if options.user.is_some_and(|(uid, _)| uid == 0) {
        for set in ["effective", "permitted"] {
            process["capabilities"][set] = json!(CAPABILITIES);
        }
    }
    if let Some(mounts) = config["mounts"].as_array_mut() {
        // A node has no use for control groups.
        mounts.retain(|one| one["destination"] != "/sys/fs/cgroup");
        mounts.extend(binds);
    }
    for namespace in config["linux"]["namespaces"].as_array_mut().into_iter().flatten() {
        if namespace["type"] == "network" {
            // The runtime is started in the node's network namespace.
            namespace["path"] = "/proc/self/ns/net".into();
        }
    }
    config["linux"]["readonlyPaths"] = read_only_paths()?.into();
    config["linux"]["seccomp"] = seccomp();
    config["annotations"] = annotations(plan, node);
    Ok(config)
}

fn annotations(plan: &NetworkPlan, node: &NodePlan) -> Value {
    // A network of a thousand nodes would have a thousand watches over each exec of the machine.
    let mut all = json!({NARROW_CAPSET_ANNOTATION: "true", "lorentz.newcomers": "ignore"});
    if node.command.is_none() {
        all[IDLE_ANNOTATION] = "true".into();
    }
    if plan.rounds {
        let own = standing_still(&node.clock.or(&plan.clock)).annotations();
        for (key, value) in own.iter().filter_map(|one| one.split_once('=')) {
            all[key] = value.into();
        }
    } else {
        all["lorentz.clock"] = plan.name.clone().into();
    }
    all
}

/// A setting that each network namespace shows and that is the machine's: once it is 1, nobody can set it back.
const OF_THE_MACHINE: &str = "/proc/sys/net/netfilter/nf_hooks_lwtunnel";

/// Returns the paths that a node may only read: as in every container, but for the settings of its network.
fn read_only_paths() -> anyhow::Result<Vec<String>> {
    let mut paths: Vec<String> =
        ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sysrq-trigger", OF_THE_MACHINE]
            .map(String::from)
            .into();
    for entry in fs::read_dir("/proc/sys").context("/proc/sys")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name != "net" {
            paths.push(format!("/proc/sys/{name}"));
        }
    }
    Ok(paths)
}

fn seccomp() -> Value {
    const EPERM: i32 = libc::EPERM;
    let new_user = libc::CLONE_NEWUSER;
    let in_first = json!([
        {"index": 0, "value": new_user, "valueTwo": new_user, "op": "SCMP_CMP_MASKED_EQ"},
    ]);
    let mut profile = json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [
            {"names": REFUSED_CALLS, "action": "SCMP_ACT_ERRNO", "errnoRet": EPERM},
            // In a user namespace of its own a process has all capabilities.
            {"names": ["clone", "unshare"], "action": "SCMP_ACT_ERRNO", "errnoRet": EPERM, "args": in_first},
            // Sockets to the machine's hypervisor belong to no network namespace.
            {"names": ["socket"], "action": "SCMP_ACT_ERRNO", "errnoRet": EPERM, "args": [
                {"index": 0, "value": libc::AF_VSOCK, "op": "SCMP_CMP_EQ"},
            ]},
            // A filter cannot see the flags of clone3. Libraries use clone then.
            {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": libc::ENOSYS},
        ],
    });
    if cfg!(target_arch = "x86_64") {
        profile["architectures"] = json!(["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"]);
    }
    profile
}

/// Has the runtime make the container of a bundle.
fn run_runtime(bundle: &Path, id: &str, log: &File) -> anyhow::Result<()> {
    let errors = bundle.join("errors");
    let mut command = runtime(&runtime_root());
    command.args(["--log-format", "json", "--log"]).arg(&errors);
    command.args(["create", "--bundle"]).arg(bundle).arg(id);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log.try_clone()?);
    let own = std::process::id();
    // SAFETY: the child makes only system calls.
    unsafe { command.pre_exec(move || die_with(own)) };
    let status = command.status().context("lorentz-runtime, which makes private nodes")?;
    let text = fs::read_to_string(&errors).unwrap_or_default();
    let last = text.lines().last().and_then(|line| serde_json::from_str::<Value>(line).ok());
    let why = last.and_then(|entry| Some(entry["msg"].as_str()?.to_string()));
    anyhow::ensure!(status.success(), why.unwrap_or_else(|| format!("lorentz-runtime: {status}")));
    Ok(())
}

/// Starts the programs of all private nodes. They stand still until their control groups, which this returns, are thawed.
pub(crate) fn start_all(state: &StateDir, plan: &NetworkPlan) -> anyhow::Result<Vec<Cgroup>> {
    let mut groups = Vec::new();
    for node in plan.nodes.iter().filter(|node| node.isolation == Isolation::Private) {
        let id = container_of(&plan.name, &node.name);
        let done = runtime(&runtime_root()).args(["start", &id]).stdin(Stdio::null()).output()?;
        let errors = String::from_utf8_lossy(&done.stderr);
        anyhow::ensure!(done.status.success(), "node {}: {}", node.name, errors.trim());
        // In rounds the experiment moves each clock, and the group with it.
        if !plan.rounds {
            groups.extend(state.container(&id)?.cgroup());
        }
    }
    Ok(groups)
}

/// Returns the command that runs further words in a private node. `None` for other containers.
pub(crate) fn exec_command(found: &Container) -> anyhow::Result<Option<Command>> {
    let Some(bundle) = &found.record().bundle else { return Ok(None) };
    let command = found.runtime_there("exec")?;
    Ok(command.map(|mut command| {
        command.arg("--as-lorentz").arg(&bundle.id).arg("--");
        command
    }))
}

/// Returns the size of a private node's layer in bytes, and the bytes that are free. `None` for other containers, and for a node
/// that has ended.
pub fn layer_space(found: &Container) -> Option<(u64, u64)> {
    found.record().bundle.as_ref()?;
    let first = found.record().monitors.iter().find_map(|monitor| monitor.program)?;
    container::layer_space(Path::new(&format!("/proc/{first}/root"))).ok()
}

/// Returns words for the end of an error message if the layer of the container `name` is full.
pub(crate) fn full_note(state: &StateDir, name: &str) -> String {
    let space = state.container(name).ok().and_then(|found| layer_space(&found));
    match space {
        Some((size, free)) if is_full(size, free) => {
            let size = size >> 20;
            format!("; the node's layer of {size} MiB is full: 'lorentz up --layer-size' makes it larger")
        }
        _ => String::new(),
    }
}

/// Whether a layer of `size` bytes with `free` bytes counts as full.
fn is_full(size: u64, free: u64) -> bool {
    (free as f64) < size as f64 * FULL_BELOW
}

/// Deletes the containers of the private nodes among `nodes`, in whatever state their making was. Returns the number of programs
/// that were killed.
pub(crate) fn delete_all(
    directory: &NetworkDir,
    network: &str,
    nodes: &[String],
) -> anyhow::Result<usize> {
    let private = |node: &&String| directory.bundle(node).exists();
    let private: Vec<&String> = nodes.iter().filter(private).collect();
    if private.is_empty() {
        return Ok(0);
    }
    let mut ended = 0;
    for node in &private {
        let id = container_of(network, node);
        ended += programs_in(&id);
    }
    end_makers(&directory.file(""))?;
    for node in private {
        let id = container_of(network, node);
        let done = runtime(&runtime_root())
            .args(["delete", "--force", &id])
            .stdin(Stdio::null())
            .output()
            .context("lorentz-runtime, which removes private nodes")?;
        remove_groups(&id);
        let errors = String::from_utf8_lossy(&done.stderr);
        anyhow::ensure!(done.status.success(), "node {node}: {}", errors.trim());
    }
    Ok(ended)
}

/// Kills runtimes that are still making containers of the network in `directory`, and first processes of nodes that execute nothing.
/// All of them have a bundle there among their words.
fn end_makers(directory: &Path) -> anyhow::Result<()> {
    const TIMEOUT: Duration = Duration::from_secs(5);
    let end = Instant::now() + TIMEOUT;
    let directory = directory.to_string_lossy().into_owned();
    loop {
        let makers: Vec<Process> = processes::all()?
            .into_iter()
            .filter(|one| !one.has_ended() && names_bundle(one.pid, &directory))
            .collect();
        if makers.is_empty() {
            return Ok(());
        }
        for maker in &makers {
            // A process that has the number by now is no maker, unless it too has a bundle of this network.
            if names_bundle(maker.pid, &directory) {
                // SAFETY: plain numbers.
                unsafe { libc::kill(maker.pid as i32, libc::SIGKILL) };
            }
        }
        anyhow::ensure!(Instant::now() < end, "process {} does not end", makers[0].pid);
        sleep(Duration::from_millis(5));
    }
}

fn names_bundle(pid: u32, directory: &str) -> bool {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
    let bundle =
        words.iter().position(|word| *word == b"--bundle").and_then(|at| words.get(at + 1));
    bundle.is_some_and(|bundle| bundle.starts_with(directory.as_bytes()))
}

/// The control groups of the container `id`, as the bundle names them, in all hierarchies.
fn groups_of(id: &str) -> Vec<PathBuf> {
    let top = Path::new("/sys/fs/cgroup");
    let hierarchies = fs::read_dir(top).into_iter().flatten().flatten().map(|entry| entry.path());
    let name = format!("lorentz-{id}");
    let groups = hierarchies.chain([top.to_path_buf()]).map(|hierarchy| hierarchy.join(&name));
    groups.filter(|group| group.is_dir()).collect()
}

fn programs_in(id: &str) -> usize {
    let count = |group: &PathBuf| Cgroup::at(group.clone()).pids().map_or(0, |pids| pids.len());
    groups_of(id).iter().map(count).max().unwrap_or(0)
}

/// Removes control groups that a runtime has made before it was killed.
fn remove_groups(id: &str) {
    for group in groups_of(id) {
        let group = Cgroup::at(group);
        for pid in group.pids_below() {
            // SAFETY: plain numbers; the process is in the node's group.
            unsafe { libc::kill(pid as i32, libc::SIGKILL) };
        }
        group.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_network_may_be_set() {
        let paths = read_only_paths().unwrap();
        assert!(paths.contains(&"/proc/sys/kernel".to_string()), "{paths:?}");
        let of_network = |path: &&String| path.starts_with("/proc/sys/net") || *path == "/proc/sys";
        assert_eq!(paths.iter().filter(of_network).collect::<Vec<_>>(), [OF_THE_MACHINE]);
    }

    #[test]
    fn a_layer_is_full_before_the_last_byte() {
        assert!(is_full(64 << 20, 0) && is_full(64 << 20, 4096) && !is_full(64 << 20, 1 << 20));
    }
}
