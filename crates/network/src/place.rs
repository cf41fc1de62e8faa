//! Where a network lies: a directory with its record, its socket and its nodes' output, beside the containers of its user.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::Deref;
use std::path::PathBuf;

use lorentz_container::processes::{self, Process};
use lorentz_container::StateDir;
use serde::{Deserialize, Serialize};

use crate::root::Entry;
use crate::Refusal;

const FOLDER: &str = ".networks";

/// What is written down about a network, for who comes when its emulator has died.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The emulator's process ...
    pub pid: u32,
    /// ... and when that started, without which the number means nothing later.
    pub start_ticks: u64,
    /// Its nodes.
    pub nodes: Vec<String>,
    /// In rounds: when the container of each was made, by CLOCK_BOOTTIME in nanoseconds. Nothing else tells that it is this one's,
    /// when the experiment has ended.
    #[serde(default)]
    pub made: BTreeMap<String, i64>,
    /// How programs are started in each node.
    #[serde(default)]
    pub entries: BTreeMap<String, Entry>,
}

impl Record {
    /// That of a network whose emulator is the calling process.
    pub fn of_this_process(nodes: Vec<String>) -> io::Result<Record> {
        let me = Process::current()?;
        Ok(Record { pid: me.pid, start_ticks: me.start_ticks, nodes, ..Record::default() })
    }

    /// Whether its emulator runs.
    pub fn is_alive(&self) -> bool {
        processes::is_running(self.pid, self.start_ticks)
    }
}

/// The directory of a network: [`lorentz_container::Place`], with what only networks have in it.
#[derive(Clone, Debug)]
pub(crate) struct Place(lorentz_container::Place);

impl Deref for Place {
    type Target = lorentz_container::Place;

    fn deref(&self) -> &lorentz_container::Place {
        &self.0
    }
}

impl Place {
    /// That of the network `name`, which need not be there.
    pub fn of(state: &StateDir, name: &str) -> Result<Place, Refusal> {
        let place = lorentz_container::Place::of(state, FOLDER, name);
        place.map(Place).ok_or_else(|| Refusal::Unknown(name.to_string()))
    }

    /// The names of those that are there.
    pub fn all(state: &StateDir) -> io::Result<Vec<String>> {
        lorentz_container::Place::all(state, FOLDER)
    }

    pub fn store(&self, record: &Record) -> io::Result<()> {
        let (draft, path) = (self.file("network.json.new"), self.file("network.json"));
        fs::write(&draft, serde_json::to_vec(record)?)?;
        fs::rename(draft, path)
    }

    /// What is written down; none where it was not made to its end.
    pub fn record(&self) -> Option<Record> {
        serde_json::from_slice(&fs::read(self.file("network.json")).ok()?).ok()
    }

    /// Where the root file system of a node is put together.
    pub fn root(&self, node: &str) -> PathBuf {
        self.file(&format!("{node}.root"))
    }

    /// Where the output of a node goes.
    pub fn output(&self, node: &str) -> PathBuf {
        self.file(&format!("{node}.out"))
    }
}

/// What the container of a node is called.
pub fn container_of(network: &str, node: &str) -> String {
    format!("{network}.{node}")
}
