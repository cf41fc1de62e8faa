//! Idleness as the kernel reports it: BPF programs (`bpf/idle.bpf.c`) on the scheduler's tracepoints, and one that goes through the
//! tasks. They need root, or CAP_BPF and CAP_PERFMON. Without these, the skipper reads /proc.

use std::fs;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Iter, Link, MapCore, MapFlags, ProgramInput, RingBuffer, RingBufferBuilder};

use lorentz_control::host_time::HostMoment;
use lorentz_control::processes::threads_of;

use crate::task::{Blocker, SleepingTask, TaskState};

mod program {
    #![allow(clippy::all, missing_docs, unreachable_pub, dead_code)]
    #![allow(clippy::undocumented_unsafe_blocks)]
    include!(concat!(env!("OUT_DIR"), "/idle.skel.rs"));
}
use program::types::{bss, task_state};
use program::{IdleSkel, IdleSkelBuilder};

/// Free bytes that are kept for each read of the iterator.
const BUFFER_LEN: usize = 16 * 1024;

/// Whether the kernel can look at the listed tasks without going through all of the machine's (Linux 6.10).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TaskIteration {
    Supported,
    Unsupported,
}

/// The BPF programs, loaded for one clock.
pub struct SwitchTrace {
    skel: IdleSkel<'static>,
    groups: u32,
    /// The iterator that goes through all tasks of the machine.
    look: Link,
    /// Programs that keep the set of watched tasks up to date.
    _membership: [Link; 3],
    /// The program that reports when no watched task seems to run. `None` while unsubscribed: every task switch of the machine pays
    /// for it.
    switches: Option<Link>,
    events: RingBuffer<'static>,
    iteration: TaskIteration,
    /// The change counter of the task set, read before the listed tasks were found. `None` while no tasks are listed.
    listed_at: Option<u64>,
}

impl SwitchTrace {
    /// Loads the programs for one clock. They watch no task yet.
    ///
    /// # Errors
    ///
    /// If the kernel does not allow it.
    pub fn new() -> libbpf_rs::Result<SwitchTrace> {
        SwitchTrace::with_groups(1)
    }

    /// Loads the programs for `groups` groups of tasks, numbered from 0.
    ///
    /// # Errors
    ///
    /// As [`SwitchTrace::new`].
    pub fn with_groups(groups: u32) -> libbpf_rs::Result<SwitchTrace> {
        libbpf_rs::set_print(None);
        if !is_first_pid_namespace() {
            return Err(io::Error::other("the kernel numbers tasks otherwise than here").into());
        }
        let (skel, iteration) = load(TaskIteration::Supported, groups)
            .or_else(|_| load(TaskIteration::Unsupported, groups))?;
        let progs = &skel.progs;
        let (clones, execs) = (progs.on_clone.attach()?, progs.on_exec.attach()?);
        let membership = [clones, execs, progs.on_end.attach()?];
        let look = progs.look.attach()?;
        let mut builder = RingBufferBuilder::new();
        builder.add(&skel.maps.idle, |_| 0)?;
        let events = builder.build()?;
        Ok(SwitchTrace {
            skel,
            groups,
            look,
            _membership: membership,
            switches: None,
            events,
            iteration,
            listed_at: None,
        })
    }

    /// Whether the trace is subscribed to task switches.
    pub fn has_switch_events(&self) -> bool {
        self.switches.is_some()
    }

    /// Subscribes to task switches, or unsubscribes. If the kernel refuses, the caller has to poll: see
    /// [`SwitchTrace::has_switch_events`].
    pub fn set_switch_events(&mut self, enabled: bool) {
        if enabled == self.has_switch_events() {
            return;
        }
        self.switches = None;
        if enabled {
            self.forget_switches();
            self.switches = self.skel.progs.on_switch.attach().ok();
        }
    }

    /// Resets the counts of running tasks. The counts of the last subscription are stale: a task that ran at the unsubscribe may
    /// have died since, and would count as running for ever.
    fn forget_switches(&mut self) {
        for group in 0..self.groups {
            let nobody = 0_i64.to_ne_bytes();
            // An error here leaves a wrong count. A wrong count costs time, no more.
            let _ = self.skel.maps.running.update(&group.to_ne_bytes(), &nobody, MapFlags::ANY);
        }
        if let Some(globals) = self.globals() {
            globals.0.attached = globals.0.attached.wrapping_add(1);
        }
    }

