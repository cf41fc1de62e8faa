//! Who has to follow a change of the clock, and how they are told: by a signal to each thread that waits, and to one
//! thread of each process that has a timer set.
//!
//! The registry is written by the programs, so a thread is signalled only when its process has this very clock mapped.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::time::Duration;

use lorentz_clock::{
    ClockPage, Deadline, ProcessId, RealInstant, Registry, Snapshot, Span, Timer, VirtualInstant,
    Waiter,
};
use lorentz_shim::kick::{sighting, KICK_MAGIC, NO_CALL};
use lorentz_shim::sys::sig;
use lorentz_syscalls::Restart;

use crate::changing::Followed;
use crate::host_time::{self, sleep, Moment};
use crate::numbers::Numbers;
use crate::processes::{self, threads_of, FileId};

/// How long a change waits for those it has told.
const PATIENCE: Duration = Duration::from_millis(100);
/// After this long without an answer a thread is told again.
const AGAIN: Duration = Duration::from_millis(40);

/// How often it looks whether they have: the CPU is theirs meanwhile.
const LOOK: Duration = Duration::from_micros(200);

/// Whose deadlines a change has moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moved {
    /// Everybody's.
    All,
    /// Those that are set by the wall clock.
    Wall,
}

/// The waits and timers of one clock.
pub struct Followers<'a> {
    /// The clock as it is now.
    pub page: &'a ClockPage,
    /// Who waits.
    pub registry: &'a Registry,
    /// Its file.
    pub clock: &'a FileId,
    /// Processes of which it is known that they are on the clock.
    pub known: &'a [u32],
    /// What numbers they have here.
    pub numbers: &'a RefCell<Numbers>,
}

impl Followers<'_> {
    /// Tells all that have to follow.
    pub fn tell(&self, moved: Moved) -> Followed {
        let mut told = self.told();
        let waits = self.waits(moved).filter(|waiter| told.wait(waiter)).count();
        let timers = self.timers(moved).filter(|timer| told.timer(timer)).count();
        Followed { waits, timers, ..Followed::default() }
    }

    /// Tells those alone that have timers set.
    pub fn tell_timers(&self) {
        let mut told = self.told();
        self.timers(Moved::All).for_each(|timer| {
            told.timer(timer);
        });
    }

    /// Whether a thread waits for its turn to send, to whoever knows that all tasks sleep. Places of threads that were killed in their
    /// wait are freed.
    pub fn is_in_line(&self) -> bool {
        let in_line = self.registry.waiters().filter(|waiter| waiter.call() == Waiter::TURN);
        in_line.filter(|waiter| self.is_alive(waiter)).count() > 0
    }

    /// Whether the thread that waits is still there; else its place is freed.
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

    /// The earliest virtual instant that a wait or a timer is set for and that has not come yet; now, where one is due and
    /// will be served any moment.
    pub fn earliest(&self, look: &Snapshot) -> Option<VirtualInstant> {
        let now = look.now();
        // Whose wait is over for so long has left it by a jump, or has ended in it. One that was told sleeps once more for
        // an instant, as long as its timer takes to go off: a machine that stands still makes that long.
        const ABANDONED: Span = Span(250_000_000);
        let served = look.segment.virtual_at(RealInstant(look.real.0 - ABANDONED.0));
        let waits = self.registry.waiters().filter_map(|waiter| {
            let due = instant_of(waiter.deadline(), look)?;
            (due > served).then_some(due.max(now))
        });
        let timers = self.registry.timers().filter_map(|timer| next_expiry(timer, now, look));
        waits.chain(timers).min()
    }

    /// The next virtual instant after `now` that a wait or a timer is set for.
    pub fn next_after(&self, now: VirtualInstant, look: &Snapshot) -> Option<VirtualInstant> {
        let waits = self.registry.waiters().filter_map(|wait| instant_of(wait.deadline(), look));
        let timers = self.registry.timers().filter_map(|timer| next_expiry(timer, now, look));
        waits.filter(|due| *due > now).chain(timers).min()
    }

    /// Whether a wait that ended after `since` and until `until` has not been left yet.
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

    /// Tells those whose waits and timers fall due until `until` and were computed from another state of the clock.
    pub fn tell_due(&self, until: VirtualInstant, look: &Snapshot) {
        let mut told = self.told();
        for waiter in self.waits(Moved::All) {
            if instant_of(waiter.deadline(), look).is_some_and(|due| due <= until) {
                told.wait(waiter);
            }
        }
        // Time may have gone on since the piece began, to past what it began with.
        let before = look.segment.virt.plus(Span(-1));
        for timer in self.timers(Moved::All) {
            if next_expiry(timer, before, look).is_some_and(|due| due <= until) {
                told.timer(timer);
            }
        }
    }

    /// Tells those whose waits and timers fall due after `since` and until `until`, whatever they were computed from; false
    /// where there are none. A timeout of the kernel's ends some time after the moment it was set for.
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

    /// Whether somebody waits who is not among the threads `known`. Places that ended threads have left are freed.
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

    /// The threads that wait, each as (process, thread), by their numbers here.
    pub fn waiting(&self) -> HashSet<(u32, u32)> {
        let owners = self.registry.waiters().filter_map(Waiter::owner);
        owners.filter_map(|(process, thread)| self.thread_here(process, thread)).collect()
    }

    /// The numbers here of a thread and its process; none where it has ended, if that is seen without looking.
    fn thread_here(&self, process: ProcessId, thread: u32) -> Option<(u32, u32)> {
        let mut numbers = self.numbers.borrow_mut();
        let pid = numbers.process(process, self.registry)?;
        Some((pid, numbers.thread(process, pid, thread)?))
    }

    /// Tells those whose waits and timers fall due after `since` and until `until`, and were computed before time leapt to
    /// `leapt`.
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
            // Those that were due before have been told, or have left their waits by a jump.
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

    /// Waits until they have.
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

    /// Waits until all timers have been set by the state of the clock, until `end` at the longest. Says whether they have.
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

    /// Those that were not set by the state of the clock. A timer that is being set counts as one.
    fn timers(&self, moved: Moved) -> impl Iterator<Item = &Timer> {
        let state = self.page.timers_state();
        self.registry.timers().filter(move |timer| {
            let deadline = timer.setting().deadline;
            let set = timer.seen() == state || deadline == Deadline::Never;
            timer.is_held() || (!set && concerns(moved, deadline))
        })
    }
}

