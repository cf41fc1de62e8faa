//! The notifier: signals the threads that have to follow a change of the clock. They are each thread that waits, and one thread of
//! each process that has a timer set.
//!
//! The programs can write the registry. Therefore the notifier signals a thread only if its process has this very clock mapped.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::time::Duration;

use lorentz_clock::signal::NO_CALL;
use lorentz_clock::{
    ClockPage, Deadline, ProcessId, RealInstant, Registry, Snapshot, Span, Timer, VirtualInstant,
    Waiter,
};

use crate::host_time::{self, sleep, HostMoment};
use crate::numbers::HostPids;
use crate::processes::{self, threads_of, FileId, Thread};
use crate::signal::{fingerprint_of, send};
use crate::signalled::Signalled;

/// How long a change waits for the threads it has signalled.
const QUIESCE_TIMEOUT: Duration = Duration::from_millis(100);
/// After so long without an answer a thread is signalled again.
const RETRY_INTERVAL: Duration = Duration::from_millis(40);

/// Time between two looks at whether the threads have followed. In between the CPU is free for these threads.
const POLL_INTERVAL: Duration = Duration::from_micros(200);

/// The deadlines that a change has moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moved {
    /// All deadlines.
    All,
    /// Deadlines on clocks that may be moved by themselves: the wall clock and CLOCK_BOOTTIME.
    Offset,
}

/// Numbers of waits, timers and announced changes that a change concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChangeCounts {
    /// Waits whose threads were signalled.
    pub waits: usize,
    /// Timers that were set anew.
    pub timers: usize,
    /// Announced changes that this change has overtaken and dropped.
    pub dropped: usize,
}

/// A wait under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait {
    /// The thread, by its numbers in this pid namespace.
    pub thread: Thread,
    /// Number of the system call that waits; [`lorentz_clock::Waiter::SEND_ORDER`] for a send that waits for its turn.
    pub call: u32,
    /// The deadline on the virtual monotonic clock; `None` without one.
    pub until: Option<VirtualInstant>,
}

/// The waits and timers of one clock.
pub struct Notifier<'a> {
    /// The clock as it is now.
    pub page: &'a ClockPage,
    /// The registry of waits and timers.
    pub registry: &'a Registry,
    /// The clock's file.
    pub clock: &'a FileId,
    /// Processes that are known to be on the clock.
    pub known: &'a [u32],
    /// The numbers that processes and threads have in this pid namespace.
    pub numbers: &'a RefCell<HostPids>,
    /// The threads that have been signalled.
    pub signalled: &'a RefCell<Signalled>,
}

