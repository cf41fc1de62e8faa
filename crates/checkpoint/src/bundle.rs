//! Containers of an OCI runtime. CRIU makes their namespaces and mounts again; the runtime tells what they have from outside.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use lorentz_container::{
    monitor_of, Bundle, Container, MonitorKind, NewContainer, Newcomers, StateDir,
};
use lorentz_control::{number_inside, Cgroup, CgroupPlace};
use lorentz_inject::ExecMonitor;
use rust_criu::rust_criu_protobuf::rpc::{Criu_opts, Ext_mount_map};

use crate::criu;
use crate::directory::BundleEntry;
use crate::mount_points;
use crate::mounts::CgroupMount;
use crate::restore::{inherit, remove, Plan, RestoreOptions, Surroundings};
use crate::{Checkpoint, CheckpointRefused};

/// A mount of a bundle.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BundleMount {
    /// The path inside, which may lead over links.
    pub destination: String,
    /// The directory or file that is seen there; none for a file system of its own.
    pub source: Option<PathBuf>,
}

/// The parts of a bundle that a container has from outside.
#[derive(Clone, Copy, Debug)]
pub struct BundleParts<'a> {
    /// Its mounts.
    pub mounts: &'a [BundleMount],
    /// Its network namespace, if another program has made it.
    pub network: Option<&'a Path>,
    /// The directory for CRIU's log when it fails.
    pub log_dir: Option<&'a Path>,
}

/// CRIU's key for a network namespace from outside.
const NETWORK: &str = "outer-network";

impl BundleParts<'_> {
    /// Describes them for a restore. `root` is the container's first process.
    pub(crate) fn describe(&self, root: u32) -> anyhow::Result<BundleEntry> {
        self.describe_plainly(root).context("the container's namespaces and mounts")
    }

    fn describe_plainly(&self, root: u32) -> io::Result<BundleEntry> {
        let inode = |name: &str| fs::metadata(format!("/proc/{root}/ns/{name}")).map(|at| at.ino());
        let network = match self.network {
            Some(_) => Some(format!("net[{}]:{NETWORK}", inode("net")?)),
            None => None,
        };
        let mut binds = BTreeMap::new();
        for (destination, _) in self.binds() {
            let inside = mount_points::find(root, Path::new(destination))?;
            binds.insert(destination.to_string(), inside);
        }
        Ok(BundleEntry {
            pid_namespace: inode("pid")? as u32,
            network,
            binds,
            cgroups: CgroupMount::all_of(root)?,
        })
    }

    /// The destination and the source of each bind mount.
    fn binds(&self) -> impl Iterator<Item = (&str, &Path)> {
        self.mounts
            .iter()
            .filter_map(|mount| Some((mount.destination.as_str(), mount.source.as_deref()?)))
    }

    /// Makes the mount points that the root file system lacks. Those below another mount lie in that.
    fn make_mount_points(&self, root: &Path) -> io::Result<()> {
        for mount in self.mounts {
            let inside = Path::new(&mount.destination);
            let lies_in =
                |other: &BundleMount| other != mount && inside.starts_with(&other.destination);
            if !self.mounts.iter().any(lies_in) {
                let is_directory = mount.source.as_ref().is_none_or(|source| source.is_dir());
                mount_points::make(root, inside, is_directory)?;
            }
        }
        Ok(())
    }

    /// Names for a dump all that CRIU is not to save.
    pub(crate) fn name_all(&self, entry: &BundleEntry, asked: &mut Criu_opts) {
        for inside in entry.binds.values().chain(entry.cgroups.iter().map(|mount| &mount.inside)) {
            asked.ext_mnt.push(external(inside, inside));
        }
        asked.external.extend(entry.network.clone());
    }

    /// Copies CRIU's log in `work` to where the engine expects it.
    pub(crate) fn keep_log(&self, work: &Path, name: &str) {
        if let Some(dir) = self.log_dir {
            let _ = fs::copy(work.join(criu::LOG), dir.join(name));
        }
    }
}

/// A bind mount of the checkpoint that the bundle lacks.
fn missing<'a>(entry: &'a BundleEntry, parts: &BundleParts) -> Option<&'a String> {
    entry.binds.keys().find(|known| !parts.binds().any(|(destination, _)| destination == *known))
}

fn external(key: &str, value: &str) -> Ext_mount_map {
    let mut mount = Ext_mount_map::new();
    mount.set_key(key.to_string());
    mount.set_val(value.to_string());
    mount
}

/// A restore of a container of an OCI runtime that nothing speaks against yet.
pub struct BundleRestore<'a> {
    plan: Plan<'a>,
    parts: BundleParts<'a>,
    /// Its root file system.
    root: &'a Path,
}

/// A container that has been restored and stands still.
pub struct RestoredBundle {
    /// The container. The calling process is its monitor.
    pub container: Container,
    /// The monitor, which is to go on in the background.
    pub monitor: ExecMonitor,
    /// The first process, a child of the calling one.
    pub pid: u32,
}

