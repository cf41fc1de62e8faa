//! Sleep in two phases: the kernel wakes us a little before the target, and we spin the rest of the way.
//!
//! How much before is learnt for each thread ([`crate::lateness`]). The thread's timer slack is set to 1 ns at its
//! first sleep and left so.
//!
//! While a thread sleeps, the code that follows leaves the processor's caches, and to fetch it again takes longer than all the rest: a
//! sleep that spins well ends 100 to 300 ns late by that alone. So the way back to the caller is walked twice: from a place a
//! microsecond before the target, and then from the target. What the caller does next is mostly beside that.

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

/// How a sleep ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Woken {
    /// Its time had come.
    Elapsed,
    /// Somebody interrupted it.
    Interrupted,
    /// A signal was handled meanwhile, and the sleep was of the kind that ends then.
    Signalled,
}

/// What somebody sleeps until.
trait Target {
    /// Nanoseconds until it, of its own clock; at most 0 once it is reached.
    fn left(&self) -> i64;

    /// The same in nanoseconds or in ticks, whatever is had more cheaply: asked again and again.
    #[inline(always)]
    fn distance(&self) -> i64 {
        self.left()
    }

    /// When the kernel is to wake us, so many nanoseconds before it: a clock and what that shows then.
    fn kernel_deadline(&self, before: i64) -> (libc::clockid_t, i64) {
        let clock = libc::CLOCK_MONOTONIC;
        let left = self.left().saturating_sub(before);
        (clock, os::read(clock).saturating_add(steered(left)))
    }
}

/// The kernel's clock may be steered by up to 500 ppm against the counter's: the last thousandth of a long sleep is a
/// sleep of its own.
fn steered(left: i64) -> i64 {
    const LONG: i64 = 20_000_000;
    if left > LONG {
        left - left / 1_000
    } else {
        left
    }
}

impl Target for Moment {
    #[inline(always)]
    fn left(&self) -> i64 {
        source::scale()
            .nanos(self.since(Moment::now()).ticks())
            .clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    // Whatever the processor moves about here, the counter has shown the target's ticks.
    #[inline(always)]
    fn distance(&self) -> i64 {
        self.ticks().saturating_sub(source::ticks_unordered())
    }
}

/// A date of a clock of the system: where that is set meanwhile, the sleep follows.
struct Date {
    clock: Reference,
    nanos: i64,
}

impl Target for Date {
    #[inline(always)]
    fn left(&self) -> i64 {
        self.nanos.saturating_sub(self.clock.now())
    }

    fn kernel_deadline(&self, before: i64) -> (libc::clockid_t, i64) {
        match self.clock {
            Reference::Realtime => (libc::CLOCK_REALTIME, self.nanos.saturating_sub(before)),
            Reference::Boottime => (libc::CLOCK_BOOTTIME, self.nanos.saturating_sub(before)),
            Reference::Monotonic => (libc::CLOCK_MONOTONIC, self.nanos.saturating_sub(before)),
            // The kernel does not sleep on this one.
            Reference::MonotonicRaw => {
                let left = self.left().saturating_sub(before);
                let clock = libc::CLOCK_MONOTONIC;
                (clock, os::read(clock).saturating_add(steered(left)))
            }
        }
    }
}

/// What a thread knows of its sleeps. Without destructor, so that it is there in every state of the thread.
struct OfThread {
    lateness: Lateness,
    slack_is_set: Cell<bool>,
}

thread_local! {
    static OF_THREAD: OfThread =
        const { OfThread { lateness: Lateness::new(), slack_is_set: Cell::new(false) } };
}

/// What ends a sleep besides its target.
#[derive(Clone, Copy)]
enum Ends<'a> {
    /// Nothing.
    Nothing,
    /// A signal.
    Signals,
    /// An interrupt in this count.
    Interrupts(&'a AtomicU32),
}

impl Ends<'_> {
    /// Takes one interrupt, where there is one.
    #[inline(always)]
    fn take(self) -> bool {
        let Ends::Interrupts(count) = self else { return false };
        if count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        count.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok()
    }
}

/// So near, in nanoseconds or ticks, that the kernel has no more to do with it; and long enough to fetch the way back.
const REHEARSAL: i64 = 3_000;

// Part of its caller: the rehearsal returns to where the sleep will.
#[inline(always)]
fn sleep_to(target: &impl Target, ends: Ends<'_>) -> Woken {
    match come_within(REHEARSAL, target, ends) {
        Woken::Elapsed => come_within(0, target, ends),
        other => other,
    }
}

/// Sleeps, then spins, until the target is at this distance.
#[inline(never)]
fn come_within(near: i64, target: &impl Target, ends: Ends<'_>) -> Woken {
    loop {
        if ends.take() {
            return Woken::Interrupted;
        }
        let rate = source::rate();
        let window = OF_THREAD.with(|own| (own.lateness.window() as f64 * rate) as i64);
        let left = target.left();
        if left <= window {
            return spin(near, target, ends);
        }
        let (clock, deadline) = target.kernel_deadline(window);
        match (kernel_phase(clock, deadline, ends), ends) {
            (libc::EINTR, Ends::Signals) => return Woken::Signalled,
            (0 | libc::ETIMEDOUT, _) => {
                let late = os::read(clock).saturating_sub(deadline);
                // An interrupt that woke us early tells nothing.
                if late >= 0 {
                    let real = (late as f64 / rate) as i64;
                    OF_THREAD.with(|own| own.lateness.observe(real));
                }
            }
            _ => {}
        }
    }
}

