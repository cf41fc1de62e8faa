//! The verbs `checkpoint` and `restore`.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context};
use libcgroups::common::{get_cgroup_setup, CgroupManager, CgroupSetup, ControllerOpt};
use libcontainer::config::YoukiConfig;
use libcontainer::container::{Container as Tasks, ContainerStatus};
use libcontainer::hooks::run_hooks;
use libcontainer::oci_spec::runtime::{LinuxResources, Spec};
use lorentz_checkpoint::{
    checkpoint_bundle, BundleMount, BundleParts, BundleRestore, CheckpointOptions, RestoreOptions,
    RestoredBundle,
};
use lorentz_container::{
    connect_to_monitor, hand_over_to_background, unfreeze, Bundle, Newcomers, StateDir,
};
use lorentz_control::HostNow;

use crate::args::{CheckpointArgs, RestoreArgs};
use crate::config::{Config, Time};
use crate::create::bundle;
use crate::lifecycle;
use crate::resources;
use crate::runtime_dir::{save, RuntimeDir};

/// The verb `checkpoint`. As with other runtimes, a container that does not go on is deleted.
pub fn checkpoint(runtime_dir: &RuntimeDir, args: &CheckpointArgs) -> anyhow::Result<i32> {
    args.check()?;
    let id = &args.container_id;
    let tasks = runtime_dir.tasks(id)?;
    // containerd pauses a container before.
    if !matches!(tasks.status(), ContainerStatus::Running | ContainerStatus::Paused) {
        let status = lifecycle::word(tasks.status());
        bail!("cannot checkpoint container {id}: it is {status} and not running");
    }
    let config = Config::load(tasks.bundle())?;
    let Some(container) = runtime_dir.timed(id)? else {
        bail!("cannot checkpoint container {id}: it has no clock of Lorentz's");
    };
    if config.is_idle() {
        bail!("cannot checkpoint container {id}: its first process executes nothing");
    }
    let outside = Outside::of(&config)?;
    let options = CheckpointOptions {
        leave_running: args.leave_running,
        tcp_established: args.tcp_established,
        compress: args.compress,
    };
    let parts = outside.parts(args.work_path.as_deref());
    checkpoint_bundle(&container, &args.image_path, options, &parts)?;
    if !args.leave_running {
        lifecycle::delete(runtime_dir, id, true)?;
    }
    Ok(0)
}

impl CheckpointArgs {
    fn check(&self) -> anyhow::Result<()> {
        let absent = [
            (self.pre_dump, "--pre-dump"),
            (self.parent_path.is_some(), "--parent-path"),
            (self.lazy_pages, "--lazy-pages"),
            (self.page_server.is_some(), "--page-server"),
        ];
        match absent.iter().find(|(given, _)| *given) {
            Some((_, flag)) => {
                bail!("{flag}: not supported; all memory is saved at once, into --image-path")
            }
            None => Ok(()),
        }
    }
}

/// The parts of a bundle that its container has from outside.
struct Outside {
    mounts: Vec<BundleMount>,
    network: Option<PathBuf>,
}

impl Outside {
    fn of(config: &Config) -> anyhow::Result<Outside> {
        if config.wants_terminal() {
            bail!("process.terminal: a program with a terminal can be neither saved nor restored");
        }
        if config.namespace_path("pid").is_some() {
            bail!("linux.namespaces: a process id namespace of other programs can be neither saved nor restored");
        }
        Ok(Outside { mounts: config.mounts()?, network: config.namespace_path("network") })
    }

    fn parts<'a>(&'a self, log_dir: Option<&'a Path>) -> BundleParts<'a> {
        BundleParts { mounts: &self.mounts, network: self.network.as_deref(), log_dir }
    }
}

/// The verb `restore`.
pub fn restore(runtime_dir: &RuntimeDir, args: &RestoreArgs) -> anyhow::Result<i32> {
    let id = args.container_id.as_str();
    let config = Config::load(&args.bundle)?;
    let wanted = config.wanted(&HostNow::read()?)?;
    if matches!(wanted.time, Time::Namespace) {
        bail!("linux.namespaces: a container in a time namespace that it joins cannot be restored");
    }
    let outside = Outside::of(&config)?;
    let options = RestoreOptions {
        wall: wanted.restored_wall,
        tcp_established: args.tcp_established,
        ..Default::default()
    };
    let root = config.root()?;
    let parts = outside.parts(args.work_path.as_deref());
    let plan = BundleRestore::check(&args.image_path, &options, parts, &root)?;
    make_dir(runtime_dir, id)?;
    let bundle = bundle(runtime_dir, id, &wanted);
    let names = [wanted.name.as_deref(), Some(id)];
    let restored = describe(runtime_dir, id, &config).and_then(|tasks| {
        let restored = bring_back(&plan, &tasks, &config, names, &bundle, wanted.newcomers)?;
        if let Some(rate) = wanted.restored_rate {
            restored.container.clock()?.dilate(rate)?;
        }
        finish(tasks, &config, restored, args.pid_file.as_deref(), plan.checkpoint().frozen)
    });
    let pid = match restored {
        Ok(pid) => pid,
        Err(error) => {
            let _ = lifecycle::delete(runtime_dir, id, true);
            return Err(error);
        }
    };
    if args.detach {
        return Ok(0);
    }
    let status = lifecycle::wait_for(pid);
    lifecycle::delete(runtime_dir, id, true)?;
    status
}

