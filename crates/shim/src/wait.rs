//! Waiting for a virtual deadline: the loop that every timed system call goes through.
//!
//! A wait looks at the clock, states in the registry what it waits for, and blocks in the kernel until the real
//! instant that the deadline has now. When the clock changes it is kicked out of the kernel, looks again, and
//! blocks again. It ends when the call itself ends, when the virtual deadline is reached, or with EINTR where
//! the kernel would have said EINTR.

use crate::clocks;
use crate::gate::{self, RETRY};
use crate::layout::{clock, registry};
use crate::process;
use crate::sys::{self, errno, nr, sig, sys, Sigaction};
use crate::trap::{Call, AGAIN};
use lorentz_clock::{Deadline, ProcessId, RealInstant, Snapshot, Span, VirtualInstant, Waiter};

/// How the program's signal mask gets into force during the call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Masking {
    /// The call takes a mask and puts it in force atomically.
    ByCall,
    /// The mask is put in force just before the call. A signal that was waiting makes the call return EINTR.
    Interrupts,
    /// As above, but a signal that was waiting makes the program repeat the call, as the kernel would.
    Restarts,
}

/// How often a wait that found no place in the registry looks at the clock.
const UNREGISTERED: Span = Span(10_000_000);

/// One try at the call: number and arguments, for a deadline at the real instant given.
pub type Args = [u64; 7];

/// When `deadline` is, in virtual time, as the clock stands.
pub fn due(deadline: Deadline, snapshot: &Snapshot) -> VirtualInstant {
    match deadline {
        Deadline::Virtual(instant) => instant,
        Deadline::Wall(wall) => snapshot.segment.virtual_at_wall(wall),
        Deadline::Never => VirtualInstant::NEVER,
    }
}

/// The real instant of `deadline`, and virtual time still to go.
pub fn real_due(deadline: Deadline, snapshot: &Snapshot) -> RealInstant {
    match due(deadline, snapshot) {
        VirtualInstant::NEVER => RealInstant::NEVER,
        instant => snapshot.real_at(instant),
    }
}

/// Waits. `prepare` gives the call's arguments for a real deadline (and the look it was computed from);
/// `timed_out` tells from a result that the kernel's timeout has run out.
pub fn wait(
    call: &Call,
    deadline: Deadline,
    masking: Masking,
    mut prepare: impl FnMut(RealInstant, &Snapshot) -> Args,
    timed_out: impl Fn(isize) -> bool,
) -> isize {
    let mut slot = Slot::default();
    loop {
        let leapt = registry().leaps.sum();
        let snapshot = clocks::snapshot();
        slot.state(call, deadline, snapshot.sequence, leapt);
        if clock().sequence() != snapshot.sequence {
            continue;
        }
        let mut until = ahead_of(real_due(deadline, &snapshot), snapshot.real);
        if slot.waiter.is_none() {
            // The registry is full there: nobody can kick this thread, so it looks again by itself.
            until = until.min(snapshot.real.plus(UNREGISTERED));
        }
        let args = prepare(until, &snapshot);
        let result = block(call, &args, snapshot.sequence, masking);
        if result == RETRY || (timed_out(result) && !reached_soon(deadline)) {
            continue;
        }
        return result;
    }
}

/// Virtual time left until `deadline` when a call was broken off that had `left` of the real time until `until` to go.
/// The kernel tells `left` for the moment of the interruption, before the program's handler has run.
pub fn left_at_interruption(deadline: Deadline, until: RealInstant, left: Span) -> Span {
    let look = clocks::snapshot();
    let then = match until {
        RealInstant::NEVER => look.now(),
        _ => look.segment.virtual_at(RealInstant(until.0 - left.0)),
    };
    Span(due(deadline, &look).since(then).0.max(0))
}

/// The kernel is asked to wake the thread this much early, for the way back to the program takes as long. It wakes it
/// later than asked anyway, by the timer slack; where it does not, the rest is spent looking at the clock.
const WAY_BACK: Span = Span(2_500);

