//! A look at a timer before it is set anew: which expiry comes next, and which have come that the program does not know of yet.

use super::kernel::Kernel;
use super::{own_signal, unread};
use crate::clocks;
use crate::deadline::due;
use crate::layout::registry;
use crate::sys::{pending_signals, Fd, SysResult};
use crate::upcoming::{later, Shown};
use lorentz_clock::{
    failpoint, Armed, Deadline, Failpoint, RealInstant, Setting, Span, Timer, TimerKind,
};

/// See the module.
pub(super) struct Look {
    /// The setting from now on. `None` where the timer is not armed any more.
    pub upcoming: Option<Setting>,
    /// Expiries before that which the program does not know of yet.
    pub unreported: i64,
    /// Expiries that were taken from the timer for this look. Setting the timer has to tell them again.
    pub taken: i64,
    /// The real instant at which a timer descriptor goes off next, from which on this look does not hold.
    pub until: RealInstant,
}

impl Look {
    /// At a timer that the program sets: nothing has come of the new setting.
    pub fn at_new(setting: Setting) -> Look {
        Look { upcoming: Some(setting), unreported: 0, taken: 0, until: RealInstant::NEVER }
    }

    /// At a timer as the kernel has it, or the kernel's error.
    pub fn at(timer: &Timer, kernel: Kernel) -> SysResult<Look> {
        Look::again(timer, kernel, 0)
    }

    /// The same after another look, which has `taken` expiries that have not been told again.
    ///
    /// Race: the timer goes off between the two looks at the kernel's timer, and would be counted by both or by neither. Therefore
    /// the first is taken again.
    pub fn again(timer: &Timer, kernel: Kernel, mut taken: i64) -> SysResult<Look> {
        /// A timer that goes off at every look is counted as well as can be.
        const MAX_TRIES: u32 = 8;
        if kernel.kind == TimerKind::Interval && timer.setting().interval == Span::ZERO {
            let upcoming = upcoming_of_stopped(timer, kernel)?;
            return Ok(Look { upcoming, unreported: 0, taken: 0, until: RealInstant::NEVER });
        }
        let mut before = upcoming(timer, kernel)?;
        let mut tries = 0;
        loop {
            tries += 1;
            failpoint(registry(), Failpoint::TimerQueried);
            let unreported =
                before.map_or(0, |setting| unreported(timer, kernel, &setting, &mut taken));
            let shown = kernel.shown(&timer.armed())?;
            let after = upcoming_as(shown, timer, kernel);
            if after == before || tries == MAX_TRIES {
                let until = goes_off(shown, timer, kernel);
                let (upcoming, unreported) = take_back(timer, kernel, after, unreported);
                return Ok(Look { upcoming, unreported, taken, until });
            }
            before = after;
        }
    }
}

/// The setting of `timer` from now on: its next expiry, as the kernel's timer tells it, in virtual time. `None` where
/// it is not armed any more.
pub(super) fn upcoming(timer: &Timer, kernel: Kernel) -> SysResult<Option<Setting>> {
    Ok(upcoming_as(kernel.shown(&timer.armed())?, timer, kernel))
}

/// The same, by what the kernel's timer has shown.
fn upcoming_as(shown: Shown, timer: &Timer, kernel: Kernel) -> Option<Setting> {
    let setting = timer.setting();
    if is_cancelled(timer) && setting.deadline != Deadline::Never {
        return Some(setting);
    }
    shown.upcoming(kernel.kind, setting, &timer.armed(), timer.signalled_again())
}

/// When a timer descriptor goes off that has shown this; never for the others, and if it is not armed.
fn goes_off(shown: Shown, timer: &Timer, kernel: Kernel) -> RealInstant {
    let is_armed = timer.armed().at != RealInstant::NEVER && !is_cancelled(timer);
    let has_gone_off = timer.setting().interval == Span::ZERO && shown.left == Span::ZERO;
    if kernel.kind != TimerKind::Fd || !is_armed || has_gone_off {
        return RealInstant::NEVER;
    }
    shown.now.plus(shown.left)
}

fn is_cancelled(timer: &Timer) -> bool {
    timer.clock() & Timer::CANCELLED != 0
}

/// As [`upcoming`], for an interval timer that goes off once: stops it.
///
/// Race: it goes off between a look and the moment when it is set anew. It would go off twice, and the kernel takes no SIGALRM back.
fn upcoming_of_stopped(timer: &Timer, kernel: Kernel) -> SysResult<Option<Setting>> {
    let (setting, armed) = (timer.setting(), timer.armed());
    let now = clocks::host();
    // If an exec kills this thread now, the next program finds a timer that is to be set.
    timer.set_armed(Armed { at: RealInstant::NEVER, ..armed });
    let left = kernel.stop()?;
    let upcoming = Shown { now, left }.upcoming(kernel.kind, setting, &armed, 0);
    if upcoming.is_none() {
        timer.set_armed(armed);
    }
    Ok(upcoming)
}

/// Takes back expiries of a timer descriptor that have come too early and that nobody has read: a change makes them later, and this
/// process could not follow before it began.
fn take_back(
    timer: &Timer,
    kernel: Kernel,
    upcoming: Option<Setting>,
    unreported: i64,
) -> (Option<Setting>, i64) {
    let setting = timer.setting();
    if kernel.kind != TimerKind::Fd || is_cancelled(timer) || setting.deadline == Deadline::Never {
        return (upcoming, unreported);
    }
    let look = clocks::snapshot();
    let Some(upcoming) = upcoming else {
        let is_early = due(setting.deadline, &look) > look.now();
        let taken = is_early && unread::take(Fd::new(kernel.id as i32)) > 0;
        return (taken.then_some(setting), 0);
    };
    if unreported == 0 {
        return (Some(upcoming), 0);
    }
    let latest = due(later(upcoming, Span(-upcoming.interval.0)).deadline, &look);
    let ahead = latest.since(look.now()).0;
    let early = if ahead > 0 { (ahead - 1) / upcoming.interval.0 + 1 } else { 0 };
    let back = early.min(unreported);
    (Some(later(upcoming, Span(-back.saturating_mul(upcoming.interval.0)))), unreported - back)
}

/// Expiries of a periodic timer that the program does not know of. `taken` are those that were taken from a descriptor or a signal.
fn unreported(timer: &Timer, kernel: Kernel, upcoming: &Setting, taken: &mut i64) -> i64 {
    if upcoming.interval.0 == 0 {
        return 0;
    }
    match kernel.kind {
        TimerKind::Fd => {
            *taken += unread::take(Fd::new(kernel.id as i32));
            *taken
        }
        // A restored signal stands for all since the timer was set, at the checkpoint, and for those it stood for then.
        TimerKind::Posix if timer.is_signalled_before() && signal_waits(timer.signal()) => {
            let look = clocks::snapshot();
            let gone = due(upcoming.deadline, &look).since(due(timer.setting().deadline, &look));
            timer.signalled_again() + gone.0 / upcoming.interval.0
        }
        TimerKind::Posix => {
            if signal_waits(timer.signal()) {
                *taken += own_signal::take(timer.signal(), kernel.id);
            }
            *taken
        }
        TimerKind::Interval => 0,
    }
}

fn signal_waits(signal: u32) -> bool {
    (1..=64).contains(&signal) && pending_signals().has(signal)
}
