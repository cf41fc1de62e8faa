//! A thread that spins on a clock which stands while tasks run (`compute: none`).
//!
//! Such a clock moves only when all tasks sleep. A thread that reads it until some time has come would read the same time for
//! ever. So a thread sleeps at each [`READS`]-th read of one instant, for [`READS`] times the cost of a read. The sleep is a wait
//! like any other: the experiment finds all tasks asleep, and moves the clock to its end. How often the thread reads before it sees
//! another time does not depend on the machine.

use crate::clocks;
use crate::deadline::{due, wake_up};
use crate::gate::{self, OpenCall};
use crate::layout::{clock, data};
use crate::sys::{request, sig, SigSet, Sysno, Timespec};
use crate::wait::Slot;
use core::sync::atomic::Ordering::Relaxed;
use lorentz_clock::{Deadline, Span, VirtualInstant};

/// Reads of one instant before the thread sleeps.
const READS: u32 = 100;
/// Virtual time that a read takes, in the mean over such loops.
const READ_COST: Span = Span(1_000);
/// Longest sleep in the kernel, real ns; then the thread looks at the clock again.
const MAX_SLEEP: Span = Span(100_000_000);

/// Counts a read of the clock, if the clock stands while tasks run. Sleeps if the process has read this instant too often.
pub fn count_read() {
    if !clock().stands_while_tasks_run() {
        return;
    }
    let now = clocks::snapshot().now();
    // Several threads share the counter: then it is only nearly right.
    if data().instant_read.swap(now.0, Relaxed) != now.0 {
        data().reads_of_instant.store(1, Relaxed);
        return;
    }
    if data().reads_of_instant.fetch_add(1, Relaxed) + 1 >= READS {
        data().reads_of_instant.store(0, Relaxed);
        sleep_until(now.plus(Span(READ_COST.0 * i64::from(READS))));
    }
}

/// Sleeps until `instant`. Signals of the program's wait meanwhile: the time is short, and its thread may be in a handler.
fn sleep_until(instant: VirtualInstant) {
    let (deadline, mut slot) = (Deadline::Virtual(instant), Slot::default());
    let mask = SigSet::ALL.without(SigSet::of(sig::CLOCK_CHANGE));
    loop {
        let look = clocks::snapshot();
        if look.now() >= due(deadline, &look) {
            return;
        }
        slot.state(Sysno::clock_nanosleep, deadline, look.state, Span::ZERO);
        let until = wake_up(deadline, &look).min(look.real.plus(MAX_SLEEP));
        let mut length = Timespec::from_span(Span(until.since(look.real).0.max(1)));
        let (length, mask) = (&raw mut length, &raw const mask);
        let sleep = request!(Sysno::ppoll, 0, 0, length, mask, SigSet::LEN);
        let mut call = OpenCall::new(&sleep, look.version, SigSet::ALL, 0);
        // SAFETY: the kernel reads `mask`, and `length`, which it may write too. No mark is placed, so no frame needs room.
        unsafe { gate::pass(&mut call) };
    }
}