/// Makes the container's directory, which is there for one of two restores at once.
fn make_dir(runtime_dir: &RuntimeDir, id: &str) -> anyhow::Result<()> {
    let dir = runtime_dir.dir(id)?;
    runtime_dir.make()?;
    match DirBuilder::new().mode(0o700).create(&dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            bail!("container with id {id} already exists")
        }
        made => Ok(made?),
    }
}

/// Writes the files into the container's directory that libcontainer has there.
fn describe(runtime_dir: &RuntimeDir, id: &str, config: &Config) -> anyhow::Result<Tasks> {
    let dir = runtime_dir.dir(id)?;
    let mut tasks = Tasks::new(id, ContainerStatus::Creating, None, config.bundle(), &dir)?;
    let spec = config.spec()?;
    tasks.set_systemd(runtime_dir.systemd).set_annotations(spec.annotations().clone());
    tasks.set_creator(nix::unistd::geteuid().as_raw());
    save(&tasks)?;
    YoukiConfig::from_spec(&spec, id)?.save(&dir)?;
    Ok(tasks)
}

fn bring_back(
    plan: &BundleRestore,
    tasks: &Tasks,
    config: &Config,
    names: [Option<&str>; 2],
    bundle: &Bundle,
    newcomers: Newcomers,
) -> anyhow::Result<RestoredBundle> {
    let state = StateDir::open()?;
    // Two lives of one checkpoint cannot both have the name in the annotations.
    let mut names = names.into_iter().flatten();
    let free = names.find(|name| state.check_new_name(name).is_ok());
    let name = free.with_context(|| format!("container {}: the name is taken", tasks.id()))?;
    let manager = resources::manager(tasks)?;
    let resources = resources_of(&config.spec()?);
    let enter = |pid: u32| {
        // libcgroups has a type of its own for process ids, as libcontainer has.
        let pid = tasks.clone().set_pid(pid as i32).pid().context("a process id")?;
        manager.add_task(pid)?;
        Ok(manager.apply(&ControllerOpt {
            resources: &resources,
            freezer_state: None,
            oom_score_adj: None,
            disable_oom_killer: false,
        })?)
    };
    let has_freezer = matches!(get_cgroup_setup(), Ok(CgroupSetup::Unified));
    plan.restore(&state, name, bundle, newcomers, !has_freezer, &enter)
}

fn resources_of(spec: &Spec) -> LinuxResources {
    let linux = spec.linux().as_ref();
    linux.and_then(|linux| linux.resources().clone()).unwrap_or_default()
}

/// Gives the container a monitor in the background, and lets its programs go on. Returns the process id of the first one.
fn finish(
    mut tasks: Tasks,
    config: &Config,
    restored: RestoredBundle,
    pid_file: Option<&Path>,
    was_frozen: bool,
) -> anyhow::Result<i32> {
    let RestoredBundle { mut container, mut monitor, pid } = restored;
    hand_over_to_background(&mut monitor, &container, pid)?;
    drop(monitor);
    connect_to_monitor(&container).context("the monitor in the background")?;
    container.set_program_of_others(pid)?;
    container.leave()?;
    let (spec, pid) = (config.spec()?, pid as i32);
    save(tasks.set_status(ContainerStatus::Created).set_pid(pid))?;
    let hooks = spec.hooks().as_ref();
    let run = |hooks, tasks: &Tasks| run_hooks(hooks, Some(&tasks.state), None, None, None);
    #[allow(deprecated)]
    run(hooks.and_then(|hooks| hooks.prestart().as_ref()), &tasks)?;
    run(hooks.and_then(|hooks| hooks.create_runtime().as_ref()), &tasks)?;
    if let Some(path) = pid_file {
        fs::write(path, pid.to_string())
            .with_context(|| format!("--pid-file {}", path.display()))?;
    }
    save(tasks.set_status(ContainerStatus::Running))?;
    if !was_frozen {
        unfreeze(&container)?;
    }
    run(hooks.and_then(|hooks| hooks.poststart().as_ref()), &tasks)?;
    Ok(pid)
}
