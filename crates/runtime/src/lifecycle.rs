//! Lifecycle of a container after its creation: the verbs from `start` to `delete`.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, Context};
use libcontainer::container::{Container as Tasks, ContainerStatus};
use libcontainer::error::LibcontainerError;
use libcontainer::signal::Signal;
use liboci_cli::{Kill, List, Ps};
use lorentz_container::{remove_bundle, Container, Liveness, Mechanism, IDLE_ANNOTATION};
use lorentz_control::processes::has_left_real_time;
use nix::sys::signal::{sigprocmask, SigSet, SigmaskHow};
use serde_json::{json, Value};

use crate::runtime_dir::{announce, save, RuntimeDir};

/// Returns a status in the specification's words.
pub fn word(status: ContainerStatus) -> &'static str {
    match status {
        ContainerStatus::Creating => "creating",
        ContainerStatus::Created => "created",
        ContainerStatus::Running => "running",
        ContainerStatus::Stopped => "stopped",
        ContainerStatus::Paused => "paused",
    }
}

/// The verb `start`. When it returns, the program is on its clock, unless that stands or the program executes nothing.
pub fn start(runtime_dir: &RuntimeDir, id: &str) -> anyhow::Result<i32> {
    let mut tasks = runtime_dir.tasks(id)?;
    if tasks.status() != ContainerStatus::Created {
        bail!("cannot start container {id}: it is {}", word(tasks.status()));
    }
    let timed = runtime_dir.timed(id)?;
    if let Some(container) = &timed {
        // The program of a frozen container begins when its clock does.
        if container.clock()?.is_frozen() {
            if let Some(cgroup) = container.cgroup() {
                cgroup.freeze()?;
            }
        }
    }
    {
        // The program may end before its start is noted in the container's directory. The monitor, which removes the directory then,
        // waits for this lock.
        let _lock = runtime_dir.lock_container(id)?;
        announce(&tasks, ContainerStatus::Running)?;
        tasks.start().with_context(|| format!("starting container {id}"))?;
    }
    if let Some(container) = timed.filter(|one| one.record().mechanism == Mechanism::Shim) {
        await_program(&container, &tasks);
    }
    Ok(0)
}

/// Waits until the program is on its clock, so that whoever has started it finds it there. A program that cannot be executed ends.
fn await_program(container: &Container, tasks: &Tasks) {
    const MAX_WAIT: Duration = Duration::from_secs(10);
    let annotations = tasks.state.annotations.as_ref();
    let is_idle = annotations.is_some_and(|all| all.contains_key(IDLE_ANNOTATION));
    let Some(pid) = tasks.pid().filter(|_| !is_idle) else { return };
    let is_held = || container.cgroup().is_some_and(|group| group.is_frozen().unwrap_or(false));
    let begun = Instant::now();
    while !has_left_real_time(pid.as_raw() as u32) && !is_held() && begun.elapsed() < MAX_WAIT {
        sleep(Duration::from_micros(200));
    }
}

/// The verb `state`.
pub fn state(runtime_dir: &RuntimeDir, id: &str) -> anyhow::Result<i32> {
    let tasks = runtime_dir.tasks(id)?;
    print_json(&describe(&tasks))?;
    Ok(0)
}

fn describe(tasks: &Tasks) -> Value {
    let stopped = tasks.status() == ContainerStatus::Stopped;
    json!({
        "ociVersion": tasks.state.oci_version,
        "id": tasks.id(),
        "status": word(tasks.status()),
        "pid": if stopped { 0 } else { tasks.pid().map_or(0, |pid| pid.as_raw()) },
        "bundle": tasks.bundle(),
        "annotations": tasks.state.annotations.clone().unwrap_or_default(),
        "created": tasks.created().map(|time| time.to_rfc3339()),
        "owner": tasks.creator().unwrap_or_default().to_string_lossy(),
    })
}

