//! Processes as /proc shows them, and the clocks that they are on.
//!
//! A process is on a clock if it maps the clock's file at the shim's fixed address. This test needs no record, and works after
//! every process of Lorentz has died. It sees only processes that the caller may look into.
//!
//! The kernel answers it by one lookup, `/proc/PID/map_files/START-END`, in 5 us. To read `/proc/PID/maps` takes ten times as long.
//! Therefore only callers without CAP_CHECKPOINT_RESTORE read it: the kernel shows them the mapping but not its file. A command
//! that asks about many containers walks over /proc once ([`OnClocks`]).

use std::cell::OnceCell;
use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use lorentz_clock::file;

use crate::host_time;

mod execs;

pub use execs::{may_enter, on_clock_or, on_clock_or_entering};

/// The kernel's suffix to the path of a mapped file that has no name any more.
const DELETED: &str = " (deleted)";
/// The address of the clock in every process in virtual time.
pub const CLOCK_ADDRESS: u64 = file::PAGE_ADDRESS as u64;
/// The end of the clock page. The page is a mapping by itself, because programs may write the registry behind it.
const CLOCK_END: u64 = CLOCK_ADDRESS + 0x1000;

/// A process, as its entry in /proc was at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// Its process id.
    pub pid: u32,
    /// The process id of its parent.
    pub parent: u32,
    /// Its start, in the kernel's ticks since boot. Process id and start together identify a process for good.
    pub start_ticks: u64,
    /// The state of its first thread: `R` running, `S` sleeping, `T` stopped, `Z` ended and not waited for, and so on.
    pub state: char,
    /// The number of its threads, the first one counted also when it has ended.
    threads: u32,
    /// The kernel's short name for it.
    pub comm: String,
}

impl Process {
    /// Reads one process. `None` if there is no such process.
    pub fn read(pid: u32) -> Option<Process> {
        let bytes = host_time::read_file(&format!("/proc/{pid}/stat")).ok()?;
        Process::parse(&String::from_utf8_lossy(&bytes))
    }

    /// Reads the calling process.
    ///
    /// # Errors
    ///
    /// If /proc is not mounted.
    pub fn current() -> io::Result<Process> {
        Process::read(std::process::id())
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "/proc/self/stat: not readable"))
    }

    /// Parses a line of /proc/PID/stat. The name in it may contain any character, also parentheses and spaces.
    fn parse(stat: &str) -> Option<Process> {
        let (pid, rest) = stat.split_once(" (")?;
        let (comm, rest) = rest.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        Some(Process {
            pid: pid.parse().ok()?,
            parent: fields.get(1)?.parse().ok()?,
            start_ticks: fields.get(19)?.parse().ok()?,
            state: fields.first()?.chars().next()?,
            threads: fields.get(17)?.parse().ok()?,
            comm: comm.to_string(),
        })
    }

    /// Whether the process has ended: all of its threads.
    pub fn has_ended(&self) -> bool {
        self.first_thread_has_ended() && self.threads <= 1
    }

    /// Whether its first thread has ended. Others may go on (`pthread_exit` in `main`).
    pub fn first_thread_has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }

    /// The command line, its arguments separated by spaces; the short name in brackets if there is none.
    pub fn command(&self) -> String {
        let bytes = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let command = text.trim_end_matches('\0').replace('\0', " ");
        if command.is_empty() {
            format!("[{}]", self.comm)
        } else {
            command
        }
    }
}

/// Whether the process `pid` that started at `start_ticks` still runs: it has not ended, and no other process has got its number.
pub fn is_running(pid: u32, start_ticks: u64) -> bool {
    Process::read(pid)
        .is_some_and(|process| process.start_ticks == start_ticks && !process.has_ended())
}

/// Whether /proc shows this very process. It does not if it is not mounted, or belongs to another process id namespace.
pub fn is_proc_ours() -> bool {
    let own = std::process::id();
    Process::read(own).is_some()
        && fs::read_link("/proc/self").is_ok_and(|link| link == Path::new(&own.to_string()))
}

/// Returns every process, sorted by process id.
///
/// # Errors
///
/// If /proc is not mounted.
pub fn all() -> io::Result<Vec<Process>> {
    // A process that ended in between is left out.
    let mut found: Vec<Process> = numbers()?.filter_map(Process::read).collect();
    found.sort_by_key(|process| process.pid);
    Ok(found)
}

/// Returns the process id of every process.
///
/// # Errors
///
/// If /proc is not mounted.
pub fn numbers() -> io::Result<impl Iterator<Item = u32>> {
    let entries = fs::read_dir("/proc")?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()))
}

