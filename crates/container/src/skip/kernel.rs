//! Idleness as the kernel tells it: BPF programs (`bpf/idle.bpf.c`) on the scheduler's tracepoints, and one that looks
//! through the tasks. They need root, or CAP_BPF and CAP_PERFMON; where these are not to be had, /proc is looked through.

use std::fs;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Iter, Link, MapCore, MapFlags, ProgramInput, RingBuffer, RingBufferBuilder};

use super::tasks::{Asleep, Cause};
use crate::host_time::Moment;
use crate::processes::threads_of;

mod program {
    #![allow(clippy::all, missing_docs, unreachable_pub, dead_code)]
    #![allow(clippy::undocumented_unsafe_blocks)]
    include!(concat!(env!("OUT_DIR"), "/idle.skel.rs"));
}
use program::types::{bss, seen};
use program::{IdleSkel, IdleSkelBuilder};

/// What a look tells of a task.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Which one, and how often it has run.
    pub task: Asleep,
    /// Whether it sleeps.
    pub asleep: bool,
    /// The group it was added to, or its parent.
    pub group: u32,
    /// For how long it has run, up to its last switch.
    pub ran: Duration,
    /// For how long it has waited for a processor, up to its last switch.
    pub waited: Duration,
    /// How often it has gone to sleep; unknown where /proc has been looked through.
    pub slept: Option<u64>,
}

/// Bytes that a look takes at a time.
const ROOM: usize = 16 * 1024;

/// The programs, loaded for one clock.
pub struct Scheduler {
    skel: IdleSkel<'static>,
    groups: u32,
    /// Looks through the tasks.
    look: Link,
    /// Keep the tasks of the clock known.
    _membership: [Link; 3],
    /// Tells when none seems to run any more; every task of the machine pays for it.
    switches: Option<Link>,
    events: RingBuffer<'static>,
    /// Whether those it lists can be looked at without looking through all of the machine's (Linux 6.10).
    lists: bool,
    /// What had changed among the tasks before those were found that are listed now; none where none are.
    listed_at: Option<u64>,
}

impl Scheduler {
    /// Loads them for one clock. They watch nobody yet.
    ///
    /// # Errors
    ///
    /// Where the kernel does not let it.
    pub fn new() -> libbpf_rs::Result<Scheduler> {
        Scheduler::of_groups(1)
    }

    /// Loads them for so many groups of tasks, numbered from 0.
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

    /// Whether it is told when none seems to run any more.
    pub fn is_told(&self) -> bool {
        self.switches.is_some()
    }

    /// Has it told from now on, or not any more. Where that cannot be, it looks now and then.
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

    /// What was counted while switches were told of last is not true any more: a task that ran then may have ended since, and would
    /// be counted for ever.
    fn forget_switches(&mut self) {
        for group in 0..self.groups {
            let nobody = 0_i64.to_ne_bytes();
            // A count that stays wrong costs time, no more.
            let _ = self.skel.maps.running.update(&group.to_ne_bytes(), &nobody, MapFlags::ANY);
        }
        if let Some(shared) = self.shared() {
            shared.0.attached = shared.0.attached.wrapping_add(1);
        }
    }

    /// Watches the tasks of process `pid` from now on, and those they will start; true where one was not watched before.
    pub fn add(&mut self, pid: u32) -> bool {
        self.add_to(0, pid)
    }

    /// The same, in a group.
    pub fn add_to(&mut self, group: u32, pid: u32) -> bool {
        // Its address and state are not known yet.
        let mut member = [0; 16];
        member[12..].copy_from_slice(&group.to_ne_bytes());
        let map = &self.skel.maps.tasks;
        // One that is watched already stays as it is.
        let add = |thread: u32| map.update(&thread.to_ne_bytes(), &member, MapFlags::NO_EXIST);
        let anybody_new = threads_of(pid).filter(|thread| add(*thread).is_ok()).count() > 0;
        if anybody_new {
            self.listed_at = None;
        }
        anybody_new
    }

    /// All tasks, if all of them sleep; else one that does not.
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

    /// All tasks, whatever they do.
    ///
    /// # Errors
    ///
    /// Where the kernel does not tell.
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

    /// The tasks that were found by the last look through all, unless others have come or some have gone.
    fn look_at_listed(&mut self) -> Option<Vec<seen>> {
        let listed_at = self.listed_at?;
        let done = self.skel.progs.look_at_listed.test_run(ProgramInput::default());
        // After the look: who was born until then is known by now.
        let unchanged =
            done.is_ok_and(|done| done.return_value == 0) && self.shared()?.changes() == listed_at;
        if !unchanged {
            self.listed_at = None;
            return None;
        }
        Some(self.shared()?.listed())
    }

    /// The tasks among all of the machine's. Those found are listed.
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

    /// What to poll for [`Scheduler::wait`].
    pub fn events_fd(&self) -> i32 {
        self.events.epoll_fd()
    }

    /// All tasks, if all of them sleep within a moment. To be told takes longer than most programs need between two waits.
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

    /// Waits until none seems to run any more, at most so long.
    pub fn wait(&self, limit: Duration) {
        // An interruption is a wake-up like any other.
        let _ = self.events.poll(limit);
    }
}

fn load(lists: bool, groups: u32) -> libbpf_rs::Result<(IdleSkel<'static>, bool)> {
    /// Tasks of a group, on average, where there are many groups.
    const TASKS_EACH: u32 = 4;
    // As long as the process lives, which does nothing else.
    let object = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut open = IdleSkelBuilder::default().open(object)?;
    open.progs.look_at_listed.set_autoload(lists);
    let tasks = open.maps.tasks.max_entries().max(groups.saturating_mul(TASKS_EACH));
    open.maps.tasks.set_max_entries(tasks)?;
    open.maps.running.set_max_entries(groups)?;
    Ok((open.load()?, lists))
}

/// BPF programs know a task by the number it has in the first namespace.
fn is_first_pid_namespace() -> bool {
    const FIRST: u64 = 0xeffffffc;
    fs::metadata("/proc/self/ns/pid").is_ok_and(|namespace| namespace.ino() == FIRST)
}

/// The variables of the programs, which the kernel writes too.
struct Shared<'a>(&'a mut bss);

impl Shared<'_> {
    /// How often a task has come, gone, or changed its number.
    fn changes(&self) -> u64 {
        // SAFETY: a number in memory that stays mapped.
        unsafe { (&raw const self.0.changes).read_volatile() }
    }

    /// What the last look at the listed tasks has found.
    fn listed(&self) -> Vec<seen> {
        let listed = self.0.listed.iter().take(self.0.length as usize);
        // SAFETY: numbers in memory that stays mapped; the kernel writes them only while this process asks it to.
        listed.map(|task| unsafe { (task as *const seen).read_volatile() }).collect()
    }

    /// Lists these tasks; false where they are too many.
    fn list(&mut self, tasks: &[seen]) -> bool {
        let Some(places) = self.0.listed.get_mut(..tasks.len()) else { return false };
        places.copy_from_slice(tasks);
        self.0.length = tasks.len() as u32;
        true
    }
}