/// The verb `kill`.
pub fn kill(runtime_dir: &RuntimeDir, args: &Kill) -> anyhow::Result<i32> {
    let id = &args.container_id;
    let signal = Signal::try_from(args.signal.as_str()).map_err(|_| {
        anyhow::anyhow!("signal {:?}: expected a number or a name such as TERM", args.signal)
    })?;
    runtime_dir.tasks(id)?;
    // The signal may end the container before its status is noted, as in `start`.
    let _lock = runtime_dir.lock_container(id)?;
    let mut tasks = runtime_dir.tasks(id)?;
    let before = tasks.status();
    if !matches!(
        before,
        ContainerStatus::Created | ContainerStatus::Running | ContainerStatus::Paused
    ) && !args.all
    {
        bail!("cannot kill container {id}: it is {} and not running", word(before));
    }
    tasks.kill(signal, args.all).with_context(|| format!("killing container {id}"))?;
    if matches!(before, ContainerStatus::Created | ContainerStatus::Paused) {
        // libcontainer takes any signal for one that ends the container.
        save(tasks.set_status(before))?;
    }
    Ok(0)
}

/// The verb `delete`.
pub fn delete(runtime_dir: &RuntimeDir, id: &str, force: bool) -> anyhow::Result<i32> {
    let dir = runtime_dir.dir(id)?;
    if force {
        runtime_dir.remove_drafts(id, None);
    }
    if dir.exists() {
        delete_made(runtime_dir, id, force)?;
    } else if !force {
        runtime_dir.tasks(id)?;
    }
    forget(runtime_dir, id)?;
    runtime_dir.leave();
    Ok(0)
}

fn delete_made(runtime_dir: &RuntimeDir, id: &str, force: bool) -> anyhow::Result<()> {
    let _lock = match runtime_dir.lock_container(id) {
        // The container's monitor has deleted it just now.
        Err(_) if force => return Ok(()),
        locked => locked?,
    };
    let mut tasks = match runtime_dir.tasks(id) {
        Err(error) if !force => return Err(error),
        // The monitor has deleted it while this process waited for the lock.
        Err(_) if !runtime_dir.dir(id)?.exists() => return Ok(()),
        Err(_) => runtime_dir.remains(id)?,
        Ok(tasks) => tasks,
    };
    if !force && !matches!(tasks.status(), ContainerStatus::Stopped | ContainerStatus::Created) {
        bail!("cannot delete container {id}: it is {} and not stopped", word(tasks.status()));
    }
    delete_tasks(&mut tasks, force)
}

/// Deletes a container all of whose programs have ended, and what process `maker` has left, which made it. Its clock stays.
pub fn clear(runtime_dir: &RuntimeDir, id: &str, maker: u32) -> anyhow::Result<()> {
    runtime_dir.remove_drafts(id, Some(maker));
    // Without a directory it was never made, or somebody else has deleted it.
    if let Ok(_lock) = runtime_dir.lock_container(id) {
        let tasks = runtime_dir.tasks(id);
        delete_tasks(&mut tasks.or_else(|_| runtime_dir.remains(id))?, true)?;
    }
    runtime_dir.leave();
    Ok(())
}

/// Deletes the container and a bundle of ours, with retries for up to 5 s. libcontainer waits 0.1 s for killed processes to leave
/// their control groups, which is too short on a busy machine. The caller has the lock.
fn delete_tasks(tasks: &mut Tasks, force: bool) -> anyhow::Result<()> {
    const DELETE_TIMEOUT: Duration = Duration::from_secs(5);
    let end = Instant::now() + DELETE_TIMEOUT;
    loop {
        match tasks.delete(force) {
            // The second: the first process went while libcontainer looked at it.
            Err(LibcontainerError::CgroupManager(_) | LibcontainerError::Procfs(_))
                if Instant::now() < end => {}
            done => {
                done.with_context(|| format!("deleting container {}", tasks.id()))?;
                remove_bundle(tasks.bundle());
                return Ok(());
            }
        }
    }
}

