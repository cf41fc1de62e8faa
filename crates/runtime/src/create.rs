//! Making containers: the verbs `create` and `run`.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{bail, Context};
use libcgroups::common::{get_cgroup_setup, CgroupSetup};
use libcontainer::container::builder::ContainerBuilder;
use libcontainer::container::{Container as Tasks, ContainerStatus};
use libcontainer::syscall::syscall::SyscallType;
use lorentz_container::{
    is_bundle_of_ours, remove_bundle, start_monitor, Bundle, Container, Liveness, Mechanism,
    MonitorConnection, MonitorKind, NewContainer, StateDir,
};
use lorentz_control::{cluster_clock, Cgroup, CgroupPlace, HostNow, WhichClock};
use serde_json::Value;

use crate::args::Run;
use crate::config::{Config, Time, Wanted};
use crate::copyup;
use crate::lifecycle;
use crate::log_capture::with_logged_cause;
use crate::runtime_dir::{save, RuntimeDir};
use crate::terminal::{self, Console};
use crate::workload::Workload;

/// The options of a new container, from the command line.
struct Order<'a> {
    id: &'a str,
    console_socket: Option<&'a Path>,
    pid_file: Option<&'a Path>,
    no_pivot: bool,
    preserve_fds: i32,
    detached: bool,
    /// Whether the container goes with its programs, for nobody else knows of it.
    is_transient: bool,
}

/// The verb `create`.
pub fn create(runtime_dir: &RuntimeDir, args: &liboci_cli::Create) -> anyhow::Result<i32> {
    let order = Order {
        id: &args.container_id,
        console_socket: args.console_socket.as_deref(),
        pid_file: args.pid_file.as_deref(),
        no_pivot: args.no_pivot,
        preserve_fds: args.preserve_fds,
        detached: true,
        is_transient: false,
    };
    make(runtime_dir, &order, Config::load(&args.bundle)?)?;
    Ok(0)
}

/// The verb `run`.
pub fn run(runtime_dir: &RuntimeDir, args: &Run) -> anyhow::Result<i32> {
    let Run { run, annotation, command, .. } = args;
    let id = run.container_id.as_str();
    let offered = run.console_socket.as_deref();
    let made = Config::load(&run.bundle).and_then(|mut config| {
        config.change(annotation, command)?;
        let wants = config.wants_terminal();
        let console = terminal::where_wanted(runtime_dir, id, wants, run.detach, offered)?;
        let own = console.as_ref().map(Console::path);
        let order = Order {
            id,
            console_socket: offered.or(own.as_deref()),
            pid_file: run.pid_file.as_deref(),
            no_pivot: run.no_pivot,
            preserve_fds: run.preserve_fds,
            detached: run.detach || own.is_some(),
            is_transient: args.as_lorentz && !run.keep,
        };
        let tasks = make(runtime_dir, &order, config)?;
        Ok((tasks, console.map(Console::accept).transpose()))
    });
    let (tasks, terminal) = match made {
        Ok(made) => made,
        Err(error) => {
            remove_bundle(&run.bundle);
            runtime_dir.leave();
            return Err(error);
        }
    };
    let started = terminal.and_then(|terminal| {
        if !run.detach {
            // From here on signals are for the program, which begins before this process waits for it.
            lifecycle::hold_signals()?;
        }
        lifecycle::start(runtime_dir, id)?;
        Ok(terminal)
    });
    if run.detach {
        if started.is_err() {
            let _ = lifecycle::delete(runtime_dir, id, true);
        }
        return started.map(|_| 0);
    }
    let status = started.and_then(|terminal| {
        let pid = tasks.pid().context("the container has no process")?.as_raw();
        match terminal {
            Some(terminal) => terminal.serve(pid),
            None => lifecycle::wait_for(pid),
        }
    });
    if !run.keep {
        lifecycle::delete(runtime_dir, id, true)?;
    }
    status
}

