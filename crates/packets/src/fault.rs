//! What may be wrong, each as one line.

use std::io;
use std::path::PathBuf;

/// Why packets cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum PacketsError {
    /// Nothing is called that.
    #[error("{0}: no such container or network namespace; expected a running container of lorentz, podman or docker, \
             a name of 'ip netns', the number of a process, or a path such as /proc/1/ns/net")]
    NoSuchNamespace(String),
    /// It is there, but.
    #[error("{name}: its network namespace cannot be entered: {error}; root is needed")]
    Namespace {
        /// What was asked for.
        name: String,
        /// Why.
        error: io::Error,
    },
    /// Given twice.
    #[error("{0}: given more than once; expected once")]
    Twice(String),
    /// No device of that name.
    #[error("--outer {name}: no such device in this network namespace; expected one of {there}")]
    NoSuchDevice {
        /// What was asked for.
        name: String,
        /// What there is.
        there: String,
    },
    /// No device was named, and none is found.
    #[error("--outer is needed: there is no default route in this network namespace; expected one of {there}")]
    NoDefaultRoute {
        /// What there is.
        there: String,
    },
    /// More than the programs have room for.
    #[error("--outer: expected at most {0} devices")]
    TooManyDevices(usize),
    /// The outer device has ceased to be.
    #[error("{0}: the outer device is gone")]
    DeviceGone(String),
    /// No time stamps from the hardware.
    #[error("--hardware: {device} has no hardware time stamps ({why}); leave it out to measure by the kernel's clock")]
    NoHardwareStamps {
        /// Its name.
        device: String,
        /// What it lacks.
        why: String,
    },
    /// A ring of that size cannot be.
    #[error("--ring {0}: expected a power of two from 4096 to 1073741824 bytes")]
    RingSize(u32),
    /// More than the programs have numbers for.
    #[error("{0}: expected at most 1024 network namespaces at once")]
    TooMany(String),
    /// A rule that cannot be used.
    #[error("--rule {rule}: {why}")]
    Rule {
        /// Its name or file.
        rule: String,
        /// What is wrong with it.
        why: String,
    },
    /// The kernel refuses the programs.
    #[error("the kernel does not take the BPF programs ({0}); root, Linux 5.14 and BTF (/sys/kernel/btf/vmlinux) are needed")]
    Kernel(#[from] libbpf_rs::Error),
    /// The socket inside a container.
    #[error("{path}: {error}")]
    Socket {
        /// As the container sees it.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// No watcher could be asked.
    #[error("{0}: nobody watches it; expected a namespace of a running 'lorentz latency watch' or 'serve'")]
    NotWatched(String),
    /// Something else.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl PacketsError {
    /// Whether something was asked that cannot be.
    pub fn is_wrong_input(&self) -> bool {
        use PacketsError as E;
        matches!(
            self,
            E::NoSuchNamespace(_)
                | E::Twice(_)
                | E::TooManyDevices(_)
                | E::NoSuchDevice { .. }
                | E::NoDefaultRoute { .. }
                | E::NoHardwareStamps { .. }
                | E::RingSize(_)
                | E::Rule { .. }
                | E::TooMany(_)
                | E::NotWatched(_)
        )
    }
}
