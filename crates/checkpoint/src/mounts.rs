//! The mounts of a container of an OCI runtime that come from outside of it. CRIU neither saves nor makes them: it gets a name for
//! each at the dump, and its source at the restore.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A mount, as /proc/PID/mountinfo shows it (proc_pid_mountinfo(5)).
struct Mount {
    /// The directory of the file system that is seen there.
    root: String,
    point: String,
    kind: String,
    /// Options of the file system: for control groups of version 1, the controllers.
    options: String,
}

impl Mount {
    fn parse(line: &str) -> Option<Mount> {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let mut fields = file_system.split(' ');
        let (kind, _, options) = (fields.next()?, fields.next()?, fields.next()?);
        let (kind, options) = (kind.to_string(), options.to_string());
        Some(Mount { root: unescape(root), point: unescape(point), kind, options })
    }

    /// Whether it shows the hierarchy of control groups with these controllers; none for version 2.
    fn is_of(&self, hierarchy: &str) -> bool {
        match self.kind.as_str() {
            "cgroup" if !hierarchy.is_empty() => {
                let options: Vec<&str> = self.options.split(',').collect();
                hierarchy.split(',').all(|controller| options.contains(&controller))
            }
            "cgroup2" => hierarchy.is_empty(),
            _ => false,
        }
    }
}

/// Replaces `\040` and the like.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let octal = tail.get(..3).filter(|_| *first == b'\\');
        let code = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn mounts_of(pid: &str) -> io::Result<Vec<Mount>> {
    let text = fs::read_to_string(format!("/proc/{pid}/mountinfo"))?;
    Ok(text.lines().filter_map(Mount::parse).collect())
}

/// The control groups of a process: the controllers of each hierarchy, and its group there.
fn groups_of(pid: &str) -> io::Result<Vec<(String, String)>> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
    let group = |line: &str| {
        let mut fields = line.splitn(3, ':').skip(1);
        Some((fields.next()?.to_string(), fields.next()?.to_string()))
    };
    Ok(text.lines().filter_map(group).collect())
}

/// A control group that is mounted inside a container.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CgroupMount {
    /// The mount point inside.
    pub inside: String,
    /// The controllers of its hierarchy; none for version 2.
    pub hierarchy: String,
    /// The group that is seen there.
    pub group: String,
    /// Whether that is the container's own.
    pub is_own: bool,
}

impl CgroupMount {
    /// The control groups that are mounted inside, as process `pid` sees them.
    pub fn all_of(pid: u32) -> io::Result<Vec<CgroupMount>> {
        let pid = pid.to_string();
        let groups = groups_of(&pid)?;
        let mut found = Vec::new();
        for mount in mounts_of(&pid)? {
            let Some((hierarchy, own)) = groups.iter().find(|(name, _)| mount.is_of(name)) else {
                continue;
            };
            found.push(CgroupMount {
                is_own: mount.root == *own,
                hierarchy: hierarchy.clone(),
                inside: mount.point,
                group: mount.root,
            });
        }
        Ok(found)
    }

    /// The directory of the host that is to be mounted for a container whose processes are in the groups of process `pid`.
    pub fn source(&self, pid: u32) -> io::Result<PathBuf> {
        let missing = || io::Error::other(format!("no control groups of {:?}", self.hierarchy));
        let groups = groups_of(&pid.to_string())?;
        let own =
            groups.into_iter().find(|(name, _)| *name == self.hierarchy).ok_or_else(missing)?;
        let group = if self.is_own { own.1 } else { self.group.clone() };
        let mounts = mounts_of("self")?;
        let is_whole = |mount: &&Mount| mount.is_of(&self.hierarchy) && mount.root == "/";
        let mount = mounts.iter().find(is_whole).ok_or_else(missing)?;
        Ok(Path::new(&mount.point).join(group.trim_start_matches('/')))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read() {
        let line = "58 51 0:29 /pods/a /sys/fs/cgroup/cpu ro,nosuid master:3 - cgroup cgroup rw,cpu,cpuacct";
        let mount = Mount::parse(line).unwrap();
        assert_eq!((mount.root.as_str(), mount.point.as_str()), ("/pods/a", "/sys/fs/cgroup/cpu"));
        for (hierarchy, expected) in
            [("cpu", true), ("cpuacct,cpu", true), ("cpuset", false), ("", false)]
        {
            assert_eq!(mount.is_of(hierarchy), expected, "{hierarchy}");
        }
        let unified = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw";
        assert!(Mount::parse(unified).unwrap().is_of(""));
        assert!(Mount::parse("58 51").is_none());
    }

    #[test]
    fn spaces_in_paths_are_read() {
        assert_eq!(unescape("/a\\040b\\134c"), "/a b\\c");
        assert_eq!(unescape("/a\\04"), "/a\\04");
        assert_eq!(unescape("/a\\xyz"), "/a\\xyz");
    }
}
