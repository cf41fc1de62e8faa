//! Timers that are armed and go off later: POSIX timers, interval timers, timer descriptors.
//!
//! Each is a timer of the kernel's on the monotonic clock, set to the real instant that its virtual deadline has
//! now. The program's own setting stands in the registry; when the clock changes, a thread of the process sets the
//! kernel's timer anew ([`rearm_all`]). The signals, overruns and read counts are the kernel's own.

mod kernel;
mod look;
mod own_signal;
mod unread;

use crate::clocks;
use crate::deadline::{due, due_by, real_due};
use crate::layout::{clock, fork_data, registry};
use crate::process;
use crate::sys::{self, give_way, sys, Errno, Itimerspec, SysResult, Sysno, Timespec};
use crate::upcoming::{later, AT_ONCE};
use core::sync::atomic::Ordering::SeqCst;
pub use kernel::Kernel;
use look::{upcoming, Look};
use lorentz_clock::{
    failpoint, Armed, Deadline, Failpoint, Pace, Rate, RealInstant, Setting, Snapshot, Span, Timer,
    TimerKind, TimerOwner, VirtualInstant, WallTime, HOLD_DELAY,
};

/// Sets the kernel's timer for `setting`, which the program asks for, by the clock as it stands.
pub fn arm(timer: &Timer, kernel: Kernel, setting: Setting) {
    arm_anew(timer, kernel, Look::at_new(setting));
}

/// Sets the kernel's timer for what a look has found, by the clock as it stands. Setting it makes the kernel forget the expiries
/// that the program does not know of yet: they are signalled again.
fn arm_anew(timer: &Timer, kernel: Kernel, mut look: Look) {
    /// A timer that goes off all the time is set as well as can be.
    const MAX_TRIES: u32 = 50;
    let mut tries = 0;
    while let Some(setting) = look.upcoming {
        tries += 1;
        let until = if tries >= MAX_TRIES { RealInstant::NEVER } else { look.until };
        let taken = match arm_by_this_state(timer, kernel, setting, look.unreported, until) {
            Arming::Done => return,
            // The program may already have taken the expiries that the kernel has signalled at once.
            Arming::ClockChanged => 0,
            Arming::GoesOff => look.taken,
        };
        match Look::again(timer, kernel, taken) {
            Ok(next) => look = next,
            Err(_) => break,
        }
    }
    timer.set_observed_seq(clock().timers_state());
}

/// The result of [`arm_by_this_state`].
enum Arming {
    Done,
    /// The timer is set by a former state of the clock.
    ClockChanged,
    /// The timer has gone off since it was looked at, or is about to. It is as before.
    GoesOff,
}

/// Sets the timer by the state that the clock has now, unless it goes off `until` then.
///
/// Race: it goes off before it is set. Nothing would tell whether the program has read that expiry, or the kernel has forgotten it.
fn arm_by_this_state(
    timer: &Timer,
    kernel: Kernel,
    setting: Setting,
    unreported: i64,
    until: RealInstant,
) -> Arming {
    /// The kernel stops the timer within this time, unless this thread loses its processor.
    const SETTING_TIME: Span = Span(2_000);
    failpoint(registry(), Failpoint::BeforeTimer);
    let leapt = registry().leaps.sum();
    let state = clock().timers_state();
    let look = clocks::snapshot();
    let held = clock().timers_held();
    let plan = match once_for(setting, &look, unreported, held.is_some()) {
        Some(once) => slow_series(setting, &look, unreported, held).unwrap_or(once.held_back(held)),
        None => Plan::series(setting, armed_for(setting, &look, unreported)).held_back(held),
    };
    let Plan { setting, armed, behind } = plan;
    let is_once = setting.interval != Span::ZERO && armed.interval == Span::ZERO;
    let armed = Armed { leapt, ..armed };
    if clocks::host().plus(SETTING_TIME) >= until {
        return Arming::GoesOff;
    }
    match behind {
        0 | 1 if is_once => kernel.set_once(&armed),
        0 | 1 => kernel.set(&armed),
        several => kernel.set_behind(several),
    }
    if behind > 0 && kernel.kind == TimerKind::Fd && look.segment.pace == Pace::Frozen {
        // A checkpoint may come. The kernel counts a descriptor's expiries when somebody asks; CRIU does not ask, and saves those that
        // are counted.
        let _ = kernel.left();
    }
    failpoint(registry(), Failpoint::TimerArmed);
    timer.set_armed(armed);
    timer.set_signalled_again(if behind > 0 { behind - 1 } else { unreported });
    timer.set(setting, state);
    if clock().version() == look.version && clock().timers_state() == state {
        Arming::Done
    } else {
        Arming::ClockChanged
    }
}

