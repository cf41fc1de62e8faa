//! Private layers: what programs write goes into memory, and the files below stay as they are.
//!
//! A [`Layer`] is one tmpfs. It holds the upper directories of any number of overlays, the directories that are the container's
//! own, and copies of single files. Its size bounds all of them together. All mounts are in the mount namespace of the calling
//! process, which [`own_mounts`] has made.

use std::fs::{self, DirBuilder, File, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{bail, Context};
use lorentz_control::Mount;
use nix::mount::{mount, MsFlags};
use nix::sched::{unshare, CloneFlags};

const NO_TEXT: Option<&str> = None;
/// One inode of a bounded layer for each so many bytes: empty files take memory too.
const BYTES_PER_INODE: u64 = 1024;
/// Directories of the host that a container does not see: it gets empty ones of its own, with these modes.
const OWN_DIRECTORIES: [(&str, u32); 4] =
    [("/home", 0o755), ("/root", 0o700), ("/run", 0o755), ("/tmp", 0o1777)];
/// Directories of the host that the OCI runtime replaces.
const REPLACED: [&str; 3] = ["/proc", "/sys", "/dev"];
/// File systems without files of a user's: interfaces of the kernel, and the root file systems of other containers.
const NOT_SEEN: [&str; 23] = [
    "autofs",
    "binder",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fusectl",
    "hugetlbfs",
    "mqueue",
    "nsfs",
    "overlay",
    "proc",
    "pstore",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "sysfs",
    "tracefs",
];

/// Gives this process a mount namespace of its own, whose mounts the host does not see.
///
/// # Errors
///
/// If this user may not mount.
pub fn own_mounts() -> anyhow::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS).context("mounts of its own")?;
    Ok(mount(NO_TEXT, "/", NO_TEXT, MsFlags::MS_REC | MsFlags::MS_SLAVE, NO_TEXT)?)
}

/// Mounts the root file system `root` below an unbounded layer, in the directory `dir`. Returns the mount point: `root` in `dir`.
/// Call [`own_mounts`] before.
///
/// # Errors
///
/// If this user may not mount.
pub fn overlay(dir: &Path, root: &Path) -> anyhow::Result<PathBuf> {
    let seen = dir.join("root");
    fs::create_dir(&seen)?;
    Layer::make(dir, None, MsFlags::empty())?.over(root, None, &seen)?;
    Ok(seen)
}

/// A tmpfs that takes what a container's programs write.
pub struct Layer {
    dir: PathBuf,
    flags: MsFlags,
    /// Number of its parts so far: each has a directory of its own.
    parts: u32,
}

impl Layer {
    /// Mounts the layer in the directory `dir`. Without `size`, in bytes, it may take half of the memory. `flags` are those of the
    /// layer and of all its overlays.
    ///
    /// # Errors
    ///
    /// If this user may not mount.
    pub fn make(dir: &Path, size: Option<u64>, flags: MsFlags) -> anyhow::Result<Layer> {
        let dir = dir.join("layer");
        fs::create_dir(&dir)?;
        let bounds = size.map_or_else(String::new, |size| {
            format!(",size={size},nr_inodes={}", (size / BYTES_PER_INODE).max(1024))
        });
        let options = format!("mode=0755{bounds}");
        mount(Some("tmpfs"), &dir, Some("tmpfs"), flags, Some(options.as_str()))?;
        Ok(Layer { dir, flags, parts: 0 })
    }

    /// Returns the path of a new part of the layer.
    fn part(&mut self) -> PathBuf {
        self.parts += 1;
        self.dir.join(self.parts.to_string())
    }

    /// Makes a directory in the layer.
    ///
    /// # Errors
    ///
    /// If the layer is full.
    pub fn directory(&mut self) -> anyhow::Result<PathBuf> {
        let path = self.part();
        fs::create_dir(&path)?;
        Ok(path)
    }

    /// Mounts an overlay of the directory `lower` at `target`: writes there go into the layer. The files of the directory `added`
    /// are copied into it.
    ///
    /// # Errors
    ///
    /// If the kernel makes no overlay of that file system, or the layer is full.
    pub fn over(
        &mut self,
        lower: &Path,
        added: Option<&Path>,
        target: &Path,
    ) -> anyhow::Result<()> {
        let own = self.directory()?;
        let (upper, work) = (own.join("upper"), own.join("work"));
        fs::create_dir(&upper)?;
        fs::create_dir(&work)?;
        fs::set_permissions(&upper, fs::metadata(lower)?.permissions())?;
        // Into the upper directory: no symbolic link of the lower one can lead the copy elsewhere.
        added.map_or(Ok(()), |added| copy_tree(added, &upper, Some(lower)))?;
        // In mount options the kernel takes ':' for the end of a directory's name, and ',' for the end of an option.
        let escaped = |path: &Path| {
            let text = path.to_str().map(|text| text.replace('\\', "\\\\"));
            text.map(|text| text.replace(':', "\\:").replace(',', "\\,")).context("a path in UTF-8")
        };
        let data = format!(
            "lowerdir={},upperdir={},workdir={}",
            escaped(lower)?,
            escaped(&upper)?,
            escaped(&work)?
        );
        mount(Some("overlay"), target, Some("overlay"), self.flags, Some(data.as_str()))
            .with_context(|| format!("overlay of {}", lower.display()))?;
        Ok(())
    }

    /// Copies the regular file `source` into the layer. Returns the path of the copy.
    ///
    /// # Errors
    ///
    /// If `source` is no regular file, or the layer is full.
    pub fn copy(&mut self, source: &Path) -> anyhow::Result<PathBuf> {
        if !fs::metadata(source)?.is_file() {
            bail!("no regular file or directory");
        }
        let copy = self.part();
        fs::copy(source, &copy)?;
        Ok(copy)
    }

