//! Waiting for a virtual deadline: the loop that every timed system call goes through.
//!
//! A wait looks at the clock, states in the registry what it waits for, and blocks in the kernel until the real
//! instant that the deadline has now. When the clock changes a clock-change signal takes it out of the kernel. It looks again, and
//! blocks again. It ends when the call itself ends, when the virtual deadline is reached, or with EINTR where
//! the kernel would have said EINTR.

use crate::call::{Call, AGAIN};
use crate::clocks;
use crate::deadline;
use crate::gate::{self, OpenCall, EARLY, RETRY};
use crate::layout::{clock, registry};
use crate::process;
use crate::sys::{self, sig, Errno, Request, SaFlags, SigSet, SysResult, Sysno};
use crate::timeout::Timeout;
use crate::timers::Rearms;
use crate::trap_mask;
use lorentz_clock::{failpoint, Deadline, Epoch, Failpoint, ProcessId, Span, Waiter};

/// How the program's signal mask gets into force during the call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Masking {
    /// The call takes a mask and puts it in force atomically.
    ByCall,
    /// The mask is put in force just before the call. A signal makes the call return EINTR.
    Interrupts,
    /// As above, but after a signal whose handler asks for it (SA_RESTART) the program repeats the call, as the kernel would.
    Restarts,
    /// As above, but a signal that came before the call lets the program repeat it, as one before its system call: for calls that
    /// seldom block, and return EINTR only where they do. Files never do.
    Repeats,
}

/// How often a wait that found no place in the registry looks at the clock.
const POLL_INTERVAL: Span = Span(10_000_000);

/// A wait for a deadline. It may take several tries, for the clock may change meanwhile.
pub struct Wait<'a> {
    call: &'a Call<'a>,
    deadline: Deadline,
    masking: Masking,
    slot: Slot,
}

impl Wait<'_> {
    /// A wait of `call` until `deadline`.
    pub fn new<'a>(call: &'a Call<'a>, deadline: Deadline, masking: Masking) -> Wait<'a> {
        Wait { call, deadline, masking, slot: Slot::default() }
    }

    /// Makes `request` with its `timeout`, and returns its result. `None` where the clock has changed and the wait goes on.
    /// `timed_out` tells from a result that the kernel's timeout has run out.
    pub fn attempt(
        &mut self,
        request: &mut Request,
        timeout: &mut Timeout,
        timed_out: impl Fn(SysResult) -> bool,
    ) -> Option<SysResult> {
        let version = self.prepare(request, timeout);
        failpoint(registry(), Failpoint::WaitPublished);
        let passed = block(self.call, request, version, self.masking);
        if let Some(result) = passed.result {
            if !timed_out(result) || deadline::reached_soon(self.deadline) {
                return Some(result);
            }
        }
        // The clock has changed. The wait goes on, unless a handler has run while it was not in its call.
        passed.broken_off(self.masking)
    }

    /// States the deadline in the registry, and gives `request` its timeout. Returns the version of the clock that it was
    /// computed from.
    fn prepare(&mut self, request: &mut Request, timeout: &mut Timeout) -> u64 {
        loop {
            let leapt = registry().leaps.sum();
            let snapshot = clocks::snapshot();
            self.slot.state(self.call.nr, self.deadline, snapshot.state, leapt);
            if clock().version() != snapshot.version {
                continue;
            }
            let mut until = deadline::wake_up(self.deadline, &snapshot);
            if self.slot.waiter.is_none() {
                // The registry is full: nobody can signal this thread, so it looks again by itself.
                until = until.min(snapshot.real.plus(POLL_INTERVAL));
            }
            timeout.set(request, until, &snapshot);
            return snapshot.version;
        }
    }
}

/// Makes `request` until it ends by itself, by a signal or at `deadline`.
pub fn wait(
    call: &Call,
    deadline: Deadline,
    masking: Masking,
    request: &mut Request,
    timeout: &mut Timeout,
    timed_out: impl Fn(SysResult) -> bool,
) -> SysResult {
    let mut wait = Wait::new(call, deadline, masking);
    loop {
        if let Some(result) = wait.attempt(request, timeout, &timed_out) {
            return result;
        }
    }
}

/// Carries out a call that blocks without a deadline, so that signals reach the program meanwhile.
pub fn wait_untimed(call: &Call, request: &Request, masking: Masking) -> SysResult {
    loop {
        let passed = block(call, request, clock().version(), masking);
        if let Some(result) = passed.result {
            return result;
        }
        if let Some(broken_off) = passed.broken_off(masking) {
            return broken_off;
        }
    }
}

/// Makes the program's own call, which may block.
pub fn blocking(call: &Call, masking: Masking) -> SysResult {
    wait_untimed(call, &call.request(), masking)
}

/// How a blocking call ended.
struct Passed {
    /// The call's result; `None` where the clock has changed.
    result: Option<SysResult>,
    /// The signal whose handler ran while the program's mask was in force; 0 where its number is not known.
    handled: Option<u32>,
}

impl Passed {
    /// The result, where a handler of the program's has run.
    fn broken_off(&self, masking: Masking) -> Option<SysResult> {
        self.handled.map(|signal| Err(interrupted_by(signal, masking)))
    }
}

