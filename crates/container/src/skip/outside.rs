//! Whether somebody waits for something that the outside can bring: then time keeps to its rate.
//!
//! For each sleeping task: in which system call it is (/proc/PID/task/TID/syscall), on which descriptors that call waits,
//! and who is at the other end of them. What is not known for sure counts as outside.
//!
//! What is kept from look to look ([`Known`]) is where to look, not what was seen there; but for pipes without a name, of which
//! nobody outside can get an end that has none.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, IoSliceMut};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixDatagram;

use nix::sys::uio::{process_vm_readv, RemoteIoVec};
use nix::unistd::Pid;

use lorentz_syscalls::WaitsFor;

use super::proc_files::{About, ProcFiles};
use super::sockets::{Reach, Sockets, Tables};
use super::tasks::{name_of, Asleep, Cause};
use crate::processes;

/// What stays from look to look.
#[derive(Default)]
pub struct Known {
    files: ProcFiles,
    sockets: Sockets,
    private: PrivatePipes,
    /// Descriptors of members, by the inodes of the sockets they were.
    descriptors: HashMap<u64, (u32, u32)>,
    kinds: Option<Kinds>,
}

impl Known {
    /// What an epoll descriptor watches; nothing where it is closed.
    fn watched(&mut self, pid: u32, fd: u32) -> io::Result<Vec<Watched>> {
        match self.files.read(pid, About::Descriptor(fd)) {
            Ok(text) => Ok(watched_by(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}

/// Ends of pipes that nobody outside holds: by the pipe, and whether the end is for writing. A pipe without a name stays
/// so, for nobody outside can come by an end of it but by being handed it.
type PrivatePipes = HashSet<(u64, bool)>;

/// The devices that sockets and pipes without a name are on, as far as the kernel calls them so.
#[derive(Clone, Copy)]
struct Kinds {
    sockets: Option<u64>,
    pipes: Option<u64>,
}

impl Kinds {
    fn find() -> Kinds {
        let device = |file: OwnedFd| File::from(file).metadata().ok().map(|file| file.dev());
        Kinds {
            sockets: UnixDatagram::unbound().ok().and_then(|socket| device(socket.into())),
            pipes: nix::unistd::pipe().ok().and_then(|(end, _)| device(end)),
        }
    }
}

/// What has been found out in one look.
pub struct Outside<'a> {
    members: &'a [u32],
    known: &'a mut Known,
    tables: Tables,
    /// Whether all descriptors of members have been looked at.
    descriptors_read: bool,
    /// Who outside has an end of a pipe, by the pipe and whether that end is for writing.
    pipes: Option<HashMap<(u64, bool), u32>>,
    /// Whether the last answer may change without the task running: it has to do with sockets.
    may_change: bool,
    /// Whether something was on its way.
    in_flight: bool,
}

/// On which descriptors a call waits, and for what.
enum Waits {
    /// On none that the outside could do anything about.
    Nothing,
    /// To read (false) or to write (true).
    On(Vec<(u32, bool)>),
    /// On an epoll descriptor.
    OnSet(u32),
    /// On something unknown.
    Unknown(String),
}

/// What an epoll descriptor watches: a file. The number it was given by may be another's by now.
struct Watched {
    fd: u32,
    /// For being written to, and not read from.
    writes: bool,
    device: u64,
    inode: u64,
}

/// How deep epoll descriptors may lie in each other.
const DEEPEST: u32 = 5;

impl<'a> Outside<'a> {
    /// A look on behalf of `members`, the processes on the clock.
    pub fn of(members: &'a [u32], known: &'a mut Known) -> Outside<'a> {
        Outside {
            members,
            known,
            tables: Tables::default(),
            descriptors_read: false,
            pipes: None,
            may_change: false,
            in_flight: false,
        }
    }

    /// Whether the outside may wake `task`; if not, whether that stays so until the task has run.
    pub fn holds(&mut self, task: &Asleep) -> Result<bool, Cause> {
        self.may_change = false;
        let what = match waits_of(task, &mut self.known.files) {
            Waits::Nothing => None,
            Waits::Unknown(what) => Some(what),
            Waits::OnSet(fd) => self.reach_of_epoll(task.pid, fd),
            Waits::On(descriptors) => {
                descriptors.into_iter().find_map(|(fd, writes)| self.reach(task.pid, fd, writes, 0))
            }
        };
        match what {
            None => Ok(!self.may_change),
            Some(what) => Err(Cause {
                pid: task.pid,
                what: format!("waits for {what}"),
                passes: self.in_flight,
            }),
        }
    }

    /// What the outside may bring to descriptor `fd` of a process.
    fn reach(&mut self, pid: u32, fd: u32, writes: bool, depth: u32) -> Option<String> {
        let path = format!("/proc/{pid}/fd/{fd}");
        // Closed since, or never open: nothing comes.
        let target = fs::read_link(&path).ok()?;
        let name = target.to_string_lossy();
        if let Some(inode) = number_in(&name, "socket:") {
            return self.reach_of_socket(inode);
        }
        match name.as_ref() {
            "anon_inode:[eventpoll]" if depth < DEEPEST => {
                let watched = match self.known.watched(pid, fd) {
                    Ok(watched) => watched,
                    Err(error) => return Some(format!("an epoll descriptor ({error})")),
                };
                self.reach_of_watched(pid, &watched, depth)
            }
            "anon_inode:[pidfd]" => self.reach_of_pidfd(pid, fd),
            "anon_inode:[eventfd]"
            | "anon_inode:[timerfd]"
            | "anon_inode:[signalfd]"
            | "anon_inode:inotify"
            | "anon_inode:[fanotify]" => None,
            other if other.starts_with("anon_inode:") => Some(other.to_string()),
            _ => self.reach_of_file(&path, &name, writes),
        }
    }

    fn reach_of_file(&mut self, path: &str, name: &str, writes: bool) -> Option<String> {
        let file = match fs::metadata(path) {
            Ok(file) => file,
            Err(error) => return Some(format!("{name}: {error}")),
        };
        let kind = file.file_type();
        if kind.is_fifo() {
            return self.reach_of_pipe(file.ino(), writes, name.starts_with("pipe:"));
        }
        const QUIET: [&str; 5] =
            ["/dev/null", "/dev/zero", "/dev/full", "/dev/urandom", "/dev/random"];
        let is_device = kind.is_char_device() && !QUIET.contains(&name);
        is_device.then(|| match name.starts_with("/dev/pts/") || name.starts_with("/dev/tty") {
            true => format!("a terminal, {name}"),
            false => format!("the device {name}"),
        })
    }

    /// What may come to an epoll descriptor in whose wait a task is.
    fn reach_of_epoll(&mut self, pid: u32, fd: u32) -> Option<String> {
        match self.known.watched(pid, fd) {
            // What watches anything is an epoll descriptor still.
            Ok(watched) if !watched.is_empty() => self.reach_of_watched(pid, &watched, 0),
            _ => self.reach(pid, fd, false, 0),
        }
    }

    fn reach_of_watched(&mut self, pid: u32, watched: &[Watched], depth: u32) -> Option<String> {
        let kinds = *self.known.kinds.get_or_insert_with(Kinds::find);
        watched.iter().find_map(|watched| match Some(watched.device) {
            device if device == kinds.sockets => self.reach_of_socket(watched.inode),
            device if device == kinds.pipes => {
                self.reach_of_pipe(watched.inode, watched.writes, true)
            }
            _ => self.reach(pid, watched.fd, watched.writes, depth + 1),
        })
    }

    fn reach_of_pipe(&mut self, inode: u64, writes: bool, nameless: bool) -> Option<String> {
        let other_end = (inode, !writes);
        if self.known.private.contains(&other_end) {
            return None;
        }
        let holder = self.pipes().get(&other_end).copied();
        if holder.is_none() && nameless {
            self.known.private.insert(other_end);
        }
        holder.map(|holder| format!("a pipe of {}", name_of(holder)))
    }

    fn reach_of_socket(&mut self, inode: u64) -> Option<String> {
        self.may_change = true;
        let (members, descriptors) = (self.members, &mut self.known.descriptors);
        let read = &mut self.descriptors_read;
        let mut inside = |inode| is_inside(inode, members, descriptors, read);
        match self.known.sockets.reach(inode, &mut self.tables, &mut inside) {
            Ok(Reach::Inside | Reach::Anybody) => None,
            Ok(Reach::Outside(who)) => Some(who),
            Ok(Reach::InFlight(who)) => {
                self.in_flight = true;
                Some(who)
            }
            Err(error) => Some(format!("a socket ({error})")),
        }
    }

    fn reach_of_pidfd(&self, pid: u32, fd: u32) -> Option<String> {
        let text = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).ok()?;
        let of = text.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim().parse().ok()?;
        (!self.members.contains(&of)).then(|| format!("the end of {}", name_of(of)))
    }

    /// The ends of pipes that processes outside hold. The caller's own are not looked at: it has closed them.
    fn pipes(&mut self) -> &HashMap<(u64, bool), u32> {
        let members = self.members;
        self.pipes.get_or_insert_with(|| {
            let mut found = HashMap::new();
            for process in processes::all().unwrap_or_default() {
                if members.contains(&process.pid) || process.pid == std::process::id() {
                    continue;
                }
                for (fd, inode) in descriptors_of(process.pid, "pipe:") {
                    for writes in ends_of(process.pid, fd) {
                        found.insert((inode, writes), process.pid);
                    }
                }
            }
            found
        })
    }
}

/// Whether a descriptor can read (false), write (true) or both.
fn ends_of(pid: u32, fd: u32) -> Vec<bool> {
    let text = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).unwrap_or_default();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    match flags.map(|flags| flags as i32 & libc::O_ACCMODE) {
        Some(libc::O_RDONLY) => vec![false],
        Some(libc::O_WRONLY) => vec![true],
        _ => vec![false, true],
    }
}