    /// Watches the tasks of process `pid` from now on, and the tasks that they will start. Returns true if one of them was not
    /// watched before.
    pub fn watch_process(&mut self, pid: u32) -> bool {
        self.watch_process_in(0, pid)
    }

    /// As [`SwitchTrace::watch_process`], for a group.
    pub fn watch_process_in(&mut self, group: u32, pid: u32) -> bool {
        // The address and the state of the task are not known yet: these bytes stay 0.
        let mut member = [0; 16];
        member[12..].copy_from_slice(&group.to_ne_bytes());
        let map = &self.skel.maps.tasks;
        // NO_EXIST: a task that is watched already stays as it is.
        let add = |thread: u32| map.update(&thread.to_ne_bytes(), &member, MapFlags::NO_EXIST);
        let anybody_new = threads_of(pid).filter(|thread| add(*thread).is_ok()).count() > 0;
        if anybody_new {
            self.listed_at = None;
        }
        anybody_new
    }

    /// Returns all tasks if all of them sleep.
    ///
    /// # Errors
    ///
    /// A task that does not sleep, or the error of the look.
    pub fn sleeping_tasks(&mut self) -> Result<Vec<SleepingTask>, Blocker> {
        let all = self.look_at_all().map_err(|error| {
            let what = error.to_string();
            Blocker { pid: 0, what, is_transient: true }
        })?;
        let task = |task: task_state| match task.asleep {
            0 => Err(Blocker { pid: task.pid, what: "runs".into(), is_transient: true }),
            _ => Ok(SleepingTask { pid: task.pid, thread: task.thread, runs: task.runs }),
        };
        all.into_iter().map(task).collect()
    }

    /// Returns all tasks, sleeping or not.
    ///
    /// # Errors
    ///
    /// If the kernel does not answer.
    pub fn tasks(&mut self) -> io::Result<Vec<TaskState>> {
        let task = |state: task_state| TaskState {
            pid: state.pid,
            thread: state.thread,
            runs: state.runs,
            asleep: state.asleep != 0,
            group: state.group,
            ran: Duration::from_nanos(state.ran),
            waited: Duration::from_nanos(state.waited),
            slept: Some(state.slept),
        };
        Ok(self.look_at_all()?.into_iter().map(task).collect())
    }

    fn look_at_all(&mut self) -> io::Result<Vec<task_state>> {
        match self.look_at_listed() {
            Some(all) => Ok(all),
            None => self.look_through(),
        }
    }

    /// Looks at the tasks that the last look through all tasks found. `None` if tasks have come or gone since.
    fn look_at_listed(&mut self) -> Option<Vec<task_state>> {
        let listed_at = self.listed_at?;
        let done = self.skel.progs.look_at_listed.test_run(ProgramInput::default());
        // This check comes after the look: the task set then contains every task that was born before the look.
        let unchanged =
            done.is_ok_and(|done| done.return_value == 0) && self.globals()?.changes() == listed_at;
        if !unchanged {
            self.listed_at = None;
            return None;
        }
        Some(self.globals()?.listed())
    }

    /// Goes through all tasks of the machine, returns the watched ones, and lists them for [`SwitchTrace::look_at_listed`].
    fn look_through(&mut self) -> io::Result<Vec<task_state>> {
        let changes = self.globals().map(|globals| globals.changes());
        let word =
            |bytes: &[u8], at: usize| bytes[at..at + 8].try_into().map_or(0, u64::from_ne_bytes);
        let record = |bytes: &[u8]| {
            let (ids, runs, flags) = (word(bytes, 0), word(bytes, 8), word(bytes, 40));
            let (pid, thread) = (ids as u32, (ids >> 32) as u32);
            let (ran, waited, slept) = (word(bytes, 16), word(bytes, 24), word(bytes, 32));
            let (asleep, group) = (flags as u32, (flags >> 32) as u32);
            task_state { pid, thread, runs, ran, waited, slept, asleep, group }
        };
        let found: Vec<task_state> =
            self.look()?.chunks_exact(size_of::<task_state>()).map(record).collect();
        let can_list = self.iteration == TaskIteration::Supported;
        let listed = self.globals().is_some_and(|mut globals| can_list && globals.list(&found));
        self.listed_at = changes.filter(|_| listed);
        Ok(found)
    }

