//! The directory of a network, with its record, its socket and its nodes' output, beside the containers of its user.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::ops::Deref;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use lorentz_container::StateDir;
use lorentz_control::processes::{self, Process};
use lorentz_control::HostNow;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::file_systems::NodeEntry;
use crate::plan::ExecLine;
use crate::topology::TopologyFile;
use crate::NetworkRefusal;

const DIRECTORY: &str = ".networks";

/// The record of a network, for commands that come when its emulator has died.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct NetworkRecord {
    /// The emulator's process id ...
    pub pid: u32,
    /// ... and its start time: later another process may have the same process id.
    pub start_ticks: u64,
    /// Names of its nodes.
    pub nodes: Vec<String>,
    /// When the network was begun, by CLOCK_BOOTTIME in nanoseconds.
    #[serde(default)]
    pub began: i64,
    /// Whether its nodes run in rounds.
    #[serde(default)]
    pub rounds: bool,
    /// In rounds: when each node's container was made, by CLOCK_BOOTTIME in nanoseconds. After the experiment has ended, nothing
    /// else shows that a container belongs to this network.
    #[serde(default)]
    pub made: BTreeMap<String, i64>,
    /// How to start programs in each node.
    #[serde(default)]
    pub entries: BTreeMap<String, NodeEntry>,
    /// Lines that run in each node when the network goes down.
    #[serde(default)]
    pub shutdown: BTreeMap<String, Shutdown>,
}

/// Lines that run in a node when its network goes down.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Shutdown {
    pub shell: String,
    pub lines: Vec<ExecLine>,
    /// The file for its output.
    pub output: PathBuf,
}

impl NetworkRecord {
    /// The record of a network whose emulator is the calling process.
    pub fn of_this_process(nodes: Vec<String>) -> io::Result<NetworkRecord> {
        let me = Process::current()?;
        Ok(NetworkRecord {
            pid: me.pid,
            start_ticks: me.start_ticks,
            began: HostNow::read()?.boot.0,
            nodes,
            ..NetworkRecord::default()
        })
    }

    /// Whether its emulator runs.
    pub fn is_alive(&self) -> bool {
        processes::is_running(self.pid, self.start_ticks)
    }
}

/// The directory of a network: [`lorentz_container::ServiceDir`], with the files that only networks have.
#[derive(Clone, Debug)]
pub(crate) struct NetworkDir(lorentz_container::ServiceDir);

impl Deref for NetworkDir {
    type Target = lorentz_container::ServiceDir;

    fn deref(&self) -> &lorentz_container::ServiceDir {
        &self.0
    }
}

impl NetworkDir {
    /// The directory of the network `name`, which need not exist.
    pub fn of(state: &StateDir, name: &str) -> Result<NetworkDir, NetworkRefusal> {
        let directory = lorentz_container::ServiceDir::of(state, DIRECTORY, name);
        directory.map(NetworkDir).ok_or_else(|| NetworkRefusal::Unknown(name.to_string()))
    }

    /// Returns the names of all networks.
    pub fn names(state: &StateDir) -> io::Result<Vec<String>> {
        lorentz_container::ServiceDir::all(state, DIRECTORY)
    }

    pub fn store(&self, record: &NetworkRecord) -> io::Result<()> {
        let (draft, path) = (self.file("network.json.new"), self.file("network.json"));
        fs::write(&draft, serde_json::to_vec(record)?)?;
        fs::rename(draft, path)
    }

    /// Reads the record. `None` if the network was not made completely.
    pub fn record(&self) -> Option<NetworkRecord> {
        serde_json::from_slice(&fs::read(self.file("network.json")).ok()?).ok()
    }

    /// Returns a file that is open and locked as long as anything is being made for the network: podman has it while it mounts an
    /// image; the emulator, and the processes that make nodes, have it until the nodes are made.
    pub fn begin_making(&self) -> io::Result<Flock<File>> {
        let file = File::create(self.file("making"))?;
        Flock::lock(file, FlockArg::LockShared).map_err(|(_, error)| error.into())
    }

    /// Waits until podman has mounted its image, and the processes that make nodes have ended, or have made them. They die with their
    /// emulator, but not at the same instant, and what they make after the network was cleared would stay.
    pub fn wait_for_makers(&self) -> io::Result<()> {
        const TIMEOUT: Duration = Duration::from_secs(5);
        const POLL_INTERVAL: Duration = Duration::from_millis(1);
        let Ok(mut file) = File::open(self.file("making")) else { return Ok(()) };
        let end = Instant::now() + TIMEOUT;
        while let Err((again, _)) = Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            file = again;
            if Instant::now() > end {
                let what =
                    "processes that make nodes of the network, or mount its images, do not end";
                return Err(io::Error::new(io::ErrorKind::TimedOut, what));
            }
            sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// The topology file of the network as it runs.
    pub fn topology(&self) -> PathBuf {
        self.file("topology.yaml")
    }

    /// The topology file to which the emulator is to go over.
    pub fn next_topology(&self) -> PathBuf {
        self.file("topology.yaml.new")
    }

    /// Writes the topology file of a network that is being made.
    pub fn store_topology(&self, topology: &TopologyFile) -> anyhow::Result<()> {
        Ok(fs::write(self.topology(), topology.to_yaml()?)?)
    }

    /// Returns a file that is locked while a client changes the topology. Waits for others that do.
    pub fn begin_editing(&self) -> io::Result<Flock<File>> {
        let file = File::create(self.file("editing"))?;
        Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| error.into())
    }

    /// The directory in which the root file system of a node is assembled.
    pub fn root(&self, node: &str) -> PathBuf {
        self.file(&format!("{node}.root"))
    }

    /// The bundle of a private node.
    pub fn bundle(&self, node: &str) -> PathBuf {
        self.file(&format!("{node}.bundle"))
    }

    /// The file for the output of a node.
    pub fn output(&self, node: &str) -> PathBuf {
        self.file(&format!("{node}.out"))
    }
}

/// The name of a node's container.
pub fn container_of(network: &str, node: &str) -> String {
    format!("{network}.{node}")
}
