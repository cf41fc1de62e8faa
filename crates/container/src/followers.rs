//! The notifier: signals the threads that have to follow a change of the clock. They are each thread that waits, and one thread of
//! each process that has a timer set.
//!
//! The programs can write the registry. Therefore the notifier signals a thread only if its process has this very clock mapped.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::time::Duration;

use lorentz_clock::{
    ClockPage, Deadline, ProcessId, RealInstant, Registry, Snapshot, Span, Timer, VirtualInstant,
    Waiter,
};
use lorentz_shim::change_signal::{fingerprint, CHANGE_SIGNAL_MAGIC, NO_CALL};
use lorentz_shim::sys::sig;
use lorentz_syscalls::Restart;

use crate::changing::Followed;
use crate::host_time::{self, sleep, Moment};
use crate::numbers::Numbers;
use crate::processes::{self, threads_of, FileId};

/// How long a change waits for the threads it has signalled.
const PATIENCE: Duration = Duration::from_millis(100);
/// After so long without an answer a thread is signalled again.
const AGAIN: Duration = Duration::from_millis(40);

/// Time between two looks at whether the threads have followed. In between the CPU is free for these threads.
const LOOK: Duration = Duration::from_micros(200);

/// The deadlines that a change has moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moved {
    /// All deadlines.
    All,
    /// Deadlines on the wall clock.
    Wall,
}

/// The waits and timers of one clock.
pub struct Followers<'a> {
    /// The clock as it is now.
    pub page: &'a ClockPage,
    /// The registry of waits and timers.
    pub registry: &'a Registry,
    /// The clock's file.
    pub clock: &'a FileId,
    /// Processes that are known to be on the clock.
    pub known: &'a [u32],
    /// The numbers that processes and threads have in this pid namespace.
    pub numbers: &'a RefCell<Numbers>,
}

