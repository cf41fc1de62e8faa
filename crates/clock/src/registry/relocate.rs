//! Processes that have moved into another process id namespace.

use super::{Armed, Registry, Setting, Timer};
use crate::process::{PidNamespace, ProcessId};
use crate::sync::Ordering;

impl Registry {
    /// Gives each process of namespace `from` the same number in namespace `to`, as a restore into a namespace of its own does. Nobody
    /// may use the registry meanwhile.
    ///
    /// A thread that waits takes its slot for one that it has left by a jump: it uses the slot again at its next look at the clock.
    ///
    /// The result is false if a timer finds no slot: it does not follow the clock any more.
    pub fn relocate(&self, from: PidNamespace, to: PidNamespace) -> bool {
        let is_there = |process: ProcessId| process.namespace() == from;
        for waiter in self.waiters() {
            let Some((process, thread)) = waiter.owner().filter(|(process, _)| is_there(*process))
            else {
                continue;
            };
            let moved = ProcessId::new(to, process.number());
            waiter.owner.store(moved.key(thread), Ordering::Relaxed);
        }
        // A timer may be met again in its new slot.
        let timers = self.timers().filter_map(|timer| Some((timer, timer.owner()?)));
        let mut all_moved = true;
        for (timer, (process, kind, id)) in timers.filter(|(_, (process, ..))| is_there(*process)) {
            // The new slot may be the old one.
            let kept = Kept::of(timer);
            timer.release();
            match self.claim_timer(ProcessId::new(to, process.number()), kind, id) {
                Some(moved) => kept.store(moved),
                None => all_moved = false,
            }
        }
        all_moved
    }
}

/// Everything of a timer but its owner.
struct Kept {
    setting: Setting,
    observed_seq: u32,
    armed: Armed,
    clock: u32,
    signal: u32,
    target: u32,
    signalled_again: i64,
    holder: u64,
}

impl Kept {
    fn of(timer: &Timer) -> Kept {
        Kept {
            setting: timer.setting(),
            observed_seq: timer.observed_seq(),
            armed: timer.armed(),
            clock: timer.clock(),
            signal: timer.signal(),
            target: timer.target(),
            signalled_again: timer.signalled_again(),
            holder: timer.holder.load(Ordering::Relaxed),
        }
    }

    fn store(&self, timer: &Timer) {
        timer.set(self.setting, self.observed_seq);
        timer.set_armed(self.armed);
        timer.set_clock(self.clock);
        timer.set_signal(self.signal);
        timer.set_target(self.target);
        timer.set_signalled_again(self.signalled_again);
        timer.holder.store(self.holder, Ordering::Relaxed);
    }
}
