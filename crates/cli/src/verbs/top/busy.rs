//! How many processors each container has had since the last look.

use std::collections::HashMap;
use std::fs;
use std::time::Instant;

use crate::view::View;

/// CPU time of the containers' processes at the last look.
#[derive(Default)]
pub struct Busy {
    looked: Option<Instant>,
    ticks: HashMap<u32, u64>,
    processors: HashMap<String, f64>,
}

impl Busy {
    /// Looks at the processes of `views`.
    pub fn look(&mut self, views: &[View]) {
        let now = Instant::now();
        let secs = self.looked.replace(now).map(|before| (now - before).as_secs_f64());
        let mut ticks = HashMap::new();
        self.processors.clear();
        for view in views {
            let mut used = 0;
            for pid in view.pids() {
                let Some(now) = ticks_of(pid) else { continue };
                // A process that is new has had its time since the last look.
                used += now.saturating_sub(self.ticks.get(&pid).copied().unwrap_or(0));
                ticks.insert(pid, now);
            }
            if let Some(secs) = secs.filter(|secs| *secs > 0.0) {
                let busy = used as f64 / ticks_per_second() / secs;
                self.processors.insert(view.record.name.clone(), busy);
            }
        }
        self.ticks = ticks;
    }

    /// Processors of the container of this name, on the average since the look before the last one. `None` after the first look.
    pub fn processors(&self, name: &str) -> Option<f64> {
        self.processors.get(name).copied()
    }
}

/// The CPU time of a process, in the kernel's ticks.
fn ticks_of(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // utime and stime, fields 14 and 15; the name, which may have blanks, ends before field 3.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

fn ticks_per_second() -> f64 {
    let known = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten();
    known.map_or(100.0, |ticks| ticks as f64)
}
