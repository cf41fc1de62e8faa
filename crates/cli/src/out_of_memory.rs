//! Why a program was killed, where the kernel had no memory left.

use std::fs;
use std::path::{Path, PathBuf};

/// The exit status of a program that SIGKILL has ended.
const KILLED: i32 = 128 + libc::SIGKILL;

/// The kernel's count of processes that it has killed for want of memory, at one moment.
pub struct MemoryWatch {
    kills: Option<u64>,
}

impl MemoryWatch {
    /// Begins to watch.
    pub fn begin() -> MemoryWatch {
        MemoryWatch { kills: kills() }
    }

    /// Returns a line for the user if a program with exit status `status` may have been killed for want of memory since.
    pub fn explain(&self, program: &str, status: i32) -> Option<String> {
        if status != KILLED || kills()? <= self.kills? {
            return None;
        }
        let limit = match smallest_limit() {
            Some((limit, file)) => {
                format!("its control group may have {} MiB ({})", limit >> 20, file.display())
            }
            None => "no control group limits it; 'dmesg' has the kernel's account".to_string(),
        };
        Some(format!("{program}: killed (SIGKILL) when the kernel ran out of memory: {limit}"))
    }
}

/// How many processes the kernel has killed for want of memory since it began (Linux 4.13).
fn kills() -> Option<u64> {
    let text = fs::read_to_string("/proc/vmstat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}

/// Returns the smallest limit of memory of this process's control groups, bytes, and its file.
fn smallest_limit() -> Option<(u64, PathBuf)> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let limits = groups.lines().flat_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next().unwrap_or(""), fields.next().unwrap_or("/"));
        let (roots, file): (&[&str], _) = match controllers {
            "" => (&["/sys/fs/cgroup", "/sys/fs/cgroup/unified"], "memory.max"),
            all if all.split(',').any(|one| one == "memory") => {
                (&["/sys/fs/cgroup/memory"], "memory.limit_in_bytes")
            }
            _ => (&[], ""),
        };
        let below = path.trim_start_matches('/').to_string();
        roots.iter().flat_map(move |root| limits_above(Path::new(root), &below, file))
    });
    limits.min()
}

/// The limits of the group `below` and of all groups above it. Without a limit the file has "max", or a number beyond any memory.
fn limits_above(root: &Path, below: &str, file: &str) -> Vec<(u64, PathBuf)> {
    const NO_LIMIT: u64 = 1 << 60;
    let group = root.join(below);
    let groups = group.ancestors().take_while(|group| group.starts_with(root));
    let limit = |group: &Path| {
        let path = group.join(file);
        let limit: u64 = fs::read_to_string(&path).ok()?.trim().parse().ok()?;
        (limit < NO_LIMIT).then_some((limit, path))
    };
    groups.filter_map(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_a_group_above_counts() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("a/b")).unwrap();
        fs::write(root.path().join("a/memory.max"), "1048576\n").unwrap();
        fs::write(root.path().join("a/b/memory.max"), "max\n").unwrap();
        let found = limits_above(root.path(), "a/b", "memory.max");
        assert_eq!(found, [(1 << 20, root.path().join("a/memory.max"))]);
    }

    #[test]
    fn only_a_kill_is_explained() {
        let watch = MemoryWatch { kills: Some(0) };
        assert_eq!(watch.explain("sleep", 1), None);
        assert_eq!(MemoryWatch::begin().explain("sleep", KILLED), None);
    }
}
