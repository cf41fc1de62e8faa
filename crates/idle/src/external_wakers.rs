//! External wakers: whether anything outside the container may wake a sleeping task. While something may, time keeps to its rate.
//!
//! For each sleeping task, [`ExternalWakers`] finds the system call (/proc/PID/task/TID/syscall) and the descriptors on which that
//! call waits. Then it finds the processes at the other ends of these descriptors. An answer that is not certain counts as outside.
//!
//! [`WakerCache`] keeps from look to look where to look, and not the state that was found there. Pipes without a name are the
//! exception: if no process outside holds an end of such a pipe, none can get one.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, IoSliceMut};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixDatagram;

use lorentz_control::processes::{self, shown_at};
use lorentz_syscalls::WaitsFor;
use nix::sys::uio::{process_vm_readv, RemoteIoVec};
use nix::unistd::Pid;

use crate::proc_files::{About, ProcFiles};
use crate::sockets::{Reach, Sockets, Tables};
use crate::task::{Blocker, SleepingTask};
use crate::task_scan::name_of;

/// State that stays from look to look.
#[derive(Default)]
pub struct WakerCache {
    files: ProcFiles,
    sockets: Sockets,
    private: PrivatePipes,
    /// Descriptors of processes on the clock, by the inode of the socket each was at the last look.
    descriptors: HashMap<u64, Descriptor>,
    devices: Option<DeviceNumbers>,
}

impl WakerCache {
    /// Returns the files that an epoll descriptor watches; none if the descriptor is closed.
    fn watched(&mut self, pid: u32, fd: u32) -> io::Result<Vec<Watched>> {
        match self.files.read(pid, About::Descriptor(fd)) {
            Ok(text) => Ok(watched_by(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}

/// A descriptor of a process.
#[derive(Clone, Copy)]
struct Descriptor {
    pid: u32,
    fd: u32,
}

/// A direction in which a call waits, or of an end of a pipe.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Direction {
    Read,
    Write,
}

impl Direction {
    /// The direction of the other end of a pipe.
    fn opposite(self) -> Direction {
        match self {
            Direction::Read => Direction::Write,
            Direction::Write => Direction::Read,
        }
    }
}

/// A descriptor on which a call waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Interest {
    fd: u32,
    direction: Direction,
}

/// One end of a pipe.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct PipeEnd {
    /// The inode of the pipe.
    inode: u64,
    direction: Direction,
}

/// Ends of pipes that no process outside holds. A pipe without a name stays private: a process outside can get an end of it only
/// from a process that hands it over.
type PrivatePipes = HashSet<PipeEnd>;

/// Device numbers of sockets and of pipes without a name; `None` where the device could not be found.
#[derive(Clone, Copy)]
struct DeviceNumbers {
    sockets: Option<u64>,
    pipes: Option<u64>,
}

impl DeviceNumbers {
    fn find() -> DeviceNumbers {
        let device = |file: OwnedFd| File::from(file).metadata().ok().map(|file| file.dev());
        DeviceNumbers {
            sockets: UnixDatagram::unbound().ok().and_then(|socket| device(socket.into())),
            pipes: nix::unistd::pipe().ok().and_then(|(end, _)| device(end)),
        }
    }
}

/// One look at the external wakers of tasks. It keeps its findings until it is dropped.
pub struct ExternalWakers<'a> {
    members: &'a [u32],
    cache: &'a mut WakerCache,
    tables: Tables,
    /// Whether the descriptors of all members have been read in this look.
    descriptors_read: bool,
    /// Processes outside that hold an end of a pipe. `None` before the first question.
    pipes: Option<HashMap<PipeEnd, u32>>,
    /// Whether the last answer may change although the task does not run. This is so where a socket was looked at.
    may_change: bool,
    /// Whether data was on its way to a socket.
    in_flight: bool,
}

/// The result of an examination of a task.
pub enum WakerFinding {
    /// The task has no external waker. It gets none before it runs.
    NoneUntilItRuns,
    /// The task has no external waker. It may get one before it runs.
    NoneForNow,
    /// The external waker, or the reason why there may be one.
    Waker(Blocker),
}