/// Waits until the monitor is gone, at most 2 s, and removes its container. The monitor ends by itself after the last task. A new
/// container of the same id must not meet the old one.
pub fn forget(runtime_dir: &RuntimeDir, id: &str) -> anyhow::Result<()> {
    const MONITOR_TIMEOUT: Duration = Duration::from_secs(2);
    let end = Instant::now() + MONITOR_TIMEOUT;
    let mut left = runtime_dir.timed(id)?;
    while let Some(container) = left.take() {
        if container.liveness()? == Liveness::Ended {
            container.remove()?;
            return Ok(());
        }
        if Instant::now() > end {
            lorentz_container::clear(&container, true)?;
            return Ok(());
        }
        sleep(Duration::from_micros(500));
        left = runtime_dir.timed(id)?;
    }
    Ok(())
}

/// The verb `pause`.
pub fn pause(runtime_dir: &RuntimeDir, id: &str) -> anyhow::Result<i32> {
    runtime_dir.tasks(id)?;
    let _lock = runtime_dir.lock()?;
    let mut tasks = runtime_dir.tasks(id)?;
    if tasks.status() != ContainerStatus::Running {
        bail!("cannot pause container {id}: it is {} and not running", word(tasks.status()));
    }
    let Some(container) = runtime_dir.timed(id)? else {
        tasks.pause()?;
        return Ok(0);
    };
    let frozen = container.clock()?.is_frozen();
    let by_shim = container.record().mechanism == Mechanism::Shim;
    let freezes = by_shim && !frozen && !others_run(runtime_dir, &container)?;
    if freezes {
        lorentz_container::freeze(&container)?;
        set_paused_clock(container.clone(), true)?;
    }
    match container.cgroup() {
        Some(cgroup) => {
            cgroup.freeze()?;
            save(tasks.set_status(ContainerStatus::Paused))?;
        }
        None => {
            if let Err(error) = tasks.pause() {
                if freezes {
                    container.clock()?.unfreeze()?;
                    set_paused_clock(container, false)?;
                }
                let none = "no control group of its own that could stop its tasks";
                return Err(error).with_context(|| format!("container {id} has {none}"));
            }
        }
    }
    Ok(0)
}

/// Whether another container on the same clock runs and is not paused: the clock must go on then.
fn others_run(runtime_dir: &RuntimeDir, container: &Container) -> anyhow::Result<bool> {
    let others = container.sharing_its_clock()?;
    let mut others = others.iter().filter(|other| other.name() != container.name());
    Ok(others.any(|other| {
        let Some(bundle) = &other.record().bundle else { return true };
        let tasks = Tasks::load(bundle.root.join(&bundle.id));
        let here = bundle.root == runtime_dir.root;
        !here || tasks.is_ok_and(|tasks| tasks.status() != ContainerStatus::Paused)
    }))
}

fn set_paused_clock(mut container: Container, paused: bool) -> anyhow::Result<()> {
    if let Some(mut bundle) = container.record().bundle.clone() {
        bundle.paused_clock = paused;
        container.set_bundle(bundle)?;
    }
    Ok(())
}

/// The verb `resume`.
pub fn resume(runtime_dir: &RuntimeDir, id: &str) -> anyhow::Result<i32> {
    runtime_dir.tasks(id)?;
    let _lock = runtime_dir.lock()?;
    let mut tasks = runtime_dir.tasks(id)?;
    if tasks.status() != ContainerStatus::Paused {
        bail!("cannot resume container {id}: it is {} and not paused", word(tasks.status()));
    }
    let Some(container) = runtime_dir.timed(id)? else {
        tasks.resume()?;
        return Ok(0);
    };
    let clock = container.clock()?;
    // The program may end before its state is noted, as in `start`.
    let _noted = runtime_dir.lock_container(id)?;
    for one in container.sharing_its_clock()? {
        if one.record().bundle.as_ref().is_some_and(|bundle| bundle.paused_clock) {
            clock.unfreeze()?;
            set_paused_clock(one, false)?;
        }
    }
    match container.cgroup() {
        // A user has also frozen the clock: the tasks wait until the user thaws it.
        Some(cgroup) if !clock.is_frozen() => cgroup.thaw(),
        Some(_) => {}
        None => tasks.resume()?,
    }
    clock.quiesce();
    save(tasks.set_status(ContainerStatus::Running))?;
    Ok(0)
}

