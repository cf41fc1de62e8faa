//! A slice: one container's part of a round. Its tasks run, alone on their processor, until the clock stands at the round's end or
//! they have nothing left to do.
//!
//! While the tasks run, the clock runs at the container's rate. When all of them sleep, the clock jumps to their first deadline. If
//! that lies beyond the round's end, the slice is over. The freezer of the control group stops tasks that still run at the end.
//! However long that takes, their clock has been standing since it reached the limit.
//!
//! All tasks may sleep because one of them has something to send that containers behind it must not see yet (send ordering). Then
//! the clock stands there, and the slice continues when the others have come as far.

use std::time::{Duration, Instant};

use lorentz_clock::{failpoint, saturate, Failpoint, Span, VirtualInstant};

use crate::member::Member;
use crate::watch::Watch;

/// Time of polling before the worker waits for an event; most programs wait again within it.
const LOOKS: Duration = Duration::from_micros(100);
/// Time before the limit, ns, at which the worker wakes; it spins for the rest, to be exact.
const EARLY: Span = Span(60_000);
/// A deadline nearer than this, ns, comes by itself sooner than a jump would take.
const NEAR: Span = Span(20_000);
/// Time that a notified task may take to wake, on a busy processor.
const WAKING: Duration = Duration::from_millis(5);
/// Time after the end of a wait from which the worker takes it that the thread left the wait by siglongjmp.
const ABANDONED: Duration = Duration::from_millis(250);
/// Time that a timer set to a past moment may take. Its thread runs once to set it, and again when it expires.
const GOING_OFF: Duration = Duration::from_micros(50);
/// Length of a slice, real time, after which it may be broken off for another timeline's.
const TURN: Duration = Duration::from_millis(3);
/// Time that tasks may take to stop. A task in an uninterruptible wait stops when it returns; its clock stands meanwhile.
const PATIENCE: Duration = Duration::from_secs(1);

/// The worker's side of a slice.
pub struct Place<'a> {
    /// The source of task states.
    pub watch: &'a Watch,
    /// Number of tasks of the experiment.
    pub tasks: usize,
    /// Whether another timeline's container waits for the same processor.
    pub others: &'a dyn Fn() -> bool,
}

/// Gives `member` its slice, up to `end`. Returns false if the slice was broken off for another timeline; the caller continues it
/// later.
pub fn run(member: &mut Member, end: VirtualInstant, place: &Place<'_>) -> bool {
    let begun = Instant::now();
    let from = beginning(member, end);
    if member.stopped && from >= end {
        // The container had all of this slice and more when it ran on after an earlier one, or it joined with a later time.
        member.used.slices += 1;
        member.used.at_limit += 1;
        member.clock.stand(end);
        return true;
    }
    let ahead = begin(member, from, end, place);
    let (outcome, rested) = until_end(member, from, end, place);
    match outcome {
        Outcome::Idle => {
            member.clock.stand(end);
            member.account.forgive();
        }
        Outcome::AtLimit | Outcome::InLine | Outcome::BrokenOff => {
            if outcome != Outcome::AtLimit {
                // The clock stands where it is.
                member.clock.stand(VirtualInstant(0));
            }
            let overrun = if outcome == Outcome::InLine { Span::ZERO } else { stop(member, end) };
            let seen = place.watch.look(member.group, &member.cgroup, place.tasks);
            let took = begun.elapsed();
            let due = match rested {
                // The container had all that it wanted, except the time that others took.
                true => took.as_nanos() as i128 - i128::from(overrun.0),
                false => {
                    let ran = member.real_of(member.clock.now().since(from).max(Span::ZERO));
                    i128::from(ran.0) + ahead.as_nanos() as i128
                }
            };
            member.settle(took, Span(saturate(due)), &seen);
        }
    }
    member.in_line = outcome == Outcome::InLine;
    let over = !matches!(outcome, Outcome::InLine | Outcome::BrokenOff);
    member.used.slices += u64::from(over);
    member.used.at_limit += u64::from(outcome == Outcome::AtLimit);
    member.used.wanted += begun.elapsed();
    outcome != Outcome::BrokenOff
}

/// Returns the virtual time in a slice up to `end` from which the container has something to do.
fn beginning(member: &mut Member, end: VirtualInstant) -> VirtualInstant {
    match member.next_deadline() {
        next if member.stopped || member.seen.awake => {
            let now = member.clock.now();
            // A deadline before `end` is not skipped.
            let until = next.map_or(end, |next| next.min(end));
            now.plus(member.skip_what_it_had(until.since(now).max(Span::ZERO)))
        }
        Some(next) if next <= end => next,
        _ => end,
    }
}

/// Lets the clock run from `from`, and the tasks. Returns the real time for which the tasks ran before the clock did.
fn begin(
    member: &mut Member,
    from: VirtualInstant,
    end: VirtualInstant,
    place: &Place<'_>,
) -> Duration {
    let ahead = match member.stopped {
        true => member.account.draw(member.real_of(end.since(from))),
        false => Span::ZERO,
    };
    if ahead > NEAR {
        member.clock.stand(from);
    } else {
        member.clock.run(from, end, member.rate);
    }
    failpoint(member.clock.registry(), Failpoint::SliceBegun);
    if member.stopped {
        // Notify first: a wait that the freezer broke off continues only if its signal is pending when its thread runs.
        member.clock.notify_all(&member.seen.pids);
        member.cgroup.thaw();
        member.stopped = false;
    } else {
        member.clock.notify_due(&member.seen.pids);
    }
    failpoint(member.clock.registry(), Failpoint::SliceRunning);
    if ahead <= NEAR {
        return Duration::ZERO;
    }
    let ran = run_ahead(member, Duration::from_nanos(ahead.0 as u64), place);
    member.clock.run(from, end, member.rate);
    member.clock.notify_due(&member.seen.pids);
    ran
}

