//! The runtime's directory of containers. `lorentz` keeps the state of their clocks in another one.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context};
use libcontainer::container::{Container as Tasks, ContainerStatus, State};
use libcontainer::error::LibcontainerError;
use liboci_cli::GlobalOpts;
use lorentz_container::{bundle_dir, replace_file, runtime_root, Container, StateDir};
use lorentz_control::processes::Process;
use nix::fcntl::{Flock, FlockArg};

/// The state of a container, in its directory. libcontainer empties its own file before it writes it: whoever reads that file in
/// between, or after a kill, takes this one, which is always whole.
const WHOLE_STATE: &str = "state.whole.json";

/// The kinds of drafts: of a program that is started in a container, and of a terminal's socket. That of a container has none.
pub const EXEC_DRAFT: &str = "exec.";
pub const CONSOLE_DRAFT: &str = "console.";

/// The runtime's directory, and the kind of control groups.
pub struct RuntimeDir {
    /// Parent of the containers' directories.
    pub root: PathBuf,
    /// Whether systemd makes the control groups.
    pub systemd: bool,
}

impl RuntimeDir {
    /// Returns the directory that the command line names, or the default.
    pub fn of(global: &GlobalOpts) -> anyhow::Result<RuntimeDir> {
        let root = global.root.clone().unwrap_or_else(runtime_root);
        let root =
            std::path::absolute(&root).with_context(|| format!("--root {}", root.display()))?;
        Ok(RuntimeDir { root, systemd: global.systemd_cgroup })
    }

    /// Makes the directory, if it is missing.
    pub fn make(&self) -> anyhow::Result<()> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.root);
        made.with_context(|| format!("--root {}", self.root.display()))
    }

    /// Returns the directory of container `id`.
    pub fn dir(&self, id: &str) -> anyhow::Result<PathBuf> {
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '+' | '-' | '.');
        if id.is_empty() || id.starts_with('.') || !id.chars().all(good) {
            bail!("container id {id:?}: expected letters, digits, '_', '+', '-' and '.', the first no '.'");
        }
        Ok(self.root.join(id))
    }

    /// Returns where this process writes what it needs to make container `id`, or with `kind` to start a program in it.
    pub fn draft(&self, id: &str, kind: &str) -> PathBuf {
        self.root.join(format!(".{id}.{kind}{}", std::process::id()))
    }

    /// Removes the drafts for container `id` of processes that have ended, and those of process `maker`, which needs them no more.
    pub fn remove_drafts(&self, id: &str, maker: Option<u32>) {
        let maker_of = |name: &str| {
            let rest = name.strip_prefix('.')?.strip_prefix(id)?.strip_prefix('.')?;
            let of_kind =
                [EXEC_DRAFT, CONSOLE_DRAFT].iter().find_map(|kind| rest.strip_prefix(kind));
            of_kind.unwrap_or(rest).parse::<u32>().ok()
        };
        for entry in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(maker_of) else { continue };
            if maker == Some(pid) || Process::read(pid).is_none_or(|one| one.has_ended()) {
                let _ = fs::remove_dir_all(entry.path()).or_else(|_| fs::remove_file(entry.path()));
            }
        }
    }

    /// Loads container `id`.
    pub fn tasks(&self, id: &str) -> anyhow::Result<Tasks> {
        let dir = self.dir(id)?;
        if !dir.exists() {
            bail!("container {id:?} does not exist");
        }
        let loaded = match Tasks::load(dir.clone()) {
            // The first process went while libcontainer looked at it. Now it is not there.
            Err(LibcontainerError::Procfs(_)) => Tasks::load(dir),
            Err(LibcontainerError::State(error)) => match load_whole(dir) {
                Some(whole) => whole,
                None => Err(error.into()),
            },
            loaded => loaded,
        };
        loaded.with_context(|| format!("container {id:?}"))
    }

    /// Returns what is left of container `id`, which was never whole: a runtime was killed while it made the container.
    pub fn remains(&self, id: &str) -> anyhow::Result<Tasks> {
        let bundle = bundle_dir(&self.root, id);
        let state = State::new(id, ContainerStatus::Stopped, None, bundle);
        let mut tasks = Tasks { state, root: self.dir(id)? };
        tasks.set_systemd(self.systemd);
        Ok(tasks)
    }

    /// Lists the ids of all containers.
    pub fn ids(&self) -> anyhow::Result<Vec<String>> {
        let Ok(entries) = fs::read_dir(&self.root) else { return Ok(Vec::new()) };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut ids: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
        ids.sort();
        Ok(ids)
    }

    /// Finds the Lorentz container of container `id`; none if it has ended.
    pub fn timed(&self, id: &str) -> anyhow::Result<Option<Container>> {
        let known = |container: &Container| {
            let bundle = container.record().bundle.as_ref();
            bundle.is_some_and(|bundle| bundle.id == id && bundle.root == self.root)
        };
        Ok(StateDir::open()?.list()?.into_iter().find(known))
    }

    /// Locks the set of paused containers until the result is dropped: engines pause the containers of a pod at the same time.
    pub fn lock(&self) -> anyhow::Result<Flock<File>> {
        lock_dir(&self.root).with_context(|| format!("--root {}", self.root.display()))
    }

    /// Locks container `id` until the result is dropped: its monitor and other processes delete it at the same time. Fails if the
    /// container has no directory.
    pub fn lock_container(&self, id: &str) -> anyhow::Result<Flock<File>> {
        lock_dir(&self.dir(id)?).with_context(|| format!("container {id:?}"))
    }

    /// Removes the runtime's directory, if it is empty.
    pub fn leave(&self) {
        let _ = fs::remove_dir(&self.root);
    }
}

