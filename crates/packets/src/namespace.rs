//! Network namespaces and their devices. People give a name; the kernel's cookie identifies the namespace.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::{mem, thread};

use nix::sched::{setns, CloneFlags};

use crate::error::PacketsError;

/// From <asm-generic/socket.h>.
const SO_NETNS_COOKIE: libc::c_int = 71;
/// Directory of the names of `ip netns`.
const NAMED_NAMESPACES: &str = "/run/netns";

/// A network namespace that is to be watched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Namespace {
    /// The name by which the user asked for it.
    pub name: String,
    /// For a container's namespace: a process in it, whose file system is the container's.
    pub process: Option<u32>,
    /// The file of the namespace, such as /proc/PID/ns/net.
    path: PathBuf,
    /// The kernel's cookie of the namespace (SO_NETNS_COOKIE), never used again.
    pub cookie: u64,
    /// Inode of the namespace's file, as `ls -l /proc/PID/ns/net` shows it.
    pub inode: u64,
}

impl Namespace {
    /// Finds the namespace called `name`: a process id, a path, or a name of `ip netns`.
    ///
    /// # Errors
    ///
    /// An error if there is no such namespace, or this process may not enter it.
    pub fn find(name: &str) -> Result<Namespace, PacketsError> {
        if let Ok(pid) = name.parse::<u32>() {
            return Namespace::of_process(name, pid);
        }
        if name.contains('/') {
            return Namespace::at(name, Path::new(name), None);
        }
        let named = Path::new(NAMED_NAMESPACES).join(name);
        match named.exists() {
            true => Namespace::at(name, &named, None),
            false => Err(PacketsError::NoSuchNamespace(name.into())),
        }
    }

    /// Finds the namespace of process `pid`; its name shall be `name`.
    ///
    /// # Errors
    ///
    /// Those of [`Namespace::find`].
    pub fn of_process(name: &str, pid: u32) -> Result<Namespace, PacketsError> {
        Namespace::at(name, Path::new(&format!("/proc/{pid}/ns/net")), Some(pid))
    }

    fn at(name: &str, path: &Path, process: Option<u32>) -> Result<Namespace, PacketsError> {
        let none = || PacketsError::NoSuchNamespace(name.into());
        let file = File::open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => none(),
            _ => PacketsError::Namespace { name: name.into(), error },
        })?;
        let inode = file.metadata().map_err(|_| none())?.ino();
        let cookie = inside(&file, cookie_here).map_err(|error| match error.raw_os_error() {
            Some(libc::EINVAL | libc::ENOTTY) => none(),
            _ => PacketsError::Namespace { name: name.into(), error },
        })?;
        Ok(Namespace { name: name.into(), process, path: path.into(), cookie, inode })
    }

    /// Whether the namespace still exists under the name by which it was found. Nothing here keeps it alive: a namespace ends with
    /// its last process, watched or not.
    pub fn is_alive(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|now| now.ino() == self.inode)
    }

    /// Runs `task` inside the namespace and returns its result.
    ///
    /// # Errors
    ///
    /// An error if the namespace is gone or may not be entered, and the errors of `task`.
    pub fn inside<T: Send>(&self, task: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        let file = File::open(&self.path)?;
        if file.metadata()?.ino() != self.inode {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        inside(&file, task)
    }
}

/// Runs `task` in the network namespace `file`, on a thread of its own, and returns its result.
fn inside<T: Send>(file: &File, task: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let enter = || {
        setns(file.as_fd(), CloneFlags::CLONE_NEWNET)?;
        task()
    };
    thread::scope(|scope| match scope.spawn(enter).join() {
        Ok(result) => result,
        Err(_) => Err(io::Error::other("a thread panicked")),
    })
}

/// Returns the kernel's cookie of this thread's network namespace.
///
/// # Errors
///
/// An error if the kernel is older than 5.14.
pub(crate) fn cookie_here() -> io::Result<u64> {
    let socket = UnixDatagram::unbound()?;
    let mut cookie = 0_u64;
    let mut length = mem::size_of::<u64>() as libc::socklen_t;
    // SAFETY: the buffer has eight bytes, and the call gets that length.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    nix::errno::Errno::result(done)?;
    Ok(cookie)
}