impl Notifier<'_> {
    /// Signals every thread whose deadline the change moved.
    pub fn notify(&self, moved: Moved) -> ChangeCounts {
        let mut round = self.round();
        let waits = self.waits(moved).filter(|waiter| round.signal_waiter(waiter)).count();
        let timers = self.timers(moved).filter(|timer| round.signal_for_timer(timer)).count();
        ChangeCounts { waits, timers, ..ChangeCounts::default() }
    }

    /// Signals only threads of processes that have timers set.
    pub fn notify_timers(&self) {
        let mut round = self.round();
        self.timers(Moved::All).for_each(|timer| {
            round.signal_for_timer(timer);
        });
    }

    /// Whether a living thread waits in the send ordering. The caller must know that all tasks sleep. Frees the entries of threads
    /// that were killed in their wait.
    pub fn has_waiting_sender(&self) -> bool {
        let in_line = self.registry.waiters().filter(|waiter| waiter.call() == Waiter::SEND_ORDER);
        in_line.filter(|waiter| self.is_alive(waiter)).count() > 0
    }

    /// Whether the thread of the entry still exists. Frees the entry if it does not.
    fn is_alive(&self, waiter: &Waiter) -> bool {
        let Some((process, thread)) = waiter.owner() else { return false };
        let here = self.thread_here(process, thread);
        let alive = here.is_some_and(|Thread { pid, tid }| {
            fs::exists(format!("/proc/{pid}/task/{tid}")).unwrap_or(true)
        });
        if !alive {
            waiter.release_if((process, thread));
        }
        alive
    }

    fn round(&self) -> Round<'_> {
        let known = self.known.iter().map(|pid| (*pid, true)).collect();
        Round { notifier: self, known, notified: HashSet::new(), threads: HashSet::new() }
    }

    /// Returns the earliest virtual instant to come for which a wait or a timer is set. Returns now if a wait is due that its
    /// thread will leave at any moment.
    pub fn earliest_deadline(&self, look: &Snapshot) -> Option<VirtualInstant> {
        let now = look.now();
        // A wait that ended so long ago (250 ms of real time) was abandoned: its thread left it by siglongjmp, or the thread died.
        // A thread that was signalled sleeps once more, until its kernel timer goes off; a machine that stands still makes this
        // long.
        const ABANDONED_AFTER: Span = Span(250_000_000);
        let served = look.segment.virtual_at(RealInstant(look.real.0 - ABANDONED_AFTER.0));
        let waits = self.registry.waiters().filter_map(|waiter| {
            let due = instant_of(waiter.deadline(), look)?;
            (due > served).then_some(due.max(now))
        });
        let timers = self.registry.timers().filter_map(|timer| next_expiry(timer, now, look));
        waits.chain(timers).min()
    }

    /// Returns the next virtual instant after `now` for which a wait or a timer is set.
    pub fn next_deadline_after(
        &self,
        now: VirtualInstant,
        look: &Snapshot,
    ) -> Option<VirtualInstant> {
        let waits = self.registry.waiters().filter_map(|wait| instant_of(wait.deadline(), look));
        let timers = self.registry.timers().filter_map(|timer| next_expiry(timer, now, look));
        waits.filter(|due| *due > now).chain(timers).min()
    }

    /// Whether there is a wait with a deadline after `since` and up to `until` that its thread has not left yet.
    pub fn has_overdue_wait(
        &self,
        since: VirtualInstant,
        until: VirtualInstant,
        look: &Snapshot,
    ) -> bool {
        let mut waits =
            self.registry.waiters().filter_map(|wait| instant_of(wait.deadline(), look));
        waits.any(|due| due > since && due <= until)
    }

    /// Signals the threads of waits and timers that fall due up to `until` and were computed from another state of the clock.
    pub fn notify_due(&self, until: VirtualInstant, look: &Snapshot) {
        let mut round = self.round();
        for waiter in self.waits(Moved::All) {
            if instant_of(waiter.deadline(), look).is_some_and(|due| due <= until) {
                round.signal_waiter(waiter);
            }
        }
        // Time may have gone on since the piece began, so this counts from just before the piece's first instant.
        let before = look.segment.virt.plus(Span(-1));
        for timer in self.timers(Moved::All) {
            if next_expiry(timer, before, look).is_some_and(|due| due <= until) {
                round.signal_for_timer(timer);
            }
        }
    }

    /// Signals the threads of waits and timers that fall due after `since` and up to `until`, from whichever state of the clock
    /// they were computed. Returns false if it signalled none. A timeout of the kernel ends some time after the moment it was set
    /// for.
    pub fn notify_between(
        &self,
        since: VirtualInstant,
        until: VirtualInstant,
        look: &Snapshot,
    ) -> bool {
        let mut round = self.round();
        let mut any = false;
        for waiter in self.registry.waiters() {
            let due = instant_of(waiter.deadline(), look);
            if due.is_some_and(|due| due > since && due <= until) {
                any |= round.signal_waiter(waiter);
            }
        }
        for timer in self.registry.timers() {
            if next_expiry(timer, since, look).is_some_and(|due| due <= until) {
                any |= round.signal_for_timer(timer);
            }
        }
        any
    }

    /// Whether a thread waits that is not among the threads `known`. Frees the entries that ended threads have left.
    pub fn has_unknown_waiter(&self, known: &HashSet<u32>) -> bool {
        self.registry.waiters().any(|waiter| match waiter.owner() {
            Some((process, thread)) => {
                let found = self.numbers.borrow().thread_found(process, thread);
                if found.is_some_and(|thread| known.contains(&thread)) {
                    return false;
                }
                let here = self.thread_here(process, thread);
                self.is_alive(waiter) && here.is_some_and(|here| !known.contains(&here.tid))
            }
            None => false,
        })
    }

    /// Returns the threads that wait.
    pub fn waiting_threads(&self) -> HashSet<Thread> {
        let owners = self.registry.waiters().filter_map(Waiter::owner);
        owners.filter_map(|(process, thread)| self.thread_here(process, thread)).collect()
    }

    /// Returns the waits whose threads are found in this pid namespace. `look` gives the deadlines of waits for a date.
    pub fn all_waits(&self, look: &Snapshot) -> Vec<Wait> {
        let wait = |waiter: &Waiter| {
            let (process, thread) = waiter.owner()?;
            let thread = self.thread_here(process, thread)?;
            Some(Wait { thread, call: waiter.call(), until: instant_of(waiter.deadline(), look) })
        };
        self.registry.waiters().filter_map(wait).collect()
    }

    /// Finds a thread of the registry in this pid namespace. `None` if the process or the thread has ended, as far as the known
    /// numbers show it.
    fn thread_here(&self, process: ProcessId, thread: u32) -> Option<Thread> {
        let mut numbers = self.numbers.borrow_mut();
        let pid = numbers.process(process, self.registry)?;
        Some(Thread { pid, tid: numbers.thread(process, pid, thread)? })
    }

    /// Signals the threads of waits and timers that fall due after `since` and up to `until`. It leaves out those that were
    /// computed when the sum of leaps was `leapt` already.
    pub fn notify_late(
        &self,
        since: VirtualInstant,
        until: VirtualInstant,
        leapt: Span,
        look: &Snapshot,
    ) {
        let mut round = self.round();
        for waiter in self.registry.waiters().filter(|waiter| waiter.leapt() != leapt) {
            let due = instant_of(waiter.deadline(), look);
            // Waits that were due before have been signalled, or their threads have left them by a jump.
            if due.is_some_and(|due| due > since && due <= until) {
                round.signal_waiter(waiter);
            }
        }
        for timer in self.registry.timers().filter(|timer| timer.armed().leapt != leapt) {
            if next_expiry(timer, since, look).is_some_and(|due| due <= until) {
                round.signal_for_timer(timer);
            }
        }
    }

    /// Waits until all threads with moved deadlines have followed, at most 100 ms. Signals again those that do not answer within 40
    /// ms.
    pub fn quiesce(&self, moved: Moved) {
        let begun = HostMoment::now();
        let mut again = RETRY_INTERVAL;
        while self.waits(moved).next().is_some() || self.timers(moved).next().is_some() {
            let waited = begun.elapsed();
            if waited > QUIESCE_TIMEOUT {
                return;
            }
            if waited > again {
                self.notify(moved);
                again = waited + RETRY_INTERVAL;
            }
            sleep(POLL_INTERVAL);
        }
    }

    /// Waits until each timer has been set by the state of the clock, until `end` at the longest. Returns whether each has. A timer
    /// that is set anew meanwhile is set by that state too, so it is enough to see each of them set once.
    pub fn await_timers_until(&self, end: RealInstant) -> bool {
        let mut left: Vec<&Timer> = self.timers(Moved::All).collect();
        loop {
            left.retain(|timer| self.is_behind(timer, Moved::All));
            if left.is_empty() {
                return true;
            }
            if host_time::now() >= end {
                return false;
            }
            sleep(POLL_INTERVAL);
        }
    }

    fn waits(&self, moved: Moved) -> impl Iterator<Item = &Waiter> {
        let state = self.page.state();
        self.registry.waiters().filter(move |waiter| {
            waiter.observed_seq() != state && concerns(moved, waiter.deadline())
        })
    }

    /// Returns the timers that were not set by the present state of the clock. A timer that a thread is setting counts as one.
    fn timers(&self, moved: Moved) -> impl Iterator<Item = &Timer> {
        self.registry.timers().filter(move |timer| self.is_behind(timer, moved))
    }

    fn is_behind(&self, timer: &Timer, moved: Moved) -> bool {
        let deadline = timer.setting().deadline;
        let set = timer.observed_seq() == self.page.timers_state() || deadline == Deadline::Never;
        timer.is_being_set() || (!set && concerns(moved, deadline))
    }
}

