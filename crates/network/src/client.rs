//! A client of a running network, in any other process.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use anyhow::Context;
use lorentz_container::StateDir;
use lorentz_experiment::{Connection, ConnectionError};

use crate::directory::NetworkDir;
use crate::import;
use crate::plan::Endpoint;
use crate::protocol::{LinkChange, NetworkAnswer, NetworkRequest, NetworkStatus, Replacement};
use crate::NetworkRefusal;

/// A network whose emulator runs.
pub struct Network {
    name: String,
    connection: Connection,
}

impl AsFd for Network {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

impl Network {
    /// Connects to the network called `name` in `state`.
    ///
    /// # Errors
    ///
    /// If there is no such network, or its emulator has ended.
    pub fn open(state: &StateDir, name: &str) -> anyhow::Result<Network> {
        let directory = NetworkDir::of(state, name)?;
        if !directory.exists() {
            return Err(NetworkRefusal::Unknown(name.to_string()).into());
        }
        let reached = Connection::open(&directory).context("reaching the network")?;
        let connection = reached.ok_or_else(|| NetworkRefusal::Dead(name.to_string()))?;
        Ok(Network { name: name.to_string(), connection })
    }

    /// Returns the names of all networks in `state`, also those whose emulator has ended.
    ///
    /// # Errors
    ///
    /// If the directory cannot be read.
    pub fn list(state: &StateDir) -> io::Result<Vec<String>> {
        NetworkDir::names(state)
    }

    /// Returns the name of the network `given`, a name or a file that one was made from; without `given`, the name of the only
    /// network.
    ///
    /// # Errors
    ///
    /// If there is no such network; without `given`, if there is none or more than one.
    pub fn name(state: &StateDir, given: Option<&str>) -> anyhow::Result<String> {
        let mut all = Network::list(state)?;
        match given {
            Some(name) if all.iter().any(|one| one == name) => Ok(name.to_string()),
            Some(file) => {
                let path = Path::new(file);
                let is_readable = path.is_file() || path.is_dir();
                let imported = is_readable.then(|| import::read(path, None).ok()).flatten();
                let named = imported.map(|imported| imported.topology.name.value);
                let running = named.filter(|named| all.contains(named));
                running.ok_or_else(|| NetworkRefusal::Unknown(file.to_string()).into())
            }
            None if all.len() == 1 => Ok(all.remove(0)),
            None if all.is_empty() => Err(NetworkRefusal::NoNetwork.into()),
            None => Err(NetworkRefusal::WhichNetwork(all.join(", ")).into()),
        }
    }

    /// Returns the state of the network.
    ///
    /// # Errors
    ///
    /// If the emulator ends before it answers.
    pub fn status(&mut self) -> anyhow::Result<NetworkStatus> {
        match self.ask(&NetworkRequest::Status)? {
            NetworkAnswer::Status(status) => Ok(*status),
            other => anyhow::bail!("a status was expected, not {other:?}"),
        }
    }

    /// Changes a link, all settings at once.
    ///
    /// # Errors
    ///
    /// If there is no such link, or the values make no sense together.
    pub fn set(&mut self, setting: LinkChange) -> anyhow::Result<()> {
        self.ask(&NetworkRequest::Set(Box::new(setting))).map(drop)
    }

    /// Has the network go over to the topology in its directory.
    pub(crate) fn replace(&mut self, replacement: Replacement) -> anyhow::Result<()> {
        self.ask(&NetworkRequest::Replace(Box::new(replacement))).map(drop)
    }

    /// Captures the frames that the interface `end` sends and receives from here on, as pcapng, until the network ends or the
    /// reader is dropped.
    ///
    /// # Errors
    ///
    /// If there is no such interface.
    pub fn capture(mut self, end: Endpoint) -> anyhow::Result<impl Read> {
        self.ask(&NetworkRequest::Capture { end })?;
        Ok(self.connection.into_reader())
    }

    fn ask(&mut self, request: &NetworkRequest) -> anyhow::Result<NetworkAnswer> {
        match self.connection.ask(request) {
            Ok(NetworkAnswer::Refused(why)) => Err(NetworkRefusal::Setting(why).into()),
            Ok(answer) => Ok(answer),
            Err(ConnectionError::Json(error)) => Err(error).context("the emulator's answer"),
            // The emulator has ended in between.
            Err(ConnectionError::Ended | ConnectionError::Io(_)) => {
                Err(NetworkRefusal::Dead(self.name.clone()).into())
            }
        }
    }
}