/// A thread, by its numbers in the pid namespace of this process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Thread {
    /// The process id.
    pub pid: u32,
    /// The thread id.
    pub tid: u32,
}

/// Returns the thread ids of process `pid`.
pub fn threads_of(pid: u32) -> impl Iterator<Item = u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    threads.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// A file, independent of its names.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FileId {
    device: (u32, u32),
    inode: u64,
    /// For file systems whose device in /proc/PID/maps differs from the device in stat.
    path: PathBuf,
    /// Whether the file has no name any more.
    deleted: bool,
}

impl FileId {
    /// Identifies the file at `path`.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn of(path: &Path) -> io::Result<FileId> {
        Ok(FileId::new(&fs::metadata(path)?, path))
    }

    fn new(metadata: &fs::Metadata, path: impl AsRef<Path>) -> FileId {
        let device = metadata.dev();
        FileId {
            device: (libc::major(device), libc::minor(device)),
            inode: metadata.ino(),
            path: path.as_ref().to_path_buf(),
            deleted: metadata.nlink() == 0,
        }
    }

    /// The same file, without its name: equal for all names of the file.
    pub fn without_name(self) -> FileId {
        FileId { path: PathBuf::new(), deleted: false, ..self }
    }

    /// The path that the kernel reports: the last path, if the file has been deleted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file was deleted.
    pub fn is_deleted(&self) -> bool {
        self.deleted
    }

    /// Whether both are the same file.
    pub fn is_same(&self, other: &FileId) -> bool {
        self.inode == other.inode && (self.device == other.device || self.path == other.path)
    }
}

/// Returns the file of the clock that process `pid` is on. `None` if the process is not in virtual time or has ended, or if the
/// kernel does not allow the look.
pub fn clock_of(pid: u32) -> Option<FileId> {
    let clock_at = |number| clock_by_lookup(number).unwrap_or_else(|_| clock_by_maps(number));
    clock_at(pid).or_else(|| clock_at(Some(shown_at(pid)).filter(|number| *number != pid)?))
}

/// Returns the number at which /proc shows the memory and the descriptors of process `pid`: that of another thread if the first one
/// has ended while others run, else `pid`.
pub fn shown_at(pid: u32) -> u32 {
    living_thread(pid).unwrap_or(pid)
}

/// Returns a thread of process `pid` that runs although the first one has ended.
fn living_thread(pid: u32) -> Option<u32> {
    // Two links and one for each thread: cheap to look at, and most processes have one thread.
    const LINKS_OF_TWO_THREADS: u64 = 4;
    if fs::metadata(format!("/proc/{pid}/task")).ok()?.nlink() < LINKS_OF_TWO_THREADS {
        return None;
    }
    let program = fs::read_link(format!("/proc/{pid}/exe"));
    if !program.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return None;
    }
    let runs = |tid: &u32| Process::read(*tid).is_some_and(|one| !one.first_thread_has_ended());
    threads_of(pid).find(runs)
}

/// Whether process `pid` has ended or is on a clock. A process in virtual time that executes a program is on no clock for a moment.
pub fn has_left_real_time(pid: u32) -> bool {
    Process::read(pid).is_none_or(|process| process.has_ended()) || clock_of(pid).is_some()
}

/// Returns the files that process `pid` has open, as far as the kernel allows the look.
pub fn open_files(pid: u32) -> impl Iterator<Item = FileId> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
    entries.filter_map(|entry| {
        let path = entry.ok()?.path();
        let name = fs::read_link(&path).ok()?;
        let name = name.to_string_lossy();
        Some(FileId::new(&fs::metadata(&path).ok()?, name.strip_suffix(DELETED).unwrap_or(&name)))
    })
}

/// As [`clock_of`], by the mapping of the clock page alone.
///
/// # Errors
///
/// If the kernel does not say. For the file of a mapping it wants CAP_CHECKPOINT_RESTORE; before Linux 5.9, for whether there is
/// one too.
fn clock_by_lookup(pid: u32) -> io::Result<Option<FileId>> {
    static IS_THERE: LazyLock<bool> = LazyLock::new(|| Path::new("/proc/self/map_files").exists());
    let mapping = format!("/proc/{pid}/map_files/{CLOCK_ADDRESS:x}-{CLOCK_END:x}");
    let metadata = match fs::metadata(&mapping) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && *IS_THERE => return Ok(None),
        metadata => metadata?,
    };
    let name = fs::read_link(&mapping).unwrap_or_default();
    let name = name.to_string_lossy();
    Ok(Some(FileId::new(&metadata, name.strip_suffix(DELETED).unwrap_or(&name))))
}