/// The descriptors on which a call waits.
enum Waits {
    /// The call waits on no descriptor that the outside can change.
    Nothing,
    /// The call waits on these descriptors.
    On(Vec<Interest>),
    /// The call waits on this epoll descriptor.
    OnEpoll(u32),
    /// The call waits on something unknown. The text is for people.
    Unknown(String),
}

/// A file that an epoll descriptor watches. Its descriptor number may belong to another file by now.
struct Watched {
    interest: Interest,
    device: u64,
    inode: u64,
}

/// How many epoll descriptors may watch one another in a row; a deeper one counts as outside.
const MAX_EPOLL_NESTING: u32 = 5;

impl<'a> ExternalWakers<'a> {
    /// Begins a look for `members`, the processes on the clock.
    pub fn of(members: &'a [u32], cache: &'a mut WakerCache) -> ExternalWakers<'a> {
        ExternalWakers {
            members,
            cache,
            tables: Tables::default(),
            descriptors_read: false,
            pipes: None,
            may_change: false,
            in_flight: false,
        }
    }

    /// Looks for an external waker of `task`.
    pub fn examine(&mut self, task: &SleepingTask) -> WakerFinding {
        self.may_change = false;
        let pid = if task.thread == task.pid { task.pid } else { shown_at(task.pid) };
        let what = match waits_of(task, pid, &mut self.cache.files) {
            Waits::Nothing => None,
            Waits::Unknown(what) => Some(what),
            Waits::OnEpoll(fd) => self.waker_of_epoll(pid, fd),
            Waits::On(descriptors) => {
                descriptors.into_iter().find_map(|interest| self.waker_of(pid, interest, 0))
            }
        };
        match what {
            None if self.may_change => WakerFinding::NoneForNow,
            None => WakerFinding::NoneUntilItRuns,
            Some(what) => WakerFinding::Waker(Blocker {
                pid: task.pid,
                what: format!("waits for {what}"),
                is_transient: self.in_flight,
            }),
        }
    }

    /// Returns the external waker of a descriptor of a process, in words for people; `None` if there is none. `depth` is the number
    /// of epoll descriptors that led to this one.
    fn waker_of(&mut self, pid: u32, interest: Interest, depth: u32) -> Option<String> {
        let Interest { fd, direction } = interest;
        let path = format!("/proc/{pid}/fd/{fd}");
        let target = match fs::read_link(&path) {
            Ok(target) => target,
            // The descriptor is closed: nothing comes from it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => return Some(format!("descriptor {fd} ({error})")),
        };
        let name = target.to_string_lossy();
        if let Some(inode) = number_in(&name, "socket:") {
            return self.waker_of_socket(inode);
        }
        match name.as_ref() {
            "anon_inode:[eventpoll]" if depth < MAX_EPOLL_NESTING => {
                let watched = match self.cache.watched(pid, fd) {
                    Ok(watched) => watched,
                    Err(error) => return Some(format!("an epoll descriptor ({error})")),
                };
                self.waker_of_watched(pid, &watched, depth)
            }
            "anon_inode:[pidfd]" => self.waker_of_pidfd(pid, fd),
            "anon_inode:[eventfd]"
            | "anon_inode:[timerfd]"
            | "anon_inode:[signalfd]"
            | "anon_inode:inotify"
            | "anon_inode:[fanotify]" => None,
            other if other.starts_with("anon_inode:") => Some(other.to_string()),
            _ => self.waker_of_file(&path, &name, direction),
        }
    }

    fn waker_of_file(&mut self, path: &str, name: &str, direction: Direction) -> Option<String> {
        let file = match fs::metadata(path) {
            Ok(file) => file,
            Err(error) => return Some(format!("{name}: {error}")),
        };
        let kind = file.file_type();
        if kind.is_fifo() {
            let end = PipeEnd { inode: file.ino(), direction };
            return self.waker_of_pipe(end, name.starts_with("pipe:"));
        }
        const HARMLESS_DEVICES: [&str; 5] =
            ["/dev/null", "/dev/zero", "/dev/full", "/dev/urandom", "/dev/random"];
        let is_device = kind.is_char_device() && !HARMLESS_DEVICES.contains(&name);
        is_device.then(|| match name.starts_with("/dev/pts/") || name.starts_with("/dev/tty") {
            true => format!("a terminal, {name}"),
            false => format!("the device {name}"),
        })
    }

    /// Returns the external waker of an epoll descriptor on which a task waits; `None` if there is none.
    fn waker_of_epoll(&mut self, pid: u32, fd: u32) -> Option<String> {
        match self.cache.watched(pid, fd) {
            // A descriptor that watches a file is still an epoll descriptor.
            Ok(watched) if !watched.is_empty() => self.waker_of_watched(pid, &watched, 0),
            _ => self.waker_of(pid, Interest { fd, direction: Direction::Read }, 0),
        }
    }

    fn waker_of_watched(&mut self, pid: u32, watched: &[Watched], depth: u32) -> Option<String> {
        let devices = *self.cache.devices.get_or_insert_with(DeviceNumbers::find);
        watched.iter().find_map(|watched| match Some(watched.device) {
            device if device == devices.sockets => self.waker_of_socket(watched.inode),
            device if device == devices.pipes => {
                let direction = watched.interest.direction;
                self.waker_of_pipe(PipeEnd { inode: watched.inode, direction }, true)
            }
            _ => self.waker_of(pid, watched.interest, depth + 1),
        })
    }

    /// Returns the external waker of a task that waits at `end` of a pipe.
    fn waker_of_pipe(&mut self, end: PipeEnd, nameless: bool) -> Option<String> {
        let other_end = PipeEnd { direction: end.direction.opposite(), ..end };
        if self.cache.private.contains(&other_end) {
            return None;
        }
        let holder = self.pipes().get(&other_end).copied();
        if holder.is_none() && nameless {
            self.cache.private.insert(other_end);
        }
        holder.map(|holder| format!("a pipe of {}", name_of(holder)))
    }

    fn waker_of_socket(&mut self, inode: u64) -> Option<String> {
        self.may_change = true;
        let (members, descriptors) = (self.members, &mut self.cache.descriptors);
        let read = &mut self.descriptors_read;
        let mut inside = |inode| is_inside(inode, members, descriptors, read);
        match self.cache.sockets.reach(inode, &mut self.tables, &mut inside) {
            Ok(Reach::Internal | Reach::Anybody) => None,
            Ok(Reach::External(who)) => Some(who),
            Ok(Reach::InFlight(who)) => {
                self.in_flight = true;
                Some(who)
            }
            Err(error) => Some(format!("a socket ({error})")),
        }
    }

    fn waker_of_pidfd(&self, pid: u32, fd: u32) -> Option<String> {
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
    fn pipes(&mut self) -> &HashMap<PipeEnd, u32> {
        let members = self.members;
        self.pipes.get_or_insert_with(|| {
            let mut found = HashMap::new();
            for process in processes::all().unwrap_or_default() {
                if members.contains(&process.pid) || process.pid == std::process::id() {
                    continue;
                }
                for (fd, inode) in descriptors_of(process.pid, "pipe:") {
                    for &direction in directions_of(process.pid, fd) {
                        found.insert(PipeEnd { inode, direction }, process.pid);
                    }
                }
            }
            found
        })
    }
}

