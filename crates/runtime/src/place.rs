//! Where the runtime keeps what it knows of containers, beside what `lorentz` keeps of their clocks.

use std::fs::{self, File};
use std::path::PathBuf;

use anyhow::{bail, Context};
use libcontainer::container::Container as Tasks;
use liboci_cli::GlobalOpts;
use lorentz_container::{runtime_root, Container, StateDir};
use nix::fcntl::{Flock, FlockArg};

/// The runtime's directory, and how it goes about control groups.
pub struct Place {
    /// One directory for each container.
    pub root: PathBuf,
    /// Control groups are made by systemd.
    pub systemd: bool,
}

impl Place {
    /// As the command line has it.
    pub fn of(global: &GlobalOpts) -> anyhow::Result<Place> {
        let root = global.root.clone().unwrap_or_else(runtime_root);
        let root =
            std::path::absolute(&root).with_context(|| format!("--root {}", root.display()))?;
        Ok(Place { root, systemd: global.systemd_cgroup })
    }

    /// The directory of container `id`.
    pub fn dir(&self, id: &str) -> anyhow::Result<PathBuf> {
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '+' | '-' | '.');
        if id.is_empty() || id.starts_with('.') || !id.chars().all(good) {
            bail!("container id {id:?}: expected letters, digits, '_', '+', '-' and '.', the first no '.'");
        }
        Ok(self.root.join(id))
    }

    /// Container `id`.
    pub fn tasks(&self, id: &str) -> anyhow::Result<Tasks> {
        let dir = self.dir(id)?;
        if !dir.exists() {
            bail!("container {id:?} does not exist");
        }
        Tasks::load(dir).with_context(|| format!("container {id:?}"))
    }

    /// The ids of all containers.
    pub fn ids(&self) -> anyhow::Result<Vec<String>> {
        let Ok(entries) = fs::read_dir(&self.root) else { return Ok(Vec::new()) };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut ids: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
        ids.sort();
        Ok(ids)
    }

    /// The container's clock and monitors; none where it has ended.
    pub fn timed(&self, id: &str) -> anyhow::Result<Option<Container>> {
        let known = |container: &Container| {
            let bundle = container.record().bundle.as_ref();
            bundle.is_some_and(|bundle| bundle.id == id && bundle.root == self.root)
        };
        Ok(StateDir::open()?.list()?.into_iter().find(known))
    }

    /// Keeps other calls of the runtime from changing who is paused until it is dropped: engines pause a pod's containers
    /// at once.
    pub fn lock(&self) -> anyhow::Result<Flock<File>> {
        let dir =
            File::open(&self.root).with_context(|| format!("--root {}", self.root.display()))?;
        Flock::lock(dir, FlockArg::LockExclusive)
            .map_err(|(_, error)| error)
            .with_context(|| format!("--root {}", self.root.display()))
    }

    /// Removes the directory of all containers, where the last one has gone.
    pub fn leave(&self) {
        let _ = fs::remove_dir(&self.root);
    }
}
