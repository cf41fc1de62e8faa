//! Idleness as the kernel reports it: BPF programs (`bpf/idle.bpf.c`) on the scheduler's tracepoints, and one that goes through the
//! tasks. They need root, or CAP_BPF and CAP_PERFMON. Without these, the skipper reads /proc.

use std::fs;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Iter, Link, MapCore, MapFlags, ProgramInput, RingBuffer, RingBufferBuilder};

use lorentz_control::host_time::Moment;
use lorentz_control::processes::threads_of;

use crate::task::{Asleep, Cause, Seen};

mod program {
    #![allow(clippy::all, missing_docs, unreachable_pub, dead_code)]
    #![allow(clippy::undocumented_unsafe_blocks)]
    include!(concat!(env!("OUT_DIR"), "/idle.skel.rs"));
}
use program::types::{bss, seen};
use program::{IdleSkel, IdleSkelBuilder};

/// Free bytes that are kept for each read of the iterator.
const ROOM: usize = 16 * 1024;

/// The BPF programs, loaded for one clock.
pub struct Scheduler {
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
    /// Whether the kernel can look at the listed tasks without going through all of the machine's (Linux 6.10).
    lists: bool,
    /// The change counter of the task set, read before the listed tasks were found. `None` while no tasks are listed.
    listed_at: Option<u64>,
}

impl Scheduler {
    /// Loads the programs for one clock. They watch no task yet.
    ///
    /// # Errors
    ///
    /// If the kernel does not allow it.
    pub fn new() -> libbpf_rs::Result<Scheduler> {
        Scheduler::of_groups(1)
    }

    /// Loads the programs for `groups` groups of tasks, numbered from 0.
    ///
    /// # Errors
    ///
    /// As [`Scheduler::new`].
    pub fn of_groups(groups: u32) -> libbpf_rs::Result<Scheduler> {
        libbpf_rs::set_print(None);
        if !is_first_pid_namespace() {
            return Err(io::Error::other("the kernel numbers tasks otherwise than here").into());
        }
        let (skel, lists) = load(true, groups).or_else(|_| load(false, groups))?;
        let progs = &skel.progs;
        let (births, execs) = (progs.on_birth.attach()?, progs.on_exec.attach()?);
        let membership = [births, execs, progs.on_end.attach()?];
        let look = progs.look.attach()?;
        let mut builder = RingBufferBuilder::new();
        builder.add(&skel.maps.idle, |_| 0)?;
        let events = builder.build()?;
        Ok(Scheduler {
            skel,
            groups,
            look,
            _membership: membership,
            switches: None,
            events,
            lists,
            listed_at: None,
        })
    }

    /// Whether the scheduler is subscribed to task switches.
    pub fn is_told(&self) -> bool {
        self.switches.is_some()
    }

