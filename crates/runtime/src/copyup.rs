//! `tmpcopyup`, a mount option that other runtimes have and `libcontainer` does not know: a new tmpfs gets a copy of the directory
//! that it covers. Engines use it with read-only root file systems.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{bail, Context};
use nix::errno::Errno;
use nix::fcntl::{openat2, OFlag, OpenHow, ResolveFlag};
use serde_json::Value;

/// The mount option.
pub const OPTION: &str = "tmpcopyup";

/// Removes the option from a config.json. Returns the mount points that had it.
pub fn take(config: &mut Value) -> Vec<String> {
    let mut places = Vec::new();
    for mount in config["mounts"].as_array_mut().into_iter().flatten() {
        let Some(options) = mount["options"].as_array_mut() else { continue };
        let before = options.len();
        options.retain(|option| option != OPTION);
        if options.len() < before {
            places.extend(mount["destination"].as_str().map(str::to_string));
        }
    }
    places
}

/// Copies the contents of `places` below `root` to the same paths in the mount namespace of process `pid`. The container's program
/// has not begun yet.
pub fn fill(places: &[String], root: &Path, pid: i32) -> anyhow::Result<()> {
    for place in places {
        let copied = copy(place, root, pid);
        copied.with_context(|| format!("mount {place}: {OPTION}"))?;
    }
    Ok(())
}

fn copy(place: &str, root: &Path, pid: i32) -> anyhow::Result<()> {
    let Some(from) = inside(root, place)? else { return Ok(()) };
    let from = format!("/proc/self/fd/{}/.", from.as_raw_fd());
    if std::fs::read_dir(&from)?.next().is_none() {
        return Ok(());
    }
    let seen = format!("/proc/{pid}/root");
    let Some(to) = inside(Path::new(&seen), place)? else { bail!("is not there") };
    // The child uses the descriptors by their numbers: it must inherit them.
    let mut command = Command::new("cp");
    command.args([
        "-a",
        "--",
        &inherited(&from),
        &inherited(&format!("/proc/self/fd/{}/", to.as_raw_fd())),
    ]);
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status().context("cp")?;
    if !status.success() {
        bail!("cp: {status}");
    }
    Ok(())
}

/// Returns a path of the same file by way of this process, which outlives its child.
fn inherited(path: &str) -> String {
    path.replace("/proc/self/", &format!("/proc/{}/", std::process::id()))
}

/// Opens the directory `place` below `root`. No link in the path leads outside. None if there is no such directory.
fn inside(root: &Path, place: &str) -> anyhow::Result<Option<OwnedFd>> {
    let root = File::open(root).with_context(|| root.display().to_string())?;
    let how = OpenHow::new()
        .flags(OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    match openat2(&root, place, how) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_option_is_taken_out_and_its_places_are_known() {
        let mut config = json!({"mounts": [
            {"destination": "/run", "type": "tmpfs", "options": ["rw", "tmpcopyup"]},
            {"destination": "/proc", "type": "proc"},
        ]});
        assert_eq!(take(&mut config), ["/run"]);
        assert_eq!(config["mounts"][0]["options"], json!(["rw"]));
    }

    #[test]
    fn links_lead_nowhere_outside() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("etc")).unwrap();
        std::os::unix::fs::symlink("/etc", root.path().join("run")).unwrap();
        let found = inside(root.path(), "/run").unwrap().unwrap();
        let path = std::fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd())).unwrap();
        assert_eq!(path, root.path().join("etc"));
        assert!(inside(root.path(), "/var/tmp").unwrap().is_none());
    }
}
