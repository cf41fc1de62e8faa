//! The record of a container: its `container.json`.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::OnceLock;

use lorentz_control::processes::{self, Process};
use lorentz_control::HostNow;
use lorentz_inject::limits;
use nix::fcntl::{renameat2, RenameFlags, AT_FDCWD};
use serde::{Deserialize, Serialize};

/// Version of the layout. A record with another version is not read.
const VERSION: u32 = 1;

/// How programs are brought into virtual time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mechanism {
    /// The shim in each process.
    Shim,
    /// A time namespace of the kernel, and nothing else.
    TimeNamespace,
}

impl Mechanism {
    /// Its name, the same on every interface.
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::Shim => "shim",
            Mechanism::TimeNamespace => "time-namespace",
        }
    }
}

/// The command to which a monitor belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MonitorKind {
    /// `lorentz run`.
    Run,
    /// `lorentz exec`.
    Exec,
    /// `lorentz attach`.
    Attach,
    /// `lorentz adopt`.
    Adopt,
    /// `lorentz restore`.
    Restore,
    /// `lorentz-runtime`.
    Runtime,
    /// `lorentz-agent`, which supervises no programs: it keeps the clock.
    Agent,
}

impl MonitorKind {
    /// The command's name.
    pub fn name(self) -> &'static str {
        match self {
            MonitorKind::Run => "run",
            MonitorKind::Exec => "exec",
            MonitorKind::Attach => "attach",
            MonitorKind::Adopt => "adopt",
            MonitorKind::Restore => "restore",
            MonitorKind::Runtime => "runtime",
            MonitorKind::Agent => "agent",
        }
    }
}

/// How a container receives programs that enter it from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Newcomers {
    /// They come onto the container's clock before their first instruction. One that cannot is ended.
    Attach,
    /// They are ended.
    Refuse,
    /// They stay in the host's time.
    Ignore,
}

impl Newcomers {
    /// The words of every interface.
    pub const WORDS: [&str; 3] = ["attach", "refuse", "ignore"];

    /// Its word.
    pub fn name(self) -> &'static str {
        Newcomers::WORDS[self as usize]
    }
}

impl FromStr for Newcomers {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Newcomers, &'static str> {
        let all = [Newcomers::Attach, Newcomers::Refuse, Newcomers::Ignore];
        let found = all.into_iter().find(|one| one.name() == text);
        found.ok_or("expected attach, refuse or ignore")
    }
}

/// A Lorentz process that supervises programs of a container.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Monitor {
    /// Its process id ...
    pub pid: u32,
    /// ... and its start time: later another process may have the same process id.
    pub start_ticks: u64,
    /// The command to which it belongs.
    pub kind: MonitorKind,
    /// The first program that it supervises, if there is one yet.
    pub program: Option<u32>,
}

impl Monitor {
    /// Describes the calling process as a monitor.
    pub(super) fn current(kind: MonitorKind) -> io::Result<Monitor> {
        let me = Process::current()?;
        Ok(Monitor { pid: me.pid, start_ticks: me.start_ticks, kind, program: None })
    }

    /// Whether the process still runs.
    pub fn is_alive(&self) -> bool {
        processes::is_running(self.pid, self.start_ticks)
    }
}

/// The OCI bundle of a container, as an OCI runtime knows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Bundle {
    /// Its id.
    pub id: String,
    /// The directory of the runtime's own state.
    pub root: PathBuf,
    /// The pod to which the container belongs.
    pub pod: Option<String>,
    /// The clock that was asked for, to compare within a pod.
    pub asked: String,
    /// Whether the runtime has paused the tasks and stopped the clock with them.
    pub paused_clock: bool,
}

/// The record of a container, without its clock.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ContainerRecord {
    version: u32,
    /// Its name.
    pub name: String,
    /// When the container was made, by the host's wall clock.
    pub created: String,
    /// The same by the host's CLOCK_BOOTTIME, in nanoseconds.
    pub created_boot_ns: i64,
    /// The kernel's boot id at that time.
    boot_id: String,
    /// The command that runs in it, as given when the container was made.
    pub command: Vec<String>,
    /// How its programs are brought into virtual time.
    pub mechanism: Mechanism,
    /// The container whose clock it shares, if it was started on one.
    pub clock_of: Option<String>,
    /// Its control group.
    pub cgroup: Option<PathBuf>,
    /// The experiment that moves its clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experiment: Option<String>,
    /// Its monitors.
    pub monitors: Vec<Monitor>,
    /// The OCI bundle from which a runtime made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<Bundle>,
    /// How it receives programs that enter from outside; `None` if nobody can enter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newcomers: Option<Newcomers>,
}