fn ahead_of(until: RealInstant, now: RealInstant) -> RealInstant {
    if until == RealInstant::NEVER || until.since(now).0 < 4 * WAY_BACK.0 {
        return until;
    }
    RealInstant(until.0 - WAY_BACK.0)
}

/// Whether virtual time has come to `deadline`, or comes to it in the next moment: then it has, at the return.
fn reached_soon(deadline: Deadline) -> bool {
    loop {
        let look = clocks::snapshot();
        if look.now() >= due(deadline, &look) {
            return true;
        }
        if real_due(deadline, &look).since(look.real) > WAY_BACK {
            return false;
        }
        core::hint::spin_loop();
    }
}

/// Whether virtual time has come to `deadline`.
pub fn reached(deadline: Deadline) -> bool {
    let snapshot = clocks::snapshot();
    snapshot.now() >= due(deadline, &snapshot)
}

/// Carries out a call that blocks without a deadline, so that signals reach the program meanwhile.
pub fn wait_untimed(call: &Call, args: &Args, masking: Masking) -> isize {
    loop {
        let result = block(call, args, clock().sequence() & !1, masking);
        if result != RETRY {
            return result;
        }
    }
}

/// One blocking call with the program's mask in force.
fn block(call: &Call, args: &Args, sequence: u32, masking: Masking) -> isize {
    if masking == Masking::ByCall {
        // SAFETY: the program's own call, as its part of the shim has prepared it.
        return unsafe { gate::pass(args, sequence) };
    }
    if signal_waits(call.mask()) {
        return if masking == Masking::Restarts { AGAIN } else { -errno::EINTR };
    }
    sys::set_mask(call.mask());
    // SAFETY: as above.
    let result = unsafe { gate::pass(args, sequence) };
    sys::set_mask(!(1 << (sig::SIGSYS - 1)));
    result
}

/// Whether a signal waits for the program, with `mask` in force; where one is `due` this very moment, after a moment.
pub fn signal_comes(mask: u64, due: bool) -> bool {
    const MOMENT: Span = Span(200_000);
    let end = clocks::host().plus(MOMENT);
    loop {
        if signal_waits(mask) {
            return true;
        }
        if !due || clocks::host() > end {
            return false;
        }
        core::hint::spin_loop();
    }
}

/// Whether a signal is pending that the program has not blocked and does not ignore: one that came after its call began.
pub fn signal_waits(mask: u64) -> bool {
    let mut pending = 0u64;
    // SAFETY: writes to `pending`.
    unsafe { sys!(nr::RT_SIGPENDING, &mut pending as *mut u64, 8u64) };
    let mut left = pending & !mask & !sig::OURS;
    while left != 0 {
        let signal = left.trailing_zeros() + 1;
        left &= left - 1;
        let mut action = Sigaction::default();
        sys::sigaction(signal, None, Some(&mut action));
        if !is_ignored(signal, action.handler) {
            return true;
        }
    }
    false
}

/// Ignored by choice, or by default: SIGCHLD, SIGCONT, SIGURG, SIGWINCH.
fn is_ignored(signal: u32, handler: usize) -> bool {
    handler == 1 || (handler == 0 && matches!(signal, 17 | 18 | 23 | 28))
}

/// A place in the registry, given back when the wait is over.
#[derive(Default)]
struct Slot {
    waiter: Option<&'static Waiter>,
    owner: (ProcessId, u32),
}

impl Slot {
    fn state(&mut self, call: &Call, deadline: Deadline, sequence: u32, leapt: Span) {
        if self.own().is_none() {
            self.owner = (process::own(), sys::gettid());
            let (process, thread) = self.owner;
            self.waiter = registry().claim_waiter(process, thread, self.depth());
        }
        if let Some(waiter) = self.waiter {
            waiter.publish(deadline, call.nr, sequence, leapt);
        }
    }

    /// The place, unless the wait of a handler on another stack has taken it.
    fn own(&self) -> Option<&'static Waiter> {
        self.waiter.filter(|waiter| waiter.is_of(self.owner, self.depth()))
    }

    fn depth(&self) -> u64 {
        self as *const Slot as u64
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(waiter) = self.own() {
            waiter.release();
        }
    }
}
