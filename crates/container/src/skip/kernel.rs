//! Idleness as the kernel tells it: BPF programs (`bpf/idle.bpf.c`) on the scheduler's tracepoints, and one that looks
//! through the tasks. They need root, or CAP_BPF and CAP_PERFMON; where these are not to be had, /proc is looked through.

use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Iter, Link, MapCore, MapFlags, RingBuffer, RingBufferBuilder};

use super::tasks::{Asleep, Cause};
use crate::processes::threads_of;

mod program {
    #![allow(clippy::all, missing_docs, unreachable_pub, dead_code)]
    include!(concat!(env!("OUT_DIR"), "/idle.skel.rs"));
}
use program::{IdleSkel, IdleSkelBuilder};

/// Bytes that a look takes at a time.
const ROOM: usize = 16 * 1024;

/// The programs, loaded for one clock.
pub struct Scheduler {
    skel: IdleSkel<'static>,
    /// Looks through the tasks.
    look: Link,
    /// Keep the tasks of the clock known.
    _membership: [Link; 3],
    /// Tells when none seems to run any more; every task of the machine pays for it.
    switches: Option<Link>,
    events: RingBuffer<'static>,
}

impl Scheduler {
    /// Loads them. They watch nobody yet.
    ///
    /// # Errors
    ///
    /// Where the kernel does not let it.
    pub fn new() -> libbpf_rs::Result<Scheduler> {
        libbpf_rs::set_print(None);
        // As long as the process lives, which does nothing else.
        let object = Box::leak(Box::new(MaybeUninit::uninit()));
        let skel = IdleSkelBuilder::default().open(object)?.load()?;
        let progs = &skel.progs;
        let (births, execs) = (progs.on_birth.attach()?, progs.on_exec.attach()?);
        let membership = [births, execs, progs.on_end.attach()?];
        let look = progs.look.attach()?;
        let mut builder = RingBufferBuilder::new();
        builder.add(&skel.maps.idle, |_| 0)?;
        let events = builder.build()?;
        Ok(Scheduler { skel, look, _membership: membership, switches: None, events })
    }

    /// Whether it is told when none seems to run any more.
    pub fn is_told(&self) -> bool {
        self.switches.is_some()
    }

    /// Has it told from now on, or not any more. Where that cannot be, it looks now and then.
    pub fn be_told(&mut self, told: bool) {
        if told != self.is_told() {
            let attach = || self.skel.progs.on_switch.attach().ok();
            self.switches = told.then(attach).flatten();
        }
    }

    /// Watches the tasks of process `pid` from now on, and those they will start; true where one was not watched before.
    pub fn add(&self, pid: u32) -> bool {
        const UNKNOWN: [u8; 16] = [0; 16];
        let map = &self.skel.maps.tasks;
        // One that is watched already stays as it is.
        let add = |thread: u32| map.update(&thread.to_ne_bytes(), &UNKNOWN, MapFlags::NO_EXIST);
        threads_of(pid).filter(|thread| add(*thread).is_ok()).count() > 0
    }

    /// All tasks, if all of them sleep; else one that does not.
    pub fn asleep(&self) -> Result<Vec<Asleep>, Cause> {
        let failed =
            |error: &dyn std::fmt::Display| Cause { pid: 0, what: error.to_string(), passes: true };
        let bytes = self.look().map_err(|error| failed(&error))?;
        let record = |bytes: &[u8]| -> Option<(Asleep, bool)> {
            let word =
                |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
            let (ids, runs, asleep) = (word(0)?, word(8)?, word(16)?);
            Some((Asleep { pid: ids as u32, thread: (ids >> 32) as u32, runs }, asleep != 0))
        };
        let mut tasks = Vec::new();
        for (task, asleep) in bytes.chunks_exact(24).filter_map(record) {
            match asleep {
                true => tasks.push(task),
                false => return Err(Cause { pid: task.pid, what: "runs".into(), passes: true }),
            }
        }
        Ok(tasks)
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

    /// Whether none seems to run any more within a moment. To be told takes longer than most programs need between two
    /// waits.
    pub fn idle_soon(&self) -> bool {
        const SOON: Duration = Duration::from_micros(200);
        let begun = Instant::now();
        while begun.elapsed() < SOON {
            if self.asleep().is_ok() {
                return true;
            }
        }
        false
    }

    /// Waits until none seems to run any more, at most so long.
    pub fn wait(&self, limit: Duration) {
        // An interruption is a wake-up like any other.
        let _ = self.events.poll(limit);
    }
}