    /// Assembles at `seen` a root file system with the host's files: an overlay of each file system that the host has mounted, and
    /// directories of the container's own where the host has its users' and services' files. The files of the directory `added` are
    /// copied into it.
    ///
    /// # Errors
    ///
    /// If the kernel makes no overlay of the host's root file system, or the layer is full.
    pub fn host_root(&mut self, added: Option<&Path>, seen: &Path) -> anyhow::Result<()> {
        let text = fs::read_to_string("/proc/self/mountinfo").context("/proc/self/mountinfo")?;
        self.over(Path::new("/"), added, seen)?;
        for mounted in seen_mounts(&text) {
            let target = seen.join(mounted.strip_prefix("/").unwrap_or(&mounted));
            let is_dir = fs::metadata(&mounted).is_ok_and(|found| found.is_dir());
            // A file system that takes no overlay, and a single file, can be read only.
            if !is_dir || self.over(&mounted, None, &target).is_err() {
                let bind = MsFlags::MS_BIND;
                if mount(Some(&mounted), &target, NO_TEXT, bind, NO_TEXT).is_ok() {
                    let flags = bind | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY | self.flags;
                    mount(NO_TEXT, &target, NO_TEXT, flags, NO_TEXT)
                        .with_context(|| format!("{}: read-only", mounted.display()))?;
                }
            }
        }
        for (name, mode) in OWN_DIRECTORIES {
            let target = seen.join(name.trim_start_matches('/'));
            let own = self.directory()?;
            fs::set_permissions(&own, Permissions::from_mode(mode))?;
            let added = added.map(|added| added.join(name.trim_start_matches('/')));
            if let Some(added) = added.filter(|added| is_directory(added)) {
                copy_tree(&added, &own, None)?;
            }
            if is_directory(&target) {
                mount(Some(&own), &target, NO_TEXT, MsFlags::MS_BIND, NO_TEXT)
                    .with_context(|| name.to_string())?;
            }
            if name == "/run" {
                DirBuilder::new().recursive(true).mode(0o755).create(own.join("lock"))?;
            }
        }
        Ok(())
    }
}

/// Copies what is in the directory `from` into the directory `to`: regular files, directories and symbolic links, for root. A
/// directory that is in `lower` too has the permissions that it has there.
fn copy_tree(from: &Path, to: &Path, lower: Option<&Path>) -> anyhow::Result<()> {
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        let copied = match () {
            () if kind.is_dir() => {
                let below = lower.map(|lower| lower.join(entry.file_name()));
                let below = below.filter(|below| is_directory(below));
                let like = fs::metadata(below.as_deref().unwrap_or(&source))?.permissions();
                DirBuilder::new().recursive(true).create(&target)?;
                fs::set_permissions(&target, like)?;
                copy_tree(&source, &target, below.as_deref())?;
                Ok(())
            }
            () if kind.is_symlink() => std::os::unix::fs::symlink(fs::read_link(&source)?, &target),
            () if kind.is_file() => fs::copy(&source, &target).map(drop),
            () => Ok(()),
        };
        copied.with_context(|| source.display().to_string())?;
    }
    Ok(())
}

/// Whether `path` is a directory, and no link to one.
fn is_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())
}

/// Returns the mount points below / whose files a container sees, each after those above it. `text` is that of
/// /proc/PID/mountinfo.
fn seen_mounts(text: &str) -> Vec<PathBuf> {
    let own = OWN_DIRECTORIES.iter().map(|(name, _)| *name);
    let hidden: Vec<&str> = own.chain(REPLACED).collect();
    let mut found: Vec<PathBuf> = Vec::new();
    for Mount { point, kind, .. } in Mount::parse_all(text) {
        let point = PathBuf::from(point);
        let is_hidden = hidden.iter().any(|one| point.starts_with(one));
        // A later mount at the same place covers the earlier one.
        found.retain(|one| *one != point);
        if point != Path::new("/") && !is_hidden && !NOT_SEEN.contains(&kind.as_str()) {
            found.push(point);
        }
    }
    found.sort();
    found
}

/// Bytes that the file system at `path` can hold, and bytes that are free. For an overlay they are those of its layer.
///
/// # Errors
///
/// If there is no such file.
pub fn layer_space(path: &Path) -> anyhow::Result<(u64, u64)> {
    let space = nix::sys::statvfs::fstatvfs(File::open(path)?)?;
    let block = space.fragment_size();
    Ok((space.blocks() * block, space.blocks_available() * block))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_with_a_users_files_are_seen() {
        let text = "\
22 1 254:0 / / rw - ext4 /dev/vda rw
23 22 0:20 / /proc rw - proc proc rw
24 22 0:21 / /sys/fs/cgroup rw - cgroup2 none rw
25 22 8:1 / /srv/a\\040b rw - xfs /dev/sdb rw
26 22 8:2 / /srv rw - xfs /dev/sdc rw
27 22 0:22 / /run/user/0 rw - tmpfs tmpfs rw
28 22 0:23 / /var/lib/c/merged rw - overlay overlay rw
29 22 0:24 / /media rw - tmpfs tmpfs rw
30 29 0:25 / /media rw - autofs auto rw
31 22 0:26 / /homes rw - nfs4 far:/ rw
32 22 0:20 / /srv/chroot/proc rw - proc proc rw
";
        let paths = ["/homes", "/srv", "/srv/a b"].map(PathBuf::from);
        assert_eq!(seen_mounts(text), paths);
    }
}
