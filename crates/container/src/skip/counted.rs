//! Whether a clock is idle, by the kernel's count of its tasks: little is looked at again that has been looked at.

use std::collections::HashSet;
use std::time::Duration;

use super::kernel::{Count, Counter};
use super::outside::Outside;
use super::tasks::{all_of, asleep, members, Asleep, Cause};
use crate::processes::FileId;
use crate::Clock;

/// The kernel's count, and what is known about those that are counted.
pub struct Counted {
    counter: Counter,
    /// How many programs had been brought onto the clock, and how many tasks had been born, when all were listed.
    entries: u32,
    births: u64,
    members: Vec<u32>,
    tasks: Vec<Asleep>,
    /// Whether the count was right once: then it stays right.
    sure: bool,
    /// Up to which run it is known who ran, and who has not run since it was found that nobody outside can wake it.
    runs: u64,
    quiet: HashSet<u32>,
}

impl Counted {
    /// Begins to count.
    ///
    /// # Errors
    ///
    /// Where the kernel does not let it.
    pub fn new() -> libbpf_rs::Result<Counted> {
        Ok(Counted {
            counter: Counter::new()?,
            entries: 0,
            births: 0,
            members: Vec::new(),
            tasks: Vec::new(),
            sure: false,
            runs: 0,
            quiet: HashSet::new(),
        })
    }

    /// Waits until all has gone idle, at most so long.
    pub fn wait(&self, limit: Duration) {
        self.counter.wait(limit);
    }

    /// The count, where nothing keeps time from leaping; else what does.
    pub fn idle(
        &mut self,
        clock: &Clock,
        file: &FileId,
        whatever_comes: bool,
    ) -> Result<Count, Cause> {
        self.list(clock, file);
        let count = self.counter.count();
        if count.busy != 0 {
            return Err(Cause { pid: 0, what: "runs".into() });
        }
        if !self.sure {
            asleep(&self.members)?;
            self.sure = self.is_still(clock, count);
        }
        if !whatever_comes {
            self.forget_who_ran(count.runs);
            self.look_outside()?;
        }
        Ok(count)
    }

    /// Whether nothing has run since `count`, nor come to the clock.
    pub fn is_still(&self, clock: &Clock, count: Count) -> bool {
        self.counter.count() == count && clock.entries() == self.entries
    }

    /// Lists who there is, where somebody has come since.
    fn list(&mut self, clock: &Clock, file: &FileId) {
        let (entries, births) = (clock.entries(), self.counter.count().births);
        if entries == self.entries && births == self.births && self.sure {
            return;
        }
        let listed = members(file);
        if entries != self.entries || !self.sure {
            listed.iter().for_each(|pid| self.counter.add(*pid));
            self.sure = false;
        }
        self.tasks = all_of(&listed);
        self.members = listed;
        (self.entries, self.births) = (entries, births);
        self.quiet.clear();
    }

    fn forget_who_ran(&mut self, runs: u64) {
        match self.counter.ran(self.runs, runs) {
            Some(ran) => ran.iter().for_each(|task| {
                self.quiet.remove(task);
            }),
            None => self.quiet.clear(),
        }
        self.runs = runs;
    }

    fn look_outside(&mut self) -> Result<(), Cause> {
        let mut outside = Outside::of(&self.members);
        for task in &self.tasks {
            if !self.quiet.contains(&task.thread) && outside.holds_one(task)? {
                self.quiet.insert(task.thread);
            }
        }
        Ok(())
    }
}