/// When a timer that is due at `at` goes off while those due after `from` are held back.
fn held_back(at: RealInstant, from: Option<RealInstant>) -> RealInstant {
    match from {
        Some(from) if at > from && at != RealInstant::NEVER => at.plus(HOLD_DELAY),
        _ => at,
    }
}

/// When the kernel's timer has to go off. A series that is behind (it was set in the past, or time has leapt over some
/// of it) is begun so far back that the kernel counts what was missed and goes on in step.
fn armed_for(setting: Setting, look: &Snapshot, unreported: i64) -> Armed {
    let wall = look.segment.wall;
    let first = due(setting.deadline, look);
    let now = look.now();
    if first == VirtualInstant::NEVER {
        return Armed { at: RealInstant::NEVER, interval: Span::ZERO, ..Armed::disarmed(wall) };
    }
    if setting.interval.0 == 0 {
        let at = if first <= now { AT_ONCE } else { real_due(setting.deadline, look) };
        return Armed { at, interval: Span::ZERO, ..Armed::disarmed(wall) };
    }
    let missed = if first > now { 0 } else { now.since(first).0 / setting.interval.0 + 1 };
    let upcoming = later(setting, Span(missed.saturating_mul(setting.interval.0)));
    let next = real_due(upcoming.deadline, look);
    let interval = Span(real_interval(setting.interval, next, look).0.max(1));
    if next == RealInstant::NEVER {
        return Armed { at: next, interval, ..Armed::disarmed(wall) };
    }
    let behind = (missed + unreported).saturating_mul(interval.0);
    let at = RealInstant(next.0.saturating_sub(behind).max(AT_ONCE.0));
    Armed { at, interval, ..Armed::disarmed(wall) }
}

/// The interval in real time, by the piece of the clock that is in force at `next`.
fn real_interval(interval: Span, next: RealInstant, look: &Snapshot) -> Span {
    let mut rate = look.rate;
    if next >= look.until && next != RealInstant::NEVER {
        let mut to_come = clock().to_come(registry(), look);
        let then = to_come.find(|(piece, _)| piece.segment.real <= next);
        rate = then.map_or(rate, |(piece, _)| piece.rate);
    }
    real_interval_at(interval, rate)
}

fn real_interval_at(interval: Span, rate: Rate) -> Span {
    let nanos = (interval.0.max(0) as u128 * rate.den() as u128).div_ceil(rate.num() as u128);
    Span(nanos.min(i64::MAX as u128) as i64)
}

/// A change of the clock that is nearer than this counts as near. A controller that publishes one signals all processes with
/// timers so long before it begins at the latest, and again when it has begun.
const NEAR_CHANGE: Span = Span(5_000_000);

