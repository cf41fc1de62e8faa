//! The registration socket inside a container, at which its own programs read the latency that its network stack adds to their
//! packets.
//!
//! The socket lies in the container's file system. This module makes it through a descriptor of its directory, so that no link that
//! the container puts there leads outside. A peer must be in the socket's network namespace: a directory that two containers share
//! gives neither the other's packets.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{open, openat2, OFlag, OpenHow, ResolveFlag};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::sys::stat::{fstat, mkdirat, stat, umask, Mode};
use nix::unistd::{unlinkat, UnlinkatFlags};

use crate::container_files::ContainerFiles;
use crate::error::PacketsError;
use crate::namespace::Namespace;

/// Path of the socket inside the container.
pub const SOCKET: &str = "/run/lorentz/latency";
const RUN: &str = "run";
const DIRECTORY: &str = "lorentz";
const FILE: &str = "latency";

/// Location of the socket for a namespace's own programs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SocketLocation {
    /// No socket.
    Nowhere,
    /// At [`SOCKET`] inside the container, if the namespace is a container's.
    Inside,
    /// The same, with files beside it: the lines of packets in `latency.log`, the statistics in `latency.json`.
    InsideWithFiles,
    /// At this path of the host, to be mounted into the container.
    At(PathBuf),
}

/// The socket. Dropping this value removes it.
pub(crate) struct ContainerSocket {
    pub listener: UnixListener,
    pub cookie: u64,
    /// The files beside it.
    pub files: Option<ContainerFiles>,
    inode: u64,
    folder: OwnedFd,
    file: OsString,
    /// Directories that this object made, each with its parent; outermost first.
    made: Vec<(OwnedFd, &'static str)>,
}

impl ContainerSocket {
    /// Makes the socket at `location` for `namespace`; none if `location` gives no location.
    pub fn open(
        namespace: &Namespace,
        location: &SocketLocation,
    ) -> Result<Option<ContainerSocket>, PacketsError> {
        let (path, socket) = match (location, namespace.process) {
            (SocketLocation::At(path), _) => {
                (path.as_path(), ContainerSocket::make_at(path, namespace))
            }
            (SocketLocation::Inside | SocketLocation::InsideWithFiles, Some(process)) => {
                (Path::new(SOCKET), ContainerSocket::make_inside(process, namespace))
            }
            _ => return Ok(None),
        };
        let mut socket =
            socket.map_err(|error| PacketsError::Socket { path: path.into(), error })?;
        if *location == SocketLocation::InsideWithFiles {
            socket.make_files()?;
        }
        Ok(Some(socket))
    }

    fn make_at(path: &Path, namespace: &Namespace) -> io::Result<ContainerSocket> {
        let (Some(folder), Some(file)) = (path.parent(), path.file_name()) else {
            return Err(io::Error::other("expected the path of a file"));
        };
        fs::create_dir_all(folder)?;
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        ContainerSocket::listening(open(folder, flags, Mode::empty())?, file, Vec::new(), namespace)
    }

    fn listening(
        folder: OwnedFd,
        file: &OsStr,
        made: Vec<(OwnedFd, &'static str)>,
        namespace: &Namespace,
    ) -> io::Result<ContainerSocket> {
        let listener = listen(&folder, file)?;
        listener.set_nonblocking(true)?;
        let (cookie, inode) = (namespace.cookie, namespace.inode);
        Ok(ContainerSocket {
            listener,
            cookie,
            files: None,
            inode,
            folder,
            file: file.into(),
            made,
        })
    }

    fn make_inside(process: u32, namespace: &Namespace) -> io::Result<ContainerSocket> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let root = open(Path::new(&format!("/proc/{process}/root")), flags, Mode::empty())?;
        let within = |path: &Path| {
            let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_IN_ROOT);
            openat2(root.as_fd(), path, how)
        };
        let mut made = Vec::new();
        // Images of a single program have no /run.
        let outer = root.try_clone()?;
        if make_directory(&outer, RUN)? {
            made.push((outer, RUN));
        }
        let run = within(Path::new(RUN))?;
        let (theirs, ours) = (fstat(&run)?, stat(&Path::new("/").join(RUN))?);
        if (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino) {
            return Err(io::Error::other("the container has no /run of its own"));
        }
        if make_directory(&run, DIRECTORY)? {
            made.push((run, DIRECTORY));
        }
        let folder = within(&Path::new(RUN).join(DIRECTORY))?;
        ContainerSocket::listening(folder, OsStr::new(FILE), made, namespace)
    }

    /// Makes the files beside the socket.
    pub fn make_files(&mut self) -> Result<(), PacketsError> {
        let made = ContainerFiles::make(&self.folder, &self.file);
        let error = |error| PacketsError::Socket { path: SOCKET.into(), error };
        self.files = Some(made.map_err(error)?);
        Ok(())
    }

    /// Accepts the next connection. Returns none if there is none, or if the peer is in another network namespace.
    pub fn admit(&self) -> io::Result<Option<UnixStream>> {
        let (stream, _) = match self.listener.accept() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            other => other?,
        };
        let peer = getsockopt(&stream, PeerCredentials)?.pid();
        let of_it = |file: fs::Metadata| file.ino() == self.inode;
        if !fs::metadata(format!("/proc/{peer}/ns/net")).is_ok_and(of_it) {
            return Ok(None);
        }
        stream.set_nonblocking(true)?;
        Ok(Some(stream))
    }
}

impl Drop for ContainerSocket {
    fn drop(&mut self) {
        self.files = None;
        // This fails if the container is gone, and the socket with it.
        let _ = unlinkat(&self.folder, self.file.as_os_str(), UnlinkatFlags::NoRemoveDir);
        for (outer, folder) in self.made.iter().rev() {
            let _ = unlinkat(outer, *folder, UnlinkatFlags::RemoveDir);
        }
    }
}

/// Makes the directory `name` in `outer`. Returns false if something of that name exists.
fn make_directory(outer: &OwnedFd, name: &str) -> io::Result<bool> {
    match mkdirat(outer, name, Mode::from_bits_truncate(0o755)) {
        Ok(()) => Ok(true),
        Err(Errno::EEXIST) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Listens at `file` in `folder`. Replaces a socket there that has no listener any more.
fn listen(folder: &OwnedFd, file: &OsStr) -> io::Result<UnixListener> {
    let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(file);
    if let Err(error) = UnixStream::connect(&path) {
        if error.kind() == io::ErrorKind::ConnectionRefused {
            unlinkat(folder, file, UnlinkatFlags::NoRemoveDir)?;
        }
    }
    // Any user inside may connect. The umask sets the mode at creation, because a later chmod by name could reach another file.
    let before = umask(Mode::empty());
    let listener = UnixListener::bind(&path);
    umask(before);
    listener
}
