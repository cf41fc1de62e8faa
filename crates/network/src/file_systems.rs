//! The file systems of a node. Its root is the host's, or a root of its own below a layer that takes the node's writes. Files and
//! directories of the host may be bound into it.
//!
//! All mounts are in a mount namespace of the node's own, and go with the node's last process.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use lorentz_container::{overlay, own_mounts, Bind};
use nix::mount::{mount, MsFlags};
use serde::{Deserialize, Serialize};

use crate::plan::NodePlan;

/// The host's file systems that a root of its own needs.
const HOST_MOUNTS: [&str; 3] = ["proc", "sys", "dev"];
/// The directory in which [`overlay`] mounts the root file system.
const ROOT_NAME: &str = "root";
/// Directories in a root file system that are searched for programs.
const PROGRAM_DIRECTORIES: [&str; 6] =
    ["usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin"];

/// Gives the calling process the mounts of `node`, if it has any. The directory `base` must be for this node alone.
///
/// # Errors
///
/// The mount that failed.
pub(crate) fn mount_all(node: &NodePlan, base: &Path) -> anyhow::Result<()> {
    if !has_mounts(node) {
        return Ok(());
    }
    own_mounts()?;
    let none = None::<&str>;
    let root = match &node.rootfs {
        None => PathBuf::from("/"),
        Some(root) => {
            fs::create_dir_all(base)?;
            let root = fs::canonicalize(root)?;
            let seen =
                overlay(base, &root).with_context(|| format!("rootfs {}", root.display()))?;
            for name in HOST_MOUNTS {
                let (from, to) = (Path::new("/").join(name), seen.join(name));
                fs::create_dir_all(&to)?;
                mount(Some(&from), &to, none, MsFlags::MS_BIND | MsFlags::MS_REC, none)
                    .with_context(|| format!("/{name}"))?;
            }
            seen
        }
    };
    node.binds.iter().try_for_each(|one| mount_bind(&one.bind, &root))
}

/// Whether the node needs a mount namespace.
pub(crate) fn has_mounts(node: &NodePlan) -> bool {
    node.rootfs.is_some() || !node.binds.is_empty()
}

fn mount_bind(bind: &Bind, root: &Path) -> anyhow::Result<()> {
    let context = || format!("binds: {}:{}", bind.source.display(), bind.target.display());
    let target = root.join(bind.target.strip_prefix("/").unwrap_or(&bind.target));
    let none = None::<&str>;
    // In a layer of the node's own a missing target can be made. On the host none is made.
    if root != Path::new("/") && !target.exists() {
        if bind.source.is_dir() {
            fs::create_dir_all(&target).with_context(context)?;
        } else {
            target.parent().map_or(Ok(()), fs::create_dir_all).with_context(context)?;
            File::create(&target).with_context(context)?;
        }
    }
    mount(Some(&bind.source), &target, none, MsFlags::MS_BIND | MsFlags::MS_REC, none)
        .with_context(context)?;
    if bind.read_only {
        let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        mount(none, &target, none, flags, none).with_context(context)?;
    }
    Ok(())
}

/// How to start the programs of a node: below its root file system, if it has one, and in its environment.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct NodeEntry {
    /// The words before a program's own words.
    words: Vec<OsString>,
    env: BTreeMap<String, String>,
}

impl NodeEntry {
    /// The entry of `node`, whose root [`mount_all`] assembles at `base`.
    pub fn of(node: &NodePlan, base: &Path) -> NodeEntry {
        let mut words: Vec<OsString> = Vec::new();
        if let Some(root) = &node.rootfs {
            // By its path on the host, because PATH may be the image's.
            let chroot = lorentz_inject::find_command(c"chroot");
            words.push(
                chroot
                    .map_or_else(|_| "chroot".into(), |path| OsString::from_vec(path.into_bytes())),
            );
            words.extend(node.user.iter().map(|user| format!("--userspec={user}").into()));
            words.push(base.join(ROOT_NAME).into());
            if let Some(folder) = node.folder.as_ref().filter(|_| has_program(root, "/bin/sh")) {
                words.extend(["/bin/sh", "-c", "cd \"$0\" && exec \"$@\""].map(OsString::from));
                words.push(folder.into());
            }
        }
        NodeEntry { words, env: node.env.clone() }
    }

    /// Gives this process the node's environment, and returns the words that run `command` in the node.
    pub fn enter(&self, command: &[OsString]) -> Vec<OsString> {
        self.env.iter().for_each(|(key, value)| std::env::set_var(key, value));
        self.words.iter().chain(command).cloned().collect()
    }
}

/// Whether the program `word` is in the root file system `root`. A link inside may lead to a file that exists only inside;
/// therefore a link counts without a look at its target.
pub(crate) fn has_program(root: &Path, word: &str) -> bool {
    let is_there = |path: PathBuf| path.symlink_metadata().is_ok_and(|found| !found.is_dir());
    match word.contains('/') {
        true => is_there(root.join(word.trim_start_matches('/'))),
        false => PROGRAM_DIRECTORIES.iter().any(|folder| is_there(root.join(folder).join(word))),
    }
}