/// A series on a clock that goes no further than its limit, or whose rate is about to change, or while timers are `held` back, is
/// set for one expiry at a time: the kernel's would go on by the old piece. So is one of which some are to be counted again on a clock
/// that stands: the kernel counts none without a next one. Given is the expiry that it is set for, the last one where some have been
/// missed. `None` where the clock has no limit and no change is near, or there are several to come before the limit.
fn once_for(setting: Setting, look: &Snapshot, unreported: i64, held: bool) -> Option<Plan> {
    let first = due(setting.deadline, look);
    let interval = setting.interval;
    let near = held || look.until.since(look.real) <= NEAR_CHANGE;
    let stands = look.segment.pace == Pace::Frozen;
    if (look.limit == VirtualInstant::NEVER && !near && !stands)
        || interval == Span::ZERO
        || first == VirtualInstant::NEVER
    {
        return None;
    }
    let now = look.now();
    let missed = if first > now { 0 } else { now.since(first).0 / interval.0 + 1 };
    let behind = missed + unreported;
    let is_behind = behind > 0;
    let number = if is_behind { missed - 1 } else { missed };
    let at = first.plus(Span(number.saturating_mul(interval.0)));
    if !is_behind && !near && at.plus(interval) <= look.limit {
        return None;
    }
    let setting = later(setting, at.since(first));
    let real = if is_behind { AT_ONCE } else { real_due(setting.deadline, look) };
    let armed = Armed { at: real, interval: Span::ZERO, ..Armed::disarmed(look.segment.wall) };
    Some(Plan { setting, armed, behind })
}

/// A series that goes on if nobody sets it anew: controller and monitor may be dead or stopped while timers are held back, or when
/// a near change begins. Its interval is so long that no expiry is early by a piece that begins soon. `None` where every such
/// series may be early, or where the kernel cannot count the expiries that are due.
fn slow_series(
    setting: Setting,
    look: &Snapshot,
    unreported: i64,
    held: Option<RealInstant>,
) -> Option<Plan> {
    let is_by_wall = matches!(setting.deadline, Deadline::Wall(_));
    if look.limit != VirtualInstant::NEVER || (is_by_wall && held.is_some()) {
        return None;
    }
    let mut interval = real_interval_at(setting.interval, look.rate);
    let soon = look.real.plus(HOLD_DELAY);
    let pieces = clock().to_come(registry(), look).map(|(piece, _)| piece);
    for piece in pieces.filter(|piece| piece.segment.real <= soon) {
        let stands = piece.segment.pace == Pace::Frozen;
        let moves = due_by(setting.deadline, &piece.segment) != due(setting.deadline, look);
        if stands || moves {
            return None;
        }
        interval = interval.max(real_interval_at(setting.interval, piece.rate));
    }
    if held.is_some() {
        interval = Span(interval.0.saturating_add(HOLD_DELAY.0));
    }
    let (first, now) = (due(setting.deadline, look), look.now());
    let missed = if first > now { 0 } else { now.since(first).0 / setting.interval.0 + 1 };
    let upcoming = later(setting, Span(missed.saturating_mul(setting.interval.0)));
    let next = held_back(real_due(upcoming.deadline, look), held);
    let behind = missed + unreported;
    let at = RealInstant(next.0.saturating_sub(behind.saturating_mul(interval.0)));
    let armed = Armed { at, interval, ..Armed::disarmed(look.segment.wall) };
    let counts_late = behind > 0 && look.segment.pace == Pace::Frozen;
    let is_counted = next != RealInstant::NEVER && at >= AT_ONCE && !counts_late;
    is_counted.then(|| Plan::series(setting, armed))
}

/// A setting without the expiries that have come by now.
pub fn to_come(setting: Setting) -> Setting {
    let look = clocks::snapshot();
    let late = look.now().since(due(setting.deadline, &look));
    match setting.interval.0 {
        _ if late < Span::ZERO => setting,
        0 => Setting { deadline: Deadline::Never, ..setting },
        interval => later(setting, Span((late.0 / interval + 1).saturating_mul(interval))),
    }
}

/// How the kernel's timer is set.
struct Plan {
    /// The series from the expiry at `armed.at` on.
    setting: Setting,
    armed: Armed,
    /// Set for one expiry: those up to it that have come already, to be signalled at once.
    behind: i64,
}

impl Plan {
    fn series(setting: Setting, armed: Armed) -> Plan {
        Plan { setting, armed, behind: 0 }
    }

