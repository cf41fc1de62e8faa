//! Idleness as the scheduler counts it: a BPF program on its tracepoints (`bpf/idle.bpf.c`). Needs root, or CAP_BPF and
//! CAP_PERFMON; where they are not to be had, /proc is looked through instead.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr::read_volatile;
use std::rc::Rc;
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, RingBuffer, RingBufferBuilder};

use super::tasks::threads_of;

mod program {
    #![allow(clippy::all, missing_docs, unreachable_pub, dead_code)]
    include!(concat!(env!("OUT_DIR"), "/idle.skel.rs"));
}
use program::{types::bss, IdleSkel, IdleSkelBuilder};

/// The kernel's count of one clock's tasks.
pub struct Counter {
    skel: IdleSkel<'static>,
    events: RingBuffer<'static>,
    told: Rc<Cell<bool>>,
}

/// What it shows at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Count {
    /// Tasks that run or are about to.
    pub busy: i64,
    /// How often one was given a processor, in all: the same number twice means that none has run in between.
    pub runs: u64,
    /// How many there have been.
    pub births: u64,
}

impl Counter {
    /// Begins to count, nobody yet.
    ///
    /// # Errors
    ///
    /// Where the kernel does not let it.
    pub fn new() -> libbpf_rs::Result<Counter> {
        libbpf_rs::set_print(None);
        let object = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut skel = IdleSkelBuilder::default().open(object)?.load()?;
        skel.attach()?;
        let told = Rc::new(Cell::new(false));
        let mut builder = RingBufferBuilder::new();
        let tell = told.clone();
        builder.add(&skel.maps.idle, move |_| {
            tell.set(true);
            0
        })?;
        let events = builder.build()?;
        Ok(Counter { skel, events, told })
    }

    /// Counts the tasks of process `pid` from now on. Whether they run at this moment is not known: see [`Counter::count`].
    pub fn add(&self, pid: u32) {
        let unknown = [0_u8; 8];
        for thread in threads_of(pid) {
            // One that is counted already stays as it is.
            let _ = self.skel.maps.tasks.update(&thread.to_ne_bytes(), &unknown, MapFlags::NO_EXIST);
        }
    }

    /// The count. Exact for all tasks that have slept once since they were added, or were born since.
    pub fn count(&self) -> Count {
        let Some(data) = self.data() else { return Count { busy: 1, runs: 0, births: 0 } };
        // SAFETY: mapped as long as the program is loaded; the kernel writes it at any time.
        unsafe {
            let running = read_volatile(&raw const (*data).running);
            let waking = read_volatile(&raw const (*data).waking);
            Count {
                busy: running + waking,
                runs: read_volatile(&raw const (*data).runs),
                births: read_volatile(&raw const (*data).births),
            }
        }
    }

    /// The tasks that ran after the count of `since` and until `until`; none where they are too many to be remembered.
    pub fn ran(&self, since: u64, until: u64) -> Option<Vec<u32>> {
        let data = self.data()?;
        // SAFETY: as above.
        let remembered = unsafe { &raw const (*data).ran };
        const LEN: u64 = 256;
        (until - since <= LEN / 2).then(|| {
            let place = |i: u64| (i % LEN) as usize;
            // SAFETY: as above, and within the array.
            (since..until).map(|i| unsafe { read_volatile(&raw const (*remembered)[place(i)]) }).collect()
        })
    }

    /// Waits until all has gone idle, at most so long.
    pub fn wait(&self, limit: Duration) {
        self.told.set(false);
        // An interruption is a wake-up like any other.
        let _ = self.events.poll(limit);
    }

    fn data(&self) -> Option<*const bss> {
        self.skel.maps.bss_data.as_deref().map(std::ptr::from_ref)
    }
}
