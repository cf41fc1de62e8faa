//! What a node sees of files: the host's, or a root file system of its own below a layer that takes what it writes; and what of
//! the host is bound into it.
//!
//! All of it is mounted in a mount namespace of the node's, and goes with the node's last process.

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

/// What of the host's file systems a root of its own needs.
const NEEDED: [&str; 3] = ["proc", "sys", "dev"];
/// Where [`overlay`] has it seen.
const SEEN: &str = "root";
/// Where programs are looked for in a root file system.
const PATH: [&str; 6] = ["usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin"];

/// Gives the calling process the mounts of `node`, where it has any; the directory `base` is for this node alone.
///
/// # Errors
///
/// What cannot be mounted.
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
            for name in NEEDED {
                let (from, to) = (Path::new("/").join(name), seen.join(name));
                fs::create_dir_all(&to)?;
                mount(Some(&from), &to, none, MsFlags::MS_BIND | MsFlags::MS_REC, none)
                    .with_context(|| format!("/{name}"))?;
            }
            seen
        }
    };
    node.binds.iter().try_for_each(|bind| put(bind, &root))
}

/// Whether it needs a mount namespace.
pub(crate) fn has_mounts(node: &NodePlan) -> bool {
    node.rootfs.is_some() || !node.binds.is_empty()
}

fn put(bind: &Bind, root: &Path) -> anyhow::Result<()> {
    let told = || format!("binds: {}:{}", bind.source.display(), bind.target.display());
    let target = root.join(bind.target.strip_prefix("/").unwrap_or(&bind.target));
    let none = None::<&str>;
    // In a layer of its own there can be a place for it; the host gets none.
    if root != Path::new("/") && !target.exists() {
        if bind.source.is_dir() {
            fs::create_dir_all(&target).with_context(told)?;
        } else {
            target.parent().map_or(Ok(()), fs::create_dir_all).with_context(told)?;
            File::create(&target).with_context(told)?;
        }
    }
    mount(Some(&bind.source), &target, none, MsFlags::MS_BIND | MsFlags::MS_REC, none)
        .with_context(told)?;
    if bind.read_only {
        let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        mount(none, &target, none, flags, none).with_context(told)?;
    }
    Ok(())
}

/// How the programs of a node are started: below its root file system, where it has one, and in its environment.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// What comes before a program's own words.
    words: Vec<OsString>,
    env: BTreeMap<String, String>,
}

impl Entry {
    /// That of `node`, whose root is put together by [`mount_all`] at `base`.
    pub fn of(node: &NodePlan, base: &Path) -> Entry {
        let mut words: Vec<OsString> = Vec::new();
        if let Some(root) = &node.rootfs {
            // By its path: PATH may be the image's.
            let chroot = lorentz_inject::find_command(c"chroot");
            words.push(
                chroot
                    .map_or_else(|_| "chroot".into(), |path| OsString::from_vec(path.into_bytes())),
            );
            words.extend(node.user.iter().map(|user| format!("--userspec={user}").into()));
            words.push(base.join(SEEN).into());
            if let Some(folder) = node.folder.as_ref().filter(|_| has_program(root, "/bin/sh")) {
                words.extend(["/bin/sh", "-c", "cd \"$0\" && exec \"$@\""].map(OsString::from));
                words.push(folder.into());
            }
        }
        Entry { words, env: node.env.clone() }
    }

    /// Gives this process the node's environment, and returns the words by which `command` is run there.
    pub fn enter(&self, command: &[OsString]) -> Vec<OsString> {
        self.env.iter().for_each(|(key, value)| std::env::set_var(key, value));
        self.words.iter().chain(command).cloned().collect()
    }
}

/// Whether the program `word` is in the root file system `root`. A link in there may lead to what only it has: that it is there is enough.
pub(crate) fn has_program(root: &Path, word: &str) -> bool {
    let is_there = |path: PathBuf| path.symlink_metadata().is_ok_and(|found| !found.is_dir());
    match word.contains('/') {
        true => is_there(root.join(word.trim_start_matches('/'))),
        false => PATH.iter().any(|folder| is_there(root.join(folder).join(word))),
    }
}
