//! The numbers that programs have here, by those that they have in process id namespaces of their own.
//!
//! The registry holds the latter: a program does not know others. Where that is the namespace of this process they are the
//! same. For others /proc tells: it lists by the reader's numbers, and names the namespace and the inner number of each.

use std::collections::HashMap;
use std::fs;

use lorentz_clock::{ProcessId, Registry, Space};
use lorentz_inject::namespace;

use crate::processes::threads_of;

/// What has been found out. It may be out of date: a number is looked at again before it is given out.
#[derive(Default)]
pub struct Numbers {
    processes: HashMap<ProcessId, u32>,
    threads: HashMap<(ProcessId, u32), u32>,
}

impl Numbers {
    /// The number of `process` here; none where it is not found, because it has ended or may not be looked into.
    pub fn process(&mut self, process: ProcessId, registry: &Registry) -> Option<u32> {
        if process.space() == Space::MONITORS {
            return Some(process.number());
        }
        let is_it = |pid: &u32| namespace::number_inside(*pid).ok() == Some(process.number());
        if let Some(pid) = self.processes.get(&process).copied().filter(is_it) {
            return Some(pid);
        }
        self.look_through(process.space(), registry.spaces.inode(process.space())?);
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

    /// Finds all processes of a namespace.
    fn look_through(&mut self, space: Space, inode: u32) {
        self.processes.retain(|process, _| process.space() != space);
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let Some(pid) = pid.filter(|pid: &u32| namespace::of(pid).ok() == Some(inode)) else {
                continue;
            };
            if let Ok(inside) = namespace::number_inside(pid) {
                self.processes.insert(ProcessId::new(space, inside), pid);
            }
        }
    }
}
