//! Mount points in the root file system of a container. No link in it leads out.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{openat, openat2, OFlag, OpenHow, ResolveFlag};
use nix::sys::stat::{mkdirat, Mode};

/// Finds the mount point that `destination` names in the container of process `pid`: without links.
pub fn find(pid: u32, destination: &Path) -> io::Result<String> {
    let root = File::open(format!("/proc/{pid}/root"))?;
    let found = open_in(&root, destination)?;
    let path = fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd()))?;
    path.into_os_string().into_string().map_err(|_| io::Error::other("a mount point not in UTF-8"))
}

/// Makes the mount point `inside` in the root file system `root`, if it is missing: a directory, or an empty file.
pub fn make(root: &Path, inside: &Path, is_directory: bool) -> io::Result<()> {
    let root = File::open(root)?;
    let mut above = open_in(&root, Path::new("."))?;
    let mut path = PathBuf::from("/");
    let names: Vec<&OsStr> = inside.components().filter_map(name_of).collect();
    for (i, name) in names.iter().enumerate() {
        path.push(name);
        above = match open_in(&root, &path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if i + 1 < names.len() || is_directory {
                    mkdirat(&above, *name, Mode::from_bits_truncate(0o755))?;
                } else {
                    let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
                    openat(&above, *name, flags, Mode::from_bits_truncate(0o644))?;
                }
                open_in(&root, &path)?
            }
            opened => opened?,
        };
    }
    Ok(())
}

fn name_of(component: Component<'_>) -> Option<&OsStr> {
    match component {
        Component::Normal(name) => Some(name),
        _ => None,
    }
}

fn open_in(root: &impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    loop {
        match openat2(root, path, how) {
            // Something was renamed meanwhile.
            Err(Errno::EAGAIN) => {}
            opened => return Ok(opened?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn mount_points_are_made_below_the_root_whatever_links_say() {
        let above = tempfile::tempdir().unwrap();
        let root = above.path().join("root");
        fs::create_dir_all(root.join("run")).unwrap();
        fs::create_dir(root.join("var")).unwrap();
        symlink("/run", root.join("var/run")).unwrap();
        symlink("../../..", root.join("out")).unwrap();
        make(&root, Path::new("/var/run/a/secrets"), true).unwrap();
        make(&root, Path::new("/out/etc/hosts"), false).unwrap();
        make(&root, Path::new("/out/etc/hosts"), false).unwrap();
        assert!(root.join("run/a/secrets").is_dir());
        assert!(root.join("etc/hosts").is_file());
        assert_eq!(fs::read_dir(above.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_mount_point_is_found_behind_links() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        fs::create_dir(dir.join("there")).unwrap();
        symlink("there", dir.join("link")).unwrap();
        let found = find(std::process::id(), &dir.join("link")).unwrap();
        assert_eq!(Path::new(&found), dir.join("there"));
        assert!(find(std::process::id(), &dir.join("none")).is_err());
    }
}