impl Followers<'_> {
    /// Signals every thread whose deadline the change moved.
    pub fn tell(&self, moved: Moved) -> Followed {
        let mut told = self.told();
        let waits = self.waits(moved).filter(|waiter| told.wait(waiter)).count();
        let timers = self.timers(moved).filter(|timer| told.timer(timer)).count();
        Followed { waits, timers, ..Followed::default() }
    }

    /// Signals only threads of processes that have timers set.
    pub fn tell_timers(&self) {
        let mut told = self.told();
        self.timers(Moved::All).for_each(|timer| {
            told.timer(timer);
        });
    }

    /// Whether a living thread waits in the send ordering. The caller must know that all tasks sleep. Frees the entries of threads
    /// that were killed in their wait.
    pub fn is_in_line(&self) -> bool {
        let in_line = self.registry.waiters().filter(|waiter| waiter.call() == Waiter::TURN);
        in_line.filter(|waiter| self.is_alive(waiter)).count() > 0
    }

    /// Whether the thread of the entry still exists. Frees the entry if it does not.
    fn is_alive(&self, waiter: &Waiter) -> bool {
        let Some((process, thread)) = waiter.owner() else { return false };
        let here = self.thread_here(process, thread);
        let alive = here.is_some_and(|(pid, thread)| {
            fs::exists(format!("/proc/{pid}/task/{thread}")).unwrap_or(true)
        });
        if !alive {
            waiter.release_if((process, thread));
        }
        alive
    }

    fn told(&self) -> Told<'_> {
        let known = self.known.iter().map(|pid| (*pid, true)).collect();
        Told { followers: self, known, kicked: HashSet::new(), threads: HashSet::new() }
    }

    /// Returns the earliest virtual instant to come for which a wait or a timer is set. Returns now if a wait is due that its
    /// thread will leave at any moment.
    pub fn earliest(&self, look: &Snapshot) -> Option<VirtualInstant> {
        let now = look.now();
        // A wait that ended so long ago (250 ms of real time) was abandoned: its thread left it by siglongjmp, or the thread died.
        // A thread that was signalled sleeps once more, until its kernel timer goes off; a machine that stands still makes this
        // long.
        const ABANDONED: Span = Span(250_000_000);
        let served = look.segment.virtual_at(RealInstant(look.real.0 - ABANDONED.0));
        let waits = self.registry.waiters().filter_map(|waiter| {
            let due = instant_of(waiter.deadline(), look)?;
            (due > served).then_some(due.max(now))
        });
        let timers = self.registry.timers().filter_map(|timer| next_expiry(timer, now, look));
        waits.chain(timers).min()
    }

    /// Returns the next virtual instant after `now` for which a wait or a timer is set.
    pub fn next_after(&self, now: VirtualInstant, look: &Snapshot) -> Option<VirtualInstant> {
        let waits = self.registry.waiters().filter_map(|wait| instant_of(wait.deadline(), look));
        let timers = self.registry.timers().filter_map(|timer| next_expiry(timer, now, look));
        waits.filter(|due| *due > now).chain(timers).min()
    }

    /// Whether there is a wait with a deadline after `since` and up to `until` that its thread has not left yet.
    pub fn is_overdue(
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
    pub fn tell_due(&self, until: VirtualInstant, look: &Snapshot) {
        let mut told = self.told();
        for waiter in self.waits(Moved::All) {
            if instant_of(waiter.deadline(), look).is_some_and(|due| due <= until) {
                told.wait(waiter);
            }
        }
        // Time may have gone on since the piece began, so this counts from just before the piece's first instant.
        let before = look.segment.virt.plus(Span(-1));
        for timer in self.timers(Moved::All) {
            if next_expiry(timer, before, look).is_some_and(|due| due <= until) {
                told.timer(timer);
            }
        }
    }

    /// Signals the threads of waits and timers that fall due after `since` and up to `until`, from whichever state of the clock
    /// they were computed. Returns false if it signalled none. A timeout of the kernel ends some time after the moment it was set
    /// for.
    pub fn tell_between(
        &self,
        since: VirtualInstant,
        until: VirtualInstant,
        look: &Snapshot,
    ) -> bool {
        let mut told = self.told();
        let mut any = false;
        for waiter in self.registry.waiters() {
            let due = instant_of(waiter.deadline(), look);
            if due.is_some_and(|due| due > since && due <= until) {
                any |= told.wait(waiter);
            }
        }
        for timer in self.registry.timers() {
            if next_expiry(timer, since, look).is_some_and(|due| due <= until) {
                any |= told.timer(timer);
            }
        }
        any
    }

    /// Whether a thread waits that is not among the threads `known`. Frees the entries that ended threads have left.
    pub fn has_strangers(&self, known: &HashSet<u32>) -> bool {
        self.registry.waiters().any(|waiter| match waiter.owner() {
            Some((process, thread)) => {
                let found = self.numbers.borrow().thread_found(process, thread);
                if found.is_some_and(|thread| known.contains(&thread)) {
                    return false;
                }
                let here = self.thread_here(process, thread);
                self.is_alive(waiter) && here.is_some_and(|(_, thread)| !known.contains(&thread))
            }
            None => false,
        })
    }

    /// Returns the threads that wait, each as (process, thread), by their numbers in this pid namespace.
    pub fn waiting(&self) -> HashSet<(u32, u32)> {
        let owners = self.registry.waiters().filter_map(Waiter::owner);
        owners.filter_map(|(process, thread)| self.thread_here(process, thread)).collect()
    }

    /// Returns the numbers of a process and a thread in this pid namespace. `None` if the process or the thread has ended, as far
    /// as the known numbers show it.
    fn thread_here(&self, process: ProcessId, thread: u32) -> Option<(u32, u32)> {
        let mut numbers = self.numbers.borrow_mut();
        let pid = numbers.process(process, self.registry)?;
        Some((pid, numbers.thread(process, pid, thread)?))
    }

    /// Signals the threads of waits and timers that fall due after `since` and up to `until`. It leaves out those that were
    /// computed when the sum of leaps was `leapt` already.
    pub fn tell_late(
        &self,
        since: VirtualInstant,
        until: VirtualInstant,
        leapt: Span,
        look: &Snapshot,
    ) {
        let mut told = self.told();
        for waiter in self.registry.waiters().filter(|waiter| waiter.leapt() != leapt) {
            let due = instant_of(waiter.deadline(), look);
            // Waits that were due before have been signalled, or their threads have left them by a jump.
            if due.is_some_and(|due| due > since && due <= until) {
                told.wait(waiter);
            }
        }
        for timer in self.registry.timers().filter(|timer| timer.armed().leapt != leapt) {
            if next_expiry(timer, since, look).is_some_and(|due| due <= until) {
                told.timer(timer);
            }
        }
    }

    /// Waits until all threads with moved deadlines have followed, at most 100 ms. Signals again those that do not answer within 40
    /// ms.
    pub fn settle(&self, moved: Moved) {
        let begun = Moment::now();
        let mut again = AGAIN;
        while self.waits(moved).next().is_some() || self.timers(moved).next().is_some() {
            let waited = begun.elapsed();
            if waited > PATIENCE {
                return;
            }
            if waited > again {
                self.tell(moved);
                again = waited + AGAIN;
            }
            sleep(LOOK);
        }
    }

    /// Waits until all timers have been set by the state of the clock, until `end` at the longest. Returns whether they have.
    pub fn set_timers_before(&self, end: RealInstant) -> bool {
        loop {
            if self.timers(Moved::All).next().is_none() {
                return true;
            }
            if host_time::now() >= end {
                return false;
            }
            sleep(LOOK);
        }
    }

    fn waits(&self, moved: Moved) -> impl Iterator<Item = &Waiter> {
        let state = self.page.state();
        self.registry
            .waiters()
            .filter(move |waiter| waiter.seen() != state && concerns(moved, waiter.deadline()))
    }

    /// Returns the timers that were not set by the present state of the clock. A timer that a thread is setting counts as one.
    fn timers(&self, moved: Moved) -> impl Iterator<Item = &Timer> {
        let state = self.page.timers_state();
        self.registry.timers().filter(move |timer| {
            let deadline = timer.setting().deadline;
            let set = timer.seen() == state || deadline == Deadline::Never;
            timer.is_held() || (!set && concerns(moved, deadline))
        })
    }
}