/// Saves a container's state, so that there is always a whole one in its directory.
pub fn save(tasks: &Tasks) -> anyhow::Result<()> {
    announce(tasks, tasks.status())?;
    Ok(tasks.save()?)
}

/// Writes a container's state as it will be when libcontainer has saved it.
pub fn announce(tasks: &Tasks, status: ContainerStatus) -> anyhow::Result<()> {
    let state = State { status, ..tasks.state.clone() };
    let path = tasks.root.join(WHOLE_STATE);
    let new = path.with_extension("new");
    fs::write(&new, serde_json::to_vec(&state)?)?;
    Ok(replace_file(&new, &path)?)
}

fn load_whole(dir: PathBuf) -> Option<Result<Tasks, LibcontainerError>> {
    let text = fs::read(dir.join(WHOLE_STATE)).ok()?;
    let mut tasks = Tasks { state: serde_json::from_slice(&text).ok()?, root: dir };
    Some(tasks.refresh_status().map(|()| tasks))
}

fn lock_dir(dir: &Path) -> io::Result<Flock<File>> {
    let dir = File::open(dir)?;
    Flock::lock(dir, FlockArg::LockExclusive).map_err(|(_, error)| error.into())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    #[test]
    fn drafts_go_with_their_makers() {
        let place = tempfile::tempdir().unwrap();
        let runtime_dir = RuntimeDir { root: place.path().to_path_buf(), systemd: false };
        let left = || {
            let entries = fs::read_dir(place.path()).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        // No process has this number: pid_max is below it.
        const NOBODY: &str = "4194305";
        let me = std::process::id();
        for name in [".web.", ".web.exec.", ".web.console.", ".other."] {
            fs::write(place.path().join(format!("{name}{NOBODY}")), "").unwrap();
            fs::create_dir(place.path().join(format!("{name}{me}"))).unwrap();
        }
        fs::create_dir(place.path().join("web")).unwrap();
        assert_eq!(
            runtime_dir.draft("web", EXEC_DRAFT).file_name().unwrap(),
            &*format!(".web.exec.{me}")
        );

        runtime_dir.remove_drafts("web", None);
        assert_eq!(left().len(), 6, "{:?}", left());
        // A process that is being killed closes its files before /proc says that it has ended.
        runtime_dir.remove_drafts("web", Some(me));
        let mut others = [format!(".other.{NOBODY}"), format!(".other.{me}"), "web".into()];
        others.sort();
        assert_eq!(left(), others.map(OsString::from));
    }
}
