//! One more program in a container: the verb `exec`.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{bail, Context};
use libcontainer::container::builder::ContainerBuilder;
use libcontainer::container::ContainerStatus;
use libcontainer::syscall::syscall::SyscallType;
use liboci_cli::Exec;
use lorentz_container::{
    adopt_if_needed, connect_to_monitor, start_monitor, Container, Mechanism, MonitorConnection,
};
use lorentz_control::HostNow;
use nix::sched::{setns, CloneFlags};
use serde_json::{json, Value};

use crate::config::{Config, Time};
use crate::create::Group;
use crate::lifecycle;
use crate::log_capture::with_logged_cause;
use crate::rights::Rights;
use crate::runtime_dir::{RuntimeDir, EXEC_DRAFT};
use crate::terminal::{self, Console};
use crate::workload::Workload;

/// The verb `exec`.
pub fn exec(runtime_dir: &RuntimeDir, args: &Exec) -> anyhow::Result<i32> {
    let id = &args.container_id;
    let tasks = runtime_dir.tasks(id)?;
    match tasks.status() {
        ContainerStatus::Running => {}
        ContainerStatus::Paused if args.ignore_paused => {}
        status => bail!("cannot exec in container {id}: it is {}", lifecycle::word(status)),
    }
    let config = Config::load(tasks.bundle())?;
    let mut process = match &args.process {
        Some(path) => read(path)?,
        None => ordered(&config, args)?,
    };
    let mut workload = Workload::default();
    let mut group = None;
    match runtime_dir.timed(id)? {
        Some(container) => {
            if container.record().mechanism == Mechanism::Shim {
                workload.entrance = Some(Rc::new(monitor_of(&container)?.entrance()?));
            }
            group = Some(Group::enter(&container));
        }
        None if matches!(config.wanted(&HostNow::read()?)?.time, Time::Namespace) => {}
        None => bail!("container {id}: its clock is gone; nothing can be started on it"),
    }
    workload.profile = config.profile()?;
    workload.narrows_capset = config.narrows_capset();
    workload.rights = Rights::widen(&mut process)?;
    let file = ProcessFile::write(runtime_dir, id, &process)?;
    let wants = process["terminal"] == true;
    let offered = args.console_socket.as_deref();
    let console = terminal::where_wanted(runtime_dir, id, wants, args.detach, offered)?;
    let socket = offered.map(Path::to_path_buf).or(console.as_ref().map(Console::path));
    let mut builder = ContainerBuilder::new(id.clone(), SyscallType::default())
        .with_root_path(&runtime_dir.root)?
        .with_console_socket(socket.as_ref())
        .with_pid_file(args.pid_file.as_ref())?
        .with_preserved_fds(args.preserve_fds)
        .with_executor(workload)
        .as_tenant()
        .with_detach(socket.is_some())
        .with_ignore_paused(args.ignore_paused)
        .with_sub_cgroup(args.cgroup.clone());
    builder = builder.with_process(Some(&file.path));
    let first = tasks.pid().map_or(0, |pid| pid.as_raw());
    join("time", first).and_then(|()| join("user", first))?;
    let pid = with_logged_cause(|| builder.build());
    if let Some(group) = group {
        group.leave();
    }
    drop(file);
    let pid = pid.with_context(|| format!("exec in container {id}"))?;
    if args.detach {
        return Ok(0);
    }
    match console {
        Some(console) => console.accept()?.serve(pid.as_raw()),
        None => lifecycle::wait_for(pid.as_raw()),
    }
}

/// Connects to the monitor of a container. If it has died, another one takes its place, and adopts the programs that the kernel lets
/// it adopt.
fn monitor_of(container: &Container) -> anyhow::Result<MonitorConnection> {
    if let Ok(connection) = connect_to_monitor(container) {
        return Ok(connection);
    }
    adopt_if_needed(container);
    connect_to_monitor(container).or_else(|_| start_monitor(container, || ()))
}

/// Joins the namespace `kind` of process `pid`, if this process is in another one. libcontainer joins the namespaces that the
/// bundle names, but not the user namespace, which owns the others. And the container may have a time namespace that the bundle
/// does not name.
fn join(kind: &str, pid: i32) -> anyhow::Result<()> {
    let (ours, theirs) = (format!("/proc/self/ns/{kind}"), format!("/proc/{pid}/ns/{kind}"));
    if fs::read_link(&ours)? != fs::read_link(&theirs)? {
        // 0: setns accepts any kind.
        let joined = setns(File::open(&theirs)?, CloneFlags::empty());
        joined.with_context(|| format!("the container's {kind} namespace"))?;
    }
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<Value> {
    let shown = path.display();
    let text = fs::read(path).with_context(|| format!("--process {shown}"))?;
    serde_json::from_slice(&text).with_context(|| format!("--process {shown}"))
}

/// Returns the bundle's `process`, changed as the command line says.
fn ordered(config: &Config, args: &Exec) -> anyhow::Result<Value> {
    if args.command.is_empty() {
        bail!("exec: expected a command, or --process FILE");
    }
    let mut process = config.process().clone();
    process["args"] = args.command.clone().into();
    process["terminal"] = args.tty.into();
    if let Some(cwd) = &args.cwd {
        process["cwd"] = cwd.to_str().context("--cwd: expected UTF-8")?.into();
    }
    if let Some((uid, gid)) = args.user {
        process["user"] = json!({ "uid": uid, "gid": gid.unwrap_or(0) });
    }
    if !args.additional_gids.is_empty() {
        process["user"]["additionalGids"] = args.additional_gids.clone().into();
    }
    if args.no_new_privs {
        process["noNewPrivileges"] = true.into();
    }
    if let Some(profile) = &args.apparmor {
        process["apparmorProfile"] = profile.clone().into();
    }
    let mut variables: Vec<Value> = process["env"].as_array().cloned().unwrap_or_default();
    for (key, value) in &args.env {
        let begin = format!("{key}=");
        variables.retain(|entry| !entry.as_str().is_some_and(|entry| entry.starts_with(&begin)));
        variables.push(format!("{begin}{value}").into());
    }
    process["env"] = variables.into();
    for set in ["bounding", "effective", "permitted"] {
        for capability in &args.cap {
            let sets = &mut process["capabilities"];
            let mut names = sets[set].as_array().cloned().unwrap_or_default();
            names.push(capability.clone().into());
            sets[set] = names.into();
        }
    }
    Ok(process)
}

/// The file with the `process` for `libcontainer`.
struct ProcessFile {
    path: PathBuf,
}

impl ProcessFile {
    fn write(runtime_dir: &RuntimeDir, id: &str, process: &Value) -> anyhow::Result<ProcessFile> {
        let path = runtime_dir.draft(id, EXEC_DRAFT);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let written = ProcessFile { path };
        file.write_all(process.to_string().as_bytes())?;
        Ok(written)
    }
}

impl Drop for ProcessFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
