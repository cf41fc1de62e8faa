//! Timers that a process armed before it was attached. The monitor enters them into the registry, so that they follow the
//! clock.
//!
//! The real time that was left for a timer becomes the same amount of virtual time.

use crate::borrowed_thread::BorrowedThread;
use crate::dated::{host_now, Dated};
use crate::shared::SharedClock;
use crate::trace::TracedThread;
use crate::tracee::{is_pending, is_pending_for_process};
use lorentz_clock::{
    Armed, Deadline, PidNamespace, ProcessId, RealInstant, Setting, Span, Timer, TimerKind,
    NANOS_PER_SEC,
};
use nix::unistd::Pid;
use std::fs;
use std::io;

/// A timer as the kernel describes it.
pub struct FoundTimer {
    kind: TimerKind,
    id: u32,
    clock: u32,
    signal: u32,
    /// The thread to which the signal goes, by its number in this process's namespace; 0 for the process.
    target: u32,
    /// The real instant just after the look at the timer, and the time left at the look: an expiry is rather late than early.
    seen: RealInstant,
    left: Span,
    interval: Span,
    /// The signal of an earlier expiry is pending.
    signal_waits: bool,
}

/// Enters the timers of `owner` into the registry of `clock`. The process sets them anew at the next clock-change signal.
pub fn adopt(owner: ProcessId, found: &[FoundTimer], clock: &SharedClock) {
    found.iter().for_each(|timer| enter(owner, timer, clock));
}

fn enter(owner: ProcessId, found: &FoundTimer, clock: &SharedClock) {
    let registry = clock.registry();
    let look = clock.page().look(registry, &host_now);
    let Some(timer) = registry.claim_timer(owner, found.kind, found.id) else { return };
    // The shim cannot set a timer on another clock by an instant of the monotonic clock.
    let on_monotonic = found.clock == libc::CLOCK_MONOTONIC as u32;
    timer.set_clock(if on_monotonic { found.clock } else { found.clock | Timer::RELATIVE });
    timer.set_signal(found.signal);
    // In another namespace the thread has another number. Any thread may set the timer then.
    if owner.namespace() == PidNamespace::MONITOR {
        timer.set_target(found.target);
    }
    // The kernel reports no time left for a repeating interval timer while its signal is pending.
    let waits = found.kind == TimerKind::Interval && found.interval.0 > 0;
    let armed = found.left.0 > 0 || waits;
    // The process has stood still since the timer was looked at, and time has gone on. A waiting signal leaves no time to reckon from.
    let passed = if found.left.0 > 0 { look.real.since(found.seen) } else { Span::ZERO };
    let left = Span(found.left.0.saturating_sub(passed.0));
    let at = look.now().plus(left);
    let deadline = match found.clock as i32 {
        _ if !armed => Deadline::Never,
        libc::CLOCK_BOOTTIME | libc::CLOCK_BOOTTIME_ALARM => {
            Deadline::Boot(at.plus(look.segment.boot))
        }
        _ => Deadline::Virtual(at),
    };
    // Setting the timer anew drops a pending signal: the shim signals that expiry again, and those that the signal stands for besides.
    let unreported = i64::from(found.signal_waits && found.interval > Span::ZERO);
    timer.set_signalled_again(unreported);
    timer.note_signal_before();
    timer.set_armed(Armed {
        at: look.real.plus(Span(left.0.saturating_sub(unreported * found.interval.0))),
        interval: found.interval,
        ..Armed::disarmed(look.segment.wall)
    });
    // The timer is not set by any state of the clock yet.
    timer.set(Setting { deadline, interval: found.interval }, 0);
}

/// Returns all timers of `pid`. The calls are made by `borrowed` before the filter is installed, because it would trap them.
pub fn find(pid: Pid, borrowed: &BorrowedThread, scratch: u64) -> io::Result<Vec<FoundTimer>> {
    let mut found = posix_timers(pid, borrowed, scratch)?;
    found.extend(interval_timer(pid, borrowed, scratch)?);
    found.extend(timer_descriptors(pid, borrowed, scratch)?);
    Ok(found)
}

/// Reads the interval and the value that the kernel has written to the scratch memory, in seconds and units of `unit` ns.
fn read_setting(pid: Pid, scratch: u64, unit: i64) -> io::Result<(Span, Span)> {
    let mut bytes = [0; 32];
    TracedThread(pid.as_raw()).read(scratch, &mut bytes)?;
    let word = |i: usize| bytes[8 * i..8 * i + 8].try_into().map(i64::from_ne_bytes).unwrap_or(0);
    let span = |secs: i64, rest: i64| Span(secs * NANOS_PER_SEC + rest * unit);
    Ok((span(word(0), word(1)), span(word(2), word(3))))
}