/// As [`clock_of`], by all mappings. A caller that may see the process may read them.
fn clock_by_maps(pid: u32) -> Option<FileId> {
    let mut maps = fs::File::open(format!("/proc/{pid}/maps")).ok()?;
    let mut text = Vec::new();
    let mut chunk = [0_u8; 4096];
    loop {
        let length = maps.read(&mut chunk).ok()?;
        if length == 0 {
            return find_clock(&String::from_utf8_lossy(&text));
        }
        text.extend_from_slice(&chunk[..length]);
        // Addresses ascend, so most of the file need not be read.
        if is_past_clock(&text) {
            return find_clock(&String::from_utf8_lossy(&text));
        }
    }
}

/// Whether the last complete line of `maps` lies above the clock's address.
fn is_past_clock(maps: &[u8]) -> bool {
    let Some(end) = maps.iter().rposition(|&byte| byte == b'\n') else { return false };
    let start = maps[..end].iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let line = String::from_utf8_lossy(&maps[start..end]);
    line_address(&line).is_some_and(|address| address > CLOCK_ADDRESS)
}

fn line_address(line: &str) -> Option<u64> {
    u64::from_str_radix(line.split_once('-')?.0, 16).ok()
}

/// Finds the file mapped at the clock's address in the text of /proc/PID/maps.
fn find_clock(maps: &str) -> Option<FileId> {
    let line = maps.lines().find(|line| line_address(line) == Some(CLOCK_ADDRESS))?;
    let mut fields = line.split_ascii_whitespace().skip(3);
    let (major, minor) = fields.next()?.split_once(':')?;
    let inode = fields.next()?.parse().ok().filter(|&inode| inode != 0)?;
    let name = line.find('/').map_or("", |at| &line[at..]);
    let before_deletion = name.strip_suffix(DELETED);
    Some(FileId {
        device: (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?),
        inode,
        path: PathBuf::from(before_deletion.unwrap_or(name)),
        deleted: before_deletion.is_some(),
    })
}

/// Returns process `pid` and its clock, if it is on one.
fn on_a_clock(pid: u32) -> Option<(FileId, Process)> {
    clock_of(pid)?;
    // Race: the process ends, and another process gets its number. Therefore this looks up the clock again after it has read the
    // start time. A caller that kills a process by its start time then kills the one on the clock, or none.
    let process = Process::read(pid)?;
    Some((clock_of(pid)?, process))
}

/// The processes of all clocks, found by one walk over /proc.
pub struct OnClocks {
    /// By the inode of the clock's file. Files of different file systems may have the same inode.
    by_inode: HashMap<u64, Vec<(FileId, Process)>>,
    /// The processes on no clock.
    others: Vec<u32>,
    /// Every process, read when a caller asks for ancestors.
    all: OnceCell<Vec<Process>>,
}

impl OnClocks {
    /// Walks over /proc.
    ///
    /// # Errors
    ///
    /// If /proc is not mounted.
    pub fn scan() -> io::Result<OnClocks> {
        let mut by_inode: HashMap<u64, Vec<_>> = HashMap::new();
        let mut others = Vec::new();
        for pid in numbers()? {
            match on_a_clock(pid) {
                Some((clock, process)) => {
                    by_inode.entry(clock.inode).or_default().push((clock, process));
                }
                None => others.push(pid),
            }
        }
        for processes in by_inode.values_mut() {
            processes.sort_by_key(|(_, process)| process.pid);
        }
        Ok(OnClocks { by_inode, others, all: OnceCell::new() })
    }

    /// Returns the processes that were on no clock.
    pub fn others(&self) -> &[u32] {
        &self.others
    }

    /// Returns the processes on the clock in `file`, sorted by process id.
    pub fn of(&self, file: &FileId) -> impl Iterator<Item = &Process> {
        let same = self.by_inode.get(&file.inode).into_iter().flatten();
        let file = file.clone();
        same.filter(move |(clock, _)| clock.is_same(&file)).map(|(_, process)| process)
    }

    /// Returns process `pid` and its ancestors, the process itself first.
    pub fn lineage(&self, pid: u32) -> Vec<&Process> {
        lineage(self.all.get_or_init(|| all().unwrap_or_default()), pid)
    }
}

/// Returns the descendants of process `pid` among `all`, parents before their children.
pub fn descendants(all: &[Process], pid: u32) -> Vec<&Process> {
    let mut found: Vec<&Process> = Vec::new();
    let mut parents = vec![pid];
    while let Some(parent) = parents.pop() {
        for child in all.iter().filter(|process| process.parent == parent && process.pid != parent)
        {
            parents.push(child.pid);
            found.push(child);
        }
    }
    found
}

