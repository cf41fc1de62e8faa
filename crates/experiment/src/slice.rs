//! One container's part of a round: it runs, alone on its processor, until its clock stands at the round's end or it has
//! nothing left to do.
//!
//! While its tasks run, its clock runs at its rate. When all of them sleep, its time goes on to what the first of them waits
//! for, without waiting; if that lies beyond the round's end, the slice is over. Tasks that still run at the end are stopped by
//! the control group's freezer. However long that takes, their clock has been standing since the limit was reached.
//!
//! Where all sleep because one of them has something to send that containers behind it must not see yet, the clock stands there,
//! and the slice goes on when the others have come as far.

use std::time::{Duration, Instant};

use lorentz_clock::{failpoint, saturate, Failpoint, Span, VirtualInstant};

use crate::member::Member;
use crate::watch::Watch;

/// For so long it is looked at again and again; most programs wait again by then.
const LOOKS: Duration = Duration::from_micros(100);
/// Woken so early, there is time to be exact.
const EARLY: Span = Span(60_000);
/// Deadlines nearer than this come sooner by themselves than anything could be done about them.
const NEAR: Span = Span(20_000);
/// How long a task that has been told may take to wake, on a busy processor.
const WAKING: Duration = Duration::from_millis(5);
/// Who is still in a wait that has ended for so long has jumped out of it.
const ABANDONED: Duration = Duration::from_millis(250);
/// How long a timer may take that was set for a moment gone by: its thread runs once to set it, and again when it goes off.
const GOING_OFF: Duration = Duration::from_micros(50);
/// After so long a slice may be broken off for another timeline's.
const TURN: Duration = Duration::from_millis(3);
/// How long tasks may take to stop. One in an uninterruptible wait stops when it comes back; its clock stands.
const PATIENCE: Duration = Duration::from_secs(1);

/// Where a slice is given, and what else is asked for there.
pub struct Place<'a> {
    /// Who watches over the tasks.
    pub watch: &'a Watch,
    /// How many tasks the experiment has.
    pub tasks: usize,
    /// Whether another timeline's container waits for the same processor.
    pub others: &'a dyn Fn() -> bool,
}

/// Gives `member` its slice, up to `end`. False where that is broken off, for another timeline: it is to go on later.
pub fn run(member: &mut Member, end: VirtualInstant, place: &Place<'_>) -> bool {
    let begun = Instant::now();
    let from = beginning(member, end);
    if member.stopped && from >= end {
        // It has had all of this slice, and more, when it ran on after an earlier one; or it has joined from the future.
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
                // Where it is.
                member.clock.stand(VirtualInstant(0));
            }
            let overrun = if outcome == Outcome::InLine { Span::ZERO } else { stop(member, end) };
            let seen = place.watch.look(member.group, &member.cgroup, place.tasks);
            let took = begun.elapsed();
            let due = match rested {
                // It had all that it wanted, but for what others took.
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

/// From when on there is something for it to do in a slice up to `end`.
fn beginning(member: &mut Member, end: VirtualInstant) -> VirtualInstant {
    match member.next_deadline() {
        next if member.stopped || member.seen.awake => {
            let now = member.clock.now();
            // What is due meanwhile comes in time.
            let until = next.map_or(end, |next| next.min(end));
            now.plus(member.skip_what_it_had(until.since(now).max(Span::ZERO)))
        }
        Some(next) if next <= end => next,
        _ => end,
    }
}

/// Lets the clock run from `from`, and the tasks; they ran before it for as long as is returned, real time.
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
        // Told first: a wait that stopping has broken off goes on only if the word is there when its thread runs.
        member.clock.tell_all(&member.seen.pids);
        member.cgroup.thaw();
        member.stopped = false;
    } else {
        member.clock.tell_due(&member.seen.pids);
    }
    failpoint(member.clock.registry(), Failpoint::SliceRunning);
    if ahead <= NEAR {
        return Duration::ZERO;
    }
    let ran = run_ahead(member, Duration::from_nanos(ahead.0 as u64), place);
    member.clock.run(from, end, member.rate);
    member.clock.tell_due(&member.seen.pids);
    ran
}

/// Lets the tasks run for so long while their clock stands, and returns how long they did: if they sleep, they need no more.
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

/// How a slice ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    /// Its tasks still run when its clock has come to the end.
    AtLimit,
    /// Its tasks sleep, and none of them waits for anything before the end.
    Idle,
    /// Its tasks sleep, one of them because it has something to send.
    InLine,
    /// Its tasks still run, and another timeline's are to.
    BrokenOff,
}

/// Waits for the end of a slice that has begun at `from`. Tells too whether time has gone on to what it waited for.
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
                _ if member.clock.is_in_line() => return (Outcome::InLine, rested),
                Some(next) if next <= end => {
                    // Nobody has taken anything from one that has nothing to do.
                    member.account.forgive();
                    rested = true;
                    if next.since(member.clock.now()) > NEAR {
                        member.clock.run(next, end, member.rate);
                        member.clock.tell_due(&member.seen.pids);
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

/// Those whose time has come and who sleep still: they are about to wake.
struct Due {
    /// Until here all have been told.
    told: VirtualInstant,
    /// How often the tasks had run when somebody was told or found, and when that was.
    last: Option<(u64, Instant)>,
}

impl Due {
    /// In a slice of `member` that begins at `from`, where those have been told who were asleep.
    fn since(from: VirtualInstant, member: &Member) -> Due {
        let last = (!member.seen.awake).then(|| (member.seen.runs, Instant::now()));
        Due { told: from.plus(Span(-1)), last }
    }

    /// Whether there are any, to whoever has found all tasks asleep when they had run so often.
    fn are_awaited(&mut self, member: &mut Member, runs: u64) -> bool {
        let now = member.clock.now();
        let before = std::mem::replace(&mut self.told, now);
        let told = now > before && member.clock.tell_between(before, now, &member.seen.pids);
        let overdue = member.clock.is_overdue(member.served);
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

/// Stops its tasks, and notes and returns how long they ran on while their clock stood.
fn stop(member: &mut Member, end: VirtualInstant) -> Span {
    let stopping = Instant::now();
    if member.cgroup.begin_freeze().is_err() {
        // The group is gone, and has no tasks.
        return Span::ZERO;
    }
    while stopping.elapsed() < PATIENCE && member.cgroup.is_frozen().is_ok_and(|frozen| !frozen) {
        std::hint::spin_loop();
    }
    failpoint(member.clock.registry(), Failpoint::SliceStopped);
    let overrun = member.clock.since_limit();
    member.stopped = true;
    // Those that have come since the last look among them.
    member.clock.repeat_broken_off(&member.cgroup.pids().unwrap_or_default());
    member.used.overruns.note(overrun);
    let perceived = member.clock.now().since(end);
    member.used.perceived_overshoot = member.used.perceived_overshoot.max(perceived);
    overrun
}