/// Whether a member has the socket `inode`. `known` tells where it was found, which is looked at anew; all descriptors
/// are looked at once in a look, as `all_read` tells.
fn is_inside(
    inode: u64,
    members: &[u32],
    known: &mut HashMap<u64, (u32, u32)>,
    all_read: &mut bool,
) -> bool {
    let is_it = |&(pid, fd): &(u32, u32)| {
        let name = fs::read_link(format!("/proc/{pid}/fd/{fd}"));
        members.contains(&pid)
            && name.is_ok_and(|name| number_in(&name.to_string_lossy(), "socket:") == Some(inode))
    };
    if *all_read || known.get(&inode).is_some_and(is_it) {
        return known.contains_key(&inode);
    }
    *all_read = true;
    let sockets = |&pid: &u32| {
        descriptors_of(pid, "socket:").into_iter().map(move |(fd, inode)| (inode, (pid, fd)))
    };
    *known = members.iter().flat_map(sockets).collect();
    known.contains_key(&inode)
}

/// The descriptors of a process whose names begin with `kind`, and the numbers in them.
fn descriptors_of(pid: u32, kind: &str) -> Vec<(u32, u64)> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let found = entries.filter_map(|entry| {
        let target = fs::read_link(entry.path()).ok()?;
        let inode = number_in(&target.to_string_lossy(), kind)?;
        Some((entry.file_name().to_str()?.parse().ok()?, inode))
    });
    found.collect()
}

