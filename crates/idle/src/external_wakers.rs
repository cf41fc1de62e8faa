//! External wakers: whether anything outside the container may wake a sleeping task. While something may, time keeps to its rate.
//!
//! For each sleeping task, [`Outside`] finds the system call (/proc/PID/task/TID/syscall) and the descriptors on which that call
//! waits. Then it finds the processes at the other ends of these descriptors. An answer that is not certain counts as outside.
//!
//! [`Known`] keeps from look to look where to look, and not the state that was found there. Pipes without a name are the exception:
//! if no process outside holds an end of such a pipe, none can get one.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, IoSliceMut};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixDatagram;

use nix::sys::uio::{process_vm_readv, RemoteIoVec};
use nix::unistd::Pid;

use lorentz_control::processes;
use lorentz_syscalls::WaitsFor;

use crate::proc_files::{About, ProcFiles};
use crate::sockets::{Reach, Sockets, Tables};
use crate::task::{Asleep, Cause};
use crate::tasks::name_of;

/// State that stays from look to look.
#[derive(Default)]
pub struct Known {
    files: ProcFiles,
    sockets: Sockets,
    private: PrivatePipes,
    /// Descriptors of processes on the clock, as (process, descriptor), by the inode of the socket each was at the last look.
    descriptors: HashMap<u64, (u32, u32)>,
    kinds: Option<Kinds>,
}

impl Known {
    /// Returns the files that an epoll descriptor watches; none if the descriptor is closed.
    fn watched(&mut self, pid: u32, fd: u32) -> io::Result<Vec<Watched>> {
        match self.files.read(pid, About::Descriptor(fd)) {
            Ok(text) => Ok(watched_by(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}

/// Ends of pipes that no process outside holds: the inode of the pipe, and whether the end is for writing. A pipe without a name
/// stays private: a process outside can get an end of it only from a process that hands it over.
type PrivatePipes = HashSet<(u64, bool)>;

/// Device numbers of sockets and of pipes without a name; `None` where the device could not be found.
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

/// One look at the external wakers of tasks. It keeps its findings until it is dropped.
pub struct Outside<'a> {
    members: &'a [u32],
    known: &'a mut Known,
    tables: Tables,
    /// Whether the descriptors of all members have been read in this look.
    descriptors_read: bool,
    /// Processes outside that hold an end of a pipe, by the inode of the pipe and whether that end is for writing. `None` before
    /// the first question.
    pipes: Option<HashMap<(u64, bool), u32>>,
    /// Whether the last answer may change although the task does not run. This is so where a socket was looked at.
    may_change: bool,
    /// Whether data was on its way to a socket.
    in_flight: bool,
}

/// The descriptors on which a call waits, and the directions.
enum Waits {
    /// The call waits on no descriptor that the outside can change.
    Nothing,
    /// The call waits to read (false) or to write (true) on these descriptors.
    On(Vec<(u32, bool)>),
    /// The call waits on this epoll descriptor.
    OnSet(u32),
    /// The call waits on something unknown. The text is for people.
    Unknown(String),
}

/// A file that an epoll descriptor watches. Its descriptor number may belong to another file by now.
struct Watched {
    fd: u32,
    /// Whether the file is watched for writing (true) or for reading (false).
    writes: bool,
    device: u64,
    inode: u64,
}

/// How many epoll descriptors may watch one another in a row; a deeper one counts as outside.
const DEEPEST: u32 = 5;

impl<'a> Outside<'a> {
    /// Begins a look for `members`, the processes on the clock.
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

    /// Looks for an external waker of `task`. `Ok` says that there is none: `Ok(true)` that this holds until the task has run,
    /// `Ok(false)` that it may change before.
    ///
    /// # Errors
    ///
    /// The external waker, if there is one or if it is not certain that there is none.
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

    /// Returns the external waker of descriptor `fd` of a process, in words for people; `None` if there is none. `writes` is the
    /// direction, `depth` the number of epoll descriptors that led to this one.
    fn reach(&mut self, pid: u32, fd: u32, writes: bool, depth: u32) -> Option<String> {
        let path = format!("/proc/{pid}/fd/{fd}");
        let target = match fs::read_link(&path) {
            Ok(target) => target,
            // The descriptor is closed: nothing comes from it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => return Some(format!("descriptor {fd} ({error})")),
        };
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

    /// Returns the external waker of an epoll descriptor on which a task waits; `None` if there is none.
    fn reach_of_epoll(&mut self, pid: u32, fd: u32) -> Option<String> {
        match self.known.watched(pid, fd) {
            // A descriptor that watches a file is still an epoll descriptor.
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
        let text = match fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => return Some(format!("the end of a process ({error})")),
        };
        let of = text.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim().parse().ok()?;
        (!self.members.contains(&of)).then(|| format!("the end of {}", name_of(of)))
    }

    /// Returns the ends of pipes that processes outside hold. It leaves out the calling process, which has closed its copies of
    /// them.
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

/// Returns the directions of a descriptor: read (false), write (true), or both. Both also if /proc does not say.
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

/// Whether a member has the socket `inode`. `known` says where the socket was found last; that place is checked again. If it is not
/// there any more, all descriptors of all members are read, once in a look: `all_read` says that this has been done.
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

/// Returns the descriptors of a process whose links are `kind[number]`, each with that number.
fn descriptors_of(pid: u32, kind: &str) -> Vec<(u32, u64)> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let found = entries.filter_map(|entry| {
        let target = fs::read_link(entry.path()).ok()?;
        let inode = number_in(&target.to_string_lossy(), kind)?;
        Some((entry.file_name().to_str()?.parse().ok()?, inode))
    });
    found.collect()
}

/// Parses the number in `kind[number]`.
fn number_in(name: &str, kind: &str) -> Option<u64> {
    name.strip_prefix(kind)?.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}

/// Parses the files that an epoll descriptor watches from its /proc/PID/fdinfo file.
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
        // In this file the kernel prints device numbers in its internal encoding: the major number from bit 20 on.
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

/// Returns the descriptors on which the system call waits in which `task` sleeps.
fn waits_of(task: &Asleep, files: &mut ProcFiles) -> Waits {
    let text = match files.read(task.pid, About::Call(task.thread)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Waits::Nothing,
        Err(error) => return Waits::Unknown(format!("something that may not be seen ({error})")),
    };
    let mut words = text.split_ascii_whitespace();
    let Some(call) = words.next().and_then(|word| word.parse::<i64>().ok()) else {
        // The task ran when /proc was read.
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
    if count > MOST {
        return Waits::Unknown(format!("{count} descriptors"));
    }
    let Some(bytes) = memory(pid, at, count as usize * ENTRY) else {
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
    if count > MOST {
        return Waits::Unknown(format!("{count} descriptors"));
    }
    let len = (count as usize).div_ceil(64) * 8;
    let mut found = Vec::new();
    for (at, direction) in [(reads, false), (writes, true)] {
        if at == 0 || len == 0 {
            continue;
        }
        let Some(bytes) = memory(pid, at, len) else {
            return Waits::Unknown("something that cannot be read".into());
        };
        let set = (0..count as usize).filter(|fd| bytes[fd / 8] & 1 << (fd % 8) != 0);
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
