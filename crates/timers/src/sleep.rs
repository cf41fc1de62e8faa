//! Sleep in two phases: the kernel wakes the thread a little before the target, and the thread spins for the rest.
//!
//! Each thread learns the length of the second phase ([`crate::lateness`]). The first sleep of a thread sets its timer
//! slack to 1 ns and leaves it so.
//!
//! While a thread sleeps, the code that follows the sleep leaves the processor's caches. Fetching it again takes longer
//! than all the rest: a sleep that spins well ends 100 to 300 ns late by that alone. Therefore the thread walks the way
//! back to the caller twice: first from a place a microsecond before the target, then from the target. The code that
//! the caller runs next mostly lies beside that way.

use crate::interval::{Interval, OutOfRange};
use crate::lateness::Lateness;
use crate::moment::Moment;
use crate::reference::Reference;
use crate::{os, source};
use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// The end of a sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Woken {
    /// The target was reached.
    Elapsed,
    /// Another thread interrupted the sleep.
    Interrupted,
    /// A signal was handled meanwhile, and the sleep was one that ends then.
    Signalled,
}

/// The target of a sleep.
trait SleepTarget {
    /// Returns the nanoseconds until the target, of its own clock; at most 0 once it is reached.
    fn left(&self) -> i64;

    /// Returns the same in nanoseconds or in ticks, whichever costs less. The spinning thread calls it again and again.
    #[inline(always)]
    fn distance(&self) -> i64 {
        self.left()
    }

    /// Returns when the kernel is to wake the thread, `before` nanoseconds before the target: a clock, and its time
    /// then.
    fn kernel_deadline(&self, before: i64) -> (libc::clockid_t, i64) {
        let clock = libc::CLOCK_MONOTONIC;
        let left = self.left().saturating_sub(before);
        (clock, os::read(clock).saturating_add(steered(left)))
    }
}

/// Shortens a sleep for a clock that may be steered by up to 500 ppm against the counter's clock: the last thousandth
/// of a long sleep becomes a sleep of its own.
fn steered(left: i64) -> i64 {
    const SPLIT_ABOVE: i64 = 20_000_000;
    if left > SPLIT_ABOVE {
        left - left / 1_000
    } else {
        left
    }
}

impl SleepTarget for Moment {
    #[inline(always)]
    fn left(&self) -> i64 {
        source::scale()
            .nanos(self.since(Moment::now()).ticks())
            .clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    // The processor may reorder this read, but when it returns the counter has shown the target's ticks.
    #[inline(always)]
    fn distance(&self) -> i64 {
        self.ticks().saturating_sub(source::ticks_unordered())
    }
}

/// A date on a clock of the system. If somebody sets that clock meanwhile, the sleep follows.
struct Date {
    clock: Reference,
    nanos: i64,
}

impl SleepTarget for Date {
    #[inline(always)]
    fn left(&self) -> i64 {
        self.nanos.saturating_sub(self.clock.now())
    }

    fn kernel_deadline(&self, before: i64) -> (libc::clockid_t, i64) {
        match self.clock {
            Reference::Realtime => (libc::CLOCK_REALTIME, self.nanos.saturating_sub(before)),
            Reference::Boottime => (libc::CLOCK_BOOTTIME, self.nanos.saturating_sub(before)),
            Reference::Monotonic => (libc::CLOCK_MONOTONIC, self.nanos.saturating_sub(before)),
            // The kernel does not sleep on this clock.
            Reference::MonotonicRaw => {
                let left = self.left().saturating_sub(before);
                let clock = libc::CLOCK_MONOTONIC;
                (clock, os::read(clock).saturating_add(steered(left)))
            }
        }
    }
}

/// Per-thread sleep state. It has no destructor, so it is usable in every state of the thread.
struct ThreadState {
    lateness: Lateness,
    slack_is_set: Cell<bool>,
}

thread_local! {
    static THREAD_STATE: ThreadState =
        const { ThreadState { lateness: Lateness::new(), slack_is_set: Cell::new(false) } };
}

/// The events that end a sleep before its target.
#[derive(Clone, Copy)]
enum EndedBy<'a> {
    /// No event ends the sleep.
    Nothing,
    /// A handled signal ends the sleep.
    Signals,
    /// An interrupt in this count ends the sleep.
    Interrupts(&'a AtomicU32),
}

impl EndedBy<'_> {
    /// Takes one interrupt, if there is one.
    #[inline(always)]
    fn take(self) -> bool {
        let EndedBy::Interrupts(count) = self else { return false };
        if count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        count.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok()
    }
}

