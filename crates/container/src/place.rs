//! Where something lies that is more than a container, an experiment or a network: a directory with a socket at which it is
//! asked, beside the containers of its user.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use crate::state::is_name;
use crate::StateDir;

/// The directory of one of them.
#[derive(Clone, Debug)]
pub struct Place {
    dir: PathBuf,
    name: String,
}

impl Place {
    /// That of the one called `name`, which need not be there, among those in `folder`; none where nothing can be called so. No
    /// container can be called as the folder is, which begins with a dot.
    pub fn of(state: &StateDir, folder: &str, name: &str) -> Option<Place> {
        let dir = state.path().join(folder).join(name);
        is_name(name).then(|| Place { dir, name: name.to_string() })
    }

    /// The names of those that are there.
    ///
    /// # Errors
    ///
    /// Where the directory cannot be read.
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

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is there.
    pub fn exists(&self) -> bool {
        self.dir.exists()
    }

    /// The path of a file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Makes it, for its user alone.
    ///
    /// # Errors
    ///
    /// Of kind `AlreadyExists` where it is there; a file system that refuses.
    pub fn make(&self) -> io::Result<()> {
        loop {
            if let Some(folder) = self.dir.parent() {
                DirBuilder::new().mode(0o700).recursive(true).create(folder)?;
            }
            match DirBuilder::new().mode(0o700).create(&self.dir) {
                // The last of the others has gone meanwhile, and their folder with it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                made => return made,
            }
        }
    }

    /// Removes it with all that is in it.
    pub fn remove(&self) {
        let _ = fs::remove_dir_all(&self.dir);
        // Fails while others are in it. The state directory goes with the last of its containers.
        let _ = self.dir.parent().map(fs::remove_dir);
    }

    /// Makes its socket.
    ///
    /// # Errors
    ///
    /// Where the directory is not there, or has a socket already.
    pub fn listen(&self) -> io::Result<UnixListener> {
        self.at_socket(UnixListener::bind)
    }

    /// Reaches whoever answers at its socket; none where nobody does, not yet or not any more.
    ///
    /// # Errors
    ///
    /// Where it is another user's.
    pub fn connect(&self) -> io::Result<Option<UnixStream>> {
        match self.at_socket(UnixStream::connect) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            reached => reached.map(Some),
        }
    }

    /// By way of the directory's descriptor: its path may be longer than an address can be.
    fn at_socket<T>(&self, work: impl FnOnce(PathBuf) -> io::Result<T>) -> io::Result<T> {
        let dir = File::open(&self.dir)?;
        work(PathBuf::from(format!("/proc/self/fd/{}/socket", dir.as_raw_fd())))
    }
}
