//! Programs that enter a container from outside: `nsenter`, `lxc-attach`, another runtime's `exec`.
//!
//! A BPF program (`bpf/newcomers.bpf.c`) on the kernel's tracepoint of execs notices a program that begins in the container's
//! namespaces or control group without being on a clock. It holds the program for a moment, in which the container's monitor stops
//! it. Needs root, or CAP_BPF and CAP_PERFMON, and the initial process id namespace.
//!
//! ```no_run
//! use lorentz_newcomers::{Membership, NewcomerWatch};
//!
//! let first_program = 4711;
//! if let Some(membership) = Membership::of(first_program, None)? {
//!     let mut watch = NewcomerWatch::begin(membership)?;
//!     // `watch.fd()` is readable when there is one.
//!     for pid in watch.take() {
//!         println!("process {pid} has entered");
//!     }
//! }
//! # Ok::<(), std::io::Error>(())
//! ```

use std::cell::Cell;
use std::fs;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{ErrorKind, Link, RingBufferBuilder};
use nix::sys::statfs::{statfs, CGROUP2_SUPER_MAGIC};

mod program {
    #![allow(clippy::all, missing_docs, unreachable_pub, dead_code)]
    #![allow(clippy::undocumented_unsafe_blocks)]
    include!(concat!(env!("OUT_DIR"), "/newcomers.skel.rs"));
}
use program::{NewcomersSkel, NewcomersSkelBuilder};

/// Length of a process id in the kernel's report, bytes.
const PID_LEN: usize = size_of::<u32>();

/// The namespaces that a container has for itself, and its control group: whoever begins a program there is inside.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Membership {
    /// Inodes of the namespaces; 0 for one that others share.
    mount: u32,
    pid: u32,
    time: u32,
    group: Option<Group>,
}

/// A control group of version 2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Group {
    id: u64,
    /// Number of groups above it.
    depth: u32,
}

impl Membership {
    /// Returns the membership of the container whose first program is `program`, and whose control group has the directory `group`.
    /// A process id namespace is the container's own if `program` is its first process. `None` if the container has nothing for
    /// itself: nobody can enter it.
    ///
    /// # Errors
    ///
    /// The process has ended, or is another user's.
    pub fn of(program: u32, group: Option<&Path>) -> io::Result<Option<Membership>> {
        let own = |namespace: &str| -> io::Result<u32> {
            let theirs = inode(&format!("/proc/{program}/ns/{namespace}"))?;
            let ours = inode(&format!("/proc/self/ns/{namespace}"))?;
            Ok(if theirs == ours { 0 } else { theirs })
        };
        let membership = Membership {
            mount: own("mnt")?,
            pid: if is_first_process(program)? { own("pid")? } else { 0 },
            time: own("time")?,
            group: group.and_then(Group::at),
        };
        Ok((membership != Membership::default()).then_some(membership))
    }
}

impl Group {
    /// `None` if the directory is in no hierarchy of version 2.
    fn at(path: &Path) -> Option<Group> {
        let is_there = |path: &Path| {
            statfs(path).is_ok_and(|found| found.filesystem_type() == CGROUP2_SUPER_MAGIC)
        };
        let id = fs::metadata(path).ok().filter(|_| is_there(path))?.ino();
        let above = path.ancestors().skip(1).take_while(|above| is_there(above));
        Some(Group { id, depth: above.count() as u32 })
    }
}

fn inode(path: &str) -> io::Result<u32> {
    // The kernel numbers namespaces with 32 bits.
    Ok(fs::metadata(path)?.ino() as u32)
}

/// Whether a process is the first one of a process id namespace of its own.
///
/// # Errors
///
/// The process has ended.
pub fn is_first_process(pid: u32) -> io::Result<bool> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let numbers: Vec<&str> = numbers.unwrap_or_default().split_ascii_whitespace().collect();
    Ok(numbers.len() > 1 && numbers.last() == Some(&"1"))
}

