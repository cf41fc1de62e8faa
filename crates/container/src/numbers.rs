//! The numbers that programs have here, by those that they have in process id namespaces of their own.
//!
//! The registry holds the latter: a program does not know others. Where that is the namespace of this process they are the
//! same. For others /proc tells: it lists by the reader's numbers, and names the namespace and the inner number of each.

use std::collections::HashMap;

use lorentz_clock::{ProcessId, Registry, Space};
use lorentz_inject::namespace;

use crate::processes::{numbers, threads_of};
use crate::Cgroup;

/// What has been found out. It may be out of date: a number is looked at again before it is given out.
#[derive(Default)]
pub struct Numbers {
    /// Where most programs on the clock are. It is looked through first: /proc has the processes of all containers.
    group: Option<Cgroup>,
    processes: HashMap<ProcessId, u32>,
    threads: HashMap<(ProcessId, u32), u32>,
}

impl Numbers {
    /// The numbers of programs most of which are in `group`.
    pub fn mostly_in(group: Option<Cgroup>) -> Numbers {
        Numbers { group, ..Numbers::default() }
    }

    /// The number of `process` here; none where it is not found, because it has ended or may not be looked into.
    pub fn process(&mut self, process: ProcessId, registry: &Registry) -> Option<u32> {
        if process.space() == Space::MONITORS {
            return Some(process.number());
        }
        let is_it = |pid: &u32| namespace::number_inside(*pid).ok() == Some(process.number());
        if let Some(pid) = self.processes.get(&process).copied().filter(is_it) {
            return Some(pid);
        }
        let inode = registry.spaces.inode(process.space())?;
        if let Some(group) = &self.group {
            let pids = group.pids_below();
            self.look_through(process.space(), inode, pids.into_iter());
            if let Some(pid) = self.processes.get(&process) {
                return Some(*pid);
            }
        }
        self.look_through(process.space(), inode, numbers().into_iter().flatten());
        self.processes.get(&process).copied()
    }

    /// The number here of a thread of `process`, which is process `pid` here.
    pub fn thread(&mut self, process: ProcessId, pid: u32, thread: u32) -> Option<u32> {
        if process.space() == Space::MONITORS {
            return Some(thread);
        }
        if thread == process.number() {
            return Some(pid);
        }
        let is_it = |found: &u32| namespace::number_inside(*found).ok() == Some(thread);
        let known = self.threads.get(&(process, thread)).copied();
        if let Some(found) = known.filter(is_it) {
            return Some(found);
        }
        for found in threads_of(pid) {
            if let Ok(inside) = namespace::number_inside(found) {
                self.threads.insert((process, inside), found);
            }
        }
        self.threads.get(&(process, thread)).copied()
    }

    /// The number that was found for a thread at an earlier look.
    pub fn thread_found(&self, process: ProcessId, thread: u32) -> Option<u32> {
        match process.space() {
            Space::MONITORS => Some(thread),
            _ => self.threads.get(&(process, thread)).copied(),
        }
    }

    /// Finds all processes of a namespace that are among `pids`.
    fn look_through(&mut self, space: Space, inode: u32, pids: impl Iterator<Item = u32>) {
        self.processes.retain(|process, _| process.space() != space);
        for pid in pids.filter(|pid| namespace::of(*pid).ok() == Some(inode)) {
            if let Ok(inside) = namespace::number_inside(pid) {
                self.processes.insert(ProcessId::new(space, inside), pid);
            }
        }
    }
}