    fn held_back(self, from: Option<RealInstant>) -> Plan {
        let at = held_back(self.armed.at, from);
        Plan { armed: Armed { at, ..self.armed }, ..self }
    }
}

/// Sets the timers of this process anew that were set by an earlier state of the clock; true where one of them goes off at once.
///
/// A timer whose signal goes to another thread is left to that thread, which the controller signals as well: Linux 6.13 and newer
/// drop the pending signal of a timer that is set, and only the thread itself knows whether its signal is pending.
pub fn rearm_all() -> bool {
    let mut own = None;
    let mut at_once = false;
    fork_data().rearms_begun.fetch_add(1, SeqCst);
    for timer in registry().timers() {
        let Some(entry) = timer.owner() else { continue };
        let (owner, kind, id) = entry;
        let is_ours = owner == *own.get_or_insert_with(process::own);
        let is_set = timer.is_current(clock().timers_state(), registry().leaps.sum());
        if !is_ours || (is_set && !timer.is_being_set()) {
            continue;
        }
        if is_for_another_thread(timer) {
            continue;
        }
        if begin_to_rearm(timer, entry) {
            failpoint(registry(), Failpoint::TimerHeld);
            let armed = rearm(timer, Kernel::of(timer, kind, id));
            let armed = end_setting(timer, entry) || armed;
            at_once |= armed && timer.armed().at <= clocks::host();
        }
    }
    fork_data().rearms_done.fetch_add(1, SeqCst);
    at_once
}

/// Takes the right to set the timer anew. Where another thread has it, that thread finds the new state when it is done
/// ([`end_setting`]), unless only this one may set the timer.
fn begin_to_rearm(timer: &Timer, owner: TimerOwner) -> bool {
    if timer.target() == 0 {
        return timer.begin_setting_of(owner, process::holder()) == Ok(true);
    }
    await_right(timer, owner)
}

/// Waits for the right to set the timer. False where the entry is not its any more. No thread is interrupted while it has the right.
fn await_right(timer: &Timer, owner: TimerOwner) -> bool {
    let holder = process::holder();
    let mut tries = 0;
    loop {
        if let Ok(is_its) = timer.begin_setting_of(owner, holder) {
            return is_its;
        }
        tries += 1;
        give_way(tries);
    }
}

/// Gives the right to set the timer back, and sets it anew if the clock has changed since: the thread that was to do so may have found
/// the right taken. True where it has been set.
fn end_setting(timer: &Timer, owner: TimerOwner) -> bool {
    let mut armed = false;
    loop {
        timer.end_setting();
        let is_set = timer.is_current(clock().timers_state(), registry().leaps.sum());
        if is_set || is_for_another_thread(timer) || !begin_to_rearm(timer, owner) {
            return armed;
        }
        armed = rearm(timer, Kernel::of(timer, owner.1, owner.2));
    }
}

fn is_for_another_thread(timer: &Timer) -> bool {
    let target = timer.target();
    if target == 0 || target == sys::gettid() {
        return false;
    }
    // SAFETY: numbers only; no signal is sent.
    let asked = unsafe { sys!(Sysno::tgkill, sys::getpid(), target, 0) };
    asked != Err(Errno::ESRCH)
}

/// A moment of this process, for [`Rearms::overlap`].
pub struct Rearms(u32);

impl Rearms {
    /// Now.
    pub fn until_now() -> Rearms {
        Rearms(fork_data().rearms_done.load(SeqCst))
    }

    /// Whether a thread has set timers anew since then, or was about to. A thread that was killed in the midst of it, as a child of
    /// vfork may be, leaves this true.
    pub fn overlap(&self) -> bool {
        fork_data().rearms_begun.load(SeqCst) != self.0
    }
}