impl<'a> BundleRestore<'a> {
    /// Checks that the checkpoint in `dir` can be restored here, in the root file system `root` and with `parts`.
    ///
    /// # Errors
    ///
    /// [`CheckpointRefused`].
    pub fn check(
        dir: &Path,
        options: &'a RestoreOptions,
        parts: BundleParts<'a>,
        root: &'a Path,
    ) -> anyhow::Result<BundleRestore<'a>> {
        let plan = Plan::of(dir, options)?;
        let refused = |why: &str| {
            let (dir, why) = (dir.to_path_buf(), why.to_string());
            Err(CheckpointRefused::Directory { dir, why }.into())
        };
        match &plan.checkpoint().bundle {
            None => refused("no checkpoint of an OCI runtime; 'lorentz restore' restores it"),
            Some(entry) if entry.network.is_some() != parts.network.is_some() => {
                refused("the bundle has another kind of network namespace than the checkpoint")
            }
            Some(entry) => match missing(entry, &parts) {
                Some(missing) => refused(&format!("the bundle has no mount at {missing}")),
                None => Ok(BundleRestore { plan, parts, root }),
            },
        }
    }

    /// The checkpoint's description.
    pub fn checkpoint(&self) -> &Checkpoint {
        self.plan.checkpoint()
    }

    /// Restores the container under the name `name`. `bundle` stands in its record from the first moment, so that one that was left
    /// half made is known. `enter` puts a process into its control groups; `own_group` says whether none of these has a freezer of
    /// version 2. The caller must have one thread only.
    ///
    /// # Errors
    ///
    /// The name is taken; or CRIU's first error. Nothing of the container is left then.
    pub fn restore(
        &self,
        state: &StateDir,
        name: &str,
        bundle: &Bundle,
        newcomers: Newcomers,
        own_group: bool,
        enter: &dyn Fn(u32) -> anyhow::Result<()>,
    ) -> anyhow::Result<RestoredBundle> {
        let command: Vec<_> = self.checkpoint().command.iter().map(Into::into).collect();
        let new = NewContainer {
            name: Some(name),
            command: &command,
            bundle: Some(bundle),
            newcomers: Some(newcomers),
            ..NewContainer::monitored_by(MonitorKind::Runtime)
        };
        let mut container = state.create_from(&new, &self.plan.clock()?)?;
        match self.bring_back(&mut container, own_group, enter) {
            Ok((monitor, pid)) => Ok(RestoredBundle { container, monitor, pid }),
            Err(error) => {
                remove(&container);
                Err(error)
            }
        }
    }

    fn bring_back(
        &self,
        container: &mut Container,
        own_group: bool,
        enter: &dyn Fn(u32) -> anyhow::Result<()>,
    ) -> anyhow::Result<(ExecMonitor, u32)> {
        if own_group {
            container.make_cgroup(CgroupPlace::Top)?;
        }
        self.plan.rebase(container)?;
        let mut monitor = monitor_of(container)?;
        let Some(entry) = &self.checkpoint().bundle else { anyhow::bail!("no bundle") };
        let group = self.restore_processes(container, entry, enter)?;
        let root = self.first_of(&group)?;
        let space = container.clock()?.relocate(Some(entry.pid_namespace), root)?;
        let root = self.plan.adopt(container, &group, &mut monitor, space)?;
        if container.cgroup().is_none() {
            container.set_cgroup(Some(&group))?;
        }
        self.plan.set_wall(container)?;
        Ok((monitor, root))
    }

    /// As [`Plan::restore_processes`], in the bundle's root file system.
    fn restore_processes(
        &self,
        container: &Container,
        entry: &BundleEntry,
        enter: &dyn Fn(u32) -> anyhow::Result<()>,
    ) -> anyhow::Result<Cgroup> {
        let network =
            self.parts.network.map(File::open).transpose().context("network namespace")?;
        self.parts.make_mount_points(self.root).context("mount points")?;
        let mount_point = container.dir().join("root");
        fs::create_dir(&mount_point)?;
        let request = |criu: u32, asked: &mut Criu_opts| {
            asked.set_root(mount_point.to_string_lossy().into_owned());
            for (destination, source) in self.parts.binds() {
                if let Some(inside) = entry.binds.get(destination) {
                    asked.ext_mnt.push(external(inside, &source.to_string_lossy()));
                }
            }
            for mount in &entry.cgroups {
                let source = mount.source(criu)?;
                asked.ext_mnt.push(external(&mount.inside, &source.to_string_lossy()));
            }
            asked.inherit_fd.extend(network.iter().map(|file| inherit(file.as_raw_fd(), NETWORK)));
            Ok(())
        };
        let place = |criu: u32| {
            enter(criu)?;
            match container.cgroup() {
                Some(ours) => ours.ensure(criu).map(|()| ours).map_err(Into::into),
                None => Cgroup::of(criu).context("the container's control group"),
            }
        };
        let group = container.cgroup();
        let inherited: Vec<RawFd> = network.iter().map(AsRawFd::as_raw_fd).collect();
        let root = criu::RootMount { source: self.root, point: &mount_point };
        let restored = self.plan.restore_processes(
            container,
            &Surroundings {
                group: group.as_ref(),
                enter: &place,
                root: Some(root),
                inherited: &inherited,
                adjust: &request,
            },
        );
        if restored.is_err() {
            self.parts.keep_log(&container.dir(), "restore.log");
        }
        let _ = fs::remove_dir(&mount_point);
        restored
    }

    /// Finds the first process, in the new process id namespace.
    fn first_of(&self, group: &Cgroup) -> anyhow::Result<u32> {
        let first = self.checkpoint().root;
        let is_first = |pid: &u32| number_inside(*pid) == Some(first);
        group.pids()?.into_iter().find(is_first).context("the first program has ended")
    }
}