/// Returns `pid` and its ancestors among `all`, the process itself first.
pub fn lineage(all: &[Process], pid: u32) -> Vec<&Process> {
    let mut line = Vec::new();
    let mut next = pid;
    while let Ok(at) = all.binary_search_by_key(&next, |process| process.pid) {
        let process = &all[at];
        line.push(process);
        next = process.parent;
        // `all` is not a snapshot of one instant: a reused process id could make a cycle.
        if line.len() > all.len() {
            break;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_with_a_nasty_name() {
        let fields = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 987654 20";
        let process = Process::parse(&format!("42 (a) (b c) S 7 {fields}")).unwrap();
        assert_eq!((process.pid, process.parent, process.state), (42, 7, 'S'));
        assert_eq!(process.comm, "a) (b c");
        assert_eq!(process.start_ticks, 987_654);
        assert_eq!(Process::parse("42 (cut"), None);
    }

    #[test]
    fn a_process_has_ended_when_all_its_threads_have() {
        for (state, threads, has_ended) in
            [('S', 1, false), ('Z', 1, true), ('Z', 3, false), ('X', 1, true), ('R', 2, false)]
        {
            let fields = format!("1 1 0 -1 0 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 5 0");
            let process = Process::parse(&format!("42 (a) {state} {fields}")).unwrap();
            assert_eq!((process.start_ticks, process.threads), (5, threads));
            assert_eq!(process.has_ended(), has_ended, "{state} {threads}");
        }
    }

    #[test]
    fn the_caller_is_there_and_runs() {
        let me = Process::current().unwrap();
        assert_eq!(me.pid, std::process::id());
        assert!(is_running(me.pid, me.start_ticks));
        assert!(!is_running(me.pid, me.start_ticks + 1));
        let all = all().unwrap();
        let line = lineage(&all, me.pid);
        assert_eq!(line.first().map(|process| process.pid), Some(me.pid));
        assert!(line.len() > 1);
    }

    #[test]
    fn the_clock_is_found_in_maps() {
        let maps = "\
00400000-00401000 r-xp 00000000 fe:01 99 /bin/static
70000000-70010000 r-xp 00000000 00:01 5 /memfd:shim (deleted)
70080000-70081000 r--s 00000000 00:1a 1234 /run/lorentz/my web/clock (deleted)
70081000-70200000 rw-s 00001000 00:1a 1234 /run/lorentz/my web/clock (deleted)
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0 [stack]
";
        let clock = find_clock(maps).unwrap();
        assert_eq!((clock.device, clock.inode), ((0, 0x1a), 1234));
        assert_eq!(clock.path(), Path::new("/run/lorentz/my web/clock"));
        assert!(clock.is_deleted());
        assert!(is_past_clock(maps.as_bytes()));
        assert!(!is_past_clock(&maps.as_bytes()[..150]));
        assert_eq!(find_clock("70080000-70081000 rw-p 00000000 00:00 0\n"), None);
    }

    #[test]
    fn the_lookup_of_the_mapping_and_the_reading_of_all_give_the_same() {
        let clock = tempfile::NamedTempFile::new().unwrap();
        clock.as_file().set_len(4096).unwrap();
        let process = crate::test_process::TestProcess::on(clock.path());
        let by_maps = clock_by_maps(process.0).unwrap();
        // Without CAP_CHECKPOINT_RESTORE the kernel does not show the file.
        match clock_by_lookup(process.0) {
            Ok(found) => assert_eq!(found, Some(by_maps.clone())),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        }
        clock.close().unwrap();
        let left = clock_of(process.0).unwrap();
        assert!(left.is_same(&by_maps) && left.is_deleted());
        assert_eq!(clock_by_lookup(std::process::id()).unwrap(), None);
        assert_eq!(clock_by_maps(std::process::id()), None);
    }

    #[test]
    fn a_process_on_a_clock_is_recognised() {
        let [clock, other] = [(); 2].map(|()| tempfile::NamedTempFile::new().unwrap());
        clock.as_file().set_len(4096).unwrap();
        let id = FileId::of(clock.path()).unwrap();
        assert_eq!(clock_of(std::process::id()), None);
        let process = crate::test_process::TestProcess::on(clock.path());
        assert!(clock_of(process.0).unwrap().is_same(&id));
        assert!(!clock_of(process.0).unwrap().is_same(&FileId::of(other.path()).unwrap()));
        let pids = |found: Vec<Process>| found.iter().map(|one| one.pid).collect::<Vec<u32>>();
        assert_eq!(pids(on_clock_or_entering(&id).unwrap()), [process.0]);
        assert_eq!(pids(OnClocks::scan().unwrap().of(&id).cloned().collect()), [process.0]);
    }
}