/// Returns the directions of a descriptor: both also if /proc does not say.
fn directions_of(pid: u32, fd: u32) -> &'static [Direction] {
    let shown = shown_at(pid);
    let text = fs::read_to_string(format!("/proc/{shown}/fdinfo/{fd}")).unwrap_or_default();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    match flags.map(|flags| flags as i32 & libc::O_ACCMODE) {
        Some(libc::O_RDONLY) => &[Direction::Read],
        Some(libc::O_WRONLY) => &[Direction::Write],
        _ => &[Direction::Read, Direction::Write],
    }
}

/// Whether a member has the socket `inode`. `cache` says where the socket was found last; that place is checked again. If it is not
/// there any more, all descriptors of all members are read, once in a look: `all_read` says that this has been done.
fn is_inside(
    inode: u64,
    members: &[u32],
    cache: &mut HashMap<u64, Descriptor>,
    all_read: &mut bool,
) -> bool {
    let is_it = |&Descriptor { pid, fd }: &Descriptor| {
        let name = fs::read_link(format!("/proc/{pid}/fd/{fd}"));
        members.contains(&pid)
            && name.is_ok_and(|name| number_in(&name.to_string_lossy(), "socket:") == Some(inode))
    };
    if *all_read || cache.get(&inode).is_some_and(is_it) {
        return cache.contains_key(&inode);
    }
    *all_read = true;
    let sockets = |&pid: &u32| {
        let found = descriptors_of(pid, "socket:").into_iter();
        found.map(move |(fd, inode)| (inode, Descriptor { pid, fd }))
    };
    *cache = members.iter().flat_map(sockets).collect();
    cache.contains_key(&inode)
}