/// Distance from the target, in nanoseconds or ticks, from which on the thread only spins. It is long enough to fetch the way
/// back.
const SPIN_ONLY_DISTANCE: i64 = 3_000;

// Inlined into its caller, so that the rehearsal returns to the same place as the sleep.
#[inline(always)]
fn sleep_to(target: &impl SleepTarget, ended_by: EndedBy<'_>) -> Woken {
    match come_within(SPIN_ONLY_DISTANCE, target, ended_by) {
        Woken::Elapsed => come_within(0, target, ended_by),
        other => other,
    }
}

/// Sleeps, then spins, until the target is at most at the distance `near`.
#[inline(never)]
fn come_within(near: i64, target: &impl SleepTarget, ended_by: EndedBy<'_>) -> Woken {
    loop {
        if ended_by.take() {
            return Woken::Interrupted;
        }
        let rate = source::rate();
        let window = THREAD_STATE.with(|own| (own.lateness.window() as f64 * rate) as i64);
        let left = target.left();
        if left <= window {
            return spin(near, target, ended_by);
        }
        let (clock, deadline) = target.kernel_deadline(window);
        match (kernel_phase(clock, deadline, ended_by), ended_by) {
            (libc::EINTR, EndedBy::Signals) => return Woken::Signalled,
            (0 | libc::ETIMEDOUT, _) => {
                let late = os::read(clock).saturating_sub(deadline);
                // If an interrupt woke the thread early, there is nothing to learn.
                if late >= 0 {
                    let real = (late as f64 / rate) as i64;
                    THREAD_STATE.with(|own| own.lateness.observe(real));
                }
            }
            _ => {}
        }
    }
}

fn kernel_phase(clock: libc::clockid_t, deadline: i64, ended_by: EndedBy<'_>) -> libc::c_int {
    THREAD_STATE.with(|own| {
        if !own.slack_is_set.replace(true) {
            os::least_timer_slack();
        }
    });
    match ended_by {
        EndedBy::Interrupts(count) => os::wait_on(count, deadline),
        EndedBy::Nothing | EndedBy::Signals => os::sleep_until(clock, deadline),
    }
}

#[inline]
fn spin(near: i64, target: &impl SleepTarget, ended_by: EndedBy<'_>) -> Woken {
    /// Distance below which a pause instruction may take longer than the rest of the sleep.
    const NO_PAUSE_BELOW: i64 = 300;
    loop {
        let distance = target.distance();
        if distance <= near {
            return Woken::Elapsed;
        }
        if ended_by.take() {
            return Woken::Interrupted;
        }
        if distance > NO_PAUSE_BELOW {
            std::hint::spin_loop();
        }
    }
}

/// Sleeps for `interval`; returns at once if it is zero or negative. Signals do not end the sleep.
#[inline]
pub fn sleep(interval: Interval) {
    sleep_until(Moment::now().saturating_add(interval));
}

/// Sleeps until `moment`; returns at once if it is past. Signals do not end the sleep.
#[inline]
pub fn sleep_until(moment: Moment) {
    let _ = sleep_to(&moment, EndedBy::Nothing);
}

/// Sleeps as [`sleep_until`] does, but ends if a signal was handled while the thread slept in the kernel.
#[inline]
pub fn sleep_until_signal(moment: Moment) -> Woken {
    sleep_to(&moment, EndedBy::Signals)
}

/// Sleeps until `clock` shows `nanos`, or a signal was handled. If somebody sets the clock meanwhile, the sleep
/// follows.
#[inline]
pub fn sleep_until_date(clock: Reference, nanos: i64) -> Woken {
    sleep_to(&Date { clock, nanos }, EndedBy::Signals)
}

/// Waits for an event for `nanos` of CLOCK_MONOTONIC. `wait` is a call of the kernel's that returns at the event, or after the given
/// nanoseconds with `None`. It is made once for most of the time, and then again and again with 0. Returns `None` once the time is
/// over.
pub fn wait_for_event<T>(nanos: i64, mut wait: impl FnMut(i64) -> Option<T>) -> Option<T> {
    let clock = Reference::Monotonic;
    let target = clock.now().saturating_add(nanos);
    THREAD_STATE.with(|own| {
        if !own.slack_is_set.replace(true) {
            os::least_timer_slack();
        }
    });
    loop {
        let left = target.saturating_sub(clock.now());
        let rate = source::rate();
        let window = THREAD_STATE.with(|own| (own.lateness.window() as f64 * rate) as i64);
        if left <= window {
            break;
        }
        let asked = steered(left - window);
        if let Some(event) = wait(asked) {
            return Some(event);
        }
        let late = clock.now().saturating_sub(target - left + asked);
        THREAD_STATE.with(|own| own.lateness.observe((late.max(0) as f64 / rate) as i64));
    }
    loop {
        let event = wait(0);
        if event.is_some() || clock.now() >= target {
            return event;
        }
    }
}