/// False where there is nothing to set.
fn rearm(timer: &Timer, kernel: Kernel) -> bool {
    let leapt = registry().leaps.sum();
    let look = match Look::at(timer, kernel) {
        Ok(look) => look,
        // The timer is gone: closed, or deleted by an exec.
        Err(_) => {
            timer.release();
            return false;
        }
    };
    match look.upcoming {
        None => {
            timer.set_armed(Armed { leapt, ..timer.armed() });
            timer.set_observed_seq(clock().timers_state());
            false
        }
        Some(setting) => {
            let wall = timer.armed().wall;
            let stepped = clocks::snapshot().segment.wall != wall;
            if stepped && timer.clock() & Timer::CANCEL_ON_SET != 0 {
                timer.set_clock(timer.clock() | Timer::CANCELLED);
                kernel.set(&Armed { at: AT_ONCE, ..Armed::disarmed(WallTime::default()) });
                timer.set(setting, clock().timers_state());
            } else {
                let is_posix = kernel.kind == TimerKind::Posix;
                let told = match is_posix && timer.take_signal_before() && look.unreported > 0 {
                    true => own_signal::take(timer.signal(), kernel.id),
                    false => 0,
                };
                arm_anew(timer, kernel, Look { unreported: look.unreported.max(told), ..look });
            }
            true
        }
    }
}

/// A timer's entry in the registry, as it was found.
#[derive(Clone, Copy)]
pub struct Entry {
    /// To look at only: another thread may set it, or release the entry.
    pub timer: &'static Timer,
    owner: TimerOwner,
}

impl Entry {
    /// That of a timer of this process, if it has one.
    pub fn find(kind: TimerKind, id: u32) -> Option<Entry> {
        let owner = (process::own(), kind, id);
        let timer = registry().find_timer(owner.0, kind, id)?;
        Some(Entry { timer, owner })
    }

    /// Runs `work` on the entry of a timer of this process, a new one if it has none. `None` where there is no room. Another thread may be
    /// setting an older timer of the same number anew, or release its entry.
    pub fn with_claimed<T>(kind: TimerKind, id: u32, work: impl Fn(&Timer) -> T) -> Option<T> {
        let owner = (process::own(), kind, id);
        loop {
            let timer = registry().claim_timer(owner.0, kind, id)?;
            let done = Entry { timer, owner }.exclusively(&work);
            if done.is_some() {
                return done;
            }
        }
    }

    /// The entry of a timer that was found in the registry.
    pub fn of(timer: &'static Timer) -> Option<Entry> {
        Some(Entry { timer, owner: timer.owner()? })
    }

    /// Runs `work` while no other thread sets this timer. `None` where the entry has been released since it was found: by a thread that
    /// has set timers anew, and found that the descriptor had been closed.
    pub fn exclusively<T>(self, work: impl FnOnce(&Timer) -> T) -> Option<T> {
        if !await_right(self.timer, self.owner) {
            return None;
        }
        failpoint(registry(), Failpoint::TimerHeld);
        let result = work(self.timer);
        end_setting(self.timer, self.owner);
        Some(result)
    }
}

/// Virtual time left and the interval, as timer_gettime returns them.
pub fn remaining(timer: &Timer, kernel: Kernel) -> SysResult<Itimerspec> {
    let interval = Timespec::from_span(timer.setting().interval);
    let left = match upcoming(timer, kernel)? {
        None => Span::ZERO,
        // The kernel sets the next expiry when the program has taken the signal, and shows none until then.
        Some(_) if kernel.is_interval_timer_with_a_pending_signal(timer)? => Span::ZERO,
        Some(setting) => {
            let look = clocks::snapshot();
            // As the kernel has it, something is left until the signal has been sent.
            let least = (kernel.kind == TimerKind::Posix && timer.signal() != 0) as i64;
            Span(due(setting.deadline, &look).since(look.now()).0.max(least))
        }
    };
    let disarmed = timer.setting().deadline == Deadline::Never;
    Ok(Itimerspec {
        interval: if disarmed { Timespec::default() } else { interval },
        value: Timespec::from_span(left),
    })
}