/// Lets the tasks run for `ahead` while their clock stands. Returns how long they ran: less than `ahead` if all of them slept
/// before.
fn run_ahead(member: &Member, ahead: Duration, place: &Place<'_>) -> Duration {
    let begun = Instant::now();
    while let Some(left) = ahead.checked_sub(begun.elapsed()) {
        place.watch.wait(left);
        if place.watch.idle(member.group, &member.cgroup, place.tasks).is_some() {
            break;
        }
    }
    begun.elapsed()
}

/// The end of a slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    /// The tasks still run when the clock has come to the end.
    AtLimit,
    /// The tasks sleep, and none has a deadline before the end.
    Idle,
    /// The tasks sleep, one of them because it has something to send (send ordering).
    InLine,
    /// The tasks still run, and another timeline's container waits for the processor.
    BrokenOff,
}

/// Waits for the end of a slice that began at `from`. Also returns whether the clock jumped to a deadline of the container.
fn until_end(
    member: &mut Member,
    from: VirtualInstant,
    end: VirtualInstant,
    place: &Place<'_>,
) -> (Outcome, bool) {
    let begun = Instant::now();
    let (mut looked_since, mut rested) = (begun, false);
    let mut due = Due::since(from, member);
    loop {
        if let Some(runs) = place.watch.idle(member.group, &member.cgroup, place.tasks) {
            if due.are_awaited(member, runs) {
                continue;
            }
            match member.clock.next_deadline() {
                _ if member.clock.has_waiting_sender() => return (Outcome::InLine, rested),
                Some(next) if next <= end => {
                    // The container had nothing to do; nobody took time from it.
                    member.account.forgive();
                    rested = true;
                    if next.since(member.clock.now()) > NEAR {
                        member.clock.run(next, end, member.rate);
                        member.clock.notify_due(&member.seen.pids);
                    }
                    looked_since = Instant::now();
                }
                _ => return (Outcome::Idle, rested),
            }
        } else if member.clock.until_limit() == Span::ZERO {
            return (Outcome::AtLimit, rested);
        }
        if looked_since.elapsed() > LOOKS {
            let left = member.clock.until_limit();
            if left <= EARLY {
                while member.clock.until_limit() > Span::ZERO {
                    std::hint::spin_loop();
                }
                return (Outcome::AtLimit, rested);
            }
            let left = Duration::from_nanos((left.0 - EARLY.0) as u64);
            if member.timeline.is_none() {
                place.watch.wait(left);
            } else {
                place.watch.wait(left.min(TURN));
                if begun.elapsed() >= TURN && (place.others)() {
                    return (Outcome::BrokenOff, rested);
                }
            }
            looked_since = Instant::now();
        }
    }
}

/// Threads whose deadline has come and that still sleep: they are about to wake.
struct Due {
    /// Virtual time up to which all deadlines are notified.
    told: VirtualInstant,
    /// Value of `runs` at the last notification or finding of an overdue wait, and its time.
    last: Option<(u64, Instant)>,
}

impl Due {
    /// Begins at `from`, in a slice of `member`. All threads that slept have been notified.
    fn since(from: VirtualInstant, member: &Member) -> Due {
        let last = (!member.seen.awake).then(|| (member.seen.runs, Instant::now()));
        Due { told: from.plus(Span(-1)), last }
    }

    /// Whether a thread is about to wake. The caller has found all tasks asleep when they had run `runs` times.
    fn are_awaited(&mut self, member: &mut Member, runs: u64) -> bool {
        let now = member.clock.now();
        let before = std::mem::replace(&mut self.told, now);
        let told = now > before && member.clock.notify_between(before, now, &member.seen.pids);
        let overdue = member.clock.has_overdue_wait(member.served);
        let (seen, when) = match self.last {
            Some((seen, when)) if !told && (seen == runs || !overdue) => (seen, when),
            None if !told && !overdue => return false,
            _ => *self.last.insert((runs, Instant::now())),
        };
        let patience = match overdue {
            true => ABANDONED,
            false if seen == runs => WAKING,
            false => GOING_OFF,
        };
        if when.elapsed() < patience {
            return true;
        }
        (member.served, self.last) = (now, None);
        false
    }
}

/// Stops the tasks. Adds and returns the overrun: the real time for which they ran on while their clock stood.
fn stop(member: &mut Member, end: VirtualInstant) -> Span {
    let stopping = Instant::now();
    if member.cgroup.begin_freeze().is_err() {
        // The control group is gone and has no tasks.
        return Span::ZERO;
    }
    while stopping.elapsed() < PATIENCE && member.cgroup.is_frozen().is_ok_and(|frozen| !frozen) {
        std::hint::spin_loop();
    }
    failpoint(member.clock.registry(), Failpoint::SliceStopped);
    let overrun = member.clock.since_limit();
    member.stopped = true;
    // These include processes that have come since the last look.
    member.clock.repeat_interrupted_calls(&member.cgroup.pids().unwrap_or_default());
    member.used.overruns.note(overrun);
    let perceived = member.clock.now().since(end);
    member.used.perceived_overshoot = member.used.perceived_overshoot.max(perceived);
    overrun
}
