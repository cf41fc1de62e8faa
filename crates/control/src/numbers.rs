//! Maps process and thread numbers from other process id namespaces to the numbers in the namespace of this process.
//!
//! A program knows only the numbers of its own namespace, so the registry holds these. In the namespace of this process both
//! numbers are the same. For another namespace /proc gives the mapping: it lists processes by the reader's numbers, and names the
//! namespace and the inner number of each.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

use lorentz_clock::{PidNamespace, ProcessId, Registry};

use crate::processes::{numbers, threads_of};
use crate::Cgroup;

/// The known numbers. They may be out of date, so each is checked before it is returned.
#[derive(Default)]
pub struct HostPids {
    /// The control group of most programs on the clock. It is searched first, because /proc has the processes of all containers.
    group: Option<Cgroup>,
    processes: HashMap<ProcessId, u32>,
    threads: HashMap<(ProcessId, u32), u32>,
}

impl HostPids {
    /// Makes an empty mapping for programs most of which are in `group`.
    pub fn with_likely_group(group: Option<Cgroup>) -> HostPids {
        HostPids { group, ..HostPids::default() }
    }

    /// Returns the number of `process` in this namespace. `None` if it is not found: it has ended, or the kernel does not allow the
    /// look.
    pub fn process(&mut self, process: ProcessId, registry: &Registry) -> Option<u32> {
        if process.namespace() == PidNamespace::MONITOR {
            return Some(process.number());
        }
        let is_it = |pid: &u32| number_inside(*pid) == Some(process.number());
        if let Some(pid) = self.processes.get(&process).copied().filter(is_it) {
            return Some(pid);
        }
        let inode = registry.pid_namespaces.inode(process.namespace())?;
        if let Some(group) = &self.group {
            let pids = group.pids_below();
            self.look_through(process.namespace(), inode, pids.into_iter());
            if let Some(pid) = self.processes.get(&process) {
                return Some(*pid);
            }
        }
        self.look_through(process.namespace(), inode, numbers().into_iter().flatten());
        self.processes.get(&process).copied()
    }

    /// Returns the number in this namespace of a thread of `process`, whose number here is `pid`.
    pub fn thread(&mut self, process: ProcessId, pid: u32, thread: u32) -> Option<u32> {
        if process.namespace() == PidNamespace::MONITOR {
            return Some(thread);
        }
        if thread == process.number() {
            return Some(pid);
        }
        let is_it = |found: &u32| number_inside(*found) == Some(thread);
        let known = self.threads.get(&(process, thread)).copied();
        if let Some(found) = known.filter(is_it) {
            return Some(found);
        }
        for found in threads_of(pid) {
            if let Some(inside) = number_inside(found) {
                self.threads.insert((process, inside), found);
            }
        }
        self.threads.get(&(process, thread)).copied()
    }

    /// Returns the number that an earlier look found for a thread, without checking it.
    pub fn thread_found(&self, process: ProcessId, thread: u32) -> Option<u32> {
        match process.namespace() {
            PidNamespace::MONITOR => Some(thread),
            _ => self.threads.get(&(process, thread)).copied(),
        }
    }

    /// Finds all processes of a namespace among `pids`.
    fn look_through(&mut self, space: PidNamespace, inode: u32, pids: impl Iterator<Item = u32>) {
        self.processes.retain(|process, _| process.namespace() != space);
        for pid in pids.filter(|pid| namespace_of(*pid) == Some(inode)) {
            if let Some(inside) = number_inside(pid) {
                self.processes.insert(ProcessId::new(space, inside), pid);
            }
        }
    }
}

/// Returns the inode of the process id namespace of `pid`. The kernel numbers namespaces with 32 bits.
pub fn namespace_of(pid: u32) -> Option<u32> {
    fs::metadata(format!("/proc/{pid}/ns/pid")).ok().map(|file| file.ino() as u32)
}

/// Returns the number of process or thread `pid` in its own process id namespace. `None` if it has ended.
pub fn number_inside(pid: u32) -> Option<u32> {
    ProcessId::number_inside(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}
