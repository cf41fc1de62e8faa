//! The directory of something that is more than a container: an experiment or a network. It lies beside the containers of its user,
//! and has a socket for requests.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use crate::state::is_name;
use crate::StateDir;

/// The folder of the experiments, beside the containers of their user.
const EXPERIMENTS: &str = ".experiments";

/// The directory of one experiment or network.
#[derive(Clone, Debug)]
pub struct ServiceDir {
    dir: PathBuf,
    name: String,
}

impl ServiceDir {
    /// The directory of the one called `name` in `folder`; it need not exist. `None` if `name` is not a valid name. `folder` begins
    /// with a dot, so no container has its name.
    pub fn of(state: &StateDir, folder: &str, name: &str) -> Option<ServiceDir> {
        let dir = state.path().join(folder).join(name);
        is_name(name).then(|| ServiceDir { dir, name: name.to_string() })
    }

    /// The directory of the experiment `name`, which need not exist. `None` if that is not a valid name.
    pub fn of_experiment(state: &StateDir, name: &str) -> Option<ServiceDir> {
        ServiceDir::of(state, EXPERIMENTS, name)
    }

    /// Returns the names of all experiments.
    ///
    /// # Errors
    ///
    /// If the directory cannot be read.
    pub fn all_experiments(state: &StateDir) -> io::Result<Vec<String>> {
        ServiceDir::all(state, EXPERIMENTS)
    }

    /// Returns the names of all directories in `folder`.
    ///
    /// # Errors
    ///
    /// If the directory cannot be read.
    pub fn all(state: &StateDir, folder: &str) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(state.path().join(folder)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.sort();
        Ok(names)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the directory exists.
    pub fn exists(&self) -> bool {
        self.dir.exists()
    }

    /// The path of a file in the directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Makes the directory, for its user alone.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if it exists; or the file system refuses.
    pub fn make(&self) -> io::Result<()> {
        loop {
            if let Some(folder) = self.dir.parent() {
                DirBuilder::new().mode(0o700).recursive(true).create(folder)?;
            }
            match DirBuilder::new().mode(0o700).create(&self.dir) {
                // The last of the others was removed in between, and their folder with it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                made => return made,
            }
        }
    }

    /// Removes the directory and its contents.
    pub fn remove(&self) {
        let _ = fs::remove_dir_all(&self.dir);
        // Fails while others are in the folder. The state directory goes with the last of its containers.
        let _ = self.dir.parent().map(fs::remove_dir);
    }

    /// Makes the socket and listens on it.
    ///
    /// # Errors
    ///
    /// If the directory does not exist, or has a socket already.
    pub fn listen(&self) -> io::Result<UnixListener> {
        self.at_socket(UnixListener::bind)
    }

    /// Connects to the socket. `None` if no process listens there, not yet or not any more.
    ///
    /// # Errors
    ///
    /// If the socket belongs to another user.
    pub fn connect(&self) -> io::Result<Option<UnixStream>> {
        match self.at_socket(UnixStream::connect) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            reached => reached.map(Some),
        }
    }

    /// Addresses the socket by the directory's descriptor: the path may be longer than a socket address can be.
    fn at_socket<T>(&self, work: impl FnOnce(PathBuf) -> io::Result<T>) -> io::Result<T> {
        let dir = File::open(&self.dir)?;
        work(PathBuf::from(format!("/proc/self/fd/{}/socket", dir.as_raw_fd())))
    }
}