/// Returns the virtual instant of a deadline, as the clock stands. `None` if it never comes.
fn instant_of(deadline: Deadline, look: &Snapshot) -> Option<VirtualInstant> {
    match deadline {
        Deadline::Virtual(VirtualInstant::NEVER) | Deadline::Never => None,
        Deadline::Virtual(instant) => Some(instant),
        Deadline::Wall(wall) => Some(look.segment.virtual_at_wall(wall)),
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
        Deadline::Wall(_) => true,
        // A wait without an end counts too: a freeze breaks it off, and the clock-change signal makes it go on.
        Deadline::Virtual(_) | Deadline::Never => moved == Moved::All,
    }
}

/// Findings and signals of one round of the notifier.
struct Told<'a> {
    followers: &'a Followers<'a>,
    /// Whether a process is on this clock, by process id.
    known: HashMap<u32, bool>,
    /// Processes of which a thread has been signalled.
    kicked: HashSet<ProcessId>,
    /// Threads that have been signalled, by process and thread number.
    threads: HashSet<(ProcessId, u32)>,
}

impl Told<'_> {
    fn is_ours(&mut self, pid: u32) -> bool {
        let clock = self.followers.clock;
        *self
            .known
            .entry(pid)
            .or_insert_with(|| processes::clock_of(pid).is_some_and(|mapped| mapped.is_same(clock)))
    }

    fn wait(&mut self, waiter: &Waiter) -> bool {
        let Some((process, thread)) = waiter.owner() else { return false };
        let found = self.followers.thread_here(process, thread);
        if let Some((pid, here)) = found.filter(|(pid, _)| self.is_ours(*pid)) {
            match kick(pid, here, NO_CALL) {
                Ok(()) => {
                    self.kicked.insert(process);
                    self.threads.insert((process, thread));
                    return true;
                }
                // The thread still exists: the queue of pending signals is full (EAGAIN).
                Err(error) if error.raw_os_error() != Some(libc::ESRCH) => return false,
                Err(_) => {}
            }
        } else if found.is_some_and(|(pid, _)| exists(pid)) {
            return false;
        }
        // The thread has ended in its wait.
        waiter.release_if((process, thread));
        false
    }

    fn timer(&mut self, timer: &Timer) -> bool {
        let Some((process, ..)) = timer.owner() else { return false };
        if timer.target() != 0 && self.thread(process, timer.target()) {
            return true;
        }
        // One thread is enough: it sets the other timers of its process too.
        if self.kicked.contains(&process) {
            return true;
        }
        let here = self.followers.thread_here(process, process.number());
        let Some((pid, _)) = here.filter(|(pid, _)| self.is_ours(*pid)) else {
            if !here.is_some_and(|(pid, _)| exists(pid)) {
                timer.release();
            }
            return false;
        };
        let told = kick(pid, pid, seen_in_call(pid, pid)).is_ok() || self.kick_another(pid);
        if told {
            self.kicked.insert(process);
        }
        told
    }

    /// Signals the thread to which a timer's signal goes: that thread sets the timer itself. Returns false if it has ended.
    fn thread(&mut self, process: ProcessId, thread: u32) -> bool {
        if self.threads.contains(&(process, thread)) {
            return true;
        }
        let here = self.followers.thread_here(process, thread);
        let Some((pid, here)) = here.filter(|(pid, _)| self.is_ours(*pid)) else { return false };
        let told = kick(pid, here, seen_in_call(pid, here)).is_ok();
        if told {
            self.kicked.insert(process);
            self.threads.insert((process, thread));
        }
        told
    }

    /// Signals a thread of process `pid` other than the first one, which may have ended before the others.
    fn kick_another(&self, pid: u32) -> bool {
        threads_of(pid).any(|thread| thread != pid && kick(pid, thread, NO_CALL).is_ok())
    }
}