fn make(runtime_dir: &RuntimeDir, order: &Order, config: Config) -> anyhow::Result<Tasks> {
    let dir = runtime_dir.dir(order.id)?;
    if dir.exists() && !clear_ended(runtime_dir, order.id, config.bundle()) {
        bail!("container with id {} already exists", order.id);
    }
    runtime_dir.make()?;
    let wanted = config.wanted(&HostNow::read()?)?;
    let made = match &wanted.time {
        Time::Namespace => build(runtime_dir, order, config, &wanted.time, Workload::default()),
        Time::Clock(which) => {
            let mut container = clocked(runtime_dir, order.id, &config, &wanted, which)?;
            let made = build_on_clock(runtime_dir, order, config, &wanted.time, &mut container);
            // The monitor in the background keeps the container, if it has processes to supervise.
            container.leave()?;
            if made.is_err() {
                lifecycle::forget(runtime_dir, order.id)?;
            }
            made
        }
    };
    if made.is_err() {
        // libcontainer leaves this directory when it fails early.
        let _ = fs::remove_dir_all(&dir);
        runtime_dir.leave();
    }
    made
}

/// Removes the remains of a container made by `lorentz run --bundle`, once no process is left that would remove them.
fn clear_ended(runtime_dir: &RuntimeDir, id: &str, bundle: &Path) -> bool {
    let ended = runtime_dir.tasks(id).is_ok_and(|tasks| {
        tasks.status() == ContainerStatus::Stopped && tasks.bundle().as_path() == bundle
    });
    let ours = is_bundle_of_ours(bundle);
    ended && ours && runtime_dir.tasks(id).is_ok_and(|mut tasks| tasks.delete(true).is_ok())
}

/// Makes the Lorentz container of an OCI container: on a new clock, or on that of another container.
fn clocked(
    runtime_dir: &RuntimeDir,
    id: &str,
    config: &Config,
    wanted: &Wanted,
    which: &WhichClock,
) -> anyhow::Result<Container> {
    let state = StateDir::open()?;
    let name = wanted.name.as_deref().unwrap_or(id);
    let command = config.command();
    let bundle = bundle(runtime_dir, id, wanted);
    let new = NewContainer {
        name: Some(name),
        command: &command,
        bundle: Some(&bundle),
        newcomers: Some(wanted.newcomers),
        ..NewContainer::monitored_by(MonitorKind::Runtime)
    };
    let container = match (which, of_pod(&state, wanted)?) {
        (WhichClock::Of(owner), _) if cluster_clock(owner).is_some() => {
            state.join(&new, owner).context("lorentz.clock")?
        }
        (WhichClock::Of(owner), _) => {
            let owner = state.find(owner).context("lorentz.clock")?;
            state.join(&new, owner.name())?
        }
        (WhichClock::New(_), Some(owner)) => state.join(&new, &owner)?,
        (WhichClock::New(settings), None) => state.create(&new, settings)?,
    };
    Ok(container)
}

/// The bundle of container `id` as its record has it.
pub fn bundle(runtime_dir: &RuntimeDir, id: &str, wanted: &Wanted) -> Bundle {
    Bundle {
        id: id.to_string(),
        root: runtime_dir.root.clone(),
        pod: wanted.pod.clone(),
        asked: wanted.text.clone(),
        paused_clock: false,
    }
}

/// Returns a container of the same pod that asks for the same clock: such containers share one.
fn of_pod(state: &StateDir, wanted: &Wanted) -> anyhow::Result<Option<String>> {
    if wanted.pod.is_none() {
        return Ok(None);
    }
    for other in state.list()? {
        let bundle = other.record().bundle.as_ref();
        let same =
            bundle.is_some_and(|other| other.pod == wanted.pod && other.asked == wanted.text);
        if same && other.liveness()? == Liveness::Alive {
            return Ok(Some(other.name().to_string()));
        }
    }
    Ok(None)
}

fn build_on_clock(
    runtime_dir: &RuntimeDir,
    order: &Order,
    config: Config,
    time: &Time,
    container: &mut Container,
) -> anyhow::Result<Tasks> {
    let maker = std::process::id();
    let monitor = start_monitor(container, || {
        if order.is_transient {
            // The process of the verb `run` does the same, unless it was killed.
            let _ = lifecycle::clear(runtime_dir, order.id, maker);
        }
    })?;
    // An idle process is on no clock: the monitor only waits for its end.
    let by_shim = container.record().mechanism == Mechanism::Shim && !config.is_idle();
    let entrance = if by_shim { Some(Rc::new(monitor.entrance()?)) } else { None };
    let workload = Workload { entrance, idle: config.is_idle(), ..Default::default() };
    let stay = Group::join(container)?;
    let tasks = build(runtime_dir, order, config, time, workload);
    stay.leave();
    let tasks = tasks?;
    let watched = watch(container, &tasks, &monitor, by_shim);
    if let Err(error) = watched {
        let _ = lifecycle::delete(runtime_dir, order.id, true);
        return Err(error);
    }
    Ok(tasks)
}