/// When a deadline is, as the clock stands.
fn instant_of(deadline: Deadline, look: &Snapshot) -> Option<VirtualInstant> {
    match deadline {
        Deadline::Virtual(VirtualInstant::NEVER) | Deadline::Never => None,
        Deadline::Virtual(instant) => Some(instant),
        Deadline::Wall(wall) => Some(look.segment.virtual_at_wall(wall)),
    }
}

/// When a timer goes off next after `after`, if it does.
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
        // A wait without an end too: a freeze breaks it off, and it is told to go on.
        Deadline::Virtual(_) | Deadline::Never => moved == Moved::All,
    }
}

/// What has been found out and done in one round.
struct Told<'a> {
    followers: &'a Followers<'a>,
    /// Whether a process is on this clock.
    known: HashMap<u32, bool>,
    /// Processes one of whose threads has been told.
    kicked: HashSet<ProcessId>,
    /// Threads that have been told, by their process and their own number.
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
                // It is still there: as many signals are pending as may be (EAGAIN).
                Err(error) if error.raw_os_error() != Some(libc::ESRCH) => return false,
                Err(_) => {}
            }
        } else if found.is_some_and(|(pid, _)| exists(pid)) {
            return false;
        }
        // It has ended in the middle of its wait.
        waiter.release_if((process, thread));
        false
    }

    fn timer(&mut self, timer: &Timer) -> bool {
        let Some((process, ..)) = timer.owner() else { return false };
        if timer.target() != 0 && self.thread(process, timer.target()) {
            return true;
        }
        // Whichever thread is told sets the other timers of its process.
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

    /// Tells the thread that a timer's signal goes to: it sets that timer itself. False where it has ended.
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

    /// The first thread of a process may have ended before the others.
    fn kick_another(&self, pid: u32) -> bool {
        threads_of(pid).any(|thread| thread != pid && kick(pid, thread, NO_CALL).is_ok())
    }
}

/// Threads that are blocked in calls which a freeze of their tasks would break off with EINTR, though no signal comes.
/// To be taken before the freeze, and told after it.
pub struct BrokenOff(Vec<(u32, u32, u32)>);

impl BrokenOff {
    /// Looks at all threads of `pids` but those in `waiting`, which are told by the unfreezing.
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

    /// Has them make their calls again when they run.
    pub fn tell(&self) {
        for (pid, thread, seen) in &self.0 {
            // One that has ended needs nothing.
            let _ = kick(*pid, *thread, *seen);
        }
    }
}

fn exists(pid: u32) -> bool {
    fs::exists(format!("/proc/{pid}")).unwrap_or(true)
}

/// In which system call a thread is blocked, for the kick to have it made again.
fn seen_in_call(pid: u32, thread: u32) -> u32 {
    let Ok(text) = fs::read_to_string(format!("/proc/{pid}/task/{thread}/syscall")) else {
        return NO_CALL;
    };
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let hex = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
    // Number, six arguments, stack pointer, instruction pointer.
    match words[..] {
        [call, _, _, _, _, _, _, sp, ip] => match (call.parse(), hex(ip), hex(sp)) {
            (Ok(call), Some(ip), Some(sp)) => sighting(call, ip, sp),
            _ => NO_CALL,
        },
        _ => NO_CALL,
    }
}

/// Sends the kick.
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
        signo: sig::KICK as i32,
        errno: 0,
        code: sig::SI_QUEUE,
        pad: 0,
        pid: std::process::id(),
        uid: 0,
        value: u64::from(KICK_MAGIC) << 32 | u64::from(seen),
        rest: [0; 12],
    };
    // SAFETY: reads a whole siginfo.
    match unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, pid, thread, sig::KICK, &info) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
