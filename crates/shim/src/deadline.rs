//! Deadlines as the clock stands: their virtual and their real instants.

use crate::clocks;
use crate::layout::{clock, registry};
use lorentz_clock::{Deadline, RealInstant, Segment, Snapshot, Span, VirtualInstant};

/// The way back from the kernel to the program takes this long. The shim asks the kernel to wake the thread so much earlier.
/// The kernel wakes it later than asked anyway, by the timer slack. The thread spends a rest by looking at the clock.
const RETURN_TIME: Span = Span(2_500);

/// The virtual instant of `deadline`, as the clock stands.
pub fn due(deadline: Deadline, snapshot: &Snapshot) -> VirtualInstant {
    due_by(deadline, &snapshot.segment)
}

/// The same by one piece of the clock: a wall time is another instant after the wall clock was stepped, and a time of CLOCK_BOOTTIME
/// after a suspend.
pub fn due_by(deadline: Deadline, segment: &Segment) -> VirtualInstant {
    match deadline {
        Deadline::Virtual(instant) => instant,
        Deadline::Wall(wall) => segment.virtual_at_wall(wall),
        Deadline::Boot(boot) => segment.virtual_at_boot(boot),
        Deadline::Never => VirtualInstant::NEVER,
    }
}

/// The real instant of `deadline`, by the piece in force and those to come.
pub fn real_due(deadline: Deadline, snapshot: &Snapshot) -> RealInstant {
    clock().when(registry(), snapshot, |segment| due_by(deadline, segment))
}

/// The real instant at which the kernel has to wake a thread that waits for `deadline`.
pub fn wake_up(deadline: Deadline, snapshot: &Snapshot) -> RealInstant {
    let until = real_due(deadline, snapshot);
    if until == RealInstant::NEVER || until.since(snapshot.real).0 < 4 * RETURN_TIME.0 {
        return until;
    }
    RealInstant(until.0 - RETURN_TIME.0)
}

/// Whether virtual time has come to `deadline`.
pub fn reached(deadline: Deadline) -> bool {
    let snapshot = clocks::snapshot();
    snapshot.now() >= due(deadline, &snapshot)
}

/// Whether `deadline` is at most `span` of real time away, as the clock stands.
pub fn is_near(deadline: Deadline, span: Span) -> bool {
    let look = clocks::snapshot();
    let until = real_due(deadline, &look);
    until != RealInstant::NEVER && until.since(look.real) <= span
}

/// Whether virtual time has come to `deadline`, or comes to it in the next moment: then it has, at the return.
pub fn reached_soon(deadline: Deadline) -> bool {
    loop {
        let look = clocks::snapshot();
        if look.now() >= due(deadline, &look) {
            return true;
        }
        if real_due(deadline, &look).since(look.real) > RETURN_TIME {
            return false;
        }
        core::hint::spin_loop();
    }
}

/// Virtual time left until `deadline` when a signal broke off a call that had `left` of the real time until `until` to go.
/// The kernel measures `left` at the interruption, before the program's handler has run.
pub fn left_at_interruption(deadline: Deadline, until: RealInstant, left: Span) -> Span {
    let look = clocks::snapshot();
    let then = match until {
        RealInstant::NEVER => look.now(),
        _ => look.piece().virtual_at(RealInstant(until.0 - left.0)),
    };
    Span(due(deadline, &look).since(then).0.max(0))
}
