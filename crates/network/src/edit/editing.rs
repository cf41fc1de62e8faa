//! A running network in the hands of a client that changes it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;

use lorentz_container::StateDir;
use nix::fcntl::Flock;

use crate::directory::NetworkDir;
use crate::plan::NetworkPlan;
use crate::protocol::Replacement;
use crate::topology::{self, Location, Spanned, TopologyFile};
use crate::{check, Network, NetworkRefusal};

/// A network whose topology is being changed. Other clients that change it wait.
pub(super) struct Editing<'a> {
    pub state: &'a StateDir,
    pub network: Network,
    pub directory: NetworkDir,
    pub file: TopologyFile,
    _lock: Flock<File>,
}

impl Editing<'_> {
    pub fn of<'a>(state: &'a StateDir, name: &str) -> anyhow::Result<Editing<'a>> {
        if !nix::unistd::geteuid().is_root() {
            return Err(NetworkRefusal::NotRoot.into());
        }
        let network = Network::open(state, name)?;
        let directory = NetworkDir::of(state, name)?;
        let lock = directory.begin_editing()?;
        let file = topology::read_file(&directory.topology())?;
        Ok(Editing { state, network, directory, file, _lock: lock })
    }

    /// Checks the changed file.
    pub fn check(&self) -> anyhow::Result<NetworkPlan> {
        // The place in the file is of no use to somebody who did not write it.
        let refused = |error: topology::TopologyError| NetworkRefusal::Setting(error.what);
        Ok(check::plan_from("topology.yaml", &self.file).map_err(refused)?)
    }

    /// Has the emulator go over to the changed file.
    pub fn replace(&mut self, namespaces: BTreeMap<String, PathBuf>) -> anyhow::Result<()> {
        fs::write(self.directory.next_topology(), self.file.to_yaml()?)?;
        self.network.replace(Replacement { namespaces })
    }
}

/// A value of no file.
pub(super) fn here<T>(value: T) -> Spanned<T> {
    Spanned::new(value, Location::UNKNOWN, Location::UNKNOWN)
}
