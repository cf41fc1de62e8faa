//! Send ordering: in an experiment, no program receives data before the time at which another sent them.
//!
//! The clocks of an experiment advance one after another within a round, so one may show a later time than another. Its
//! program may send something then, through a socket or a pipe that the containers share. Another program could read it at an
//! earlier time. So a send waits until all other clocks have come as far as the sender's.

use crate::clocks;
use crate::layout::clock;
use crate::sys::{sys, Fd, FutexOp, Stat, Sysno};
use crate::wait::Slot;
use lorentz_clock::{Deadline, Policy, Span, VirtualInstant, Waiter};

/// Waits until others may see the data that the program writes to `descriptor`.
pub fn wait_until_visible(descriptor: Fd) {
    let Policy { orders_sends: true, .. } = clock().policy() else { return };
    if clock().send_order().0 == VirtualInstant::NEVER || !is_channel(descriptor) {
        return;
    }
    // It was sent now, however long it waits.
    let look = clocks::snapshot();
    let sent = look.now();
    let mut slot = Slot::default();
    loop {
        let (others, seq) = clock().send_order();
        if sent <= others {
            return;
        }
        // By its place in the registry the experiment knows that it waits.
        slot.state(Sysno::new(Waiter::SEND_ORDER), Deadline::Never, look.state, Span::ZERO);
        wait_for_another(seq);
    }
}

/// Whether others may read what is written there: a socket or a pipe.
fn is_channel(descriptor: Fd) -> bool {
    const TYPE: u64 = 0o170_000;
    const SOCKET: u64 = 0o140_000;
    const FIFO: u64 = 0o010_000;
    // The fourth word begins with the mode.
    Stat::of(descriptor).is_ok_and(|Stat(words)| matches!(words[3] & TYPE, SOCKET | FIFO))
}

/// Sleeps until the sequence number of the send order differs from `seq`. Signals wait meanwhile, at most to the round's end.
fn wait_for_another(seq: u32) {
    let word = core::ptr::from_ref(clock().send_order_word());
    // SAFETY: the kernel compares the word, and reads nothing else. The page is shared with the experiment, which increments it.
    let _ = unsafe { sys!(Sysno::futex, word, FutexOp::FUTEX_WAIT, seq, 0, 0, 0) };
}