/// Returns the virtual instant of a deadline, as the clock stands. `None` if it never comes.
fn instant_of(deadline: Deadline, look: &Snapshot) -> Option<VirtualInstant> {
    match deadline {
        Deadline::Virtual(VirtualInstant::NEVER) | Deadline::Never => None,
        Deadline::Virtual(instant) => Some(instant),
        Deadline::Wall(wall) => Some(look.segment.virtual_at_wall(wall)),
        Deadline::Boot(VirtualInstant::NEVER) => None,
        Deadline::Boot(boot) => Some(look.segment.virtual_at_boot(boot)),
    }
}

/// Returns when a timer goes off next after `after`, if it does.
fn next_expiry(timer: &Timer, after: VirtualInstant, look: &Snapshot) -> Option<VirtualInstant> {
    let setting = timer.setting();
    let first = instant_of(setting.deadline, look)?;
    match setting.interval.0 {
        _ if first > after => Some(first),
        0 => None,
        interval => {
            let gone = after.since(first).0 / interval + 1;
            Some(first.plus(Span(gone.saturating_mul(interval))))
        }
    }
}

fn concerns(moved: Moved, deadline: Deadline) -> bool {
    match deadline {
        Deadline::Wall(_) | Deadline::Boot(_) => true,
        // A wait without an end counts too: a freeze breaks it off, and the clock-change signal makes it go on.
        Deadline::Virtual(_) | Deadline::Never => moved == Moved::All,
    }
}