fn kernel_phase(clock: libc::clockid_t, deadline: i64, ends: Ends<'_>) -> libc::c_int {
    OF_THREAD.with(|own| {
        if !own.slack_is_set.replace(true) {
            os::least_timer_slack();
        }
    });
    match ends {
        Ends::Interrupts(count) => os::wait_on(count, deadline),
        Ends::Nothing | Ends::Signals => os::sleep_until(clock, deadline),
    }
}

#[inline]
fn spin(near: i64, target: &impl Target, ends: Ends<'_>) -> Woken {
    /// So near, a pause may be longer than what is left.
    const CLOSE: i64 = 300;
    loop {
        let distance = target.distance();
        if distance <= near {
            return Woken::Elapsed;
        }
        if ends.take() {
            return Woken::Interrupted;
        }
        if distance > CLOSE {
            std::hint::spin_loop();
        }
    }
}

/// Sleeps for `interval`, on through signals; not at all where it is zero or negative.
#[inline]
pub fn sleep(interval: Interval) {
    sleep_until(Moment::now().saturating_add(interval));
}

/// Sleeps until `moment`, on through signals; not at all where that is past.
#[inline]
pub fn sleep_until(moment: Moment) {
    let _ = sleep_to(&moment, Ends::Nothing);
}

/// As [`sleep_until`], but ends when a signal was handled while the kernel slept for us.
#[inline]
pub fn sleep_until_signal(moment: Moment) -> Woken {
    sleep_to(&moment, Ends::Signals)
}

/// Sleeps until `clock` shows `nanos`, or a signal was handled. Where the clock is set meanwhile, the sleep follows.
#[inline]
pub fn sleep_until_date(clock: Reference, nanos: i64) -> Woken {
    sleep_to(&Date { clock, nanos }, Ends::Signals)
}

/// The window of the calling thread: how long before its target the kernel is to wake it. Between 4 and 100 us.
pub fn spin_window() -> Duration {
    OF_THREAD.with(|own| Duration::from_nanos(own.lateness.window() as u64))
}

/// Puts the calling thread under SCHED_FIFO, before all ordinary ones, for those who need their wake-ups under load.
/// `priority` is 1 to 99. It needs CAP_SYS_NICE or RLIMIT_RTPRIO.
pub fn use_fifo_scheduling(priority: i32) -> io::Result<()> {
    let wanted = libc::sched_param { sched_priority: priority };
    // SAFETY: concerns the calling thread's scheduling only.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &wanted) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A sleep that other threads can interrupt.
///
/// Interrupts are counted, each ends one sleep: one that comes before the sleep begins, or in its last microseconds,
/// is not lost. Each sleeper has its own count, so one never wakes another.
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

/// What interrupts a [`Sleeper`]; it can be cloned and sent.
#[derive(Clone, Debug)]
pub struct Interrupter {
    interrupts: Arc<AtomicU32>,
}

impl Sleeper {
    /// A sleeper that nobody has interrupted.
    pub fn new() -> Sleeper {
        Sleeper::default()
    }

    /// Its interrupter.
    pub fn interrupter(&self) -> Interrupter {
        Interrupter { interrupts: self.interrupts.clone() }
    }

    /// Sleeps for `interval`, or until it is interrupted.
    #[inline]
    pub fn sleep(&self, interval: Interval) -> Woken {
        self.sleep_until(Moment::now().saturating_add(interval))
    }

    /// Sleeps until `moment`, or until it is interrupted. An interrupt that is there already comes first, even where
    /// the moment is past.
    #[inline]
    pub fn sleep_until(&self, moment: Moment) -> Woken {
        sleep_to(&moment, Ends::Interrupts(&self.interrupts))
    }

    /// As [`Interrupter::interrupt`].
    pub fn interrupt(&self) {
        interrupt(&self.interrupts);
    }

    /// Forgets the interrupts that have not ended a sleep, and tells how many there were.
    pub fn forget_interrupts(&self) -> u32 {
        self.interrupts.swap(0, Ordering::AcqRel)
    }
}

impl Interrupter {
    /// Ends the sleep that is going on, or else the next one.
    pub fn interrupt(&self) {
        interrupt(&self.interrupts);
    }
}

fn interrupt(count: &AtomicU32) {
    let add = |n: u32| Some(n.saturating_add(1));
    let _ = count.fetch_update(Ordering::AcqRel, Ordering::Relaxed, add);
    os::wake(count);
}

/// Sleeps for a [`Duration`].
#[inline]
pub fn sleep_for(duration: Duration) -> Result<(), OutOfRange> {
    sleep(Interval::try_from(duration)?);
    Ok(())
}
