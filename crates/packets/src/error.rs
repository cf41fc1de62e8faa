//! Errors of this crate. Each is one line of text.

use std::io;
use std::path::PathBuf;

/// Why packets cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum PacketsError {
    /// No container or namespace has that name.
    #[error("{0}: no such container or network namespace; expected a running container of lorentz, podman, docker or LXC, \
             a name of 'ip netns', the number of a process, or a path such as /proc/1/ns/net")]
    NoSuchNamespace(String),
    /// The namespace exists but cannot be entered.
    #[error("{name}: its network namespace cannot be entered: {error}; root is needed")]
    Namespace {
        /// The name as the user gave it.
        name: String,
        /// The kernel's error.
        error: io::Error,
    },
    /// The user gave a namespace more than once.
    #[error("{0}: given more than once; expected once")]
    Twice(String),
    /// No device has that name.
    #[error("--outer {name}: no such device in this network namespace; expected one of {there}")]
    NoSuchDevice {
        /// The device as the user gave it.
        name: String,
        /// The existing devices.
        there: String,
    },
    /// The user named no device, and there is no default route.
    #[error("--outer is needed: there is no default route in this network namespace; expected one of {there}")]
    NoDefaultRoute {
        /// The existing devices.
        there: String,
    },
    /// More outer devices than the BPF programs have room for.
    #[error("--outer: expected at most {0} devices")]
    TooManyDevices(usize),
    /// The outer device no longer exists.
    #[error("{0}: the outer device is gone")]
    DeviceGone(String),
    /// The device has no hardware timestamps.
    #[error("--hardware: {device} has no hardware timestamps ({why}); leave it out to measure by the kernel's clock")]
    NoHardwareStamps {
        /// The device's name.
        device: String,
        /// The capabilities it lacks.
        why: String,
    },
    /// The size of the ring buffer is not allowed.
    #[error("--ring {0}: expected a power of two from 4096 to 1073741824 bytes")]
    RingSize(u32),
    /// More namespaces than the BPF programs have numbers for.
    #[error("{0}: expected at most 1024 network namespaces at once")]
    TooMany(String),
    /// The rule cannot be used.
    #[error("--rule {rule}: {why}")]
    Rule {
        /// The rule's name or file.
        rule: String,
        /// The reason.
        why: String,
    },
    /// The kernel refused the BPF programs.
    #[error("the kernel does not take the BPF programs ({0}); root, Linux 5.14 and BTF (/sys/kernel/btf/vmlinux) are needed")]
    Kernel(#[from] libbpf_rs::Error),
    /// The socket inside a container cannot be made.
    #[error("{path}: {error}")]
    Socket {
        /// The socket's path, as the container sees it.
        path: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
    /// No running watcher watches the namespace.
    #[error("{0}: nobody watches it; expected a namespace of a running 'lorentz latency watch' or 'serve'")]
    NotWatched(String),
    /// Any other error of the kernel.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl PacketsError {
    /// Whether the user's input is the cause.
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