    /// Subscribes to task switches, or unsubscribes. If the kernel refuses, the caller has to poll: see [`Scheduler::is_told`].
    pub fn be_told(&mut self, told: bool) {
        if told == self.is_told() {
            return;
        }
        self.switches = None;
        if told {
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
        if let Some(shared) = self.shared() {
            shared.0.attached = shared.0.attached.wrapping_add(1);
        }
    }

    /// Watches the tasks of process `pid` from now on, and the tasks that they will start. Returns true if one of them was not
    /// watched before.
    pub fn add(&mut self, pid: u32) -> bool {
        self.add_to(0, pid)
    }

    /// As [`Scheduler::add`], for a group.
    pub fn add_to(&mut self, group: u32, pid: u32) -> bool {
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
    pub fn asleep(&mut self) -> Result<Vec<Asleep>, Cause> {
        let all = self.look_at_all().map_err(|error| {
            let what = error.to_string();
            Cause { pid: 0, what, passes: true }
        })?;
        let task = |task: seen| match task.asleep {
            0 => Err(Cause { pid: task.pid, what: "runs".into(), passes: true }),
            _ => Ok(Asleep { pid: task.pid, thread: task.thread, runs: task.runs }),
        };
        all.into_iter().map(task).collect()
    }

    /// Returns all tasks, sleeping or not.
    ///
    /// # Errors
    ///
    /// If the kernel does not answer.
    pub fn seen(&mut self) -> io::Result<Vec<Seen>> {
        let task = |seen: seen| Seen {
            task: Asleep { pid: seen.pid, thread: seen.thread, runs: seen.runs },
            asleep: seen.asleep != 0,
            group: seen.group,
            ran: Duration::from_nanos(seen.ran),
            waited: Duration::from_nanos(seen.waited),
            slept: Some(seen.slept),
        };
        Ok(self.look_at_all()?.into_iter().map(task).collect())
    }

    fn look_at_all(&mut self) -> io::Result<Vec<seen>> {
        match self.look_at_listed() {
            Some(all) => Ok(all),
            None => self.look_through(),
        }
    }

    /// Looks at the tasks that the last look through all tasks found. `None` if tasks have come or gone since.
    fn look_at_listed(&mut self) -> Option<Vec<seen>> {
        let listed_at = self.listed_at?;
        let done = self.skel.progs.look_at_listed.test_run(ProgramInput::default());
        // This check comes after the look: the task set then contains every task that was born before the look.
        let unchanged =
            done.is_ok_and(|done| done.return_value == 0) && self.shared()?.changes() == listed_at;
        if !unchanged {
            self.listed_at = None;
            return None;
        }
        Some(self.shared()?.listed())
    }

    /// Goes through all tasks of the machine, returns the watched ones, and lists them for [`Scheduler::look_at_listed`].
    fn look_through(&mut self) -> io::Result<Vec<seen>> {
        let changes = self.shared().map(|shared| shared.changes());
        let word =
            |bytes: &[u8], at: usize| bytes[at..at + 8].try_into().map_or(0, u64::from_ne_bytes);
        let record = |bytes: &[u8]| {
            let (ids, runs, told) = (word(bytes, 0), word(bytes, 8), word(bytes, 40));
            let (pid, thread) = (ids as u32, (ids >> 32) as u32);
            let (ran, waited, slept) = (word(bytes, 16), word(bytes, 24), word(bytes, 32));
            let (asleep, group) = (told as u32, (told >> 32) as u32);
            seen { pid, thread, runs, ran, waited, slept, asleep, group }
        };
        let found: Vec<seen> = self.look()?.chunks_exact(size_of::<seen>()).map(record).collect();
        let lists = self.lists;
        let listed = self.shared().is_some_and(|mut shared| lists && shared.list(&found));
        self.listed_at = changes.filter(|_| listed);
        Ok(found)
    }

    fn shared(&mut self) -> Option<Shared<'_>> {
        self.skel.maps.bss_data.as_deref_mut().map(Shared)
    }

    fn look(&self) -> io::Result<Vec<u8>> {
        let mut iterator = Iter::new(&self.look).map_err(io::Error::other)?;
        let mut bytes = vec![0; ROOM];
        let mut len = 0;
        loop {
            match iterator.read(&mut bytes[len..])? {
                0 => break,
                more => len += more,
            }
            if bytes.len() - len < ROOM {
                bytes.resize(bytes.len() + ROOM, 0);
            }
        }
        bytes.truncate(len);
        Ok(bytes)
    }

    /// The descriptor to poll for [`Scheduler::wait`].
    pub fn events_fd(&self) -> i32 {
        self.events.epoll_fd()
    }

    /// Returns all tasks if all of them sleep within 200 us. Most programs need less time between two waits than a notification
    /// takes.
    pub fn idle_soon(&mut self) -> Option<Vec<Asleep>> {
        const SOON: Duration = Duration::from_micros(200);
        let begun = Moment::now();
        while begun.elapsed() < SOON {
            if let Ok(tasks) = self.asleep() {
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

fn load(lists: bool, groups: u32) -> libbpf_rs::Result<(IdleSkel<'static>, bool)> {
    /// Average number of tasks in a group, where there are many groups.
    const TASKS_EACH: u32 = 4;
    // Leaked: the object lives as long as the process, which has no other job.
    let object = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut open = IdleSkelBuilder::default().open(object)?;
    open.progs.look_at_listed.set_autoload(lists);
    let tasks = open.maps.tasks.max_entries().max(groups.saturating_mul(TASKS_EACH));
    open.maps.tasks.set_max_entries(tasks)?;
    open.maps.running.set_max_entries(groups)?;
    Ok((open.load()?, lists))
}

/// Whether this process is in the initial pid namespace. BPF programs know a task by its number there.
fn is_first_pid_namespace() -> bool {
    const FIRST: u64 = 0xeffffffc;
    fs::metadata("/proc/self/ns/pid").is_ok_and(|namespace| namespace.ino() == FIRST)
}

/// The global variables of the BPF programs. The kernel writes them too.
struct Shared<'a>(&'a mut bss);

impl Shared<'_> {
    /// Number of times that a task has come, gone, or changed its number.
    fn changes(&self) -> u64 {
        // SAFETY: a number in memory that stays mapped.
        unsafe { (&raw const self.0.changes).read_volatile() }
    }

    /// Returns what the last look at the listed tasks has found.
    fn listed(&self) -> Vec<seen> {
        let listed = self.0.listed.iter().take(self.0.length as usize);
        // SAFETY: numbers in memory that stays mapped. The kernel writes them only while this process asks it to.
        listed.map(|task| unsafe { (task as *const seen).read_volatile() }).collect()
    }

    /// Lists `tasks`. Returns false if they are too many.
    fn list(&mut self, tasks: &[seen]) -> bool {
        let Some(places) = self.0.listed.get_mut(..tasks.len()) else { return false };
        places.copy_from_slice(tasks);
        self.0.length = tasks.len() as u32;
        true
    }
}