/// Records the container's first process and its control group.
fn watch(
    container: &mut Container,
    tasks: &Tasks,
    monitor: &MonitorConnection,
    by_shim: bool,
) -> anyhow::Result<()> {
    let pid = tasks.pid().context("the container has no process")?.as_raw() as u32;
    container.set_program_of_others(pid)?;
    if container.cgroup().is_none() {
        // If the engine chose no control group, the container is in this process's. That one may hold other processes too: an
        // engine, or a whole session.
        let ours = Cgroup::of(std::process::id());
        let group = Cgroup::of(pid).filter(|group| Some(group) != ours.as_ref());
        container.set_cgroup(group.as_ref())?;
    }
    if !by_shim {
        monitor.register_process(pid)?;
    }
    Ok(())
}

/// Moves this process into a container's control group for a time: the processes that it makes meanwhile are born there.
pub struct Group {
    back: Option<Cgroup>,
}

impl Group {
    /// Joins the group of a new container. If the engine's limits are not in cgroup version 2, the container gets a version 2 group
    /// of ours, for its freezer. Else it stays in the group that the engine has chosen.
    fn join(container: &mut Container) -> anyhow::Result<Group> {
        if !matches!(get_cgroup_setup(), Ok(CgroupSetup::Unified)) {
            container.make_cgroup(CgroupPlace::Top)?;
        }
        Ok(Group::enter(container))
    }

    /// Joins the group of `container`, if we made it.
    pub fn enter(container: &Container) -> Group {
        let ours = !matches!(get_cgroup_setup(), Ok(CgroupSetup::Unified));
        let Some(group) = container.cgroup().filter(|_| ours) else { return Group { back: None } };
        let back = Cgroup::of(std::process::id());
        let entered = back.is_some() && group.add(std::process::id()).is_ok();
        Group { back: back.filter(|_| entered) }
    }

    /// Returns this process to its former group.
    pub fn leave(self) {
        if let Some(back) = self.back {
            let _ = back.add(std::process::id());
        }
    }
}

fn build(
    runtime_dir: &RuntimeDir,
    order: &Order,
    config: Config,
    time: &Time,
    mut workload: Workload,
) -> anyhow::Result<Tasks> {
    let bundle = config.bundle().to_path_buf();
    workload.profile = config.profile()?;
    workload.narrows_capset = config.narrows_capset();
    let (mut value, rights) = config.adapt(time)?;
    workload.rights = rights;
    let copied_up = copyup::take(&mut value);
    let adapted = Adapted::write(runtime_dir, order.id, &value)?;
    let builder = ContainerBuilder::new(order.id.to_string(), SyscallType::default())
        .with_root_path(&runtime_dir.root)?
        .with_pid_file(order.pid_file)?
        .with_console_socket(order.console_socket)
        .with_preserved_fds(order.preserve_fds)
        .with_executor(workload)
        .as_init(&adapted.dir)
        .with_systemd(runtime_dir.systemd)
        .with_detach(order.detached)
        .with_no_pivot(order.no_pivot);
    let mut tasks = with_logged_cause(|| builder.build())
        .with_context(|| format!("creating container {}", order.id))?;
    tasks.state.bundle = bundle;
    let saved = save(&tasks).and_then(|()| {
        let root = Path::new(value["root"]["path"].as_str().unwrap_or_default());
        copyup::fill(&copied_up, root, tasks.pid().map_or(0, |pid| pid.as_raw()))
    });
    if let Err(error) = saved {
        let _ = tasks.delete(true);
        return Err(error);
    }
    Ok(tasks)
}

/// The bundle for `libcontainer`. Dropping this value removes it, when the container has been made.
struct Adapted {
    dir: PathBuf,
}

impl Adapted {
    fn write(runtime_dir: &RuntimeDir, id: &str, value: &Value) -> anyhow::Result<Adapted> {
        let dir = runtime_dir.draft(id, "");
        DirBuilder::new().mode(0o700).create(&dir)?;
        let adapted = Adapted { dir };
        fs::write(adapted.dir.join("config.json"), value.to_string())?;
        Ok(adapted)
    }
}

impl Drop for Adapted {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}
