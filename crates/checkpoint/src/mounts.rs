//! The mounts of a container of an OCI runtime that come from outside of it. CRIU neither saves nor makes them: it gets a name for
//! each at the dump, and its source at the restore.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use lorentz_control::Mount;
use serde::{Deserialize, Serialize};

/// Whether `mount` shows the hierarchy of control groups with these controllers; none for version 2.
fn is_of(mount: &Mount, hierarchy: &str) -> bool {
    match mount.kind.as_str() {
        "cgroup" if !hierarchy.is_empty() => {
            let options: Vec<&str> = mount.options.split(',').collect();
            hierarchy.split(',').all(|controller| options.contains(&controller))
        }
        "cgroup2" => hierarchy.is_empty(),
        _ => false,
    }
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
        for mount in Mount::all_of(&pid)? {
            let Some((hierarchy, own)) = groups.iter().find(|(name, _)| is_of(&mount, name)) else {
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
        let mounts = Mount::all_of("self")?;
        let is_whole = |mount: &&Mount| is_of(mount, &self.hierarchy) && mount.root == "/";
        let mount = mounts.iter().find(is_whole).ok_or_else(missing)?;
        Ok(Path::new(&mount.point).join(group.trim_start_matches('/')))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_are_told_apart() {
        let text = "\
58 51 0:29 /pods/a /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu,cpuacct
30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw
";
        let [first, second] = &Mount::parse_all(text).collect::<Vec<_>>()[..] else { panic!() };
        for (hierarchy, expected) in
            [("cpu", true), ("cpuacct,cpu", true), ("cpuset", false), ("", false)]
        {
            assert_eq!(is_of(first, hierarchy), expected, "{hierarchy}");
        }
        assert!(is_of(second, "") && !is_of(second, "cpu"));
    }
}