/// Threads that are blocked in calls which a freeze of their tasks would break off with EINTR although no signal comes.
/// [`BrokenOff::tell`] makes them repeat these calls when they run. A freeze looks at the threads before it stops them, a round
/// after it has stopped them.
pub struct BrokenOff(Vec<(u32, u32, u32)>);

impl BrokenOff {
    /// Looks at all threads of `pids` but those in `waiting`, which the unfreeze signals.
    pub fn look(pids: &[u32], waiting: &HashSet<(u32, u32)>) -> BrokenOff {
        let is_never_repeated = |call: u32| {
            lorentz_syscalls::row(call).is_some_and(|row| row.restart == Restart::Never)
        };
        let threads = pids
            .iter()
            .flat_map(|pid| threads_of(*pid).map(move |thread| (*pid, thread)))
            .filter(|thread| !waiting.contains(thread));
        let seen = threads.filter_map(|(pid, thread)| {
            let seen = seen_in_call(pid, thread);
            (seen != NO_CALL && is_never_repeated(seen >> 22)).then_some((pid, thread, seen))
        });
        BrokenOff(seen.collect())
    }

    /// Signals the threads, so that they make their calls again when they run.
    pub fn tell(&self) {
        for (pid, thread, seen) in &self.0 {
            // An error is no matter: a thread that has ended needs no signal.
            let _ = kick(*pid, *thread, *seen);
        }
    }
}

fn exists(pid: u32) -> bool {
    fs::exists(format!("/proc/{pid}")).unwrap_or(true)
}

/// Returns the blocked-syscall fingerprint of a thread. The clock-change signal carries it, so that the handler repeats the call.
fn seen_in_call(pid: u32, thread: u32) -> u32 {
    let Ok(text) = fs::read_to_string(format!("/proc/{pid}/task/{thread}/syscall")) else {
        return NO_CALL;
    };
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let hex = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
    // Call number, six arguments, stack pointer, instruction pointer.
    match words[..] {
        [call, _, _, _, _, _, _, sp, ip] => match (call.parse(), hex(ip), hex(sp)) {
            (Ok(call), Some(ip), Some(sp)) => fingerprint(call, ip, sp),
            _ => NO_CALL,
        },
        _ => NO_CALL,
    }
}

/// Sends the clock-change signal.
fn kick(pid: u32, thread: u32, seen: u32) -> io::Result<()> {
    #[repr(C)]
    struct Info {
        signo: i32,
        errno: i32,
        code: i32,
        pad: i32,
        pid: u32,
        uid: u32,
        value: u64,
        rest: [u64; 12],
    }
    let info = Info {
        signo: sig::CLOCK_CHANGE as i32,
        errno: 0,
        code: sig::SI_QUEUE,
        pad: 0,
        pid: std::process::id(),
        uid: 0,
        value: u64::from(CHANGE_SIGNAL_MAGIC) << 32 | u64::from(seen),
        rest: [0; 12],
    };
    // SAFETY: reads a whole siginfo.
    match unsafe {
        libc::syscall(libc::SYS_rt_tgsigqueueinfo, pid, thread, sig::CLOCK_CHANGE, &info)
    } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