/// Findings and signals of one round of the notifier.
struct Round<'a> {
    notifier: &'a Notifier<'a>,
    /// Whether a process is on this clock, by process id.
    known: HashMap<u32, bool>,
    /// Processes of which a thread has been signalled.
    notified: HashSet<ProcessId>,
    /// Threads that have been signalled, by process and thread number.
    threads: HashSet<(ProcessId, u32)>,
}

impl Round<'_> {
    fn is_ours(&mut self, pid: u32) -> bool {
        let clock = self.notifier.clock;
        *self
            .known
            .entry(pid)
            .or_insert_with(|| processes::clock_of(pid).is_some_and(|mapped| mapped.is_same(clock)))
    }

    fn signal_waiter(&mut self, waiter: &Waiter) -> bool {
        let Some((process, thread)) = waiter.owner() else { return false };
        let found = self.notifier.thread_here(process, thread);
        if let Some(Thread { pid, tid }) = found.filter(|found| self.is_ours(found.pid)) {
            match self.send(Thread { pid, tid }, waiter, waiter.observed_seq(), || NO_CALL) {
                Ok(()) => {
                    self.notified.insert(process);
                    self.threads.insert((process, thread));
                    return true;
                }
                // The thread still exists: the queue of pending signals is full (EAGAIN).
                Err(error) if error.raw_os_error() != Some(libc::ESRCH) => return false,
                Err(_) => {}
            }
        } else if found.is_some_and(|found| exists(found.pid)) {
            return false;
        }
        // The thread has ended in its wait.
        waiter.release_if((process, thread));
        false
    }

    fn signal_for_timer(&mut self, timer: &Timer) -> bool {
        let Some(owner) = timer.owner() else { return false };
        let process = owner.0;
        if timer.target() != 0 && self.signal_thread(process, timer.target(), timer) {
            return true;
        }
        // One thread is enough: it sets the other timers of its process too.
        if self.notified.contains(&process) {
            return true;
        }
        let here = self.notifier.thread_here(process, process.number());
        let Some(Thread { pid, .. }) = here.filter(|here| self.is_ours(here.pid)) else {
            if !here.is_some_and(|here| exists(here.pid)) {
                timer.release_if(owner);
            }
            return false;
        };
        let first = Thread { pid, tid: pid };
        let sent = self.signal_timers_thread(first, timer) || self.signal_another(pid, timer);
        if sent {
            self.notified.insert(process);
        }
        sent
    }

    /// Signals the thread to which a timer's signal goes: that thread sets the timer itself. Returns false if it has ended.
    fn signal_thread(&mut self, process: ProcessId, thread: u32, timer: &Timer) -> bool {
        if self.threads.contains(&(process, thread)) {
            return true;
        }
        let here = self.notifier.thread_here(process, thread);
        let Some(here) = here.filter(|here| self.is_ours(here.pid)) else {
            return false;
        };
        let sent = self.signal_timers_thread(here, timer);
        if sent {
            self.notified.insert(process);
            self.threads.insert((process, thread));
        }
        sent
    }

    fn signal_timers_thread(&self, thread: Thread, timer: &Timer) -> bool {
        let fingerprint = || fingerprint_of(thread.pid, thread.tid);
        self.send(thread, timer, timer.observed_seq(), fingerprint).is_ok()
    }

    /// Signals a thread for its wait or timer `what`, which was computed from state `observed` of the clock; if an earlier signal for
    /// that still waits for the thread, that one will do.
    fn send<T>(
        &self,
        thread: Thread,
        what: &T,
        observed: u32,
        fingerprint: impl FnOnce() -> u32,
    ) -> io::Result<()> {
        let needs_signal =
            self.notifier.signalled.borrow_mut().needs_signal(thread, what, observed);
        if !needs_signal {
            return Ok(());
        }
        send(thread.pid, thread.tid, fingerprint())
    }

    /// Signals a thread of process `pid` other than the first one, which may have ended before the others.
    fn signal_another(&self, pid: u32, timer: &Timer) -> bool {
        let mut others = threads_of(pid).filter(|tid| *tid != pid);
        others.any(|tid| self.signal_timers_thread(Thread { pid, tid }, timer))
    }
}

fn exists(pid: u32) -> bool {
    fs::exists(format!("/proc/{pid}")).unwrap_or(true)
}