/// The verb `list`.
pub fn list(runtime_dir: &RuntimeDir, args: &List) -> anyhow::Result<i32> {
    let ids = runtime_dir.ids()?;
    if args.quiet {
        ids.iter().for_each(|id| println!("{id}"));
        return Ok(0);
    }
    let known: Vec<Value> = ids
        .iter()
        .filter_map(|id| runtime_dir.tasks(id).ok())
        .map(|tasks| describe(&tasks))
        .collect();
    match args.format.as_str() {
        "json" => print_json(&Value::from(known))?,
        "table" => {
            println!("{:<24}  {:>8}  {:<8}  {:<26}  BUNDLE", "ID", "PID", "STATUS", "CREATED");
            for one in &known {
                let text = |field: &str| one[field].as_str().unwrap_or_default().to_string();
                let created = text("created").chars().take(26).collect::<String>();
                println!(
                    "{:<24}  {:>8}  {:<8}  {:<26}  {}",
                    text("id"),
                    one["pid"],
                    text("status"),
                    created,
                    text("bundle")
                );
            }
        }
        other => bail!("--format {other}: expected table or json"),
    }
    Ok(0)
}

/// The verb `ps`.
pub fn ps(runtime_dir: &RuntimeDir, args: &Ps) -> anyhow::Result<i32> {
    let tasks = runtime_dir.tasks(&args.container_id)?;
    let pids = crate::resources::pids(&tasks)?;
    match args.format.as_str() {
        "json" => print_json(&json!(pids))?,
        "table" => {
            let options: &[String] =
                if args.ps_options.is_empty() { &["-ef".to_string()] } else { &args.ps_options };
            let output = std::process::Command::new("ps").args(options).output().context("ps")?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let mut lines = text.lines();
            let head = lines.next().unwrap_or_default();
            let column = head
                .split_whitespace()
                .position(|word| word == "PID")
                .context("ps: no PID column")?;
            println!("{head}");
            let of_ours = |line: &&str| {
                let pid = line.split_whitespace().nth(column).and_then(|word| word.parse().ok());
                pid.is_some_and(|pid: i32| pids.contains(&pid))
            };
            lines.filter(of_ours).for_each(|line| println!("{line}"));
        }
        other => bail!("--format {other}: expected table or json"),
    }
    Ok(0)
}

/// Waits for a child of this process, and passes on the signals that come meanwhile. Returns the child's status as a shell would.
pub fn wait_for(pid: i32) -> anyhow::Result<i32> {
    let all = hold_signals()?;
    loop {
        if let Some(status) = ended(pid)? {
            return Ok(status);
        }
        let signal = all.wait()? as i32;
        if !matches!(signal, libc::SIGCHLD | libc::SIGURG | libc::SIGWINCH) {
            pass_on(signal, pid);
        }
    }
}

/// Blocks all signals; the caller takes them by sigwait or signalfd.
pub fn hold_signals() -> nix::Result<SigSet> {
    let all = SigSet::all();
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&all), None)?;
    Ok(all)
}

/// Returns the status of a child of this process, as a shell would; none if it has not ended. Does not wait.
pub fn ended(pid: i32) -> anyhow::Result<Option<i32>> {
    let mut status = 0;
    // SAFETY: the call writes to `status` only.
    let ended = unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) };
    if ended < 0 {
        return Err(std::io::Error::last_os_error()).context("waiting for the program");
    }
    Ok((ended == pid).then(|| match libc::WIFSIGNALED(status) {
        true => 128 + libc::WTERMSIG(status),
        false => libc::WEXITSTATUS(status),
    }))
}

/// Sends `signal` to a child of this process that this process has not waited for.
pub fn pass_on(signal: i32, pid: i32) {
    // SAFETY: the pid cannot name another process: the child is ours, and we have not waited for it.
    unsafe { libc::kill(pid, signal) };
}

fn print_json(value: &Value) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string_pretty(value)?);
    Ok(())
}
