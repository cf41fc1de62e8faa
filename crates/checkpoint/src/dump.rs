//! Checkpoint: a container becomes a directory.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use lorentz_container::{criu as installed, freeze, unfreeze, Container, Liveness, Mechanism};
use lorentz_control::host_time::{sleep, HostMoment};
use lorentz_control::processes::Process;
use lorentz_control::{number_inside, Cgroup, HostNow};
use lorentz_inject::Shim;
use nix::unistd::geteuid;
use rust_criu::rust_criu_protobuf::rpc::{Criu_opts, Criu_req_type};

use crate::bundle::BundleParts;
use crate::capabilities::lend;
use crate::compress::compress;
use crate::criu::{self, Request, Survival};
use crate::directory::{Host, Place, Unfinished};
use crate::guard::Guard;
use crate::settle::settle;
use crate::{images, streams, Checkpoint, CheckpointRefused, ProcessEntry};

/// How a checkpoint is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CheckpointOptions {
    /// The container goes on.
    pub leave_running: bool,
    /// TCP connections to outside are saved too.
    pub tcp_established: bool,
    /// The memory of the programs is compressed.
    pub compress: bool,
}

/// How long the killed programs of a container may take to end.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Writes a checkpoint of `container` into the new directory `dir`, and ends the container's programs unless they are to go on. The
/// caller must have one thread only.
///
/// # Errors
///
/// [`CheckpointRefused`]; or CRIU's first error. The container goes on then, and there is no directory.
pub fn checkpoint(
    container: &Container,
    dir: &Path,
    options: CheckpointOptions,
) -> anyhow::Result<()> {
    let subject = Subject::of(container)?;
    save(&subject, options, || Ok(Place::beside(dir)?))
}

/// As [`checkpoint`], for a container of an OCI runtime with the bundle `parts`. `dir` may be empty, or an earlier checkpoint, which
/// is lost then.
///
/// # Errors
///
/// As [`checkpoint`].
pub fn checkpoint_bundle(
    container: &Container,
    dir: &Path,
    options: CheckpointOptions,
    parts: &BundleParts,
) -> anyhow::Result<()> {
    let subject = Subject::with_bundle(container, parts)?;
    save(&subject, options, || Place::for_engine(dir))
}

fn save(
    subject: &Subject,
    options: CheckpointOptions,
    place: impl FnOnce() -> anyhow::Result<Place>,
) -> anyhow::Result<()> {
    let criu = installed::locate().map_err(|found| CheckpointRefused::NoCriu { found })?;
    let place = place()?;
    let guard = subject.guard(&place, options)?;
    let dumped = Unfinished::make(&place)
        .map_err(Into::into)
        .and_then(|unfinished| subject.dump(&criu, unfinished, None, &guard, options));
    if dumped.is_ok() && !options.leave_running {
        subject.end()?;
    } else {
        subject.go_on()?;
    }
    guard.disarm();
    dumped
}

/// A container that can be checkpointed.
pub(crate) struct Subject<'a> {
    container: &'a Container,
    group: Cgroup,
    root: u32,
    was_frozen: bool,
    parts: Option<&'a BundleParts<'a>>,
}

impl<'a> Subject<'a> {
    pub fn of(container: &'a Container) -> anyhow::Result<Subject<'a>> {
        let refused = |why: &str| Err(refusal(container, why));
        if container.record().bundle.is_some() {
            return refused(
                "made by an OCI runtime or with --rootfs; an engine checkpoints its own ('podman container checkpoint')",
            );
        }
        let subject = Subject::any(container, None)?;
        if is_in_other_namespace(subject.root, &["mnt", "net", "pid", "uts", "user"]) {
            return refused("its program is in namespaces of its own, as a node of a network is");
        }
        Ok(subject)
    }

    fn with_bundle(
        container: &'a Container,
        parts: &'a BundleParts,
    ) -> anyhow::Result<Subject<'a>> {
        let subject = Subject::any(container, Some(parts))?;
        if is_in_other_namespace(subject.root, &["user"]) {
            return Err(refusal(container, "it has a user namespace, which cannot be restored"));
        }
        Ok(subject)
    }

