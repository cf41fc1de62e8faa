//! One control group per container, where a cgroup v2 hierarchy is writable. The freezer of the group stops all tasks of a
//! container at once, and no program inside can notice.
//!
//! Everything here is optional. Without a group, the time of a frozen container stands still, and its tasks run until they wait.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::statfs::{statfs, CGROUP2_SUPER_MAGIC};

use crate::host_time::{sleep, HostMoment};
use crate::mounts::Mount;

/// The directory that holds the groups of all containers.
const PARENT: &str = "lorentz";
/// How long a freeze may take. It takes 24 us; a task in an uninterruptible wait of the kernel delays it.
const FREEZE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long an ended task may delay the removal of its group.
const REMOVE_TIMEOUT: Duration = Duration::from_millis(500);

/// A control group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cgroup {
    path: PathBuf,
}

/// Where a new group is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CgroupPlace {
    /// Below the caller's own group; where that is not possible, at the top.
    Own,
    /// At the top of the hierarchy: not inside a group that another process may want to remove.
    Top,
}

impl Cgroup {
    /// Makes a group for container `name`. `None` if this is not possible, or `note` fails. `note` gets each group before it is made:
    /// if the caller is killed then, the note tells which group it may have left.
    pub fn create(
        place: CgroupPlace,
        name: &str,
        note: &mut dyn FnMut(&Cgroup) -> io::Result<()>,
    ) -> Option<Cgroup> {
        let mount = mount_point()?;
        if place == CgroupPlace::Own {
            let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
            let own = mount.join(own_group(&groups)?.trim_start_matches('/'));
            if let Some(group) = Cgroup::create_below(&own, name, note) {
                return Some(group);
            }
        }
        Cgroup::create_below(&mount, name, note)
    }

    /// The group of process `pid`.
    pub fn of(pid: u32) -> Option<Cgroup> {
        of_process(pid).map(Cgroup::at)
    }

    /// Makes `parent`/lorentz/`name`. If the group exists, for a container of this name in another state directory, a number
    /// follows the name.
    fn create_below(
        parent: &Path,
        name: &str,
        note: &mut dyn FnMut(&Cgroup) -> io::Result<()>,
    ) -> Option<Cgroup> {
        const MAX_TRIES: u32 = 100;
        let lorentz = parent.join(PARENT);
        for number in 1..MAX_TRIES {
            // Made again for each number: another container may remove it when it ends.
            match fs::create_dir(&lorentz) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return None,
                _ => (),
            }
            let full = if number == 1 { name.to_string() } else { format!("{name}-{number}") };
            let group = Cgroup { path: lorentz.join(full) };
            // Nobody may find another container's group in a note.
            if group.path.exists() {
                continue;
            }
            note(&group).ok()?;
            match fs::create_dir(&group.path) {
                Ok(()) if group.file("cgroup.freeze").exists() => return Some(group),
                Ok(()) => {
                    group.remove();
                    return None;
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (),
                Err(error) if error.kind() == io::ErrorKind::NotFound => (),
                Err(_) => return None,
            }
        }
        None
    }

    /// The group at `path`, as a container's record has it.
    pub fn at(path: PathBuf) -> Cgroup {
        Cgroup { path }
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens its directory, for a process that is to begin in the group.
    ///
    /// # Errors
    ///
    /// If the group is gone.
    pub fn open(&self) -> io::Result<OwnedFd> {
        fs::File::open(&self.path).map(OwnedFd::from)
    }

    /// Moves process `pid` with all its threads into the group. All processes that it starts later are in the group too.
    ///
    /// # Errors
    ///
    /// If the kernel does not allow it.
    pub fn add(&self, pid: u32) -> io::Result<()> {
        fs::write(self.file("cgroup.procs"), pid.to_string())
    }

    /// As [`Cgroup::add`], but does nothing for a process that is in the group already: a move waits for a grace period of RCU, up to
    /// 20 ms.
    ///
    /// # Errors
    ///
    /// As [`Cgroup::add`].
    pub fn ensure(&self, pid: u32) -> io::Result<()> {
        match Cgroup::of(pid) {
            Some(group) if group.path == self.path => Ok(()),
            _ => self.add(pid),
        }
    }

    /// Returns the processes in the group, without those in groups below it.
    ///
    /// # Errors
    ///
    /// If the group is gone.
    pub fn pids(&self) -> io::Result<Vec<u32>> {
        let text = fs::read_to_string(self.file("cgroup.procs"))?;
        Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// Returns the processes in the group and in the groups below it, as far as they can be read.
    pub fn pids_below(&self) -> Vec<u32> {
        let mut found = self.pids().unwrap_or_default();
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                found.extend(Cgroup::at(entry.path()).pids_below());
            }
        }
        found
    }

    /// Stops all tasks in the group and below. Returns false if some tasks did not stop within a second; they stop as soon as they
    /// return from the kernel.
    ///
    /// # Errors
    ///
    /// If the group is gone.
    pub fn freeze(&self) -> io::Result<bool> {
        self.begin_freeze()?;
        wait_until(FREEZE_TIMEOUT, || self.is_frozen())
    }

    /// As [`Cgroup::freeze`], without waiting for the tasks.
    ///
    /// # Errors
    ///
    /// If the group is gone.
    pub fn begin_freeze(&self) -> io::Result<()> {
        fs::write(self.file("cgroup.freeze"), "1")
    }