/// Returns the window of the calling thread, 4 to 100 us: how long before its target the kernel is to wake it.
pub fn spin_window() -> Duration {
    THREAD_STATE.with(|own| Duration::from_nanos(own.lateness.window() as u64))
}

/// Puts the calling thread under SCHED_FIFO, ahead of all ordinary threads, so that its wake-ups are timely under load.
/// `priority` is 1 to 99.
///
/// # Errors
///
/// The thread has neither CAP_SYS_NICE nor a sufficient RLIMIT_RTPRIO, or the priority is out of range.
pub fn use_fifo_scheduling(priority: i32) -> io::Result<()> {
    let wanted = libc::sched_param { sched_priority: priority };
    // SAFETY: the call concerns only the calling thread's scheduling.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &wanted) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A sleep that other threads can interrupt.
///
/// Interrupts are counted, and each one ends one sleep. An interrupt that comes before the sleep begins, or in its last
/// microseconds, is not lost. Each sleeper has its own count, so an interrupt never ends another sleeper's sleep.
///
/// ```
/// use lorentz_timers::{Interval, Sleeper, Woken};
/// let sleeper = Sleeper::new();
/// let other = sleeper.interrupter();
/// let thread = std::thread::spawn(move || other.interrupt());
/// assert_eq!(sleeper.sleep(Interval::from_secs(60)?), Woken::Interrupted);
/// thread.join().unwrap();
/// # Ok::<(), lorentz_timers::OutOfRange>(())
/// ```
#[derive(Debug, Default)]
pub struct Sleeper {
    interrupts: Arc<AtomicU32>,
}

/// Handle that interrupts a [`Sleeper`]. It can be cloned and sent to other threads.
#[derive(Clone, Debug)]
pub struct Interrupter {
    interrupts: Arc<AtomicU32>,
}

impl Sleeper {
    /// Makes a sleeper without interrupts.
    pub fn new() -> Sleeper {
        Sleeper::default()
    }

    /// Returns a handle that interrupts this sleeper.
    pub fn interrupter(&self) -> Interrupter {
        Interrupter { interrupts: self.interrupts.clone() }
    }

    /// Sleeps for `interval`, or until an interrupt.
    #[inline]
    pub fn sleep(&self, interval: Interval) -> Woken {
        self.sleep_until(Moment::now().saturating_add(interval))
    }

    /// Sleeps until `moment`, or until an interrupt. A pending interrupt ends the sleep first, even if the moment is
    /// past.
    #[inline]
    pub fn sleep_until(&self, moment: Moment) -> Woken {
        sleep_to(&moment, EndedBy::Interrupts(&self.interrupts))
    }

    /// Interrupts the sleeper as [`Interrupter::interrupt`] does.
    pub fn interrupt(&self) {
        interrupt(&self.interrupts);
    }

    /// Drops the interrupts that have not ended a sleep, and returns their number.
    pub fn forget_interrupts(&self) -> u32 {
        self.interrupts.swap(0, Ordering::AcqRel)
    }
}

impl Interrupter {
    /// Ends the current sleep, or else the next one.
    pub fn interrupt(&self) {
        interrupt(&self.interrupts);
    }
}

fn interrupt(count: &AtomicU32) {
    let add = |n: u32| Some(n.saturating_add(1));
    let _ = count.fetch_update(Ordering::AcqRel, Ordering::Relaxed, add);
    os::wake(count);
}

/// Sleeps for a [`Duration`]. Signals do not end the sleep.
#[inline]
pub fn sleep_for(duration: Duration) -> Result<(), OutOfRange> {
    sleep(Interval::try_from(duration)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_for_an_event_that_does_not_come_ends_at_its_time() {
        let begun = Reference::Monotonic.now();
        let mut calls = 0;
        let event = wait_for_event(2_000_000, |nanos| {
            calls += 1;
            std::thread::sleep(Duration::from_nanos(nanos as u64));
            None::<()>
        });
        assert_eq!(event, None);
        assert!(Reference::Monotonic.now() - begun >= 2_000_000);
        assert!(calls > 1);
    }

    #[test]
    fn an_event_ends_a_wait_at_once_whenever_it_comes() {
        for comes_at in 0..5 {
            let mut calls = 0;
            let event = wait_for_event(i64::MAX, |_| {
                calls += 1;
                (calls > comes_at).then_some(calls)
            });
            assert_eq!(event, Some(comes_at + 1));
        }
    }
}