/// Returns the timers of timer_create, from /proc/PID/timers.
fn posix_timers(pid: Pid, borrowed: &BorrowedThread, scratch: u64) -> io::Result<Vec<FoundTimer>> {
    let text = fs::read_to_string(format!("/proc/{pid}/timers")).unwrap_or_default();
    let mut found: Vec<FoundTimer> = Vec::new();
    for line in text.lines() {
        let Some((field, value)) = line.split_once(':') else { continue };
        let number = value.trim().split('/').next().and_then(|n| n.parse::<i64>().ok());
        match (field, number, found.last_mut()) {
            ("ID", Some(id), _) => found.push(FoundTimer {
                kind: TimerKind::Posix,
                id: id as u32,
                clock: 0,
                signal: 0,
                target: 0,
                seen: RealInstant(0),
                left: Span::ZERO,
                interval: Span::ZERO,
                signal_waits: false,
            }),
            ("signal", Some(signal), Some(last)) => last.signal = signal as u32,
            ("ClockID", Some(clock), Some(last)) => last.clock = clock as u32,
            // The line has the form "notify: signal/tid.17".
            ("notify", None, Some(last)) => {
                let thread = value.split_once("/tid.").and_then(|(_, tid)| tid.parse().ok());
                last.target = thread.unwrap_or(0);
            }
            _ => {}
        }
    }
    // Timers on CPU clocks stay as they are.
    found.retain(|timer| !matches!(timer.clock, 2 | 3) && timer.clock < 16);
    for timer in &mut found {
        let arguments = [u64::from(timer.id), scratch, 0, 0, 0, 0];
        timer.seen = Dated::of(|| borrowed.must(libc::SYS_timer_gettime, arguments))?.seen;
        (timer.interval, timer.left) = read_setting(pid, scratch, 1)?;
        timer.signal_waits = is_pending_for_process(TracedThread(pid.as_raw()), timer.signal)
            || is_pending(TracedThread(timer.target as i32), timer.signal);
    }
    Ok(found)
}

/// Returns the timer of setitimer and alarm.
fn interval_timer(
    pid: Pid,
    borrowed: &BorrowedThread,
    scratch: u64,
) -> io::Result<Option<FoundTimer>> {
    const ITIMER_REAL: u64 = 0;
    const GETITIMER: i64 = 36;
    let arguments = [ITIMER_REAL, scratch, 0, 0, 0, 0];
    let seen = Dated::of(|| borrowed.must(GETITIMER, arguments))?.seen;
    let (interval, left) = read_setting(pid, scratch, 1000)?;
    let timer = FoundTimer {
        kind: TimerKind::Interval,
        id: 0,
        clock: 1,
        signal: 14,
        target: 0,
        seen,
        left,
        interval,
        signal_waits: false,
    };
    Ok((left.0 > 0).then_some(timer))
}

/// Returns the timers of timerfd_create, from /proc/PID/fdinfo. That file shows no time left for a periodic timer whose expiry nobody
/// has read. Only for those the kernel is asked: a seccomp filter of the process may not let the call through.
fn timer_descriptors(
    pid: Pid,
    borrowed: &BorrowedThread,
    scratch: u64,
) -> io::Result<Vec<FoundTimer>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        let entry = entry?;
        let id = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let look = Dated::of(|| fs::read_to_string(entry.path()));
        let (Some(id), Ok(Dated { found: text, mut seen })) = (id, look) else { continue };
        let field =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let (Some(clock), Some(mut left), Some(interval)) = (
            field("clockid:"),
            field("it_value:").and_then(pair),
            field("it_interval:").and_then(pair),
        ) else {
            continue;
        };
        if left == Span::ZERO && interval > Span::ZERO {
            let arguments = [u64::from(id), scratch, 0, 0, 0, 0];
            seen = Dated::of(|| borrowed.must(libc::SYS_timerfd_gettime, arguments))?.seen;
            (_, left) = read_setting(pid, scratch, 1)?;
        }
        let clock = clock.parse().unwrap_or(1);
        found.push(FoundTimer {
            kind: TimerKind::Fd,
            id,
            clock,
            signal: 0,
            target: 0,
            seen,
            left,
            interval,
            signal_waits: false,
        });
    }
    Ok(found)
}

/// Reads a pair `(seconds, nanoseconds)`.
fn pair(text: &str) -> Option<Span> {
    let (secs, nanos) = text.trim_start_matches('(').trim_end_matches(')').split_once(", ")?;
    Some(Span(secs.parse::<i64>().ok()? * NANOS_PER_SEC + nanos.parse::<i64>().ok()?))
}