    /// Returns the CPU time that the group's tasks have used so far, ended tasks included.
    ///
    /// # Errors
    ///
    /// If the group is gone.
    pub fn cpu_time(&self) -> io::Result<Duration> {
        let text = fs::read_to_string(self.file("cpu.stat"))?;
        let micros = text.lines().find_map(|line| line.strip_prefix("usage_usec ")?.parse().ok());
        micros.map(Duration::from_micros).ok_or_else(|| io::Error::other("cpu.stat: no usage_usec"))
    }

    /// Lets the tasks run again.
    pub fn thaw(&self) {
        // An error is no matter: a group that is gone stops no task.
        let _ = fs::write(self.file("cgroup.freeze"), "0");
    }

    /// Whether all tasks in the group are stopped.
    ///
    /// # Errors
    ///
    /// If the group is gone.
    pub fn is_frozen(&self) -> io::Result<bool> {
        let events = fs::read_to_string(self.file("cgroup.events"))?;
        Ok(events.lines().any(|line| line == "frozen 1"))
    }

    /// Kills all processes in the group and below.
    ///
    /// # Errors
    ///
    /// If the group is gone, or the kernel is older than 5.14.
    pub fn kill(&self) -> io::Result<()> {
        fs::write(self.file("cgroup.kill"), "1")
    }

    /// Removes the group, and the directory above it if that is then empty. Returns false if processes are left in the group.
    pub fn remove(&self) -> bool {
        let removed = wait_until(REMOVE_TIMEOUT, || match fs::remove_dir(&self.path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            // The kernel counts tasks that are ending, or have ended, for a moment longer.
            Err(_) => Ok(false),
        });
        let parent = self.path.parent().filter(|parent| parent.ends_with(PARENT));
        if let Some(parent) = parent {
            // Fails if groups of other containers are in it.
            let _ = fs::remove_dir(parent);
        }
        removed.unwrap_or(false)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// The control group of process `pid` in the v2 hierarchy, as a directory.
fn of_process(pid: u32) -> Option<PathBuf> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    Some(mount_point()?.join(own_group(&text)?.trim_start_matches('/')))
}

/// The mount point of the v2 hierarchy: /sys/fs/cgroup, /sys/fs/cgroup/unified or any other place. The kernel takes 0.1 ms to print
/// all mounts, so the usual places come first.
fn mount_point() -> Option<PathBuf> {
    const USUAL: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
    let is_cgroup2 = |path: &&str| {
        statfs(*path).is_ok_and(|found| found.filesystem_type() == CGROUP2_SUPER_MAGIC)
    };
    USUAL
        .iter()
        .find(|path| is_cgroup2(path))
        .map(PathBuf::from)
        .or_else(|| parse_mounts(&fs::read_to_string("/proc/self/mountinfo").ok()?))
}

/// Finds the mount point of the v2 hierarchy in the text of /proc/PID/mountinfo.
fn parse_mounts(mounts: &str) -> Option<PathBuf> {
    Mount::parse_all(mounts).find(|mount| mount.kind == "cgroup2").map(|mount| mount.point.into())
}

/// Finds the group of the v2 hierarchy in the text of /proc/PID/cgroup.
fn own_group(text: &str) -> Option<&str> {
    let group = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    // The kernel shows a group outside our view of the hierarchy as /.., which is no name here.
    (!group.contains("/..")).then_some(group)
}

/// Asks `done` until it says yes, at most for `limit`, at first often and then less often.
fn wait_until(limit: Duration, mut done: impl FnMut() -> io::Result<bool>) -> io::Result<bool> {
    const MAX_BUSY_POLLS: u32 = 64;
    let begun = HostMoment::now();
    let mut asked = 0;
    loop {
        if done()? {
            return Ok(true);
        }
        if begun.elapsed() >= limit {
            return Ok(false);
        }
        asked += 1;
        if asked > MAX_BUSY_POLLS {
            sleep(Duration::from_micros(200));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(name: &str) -> Option<Cgroup> {
        Cgroup::create(CgroupPlace::Own, name, &mut |_| Ok(()))
    }
    use std::process::{Command, Stdio};

    #[test]
    fn the_hierarchy_is_found_in_hybrid_and_pure_mounts() {
        let hybrid = "\
31 24 0:26 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755
32 31 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
41 31 0:36 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw
";
        assert_eq!(parse_mounts(hybrid), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        let pure =
            "31 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(parse_mounts(pure), Some(PathBuf::from("/sys/fs/cgroup")));
        assert_eq!(parse_mounts("nonsense\n\n"), None);
    }

    #[test]
    fn the_own_group_is_that_of_the_v2_hierarchy() {
        assert_eq!(own_group("2:cpu:/a\n0::/user.slice/x.scope\n"), Some("/user.slice/x.scope"));
        assert_eq!(own_group("0::/../b\n"), None);
        assert_eq!(own_group("2:cpu:/a\n"), None);
    }

    #[test]
    fn a_group_freezes_thaws_and_goes() {
        let Some(group) = create("test-freeze") else {
            eprintln!("skipped: no writable cgroup v2 hierarchy here");
            return;
        };
        let mut child =
            Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().expect("sleep starts");
        group.add(child.id()).unwrap();
        assert_eq!(group.pids().unwrap(), [child.id()]);
        assert_eq!(of_process(child.id()).as_deref(), Some(group.path()));
        assert!(group.freeze().unwrap());
        assert!(!group.remove());
        group.thaw();
        assert!(!group.is_frozen().unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(group.remove());
        assert!(!group.path().exists());
    }

    #[test]
    fn two_groups_of_one_name_are_two() {
        let (Some(first), Some(second)) = (create("test-twin"), create("test-twin")) else {
            eprintln!("skipped: no writable cgroup v2 hierarchy here");
            return;
        };
        assert_ne!(first.path(), second.path());
        assert!(first.remove() && second.remove());
    }
}