/// The number in `kind[number]`.
fn number_in(name: &str, kind: &str) -> Option<u64> {
    name.strip_prefix(kind)?.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}

/// What an epoll descriptor watches, by what /proc tells of it.
fn watched_by(text: &str) -> Vec<Watched> {
    const EPOLLOUT: u32 = 4;
    const EPOLLIN: u32 = 1;
    let entry = |line: &str| {
        let mut words = line.strip_prefix("tfd:")?.split_ascii_whitespace();
        let fd = words.next()?.parse().ok()?;
        let events = u32::from_str_radix(words.nth(1)?, 16).ok()?;
        let mut hex = |name: &str| {
            let word = words.find_map(|word| word.strip_prefix(name))?;
            u64::from_str_radix(word, 16).ok()
        };
        let (inode, device) = (hex("ino:").unwrap_or(0), hex("sdev:").unwrap_or(0));
        // The kernel's own way to write a device number.
        let device = libc::makedev((device >> 20) as u32, device as u32 & 0xf_ffff);
        let watched = move |(fd, writes)| Watched { fd, writes, device, inode };
        Some(directions(fd, events & EPOLLIN != 0, events & EPOLLOUT != 0).map(watched))
    };
    text.lines().filter_map(entry).flatten().collect()
}

fn directions(fd: u32, reads: bool, writes: bool) -> impl Iterator<Item = (u32, bool)> {
    [(fd, false, reads), (fd, true, writes)]
        .into_iter()
        .filter(|(_, _, wanted)| *wanted)
        .map(|(fd, writes, _)| (fd, writes))
}

