//! Terminals, and the standard streams of a program: pipes whose other end is outside the container. A restored program gets those of `lorentz
//! restore` in their place.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;

use lorentz_control::Mount;

const STREAMS: std::ops::Range<i32> = 0..3;

/// Names CRIU's key of each pipe among the standard streams of `root` that leads out of the processes `pids`; with the number of the
/// stream.
pub fn pipes_to_outside(root: u32, pids: &[u32]) -> Vec<(i32, String)> {
    let inner: Vec<(String, bool)> = pids.iter().flat_map(|pid| pipe_ends(*pid)).collect();
    let mut known = BTreeSet::new();
    let mut found = Vec::new();
    for stream in STREAMS {
        let Some((key, writes)) = pipe_end(root, &stream.to_string()) else { continue };
        let leads_inside = inner.iter().any(|(other, end)| *other == key && *end != writes);
        if !leads_inside && known.insert(key.clone()) {
            found.push((stream, key));
        }
    }
    found
}

/// Names CRIU's key of each file among the standard streams of `root` that lies in no mount of its own; with the number of the stream.
pub fn files_of_outside(root: u32) -> Vec<(i32, String)> {
    let mounts = Mount::all_of(&root.to_string()).unwrap_or_default();
    let file = |stream: i32| {
        let file = fs::metadata(format!("/proc/{root}/fd/{stream}")).ok()?;
        let mount = fd_info(root, &stream.to_string(), "mnt_id:")?;
        let mount: u64 = mount.parse().ok()?;
        if !file.is_file() || mounts.iter().any(|inside| inside.id == mount) {
            return None;
        }
        Some((stream, format!("file[{mount:x}:{:x}]", file.ino())))
    };
    STREAMS.filter_map(file).collect()
}

/// Returns a terminal that one of the processes `pids` has open.
pub fn terminal(pids: &[u32]) -> Option<String> {
    let is_terminal = |link: &String| link.starts_with("/dev/pts/") || link.starts_with("/dev/tty");
    pids.iter().find_map(|pid| {
        let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let mut links = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
        links.find_map(|link| link.into_os_string().into_string().ok().filter(is_terminal))
    })
}

fn pipe_ends(pid: u32) -> Vec<(String, bool)> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| pipe_end(pid, &name)).collect()
}

/// The pipe behind a descriptor, and whether this is its end for writing.
fn pipe_end(pid: u32, fd: &str) -> Option<(String, bool)> {
    let link = fs::read_link(format!("/proc/{pid}/fd/{fd}")).ok()?;
    let key = link.to_str().filter(|link| link.starts_with("pipe:["))?.to_string();
    let flags = i32::from_str_radix(&fd_info(pid, fd, "flags:")?, 8).ok()?;
    Some((key, flags & libc::O_ACCMODE != libc::O_RDONLY))
}

/// Reads a line of /proc/PID/fdinfo.
fn fd_info(pid: u32, fd: &str, name: &str) -> Option<String> {
    let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).ok()?;
    let value = info.lines().find_map(|line| line.strip_prefix(name))?;
    Some(value.trim().to_string())
}