/// Notices newcomers while it lives.
pub struct NewcomerWatch {
    /// Process ids arrive here. The thread that serves the kernel's events has the other end.
    reports: UnixStream,
    has_ended: bool,
}

impl NewcomerWatch {
    /// Begins a watch. A thread of its own loads the BPF program, some 50 ms, and passes its reports on. If the kernel refuses the
    /// program, the watch reports nobody: see [`check`].
    ///
    /// # Errors
    ///
    /// No thread or socket can be made.
    pub fn begin(membership: Membership) -> io::Result<NewcomerWatch> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        thread::Builder::new().name("newcomers".into()).spawn(move || {
            // Without the program the socket closes, and the watch has ended.
            let _ = serve(&membership, theirs);
        })?;
        Ok(NewcomerWatch { reports: ours, has_ended: false })
    }

    /// Returns the descriptor to poll; `None` if nothing comes any more.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        (!self.has_ended).then(|| self.reports.as_fd())
    }

    /// Returns the process ids of those that have begun inside since the last call.
    pub fn take(&mut self) -> Vec<u32> {
        let mut found = Vec::new();
        let mut pid = [0; PID_LEN];
        loop {
            match self.reports.read(&mut pid) {
                // The thread writes whole process ids.
                Ok(PID_LEN) => found.push(u32::from_ne_bytes(pid)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return found,
                _ => {
                    self.has_ended = true;
                    return found;
                }
            }
        }
    }
}

/// Checks that this process may notice newcomers.
///
/// # Errors
///
/// The reason.
pub fn check() -> io::Result<()> {
    load(&Membership::default()).map(drop)
}

/// Passes the kernel's reports on until the watch is gone.
fn serve(membership: &Membership, mut reports: UnixStream) -> io::Result<()> {
    /// The thread ends with the process, at the latest.
    const LOOK_INTERVAL: Duration = Duration::from_secs(3600);
    let (skel, _link) = load(membership)?;
    let is_read = Cell::new(true);
    let pass_on = |pid: &[u8]| {
        is_read.set(reports.write_all(pid).is_ok());
        0
    };
    let mut builder = RingBufferBuilder::new();
    builder.add(&skel.maps.newcomers, pass_on).map_err(io::Error::other)?;
    let events = builder.build().map_err(io::Error::other)?;
    while is_read.get() {
        match events.poll(LOOK_INTERVAL) {
            Err(error) if error.kind() != ErrorKind::Interrupted => {
                return Err(io::Error::other(error))
            }
            _ => {}
        }
    }
    Ok(())
}

fn load(membership: &Membership) -> io::Result<(NewcomersSkel<'static>, Link)> {
    /// Of the kernel's PROC_PID_INIT_INO. BPF programs know a process by its number there.
    const INITIAL_NAMESPACE: u32 = 0xeffffffc;
    if inode("/proc/self/ns/pid")? != INITIAL_NAMESPACE {
        return Err(io::Error::other("the kernel numbers processes otherwise than here"));
    }
    libbpf_rs::set_print(None);
    // Leaked: a process has one watch, which lives as long as the process.
    let object = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut open = NewcomersSkelBuilder::default().open(object).map_err(io::Error::other)?;
    let constants = open.maps.rodata_data.as_deref_mut();
    let constants = constants.ok_or_else(|| io::Error::other("a program without constants"))?;
    // One processor is left for the monitor.
    constants.max_held = thread::available_parallelism()?.get() as u32 - 1;
    constants.mount_namespace = membership.mount;
    constants.pid_namespace = membership.pid;
    constants.time_namespace = membership.time;
    if let Some(group) = membership.group {
        (constants.group, constants.group_depth) = (group.id, group.depth);
    }
    let skel = open.load().map_err(io::Error::other)?;
    let link = skel.progs.on_exec.attach().map_err(io::Error::other)?;
    Ok((skel, link))
}