    fn any(
        container: &'a Container,
        parts: Option<&'a BundleParts>,
    ) -> anyhow::Result<Subject<'a>> {
        let refused = |why: &str| Err(refusal(container, why));
        let record = container.record();
        if !geteuid().is_root() {
            return Err(CheckpointRefused::NotRoot.into());
        }
        if let Some(experiment) = &record.experiment {
            return refused(&format!(
                "in experiment {experiment}, which moves its clock; checkpoint it outside of one"
            ));
        }
        if record.mechanism == Mechanism::TimeNamespace {
            return refused("in a time namespace alone, which has no clock that can be stopped");
        }
        if container.liveness()? != Liveness::Alive {
            return refused("its monitor is dead; adopt it first");
        }
        if container.sharing_its_clock()?.len() > 1 {
            return refused(
                "on one clock with other containers, which would have to be checkpointed together",
            );
        }
        let clock = container.clock()?;
        let Some(group) = container.cgroup() else { return Err(CheckpointRefused::NotRoot.into()) };
        let processes = container.processes()?;
        let root = match roots(&processes)[..] {
            [root] => root,
            [] => return refused("no program runs in it"),
            _ => return refused("several programs run beside one another ('exec', or orphans); only one and its descendants can be checkpointed"),
        };
        if processes.iter().any(|one| one.first_thread_has_ended() && !one.has_ended()) {
            return refused(
                "the first thread of a program has ended while others run, which CRIU cannot save",
            );
        }
        let pids: Vec<u32> = processes.iter().map(|process| process.pid).collect();
        if let Some(terminal) = streams::terminal(&pids) {
            let advice = "a restored program has no terminal; start it with its standard streams in files or pipes";
            return refused(&format!("a program has {terminal} open; {advice}"));
        }
        Ok(Subject { container, group, root, was_frozen: clock.is_frozen(), parts })
    }

    /// The container's name.
    pub fn name(&self) -> &str {
        self.container.name()
    }

    /// Makes the process that cleans up if this one is killed. The container either is in the complete directory or goes on.
    fn guard(&self, place: &Place, options: CheckpointOptions) -> anyhow::Result<Guard> {
        Guard::start(move || {
            if place.is_unfinished() || options.leave_running || !place.target.exists() {
                place.clear();
                return self.go_on();
            }
            self.end()
        })
    }

    /// Stops the container, and saves it in `unfinished`, which becomes whole. `parent` is the directory, as seen from CRIU's images,
    /// with memory that was saved before.
    pub fn dump(
        &self,
        criu: &Path,
        unfinished: Unfinished,
        parent: Option<&str>,
        guard: &Guard,
        options: CheckpointOptions,
    ) -> anyhow::Result<()> {
        let images = unfinished.images();
        let opened = File::open(images)?;
        let inherited = [opened.as_raw_fd(), guard.fd()];
        let mut request = Request::begin(criu, Criu_req_type::DUMP, &inherited, Survival::GoesOn)?;
        let version = request.version()?;
        self.stop()?;
        let description = self.describe(version, options)?;
        let mut asked = self.request(&opened)?;
        asked.set_leave_running(true);
        asked.set_tcp_established(options.tcp_established);
        if let Some(parent) = parent {
            criu::track_memory(&mut asked, Some(parent));
        }
        if let (Some(parts), Some(entry)) = (self.parts, &description.bundle) {
            parts.name_all(entry, &mut asked);
            asked.external.extend(description.files_of_outside.iter().map(|(_, key)| key.clone()));
        }
        let sent = request.send(asked, |_, _| Ok(()));
        if let (Err(_), Some(parts)) = (&sent, self.parts) {
            parts.keep_log(images, "dump.log");
        }
        sent.map_err(|error| criu::explain(images, &error))?;
        drop(request);
        criu::clear_work(images);
        images::adapt(images)?;
        lend(images, &description.processes)?;
        if options.compress {
            compress(images)?;
        }
        unfinished.copy_clock(&self.container.clock_path())?;
        unfinished.finish(description)
    }

    /// Saves the memory of the programs into the directory `images`: what they have written since it was saved in `parent`, or all. The
    /// container stands still meanwhile, and goes on afterwards.
    pub fn pre_dump(
        &self,
        criu: &Path,
        images: &Path,
        parent: Option<&str>,
        guard: &Guard,
    ) -> anyhow::Result<()> {
        let opened = File::open(images)?;
        let (kind, inherited) = (Criu_req_type::PRE_DUMP, [opened.as_raw_fd(), guard.fd()]);
        let mut request = Request::begin(criu, kind, &inherited, Survival::GoesOn)?;
        request.version()?;
        self.stop()?;
        let mut asked = self.request(&opened)?;
        criu::track_memory(&mut asked, parent);
        let sent = request.send(asked, |_, _| Ok(()));
        sent.map_err(|error| criu::explain(images, &error))?;
        drop(request);
        criu::clear_work(images);
        self.go_on()
    }

    /// Stops the clock, and the programs where CRIU can save them.
    fn stop(&self) -> anyhow::Result<()> {
        freeze(self.container)?;
        let settled = settle(&self.container.clock()?, &self.group);
        let name = self.container.name();
        anyhow::ensure!(
            settled,
            "{name}: some of its programs do not stop, or start others all the time"
        );
        Ok(())
    }

    /// The options of every request to save the programs into `images`.
    fn request(&self, images: &File) -> anyhow::Result<Criu_opts> {
        let mut asked = criu::options(images, images);
        asked.set_pid(self.root as i32);
        asked.set_freeze_cgroup(path_text(self.group.path()));
        asked.external.push(clock_key(&self.container.clock_path())?);
        Ok(asked)
    }

    /// Describes the container, which stands still. `criu` is the version of CRIU.
    fn describe(&self, criu: String, options: CheckpointOptions) -> anyhow::Result<Checkpoint> {
        let reading = self.container.clock()?.reading();
        let processes = self.container.processes()?;
        let pids: Vec<u32> = processes.iter().map(|process| process.pid).collect();
        let (host, now) = (Host::read()?, HostNow::read()?);
        let record = self.container.record();
        Ok(Checkpoint {
            lorentz: env!("CARGO_PKG_VERSION").to_string(),
            shim: lorentz_inject::shim_build_id(),
            shim_layout: Shim::own().layout,
            kernel: host.kernel,
            boot_id: host.boot_id,
            criu,
            name: record.name.clone(),
            command: record.command.clone(),
            wall: reading.wall.to_string(),
            monotonic_ns: reading.virt.0,
            boottime_ns: reading.boot.0,
            rate: reading.rate.to_string(),
            frozen: self.was_frozen && !self.is_paused(),
            host_wall_ns: now.wall.as_nanos(),
            host_monotonic_ns: now.real.0,
            time_offsets: host.time_offsets,
            tcp_established: options.tcp_established,
            clock_key: clock_key(&self.container.clock_path())?,
            pipes: streams::pipes_to_outside(self.root, &pids),
            files_of_outside: self
                .parts
                .map_or_else(Vec::new, |_| streams::files_of_outside(self.root)),
            root: number_inside(self.root).context("the first program has ended")?,
            bundle: self.parts.map(|parts| parts.describe(self.root)).transpose()?,
            processes: describe_processes(&record.name, &pids)?,
            files: Default::default(),
        })
    }

    /// Whether its engine has stopped its clock, as containerd does for a checkpoint.
    fn is_paused(&self) -> bool {
        self.container.record().bundle.as_ref().is_some_and(|bundle| bundle.paused_clock)
    }

    /// Lets the container go on, unless it was frozen before.
    pub fn go_on(&self) -> anyhow::Result<()> {
        if !self.was_frozen {
            unfreeze(self.container)?;
        }
        Ok(())
    }

    /// Ends the programs. They are in the directory.
    pub fn end(&self) -> anyhow::Result<()> {
        let pids = self.group.pids().unwrap_or_default();
        self.group.kill().context("ending the programs that were checkpointed")?;
        let begun = HostMoment::now();
        // Their process ids are free when they have been reaped.
        let runs = |pid: &u32| Path::new(&format!("/proc/{pid}")).exists();
        let is_there = || self.container.dir().exists() || pids.iter().any(runs);
        while is_there() && begun.elapsed() < END_TIMEOUT {
            sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

/// Describes the stopped processes, whose shims must have this build's layout.
fn describe_processes(name: &str, pids: &[u32]) -> anyhow::Result<Vec<ProcessEntry>> {
    let own = Shim::own().layout;
    let entry = |pid: &u32| {
        let shim = Shim::of(*pid)?;
        let found = shim.layout;
        anyhow::ensure!(
            found == own,
            CheckpointRefused::Container {
                name: name.to_string(),
                why: format!(
                    "a program was started by another build of Lorentz, with the shim layout {found:06x}, expected {own:06x} \
                     ('lorentz --version'); checkpoint it with that one"
                ),
            }
        );
        Ok(ProcessEntry::of(*pid, shim)?)
    };
    pids.iter().map(entry).collect()
}

/// The processes whose parents are not in the container.
fn roots(processes: &[Process]) -> Vec<u32> {
    let is_inside = |pid: u32| processes.iter().any(|process| process.pid == pid);
    let live = processes.iter().filter(|process| !process.has_ended());
    live.filter(|process| !is_inside(process.parent)).map(|process| process.pid).collect()
}

fn refusal(container: &Container, why: &str) -> anyhow::Error {
    let (name, why) = (container.name().to_string(), why.to_string());
    CheckpointRefused::Container { name, why }.into()
}

/// Whether a process is in other namespaces of these `kinds` than this one.
fn is_in_other_namespace(pid: u32, kinds: &[&str]) -> bool {
    let link = |pid: &str, name: &str| std::fs::read_link(format!("/proc/{pid}/ns/{name}")).ok();
    let pid = pid.to_string();
    kinds.iter().any(|name| link(&pid, name) != link("self", name))
}

/// CRIU's key for the clock's file: the mount's number and the inode, both in hexadecimal.
fn clock_key(clock: &Path) -> anyhow::Result<String> {
    let file = File::open(clock)?;
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd()))?;
    let mount = info.lines().find_map(|line| line.strip_prefix("mnt_id:")).unwrap_or_default();
    let mount: u64 = mount.trim().parse().context("mnt_id in fdinfo")?;
    use std::os::unix::fs::MetadataExt;
    Ok(format!("file[{mount:x}:{:x}]", file.metadata()?.ino()))
}

fn path_text(path: &Path) -> String {
    PathBuf::from(path).to_string_lossy().into_owned()
}