    fn globals(&mut self) -> Option<BpfGlobals<'_>> {
        self.skel.maps.bss_data.as_deref_mut().map(BpfGlobals)
    }

    fn look(&self) -> io::Result<Vec<u8>> {
        let mut iterator = Iter::new(&self.look).map_err(io::Error::other)?;
        let mut bytes = vec![0; BUFFER_LEN];
        let mut len = 0;
        loop {
            match iterator.read(&mut bytes[len..])? {
                0 => break,
                more => len += more,
            }
            if bytes.len() - len < BUFFER_LEN {
                bytes.resize(bytes.len() + BUFFER_LEN, 0);
            }
        }
        bytes.truncate(len);
        Ok(bytes)
    }

    /// The descriptor to poll for [`SwitchTrace::wait`].
    pub fn events_fd(&self) -> i32 {
        self.events.epoll_fd()
    }

    /// Returns all tasks if all of them sleep within 200 us. Most programs need less time between two waits than a notification
    /// takes.
    pub fn spin_until_idle(&mut self) -> Option<Vec<SleepingTask>> {
        const SPIN_TIMEOUT: Duration = Duration::from_micros(200);
        let begun = HostMoment::now();
        while begun.elapsed() < SPIN_TIMEOUT {
            if let Ok(tasks) = self.sleeping_tasks() {
                return Some(tasks);
            }
        }
        None
    }

    /// Waits until no task seems to run, at most `limit`.
    pub fn wait(&self, limit: Duration) {
        // An EINTR counts as a wake-up.
        let _ = self.events.poll(limit);
    }
}

fn load(
    iteration: TaskIteration,
    groups: u32,
) -> libbpf_rs::Result<(IdleSkel<'static>, TaskIteration)> {
    /// Average number of tasks in a group, where there are many groups.
    const TASKS_PER_GROUP: u32 = 4;
    // Leaked: the object lives as long as the process, which has no other job.
    let object = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut open = IdleSkelBuilder::default().open(object)?;
    open.progs.look_at_listed.set_autoload(iteration == TaskIteration::Supported);
    let tasks = open.maps.tasks.max_entries().max(groups.saturating_mul(TASKS_PER_GROUP));
    open.maps.tasks.set_max_entries(tasks)?;
    open.maps.running.set_max_entries(groups)?;
    Ok((open.load()?, iteration))
}

/// Whether this process is in the initial pid namespace. BPF programs know a task by its number there.
fn is_first_pid_namespace() -> bool {
    const INITIAL_NAMESPACE: u64 = 0xeffffffc;
    fs::metadata("/proc/self/ns/pid").is_ok_and(|namespace| namespace.ino() == INITIAL_NAMESPACE)
}

/// The global variables of the BPF programs. The kernel writes them too.
struct BpfGlobals<'a>(&'a mut bss);

impl BpfGlobals<'_> {
    /// Number of times that a task has come, gone, or changed its number.
    fn changes(&self) -> u64 {
        // SAFETY: a number in memory that stays mapped.
        unsafe { (&raw const self.0.changes).read_volatile() }
    }

    /// Returns what the last look at the listed tasks has found.
    fn listed(&self) -> Vec<task_state> {
        let listed = self.0.listed.iter().take(self.0.length as usize);
        // SAFETY: numbers in memory that stays mapped. The kernel writes them only while this process asks it to.
        listed.map(|task| unsafe { (task as *const task_state).read_volatile() }).collect()
    }

    /// Lists `tasks`. Returns false if they are too many.
    fn list(&mut self, tasks: &[task_state]) -> bool {
        let Some(entries) = self.0.listed.get_mut(..tasks.len()) else { return false };
        entries.copy_from_slice(tasks);
        self.0.length = tasks.len() as u32;
        true
    }
}