/// Returns the descriptors of a process whose links are `kind[number]`, each with that number.
fn descriptors_of(pid: u32, kind: &str) -> Vec<(u32, u64)> {
    let shown = shown_at(pid);
    let entries = fs::read_dir(format!("/proc/{shown}/fd")).into_iter().flatten().flatten();
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
        let watched = move |interest| Watched { interest, device, inode };
        Some(interests(fd, events & EPOLLIN != 0, events & EPOLLOUT != 0).map(watched))
    };
    text.lines().filter_map(entry).flatten().collect()
}

fn interests(fd: u32, reads: bool, writes: bool) -> impl Iterator<Item = Interest> {
    let interest = move |direction| Interest { fd, direction };
    let reads = reads.then(|| interest(Direction::Read));
    let writes = writes.then(|| interest(Direction::Write));
    reads.into_iter().chain(writes)
}

/// Returns the descriptors on which the system call waits in which `task` sleeps. /proc shows its process at `pid`.
fn waits_of(task: &SleepingTask, pid: u32, files: &mut ProcFiles) -> Waits {
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
        WaitsFor::Readable => Waits::On(vec![Interest { fd, direction: Direction::Read }]),
        WaitsFor::Writable => Waits::On(vec![Interest { fd, direction: Direction::Write }]),
        WaitsFor::Polled => polled(pid, arg(0), arg(1)),
        WaitsFor::Selected => selected(pid, arg(0), arg(1), arg(2)),
        WaitsFor::EpollSet => Waits::OnEpoll(fd),
        WaitsFor::Events => Waits::Unknown("input or output".into()),
        WaitsFor::Unknown => Waits::Unknown(format!("system call {call}")),
    }
}

/// Most descriptors of a call that are looked at; a call with more counts as outside.
const MAX_DESCRIPTORS: u64 = 65_536;

fn polled(pid: u32, at: u64, count: u64) -> Waits {
    const POLLFD_LEN: usize = 8;
    if count == 0 || at == 0 {
        return Waits::Nothing;
    }
    if count > MAX_DESCRIPTORS {
        return Waits::Unknown(format!("{count} descriptors"));
    }
    let Some(bytes) = memory(pid, at, count as usize * POLLFD_LEN) else {
        return Waits::Unknown("something that cannot be read".into());
    };
    let entries = bytes.chunks_exact(POLLFD_LEN).filter_map(|entry| {
        let fd = i32::from_ne_bytes(entry[..4].try_into().ok()?);
        let events = i16::from_ne_bytes(entry[4..6].try_into().ok()?);
        Some((u32::try_from(fd).ok()?, events))
    });
    let wanted = |(fd, events): (u32, i16)| {
        interests(fd, events & !libc::POLLOUT != 0, events & libc::POLLOUT != 0)
    };
    Waits::On(entries.flat_map(wanted).collect())
}

fn selected(pid: u32, count: u64, reads: u64, writes: u64) -> Waits {
    if count > MAX_DESCRIPTORS {
        return Waits::Unknown(format!("{count} descriptors"));
    }
    let len = (count as usize).div_ceil(64) * 8;
    let mut found = Vec::new();
    for (at, direction) in [(reads, Direction::Read), (writes, Direction::Write)] {
        if at == 0 || len == 0 {
            continue;
        }
        let Some(bytes) = memory(pid, at, len) else {
            return Waits::Unknown("something that cannot be read".into());
        };
        let set = (0..count as usize).filter(|fd| bytes[fd / 8] & 1 << (fd % 8) != 0);
        found.extend(set.map(|fd| Interest { fd: fd as u32, direction }));
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