/// Puts the file `new` in the place of `path`, in the same directory: a concurrent reader sees the old one or the new one.
///
/// # Errors
///
/// If the file system refuses.
pub fn replace_file(new: &Path, path: &Path) -> io::Result<()> {
    // Exchanges both, and removes the old one: before a rename over a file, ext4 writes the new file to the disk, 0.5 ms.
    let exchanged = renameat2(AT_FDCWD, new, AT_FDCWD, path, RenameFlags::RENAME_EXCHANGE);
    match exchanged {
        Ok(()) => fs::remove_file(new),
        // There is no old one, or the file system exchanges no files.
        Err(_) => fs::rename(new, path),
    }
}

impl ContainerRecord {
    /// A new record, with the calling process as its monitor.
    pub(super) fn new(
        name: &str,
        command: Vec<String>,
        kind: MonitorKind,
    ) -> io::Result<ContainerRecord> {
        let host = HostNow::read()?;
        Ok(ContainerRecord {
            version: VERSION,
            name: name.to_string(),
            created: host.wall.to_string(),
            created_boot_ns: host.boot.0,
            boot_id: boot_id()?,
            command,
            mechanism: Mechanism::Shim,
            clock_of: None,
            cgroup: None,
            experiment: None,
            monitors: vec![Monitor::current(kind)?],
            bundle: None,
            newcomers: None,
        })
    }

    /// Returns the monitor that supervises the container, if one is alive.
    pub fn live_monitor(&self) -> Option<&Monitor> {
        if !self.is_of_this_boot() {
            return None;
        }
        self.monitors.iter().find(|monitor| monitor.is_alive())
    }

    /// Whether a monitor has died. The programs that it supervised can start no other, until another monitor adopts them.
    pub fn has_dead_monitor(&self) -> bool {
        self.is_of_this_boot() && self.monitors.iter().any(|monitor| !monitor.is_alive())
    }

    /// Whether the container was made since the host booted. All processes of an older container are gone.
    pub fn is_of_this_boot(&self) -> bool {
        boot_id().is_ok_and(|id| id == self.boot_id)
    }

    pub(super) fn load(path: &Path) -> io::Result<ContainerRecord> {
        let record: ContainerRecord = serde_json::from_slice(&fs::read(path)?)?;
        if record.version != VERSION {
            let problem = format!("layout {}, expected {VERSION}", record.version);
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
        Ok(record)
    }

    /// Writes the record complete or not at all: a concurrent reader sees the old one or the new one.
    pub(super) fn store(&self, path: &Path) -> io::Result<()> {
        let new = path.with_extension("json.new");
        self.write(&new)?;
        replace_file(&new, path)
    }

    /// Writes the record into a file that nobody else reads yet.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        limits::check_file_size(text.len() as u64)?;
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        options.open(path)?.write_all(&text)
    }
}

/// Returns the kernel's boot id. It is read once, because it does not change while this process lives.
fn boot_id() -> io::Result<String> {
    static KNOWN: OnceLock<String> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return Ok(known.clone());
    }
    let read = fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_string();
    Ok(KNOWN.get_or_init(|| read).clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_has_its_word() {
        for word in Newcomers::WORDS {
            assert_eq!(word.parse::<Newcomers>().unwrap().name(), word);
        }
        assert_eq!("keep".parse::<Newcomers>(), Err("expected attach, refuse or ignore"));
    }

    fn record() -> ContainerRecord {
        ContainerRecord::new("web", vec!["sleep".into(), "1".into()], MonitorKind::Run).unwrap()
    }

    #[test]
    fn it_reads_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("container.json");
        let mut record = record();
        record.store(&path).unwrap();
        assert_eq!(ContainerRecord::load(&path).unwrap(), record);
        record.cgroup = Some("/sys/fs/cgroup/lorentz/web".into());
        record.store(&path).unwrap();
        assert_eq!(ContainerRecord::load(&path).unwrap(), record);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_monitor_is_alive_only_as_itself_and_in_this_boot() {
        let mut record = record();
        assert_eq!(record.live_monitor().map(|monitor| monitor.pid), Some(std::process::id()));
        record.monitors[0].start_ticks += 1;
        assert_eq!(record.live_monitor(), None);
        record.monitors[0].start_ticks -= 1;
        record.boot_id = "another".into();
        assert_eq!(record.live_monitor(), None);
    }

    #[test]
    fn a_foreign_layout_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("container.json");
        for text in ["", "{}", "[1]", "{\"version\":"] {
            fs::write(&path, text).unwrap();
            assert!(ContainerRecord::load(&path).is_err(), "{text}");
        }
        let mut record = record();
        record.version = 9;
        record.store(&path).unwrap();
        assert_eq!(ContainerRecord::load(&path).unwrap_err().to_string(), "layout 9, expected 1");
    }
}