/// One blocking call with the program's mask in force.
fn block(call: &Call, request: &Request, version: u64, masking: Masking) -> Passed {
    let leapt = registry().leaps.sum();
    let rearms = Rearms::until_now();
    let mut open = OpenCall::new(request, version, call.mask(), frame_state(call));
    let mut comes = None;
    let result = if masking == Masking::ByCall {
        // SAFETY: the program's own call, as its part of the shim has prepared it; `frame_state` says that there is room for a
        // frame.
        unsafe { gate::pass(&mut open) }
    } else {
        comes = waiting_signal(call.mask());
        // Its handler runs in the gate, where it leaves its mark.
        if let (Some(signal), false) = (comes, open.can_be_marked()) {
            let result = Some(Err(interrupted_by(signal, masking)));
            return Passed { result, handled: None };
        }
        failpoint(registry(), Failpoint::BeforeOpenGate);
        // SAFETY: as above.
        unsafe { gate::pass_open(&mut open) }
    };
    let handled = open.handled().map(|signal| match (signal, comes) {
        (0, Some(known)) => known,
        _ => signal,
    });
    let changed =
        version != clock().version() || leapt != registry().leaps.sum() || rearms.overlap();
    let result = match (result, handled) {
        (RETRY, _) => None,
        (EARLY, _) => Some(Err(interrupted_by(handled.unwrap_or(0), masking))),
        (result, handled) => match (Errno::check(result), handled) {
            // No handler of the program's ran: the signal was a timer's that a change has had set anew. The kernel dropped the
            // signal, and sends it again.
            (Err(Errno::EINTR), None) if changed && open.can_be_marked() => None,
            (result, _) => Some(result),
        },
    };
    Passed { result, handled }
}

/// The error of a call that `signal` has interrupted, 0 for one that is not known: its handler ran in the moment before the call
/// blocked, and has asked for no siginfo. Then the program repeats a call that a signal may restart.
fn interrupted_by(signal: u32, masking: Masking) -> Errno {
    match masking {
        Masking::Repeats => return AGAIN,
        Masking::ByCall | Masking::Interrupts => return Errno::EINTR,
        Masking::Restarts => {}
    }
    if signal == 0 || sys::action_of(signal).flags.contains(SaFlags::SA_RESTART) {
        AGAIN
    } else {
        Errno::EINTR
    }
}

/// The size of the floating-point state in a signal frame, as the kernel wrote it into the frame of this very trap; 0 where it does
/// not, or where no other frame fits on this stack.
fn frame_state(call: &Call) -> u64 {
    /// Where struct _fpx_sw_bytes lies in the state: a magic word, then the size.
    const SW_BYTES: usize = 464;
    const MAGIC: u32 = 0x4650_5853;
    /// More than the rest of a frame takes.
    const MAX_REST: u64 = 2048;
    let state = call.context.fp[0] as *const u8;
    if state.is_null() {
        return 0;
    }
    // SAFETY: the kernel has written the state when it delivered the trap.
    let [magic, size] = unsafe { state.add(SW_BYTES).cast::<[u32; 2]>().read_unaligned() };
    let here = &raw const magic as u64;
    let stack = call.context.stack;
    let room = match stack.size != 0 && (stack.sp..stack.sp + stack.size).contains(&here) {
        true => here - stack.sp,
        false => u64::MAX,
    };
    let size = u64::from(size);
    if magic == MAGIC && room > size + MAX_REST {
        size
    } else {
        0
    }
}

/// Waits for a moment where a signal is `due`. Says whether one waits for the program, with `mask` in force.
pub fn signal_comes(mask: SigSet, due: bool) -> bool {
    const SIGNAL_TIMEOUT: Span = Span(200_000);
    let end = clocks::host().plus(SIGNAL_TIMEOUT);
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
pub fn signal_waits(mask: SigSet) -> bool {
    waiting_signal(mask).is_some()
}

/// Such a signal. Where there are several, one that makes calls return EINTR rather than one that restarts them.
fn waiting_signal(mask: SigSet) -> Option<u32> {
    let mut left = sys::pending_signals().without(mask).without(sig::OURS);
    let mut found = None;
    while let Some(signal) = left.take_lowest() {
        let action = sys::action_of(signal);
        if trap_mask::is_ignored(signal, &action) {
            continue;
        }
        found = Some(signal);
        if !action.flags.contains(SaFlags::SA_RESTART) {
            break;
        }
    }
    found
}

/// A place in the registry, given back when the wait is over.
#[derive(Default)]
pub struct Slot {
    waiter: Option<&'static Waiter>,
    owner: (ProcessId, u32),
    /// The life of the process that claimed it: a handler may have forked in the midst of the wait, and the child returns into a
    /// copy.
    epoch: Epoch,
}

impl Slot {
    /// States what this thread waits for, in system call `nr`, as computed from state `observed_state` of the clock that had leapt
    /// by `leapt`.
    pub fn state(&mut self, nr: Sysno, deadline: Deadline, observed_state: u32, leapt: Span) {
        if self.own().is_none() {
            self.owner = (process::own(), sys::gettid());
            self.epoch = process::epoch();
            let (process, thread) = self.owner;
            self.waiter = registry().claim_waiter(process, thread, self.depth());
            failpoint(registry(), Failpoint::WaitClaimed);
        }
        if let Some(waiter) = self.waiter {
            waiter.publish(deadline, nr.number(), observed_state, leapt);
        }
    }

    /// The place, unless the wait of a handler on another stack has taken it, or it is another process's.
    fn own(&self) -> Option<&'static Waiter> {
        let of_this_life = |waiter: &&Waiter| {
            waiter.is_of(self.owner, self.depth()) && process::epoch() == self.epoch
        };
        self.waiter.filter(of_this_life)
    }

    fn depth(&self) -> u64 {
        self as *const Slot as u64
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(waiter) = self.own() {
            failpoint(registry(), Failpoint::WaitLeaving);
            waiter.release();
        }
    }
}