/// What the call waits for in which `task` sleeps.
fn waits_of(task: &Asleep, files: &mut ProcFiles) -> Waits {
    let text = match files.read(task.pid, About::Call(task.thread)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Waits::Nothing,
        Err(error) => return Waits::Unknown(format!("something that may not be seen ({error})")),
    };
    let mut words = text.split_ascii_whitespace();
    let Some(call) = words.next().and_then(|word| word.parse::<i64>().ok()) else {
        // It ran when it was looked at.
        return Waits::Unknown("a processor".into());
    };
    let args: Vec<u64> = words
        .filter_map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok())
        .collect();
    let arg = |place: usize| args.get(place).copied().unwrap_or(0);
    let fd = arg(0) as u32;
    let row = u32::try_from(call).ok().and_then(lorentz_syscalls::row);
    match row.map_or(WaitsFor::Unknown, |row| row.waits_for) {
        WaitsFor::Tasks | WaitsFor::Connection => Waits::Nothing,
        WaitsFor::Readable => Waits::On(vec![(fd, false)]),
        WaitsFor::Writable => Waits::On(vec![(fd, true)]),
        WaitsFor::Polled => polled(task.pid, arg(0), arg(1)),
        WaitsFor::Selected => selected(task.pid, arg(0), arg(1), arg(2)),
        WaitsFor::EpollSet => Waits::OnSet(fd),
        WaitsFor::Events => Waits::Unknown("input or output".into()),
        WaitsFor::Unknown => Waits::Unknown(format!("system call {call}")),
    }
}

fn polled(pid: u32, at: u64, count: u64) -> Waits {
    const MOST: u64 = 65_536;
    const ENTRY: usize = 8;
    if count == 0 || at == 0 {
        return Waits::Nothing;
    }
    let Some(bytes) = memory(pid, at, count.min(MOST) as usize * ENTRY) else {
        return Waits::Unknown("something that cannot be read".into());
    };
    let entries = bytes.chunks_exact(ENTRY).filter_map(|entry| {
        let fd = i32::from_ne_bytes(entry[..4].try_into().ok()?);
        let events = i16::from_ne_bytes(entry[4..6].try_into().ok()?);
        Some((u32::try_from(fd).ok()?, events))
    });
    let wanted = |(fd, events): (u32, i16)| {
        directions(fd, events & !libc::POLLOUT != 0, events & libc::POLLOUT != 0)
    };
    Waits::On(entries.flat_map(wanted).collect())
}

fn selected(pid: u32, count: u64, reads: u64, writes: u64) -> Waits {
    const MOST: u64 = 65_536;
    let len = (count.min(MOST) as usize).div_ceil(64) * 8;
    let mut found = Vec::new();
    for (at, direction) in [(reads, false), (writes, true)] {
        if at == 0 || len == 0 {
            continue;
        }
        let Some(bytes) = memory(pid, at, len) else {
            return Waits::Unknown("something that cannot be read".into());
        };
        let set = (0..count.min(MOST) as usize).filter(|fd| bytes[fd / 8] & 1 << (fd % 8) != 0);
        found.extend(set.map(|fd| (fd as u32, direction)));
    }
    match found.is_empty() {
        true => Waits::Nothing,
        false => Waits::On(found),
    }
}

fn memory(pid: u32, base: u64, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    let remote = [RemoteIoVec { base: base as usize, len }];
    let read =
        process_vm_readv(Pid::from_raw(pid as i32), &mut [IoSliceMut::new(&mut bytes)], &remote);
    (read == Ok(len)).then_some(bytes)
}