/// An outer device: a device of this process's network namespace at which a container's stack ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OuterDevice {
    /// The device's name when it was found.
    pub name: String,
    /// The interface index, which stays the same when the device is renamed.
    pub number: u32,
}

impl OuterDevice {
    /// Finds the device called `name`.
    ///
    /// # Errors
    ///
    /// An error if there is no such device.
    pub fn named(name: &str) -> Result<OuterDevice, PacketsError> {
        match nix::net::if_::if_nametoindex(name) {
            Ok(number) => Ok(OuterDevice { name: name.into(), number }),
            Err(_) => {
                Err(PacketsError::NoSuchDevice { name: name.into(), there: devices().join(", ") })
            }
        }
    }

    /// Returns the devices of the default routes, of IPv4 and IPv6.
    ///
    /// # Errors
    ///
    /// An error if there is no default route.
    pub fn of_default_routes() -> Result<Vec<OuterDevice>, PacketsError> {
        let mut names: Vec<String> = Vec::new();
        for (file, is_default) in [
            ("/proc/self/net/route", is_default_v4 as fn(&[&str]) -> Option<String>),
            ("/proc/self/net/ipv6_route", is_default_v6),
        ] {
            let text = fs::read_to_string(file).unwrap_or_default();
            let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            names.extend(lines.filter_map(|words| is_default(&words)));
        }
        names.sort();
        names.dedup();
        if names.is_empty() {
            return Err(PacketsError::NoDefaultRoute { there: devices().join(", ") });
        }
        names.iter().map(|name| OuterDevice::named(name)).collect()
    }

    /// Returns the device's present name; none once the device is gone.
    pub fn name_now(&self) -> Option<String> {
        let name = nix::net::if_::if_indextoname(self.number).ok()?;
        // For a missing device, nix returns an empty name.
        (!name.is_empty()).then(|| name.to_string_lossy().into_owned())
    }
}

/// Returns the device of a line of /proc/net/route, if the line is a default route.
fn is_default_v4(words: &[&str]) -> Option<String> {
    match words {
        [device, "00000000", _gateway, _flags, _, _, _, "00000000", ..] => Some((*device).into()),
        _ => None,
    }
}

/// Returns the device of a line of /proc/net/ipv6_route, if the line is a default route. A route on `lo` is the kernel's reject
/// route, present where there is no default route.
fn is_default_v6(words: &[&str]) -> Option<String> {
    let default = words.len() == 10
        && words[0].bytes().all(|digit| digit == b'0')
        && words[1] == "00"
        && words[9] != "lo";
    default.then(|| words[9].into())
}

fn devices() -> Vec<String> {
    let all = nix::net::if_::if_nameindex();
    let names = |all: nix::net::if_::Interfaces| {
        all.iter().map(|device| device.name().to_string_lossy().into_owned()).collect()
    };
    all.map(names).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_a_namespace() {
        let own = Namespace::find(&std::process::id().to_string()).unwrap();
        assert!(own.is_alive());
        assert_eq!(own.cookie, cookie_here().unwrap());
    }

    #[test]
    fn what_is_no_namespace_is_refused() {
        for name in ["/etc/passwd", "no-such-namespace-here", "4294967295", "/nowhere"] {
            let error = Namespace::find(name).unwrap_err();
            assert!(matches!(error, PacketsError::NoSuchNamespace(_)), "{name}: {error}");
        }
    }

    #[test]
    fn default_routes_are_told_from_others() {
        let line = "eth0 00000000 0100000A 0003 0 0 0 00000000 0 0 0";
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(is_default_v4(&words).as_deref(), Some("eth0"));
        let line = "eth0 0000000A 00000000 0001 0 0 0 00FFFFFF 0 0 0";
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(is_default_v4(&words), None);
        let zeros = "0".repeat(32);
        let line = format!("{zeros} 00 {zeros} 00 {zeros} 400 1 0 3 eth1");
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(is_default_v6(&words).as_deref(), Some("eth1"));
        let line = line.replace("eth1", "lo");
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(is_default_v6(&words), None);
    }
}
