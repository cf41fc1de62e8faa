//! Skipping idle time: when every task on a clock only waits, its time leaps to the next deadline.
//!
//! One process, the skipper, watches over one clock. It leaps if and only if three conditions hold:
//!
//! - Every task of every process on the clock sleeps.
//! - No task waits for something that the outside can bring.
//! - A second look, after the skipper has found out both, shows that no task has run in between.
//!
//! The skipper leaps to the earliest deadline and wakes only the tasks with that deadline. The next leap comes after these tasks
//! have done their work, because they run until then.

use std::collections::HashSet;
use std::ffi::c_int;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use lorentz_clock::{SkipMode, Span, VirtualInstant};
use lorentz_control::host_time::{sleep, HostMoment};
use lorentz_control::processes::{threads_of, FileId, Process};
use lorentz_control::{Clock, FileTimestamps};
use nix::fcntl::{fcntl, FcntlArg};
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;

use crate::external_wakers::{ExternalWakers, WakerCache, WakerFinding};
use crate::switch_trace::SwitchTrace;
use crate::task::{Blocker, SleepingTask};
use crate::task_scan::{all_asleep, members};

/// How a clock skips idle time, and how much it has skipped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SkipReport {
    /// The mode that was asked for.
    pub mode: SkipMode,
    /// The process id of the skipper; `None` if there is none.
    pub skipper: Option<u32>,
    /// Number of leaps.
    pub leaps: i64,
    /// Virtual time that the leaps have skipped.
    pub skipped: Span,
    /// The cause that keeps time from leaping at this moment. `None` if time may leap, if there is no deadline to leap to, or if
    /// skipping is off.
    pub blocker: Option<Blocker>,
}

/// Checks whether the kernel can report when all tasks sleep.
///
/// # Errors
///
/// The reason why the kernel cannot.
pub fn check_switch_events() -> Result<(), String> {
    SwitchTrace::new().map(drop).map_err(|error| error.to_string())
}

/// Reports how `clock` skips. `processes` are all processes on it.
///
/// # Errors
///
/// If the clock's file is gone.
pub fn report(clock: Clock, processes: &[Process]) -> io::Result<SkipReport> {
    let reading = clock.reading();
    let mode = reading.skipping.mode;
    let path = clock.path().to_path_buf();
    let blocker = match mode {
        SkipMode::Off => None,
        _ => blocker_in_mode(clock, processes, mode)?,
    };
    Ok(SkipReport {
        mode,
        skipper: skipper_of(&path)?,
        leaps: reading.leaps,
        skipped: reading.leapt,
        blocker,
    })
}

/// Returns the cause that keeps the time of `clock` from leaping at this moment, or would if it skipped idle time. `processes` are
/// all processes on it.
///
/// # Errors
///
/// If the clock's file is gone.
pub fn blocker(clock: Clock, processes: &[Process]) -> io::Result<Option<Blocker>> {
    let mode = clock.skipping().mode;
    blocker_in_mode(clock, processes, mode)
}

fn blocker_in_mode(
    clock: Clock,
    processes: &[Process],
    mode: SkipMode,
) -> io::Result<Option<Blocker>> {
    let running = processes.iter().filter(|process| !process.has_ended());
    let pids: Vec<u32> = running.map(|process| process.pid).collect();
    Ok(Watch::new(clock)?.blocker(&pids, mode == SkipMode::Force))
}

/// Ends the skipper of a clock file that has no other name: nobody uses that clock any more.
pub fn end_unused(clock: &Path) {
    let last = std::fs::metadata(clock).is_ok_and(|file| file.nlink() == 1);
    if let (true, Ok(Some(skipper))) = (last, skipper_of(clock)) {
        end(skipper);
    }
}

/// Ends a skipper, by its process id.
pub fn end(skipper: u32) {
    let _ = kill(Pid::from_raw(skipper as i32), Signal::SIGKILL);
}

/// The skipper of one clock. It needs a process of its own, which must not be on the clock.
pub struct Skipper {
    watch: Watch,
    file: File,
}

impl Skipper {
    /// Makes the skipper of `clock`. It does nothing yet.
    ///
    /// # Errors
    ///
    /// If the clock's file is gone.
    pub fn new(clock: Clock) -> io::Result<Skipper> {
        let file = OpenOptions::new().read(true).write(true).open(clock.path())?;
        Ok(Skipper { watch: Watch::new(clock)?, file })
    }

    /// Skips until skipping is off, or until no program is on the clock and `is_monitored` says that no monitor is left that may
    /// start one. Returns at once if another skipper has the lock. Drops `ready` when this skipper has the lock.
    ///
    /// The lock belongs to the process. The process must not close another descriptor of the clock's file meanwhile: the kernel
    /// would release the lock.
    pub fn run(self, ready: OwnedFd, is_monitored: impl Fn() -> bool) {
        let Skipper { mut watch, file } = self;
        if !claim(&file) {
            return;
        }
        drop(ready);
        watch.switch_trace = SwitchTrace::new().ok();
        watch.timestamps = FileTimestamps::new().ok();
        let mut asleep = None;
        loop {
            match watch.look_once(asleep.take()) {
                Next::Again(tasks) => asleep = Some(tasks),
                Next::Rest if watch.is_used(&is_monitored) || watch.stays(&file, &is_monitored) => {
                    watch.rest()
                }
                Next::Rest | Next::End => return,
            }
        }
    }
}

impl AsFd for Skipper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The right to skip on a clock: a lock on the first byte of its file. The lock tells the process id of its holder, under each name
/// of the file.
fn lock_of(kind: c_int) -> libc::flock {
    // SAFETY: plain numbers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_len = 1;
    lock
}

fn claim(file: &File) -> bool {
    fcntl(file, FcntlArg::F_SETLK(&lock_of(libc::F_WRLCK))).is_ok()
}

fn give_up(file: &File) {
    let _ = fcntl(file, FcntlArg::F_SETLK(&lock_of(libc::F_UNLCK)));
}

/// Returns the process id of the skipper of the clock at `clock`, if it has one.
///
/// # Errors
///
/// If the file is gone.
pub fn skipper_of(clock: &Path) -> io::Result<Option<u32>> {
    let file = OpenOptions::new().read(true).write(true).open(clock)?;
    let mut lock = lock_of(libc::F_WRLCK);
    fcntl(&file, FcntlArg::F_GETLK(&mut lock))?;
    let taken = c_int::from(lock.l_type) != libc::F_UNLCK;
    Ok(taken.then_some(lock.l_pid as u32))
}

/// The next act of the skipper after a look.
enum Next {
    /// It looks again at once, because all tasks sleep again. These are the tasks.
    Again(Vec<SleepingTask>),
    /// It rests, then looks again.
    Rest,
    /// It ends, because skipping is off.
    End,
}

/// A watch over one clock.
struct Watch {
    clock: Clock,
    file: FileId,
    /// `None` if they cannot be made, and in a watch that never leaps.
    timestamps: Option<FileTimestamps>,
    /// BPF programs that report the tasks; `None` if the kernel does not allow them. Then the watch reads /proc.
    switch_trace: Option<SwitchTrace>,
    /// The number of programs that had been brought onto the clock when `switch_trace` was last given the processes to watch.
    entries: u32,
    /// Tasks without an external waker that have not run since they were examined.
    quiet: HashSet<SleepingTask>,
    /// The cause that kept time from leaping at the last look.
    known_blocker: Option<KnownBlocker>,
    /// Findings of earlier looks about external wakers.
    wakers: WakerCache,
    /// The processes on the clock at the last look.
    known: Vec<u32>,
    /// The next rest. It doubles with each look that could do nothing.
    rest: Duration,
    /// Virtual time up to which the skipper has signalled the waits that a leap made late.
    notified: VirtualInstant,
    /// The number of leaps that came soon after one another, and the time of the last one.
    in_a_row: u32,
    leapt_at: HostMoment,
    /// When to look next.
    look_at: HostMoment,
    /// When the watch last checked whether anybody uses the clock.
    used_at: HostMoment,
}

/// The cause that kept time from leaping at a look, and how long the cause counts as long as no task runs. To find it again takes
/// milliseconds; and anything that the outside brings makes a task run.
struct KnownBlocker {
    tasks: Vec<SleepingTask>,
    blocker: Blocker,
    again: HostMoment,
}

impl KnownBlocker {
    fn at(now: HostMoment, tasks: Vec<SleepingTask>, blocker: &Blocker) -> KnownBlocker {
        /// A process outside may close its end, of which the skipper hears nothing.
        const MAX_AGE: Duration = Duration::from_millis(500);
        let again = if blocker.is_transient { now } else { now.after(MAX_AGE) };
        KnownBlocker { tasks, blocker: blocker.clone(), again }
    }
}

/// Rest after a leap.
const MIN_REST: Duration = Duration::from_micros(100);
/// Longest rest while there are deadlines. It bounds how late a leap is, and how late a wait ends that a leap made late.
const MAX_REST: Duration = Duration::from_millis(5);
/// Longest time between two looks through /proc.
const MAX_LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Longest rest while there is no deadline to leap to.
const MAX_IDLE_REST: Duration = Duration::from_millis(20);

impl Watch {
    fn new(clock: Clock) -> io::Result<Watch> {
        let file = FileId::of(clock.path())?;
        let notified = clock.reading().virt;
        Ok(Watch {
            clock,
            file,
            timestamps: None,
            switch_trace: None,
            entries: 0,
            quiet: HashSet::new(),
            known_blocker: None,
            wakers: WakerCache::default(),
            known: Vec::new(),
            rest: MIN_REST,
            notified,
            in_a_row: 0,
            leapt_at: HostMoment::now(),
            look_at: HostMoment::now(),
            used_at: HostMoment::now(),
        })
    }

    /// Whether a program is on the clock, or a monitor is left that may start one. Neither is so if the container was removed, or
    /// if its monitor was killed and its programs have ended. To find this out takes milliseconds, so the function looks once a
    /// second and says true in between.
    fn is_used(&mut self, is_monitored: &impl Fn() -> bool) -> bool {
        const USE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
        if self.used_at.elapsed() < USE_CHECK_INTERVAL {
            return true;
        }
        self.used_at = HostMoment::now();
        self.has_users(is_monitored)
    }

    /// Gives the lock up, and takes it again if the clock is used. Returns whether this skipper goes on.
    ///
    /// Race: nobody uses the clock. A monitor begins, and finds that this skipper has the lock. The skipper ends. Therefore the
    /// skipper gives the lock up and looks once more: a monitor that begins after that look starts another skipper.
    fn stays(&mut self, file: &File, is_monitored: &impl Fn() -> bool) -> bool {
        give_up(file);
        self.has_users(is_monitored) && claim(file)
    }

    fn has_users(&self, is_monitored: &impl Fn() -> bool) -> bool {
        !members(&self.file).is_empty() || is_monitored()
    }

    /// Looks once, and leaps if that look allows it. `asleep` are the tasks, if they were all asleep a moment ago.
    fn look_once(&mut self, asleep: Option<Vec<SleepingTask>>) -> Next {
        let mode = self.clock.skipping().mode;
        if mode == SkipMode::Off {
            return Next::End;
        }
        let is_due = HostMoment::now() >= self.look_at && self.clock.can_leap();
        if is_due && self.leap(asleep, mode == SkipMode::Force) {
            self.rest = MIN_REST;
            self.in_a_row += 1;
            self.leapt_at = HostMoment::now();
            let idle = self.switch_trace.as_mut().and_then(SwitchTrace::spin_until_idle);
            return idle.map_or(Next::Rest, Next::Again);
        }
        self.notified = self.clock.notify_late(self.notified, &self.known, MAX_REST);
        let longest = if self.clock.has_deadlines() { MAX_REST } else { MAX_IDLE_REST };
        self.rest = (self.rest * 2).min(longest);
        if is_due && self.switch_trace.is_none() {
            // A look through /proc takes milliseconds. The longer the last leap is past, the later the next look.
            let in_vain = self.leapt_at.elapsed();
            self.look_at = HostMoment::now().after((in_vain / 8).min(MAX_LOOK_INTERVAL));
        }
        Next::Rest
    }

    fn rest(&mut self) {
        /// After so many leaps in a row the watch expects more.
        const MIN_ROW: u32 = 4;
        /// After so long without a leap the row is over.
        const ROW_TIMEOUT: Duration = Duration::from_millis(100);
        if self.leapt_at.elapsed() > ROW_TIMEOUT {
            self.in_a_row = 0;
        }
        match &mut self.switch_trace {
            Some(trace) => {
                trace.set_switch_events(self.in_a_row >= MIN_ROW);
                match trace.has_switch_events() {
                    // The kernel reports when no task runs. The watch looks in between only for waits that a leap has made late.
                    true => trace.wait(MAX_REST),
                    false => sleep(self.rest),
                }
            }
            None => sleep(self.rest),
        }
    }

    /// Leaps if all tasks are idle, and were idle still when that was certain. Returns whether it has leapt.
    fn leap(&mut self, asleep: Option<Vec<SleepingTask>>, force: bool) -> bool {
        self.watch_new_processes();
        let head = self.clock.task_counters();
        let asleep = asleep.map_or_else(|| self.asleep(), Ok);
        let Ok(tasks) = asleep.and_then(|tasks| self.unblocked(tasks, force)) else {
            return false;
        };
        if tasks.is_empty()
            || self.clock.has_unknown_waiter(&tasks.iter().map(|t| t.thread).collect())
        {
            // There is a task that is not watched yet.
            self.entries = self.entries.wrapping_sub(1);
            return false;
        }
        self.known = processes_of(&tasks);
        // Read before the leap: the thread leaves its wait then.
        let marks = tasks.len() == 1 && self.clock.may_mark_sole_thread(head);
        let alone = marks.then(|| self.clock.sole_waiter()).flatten();
        let (clock, entries) = (&self.clock, self.entries);
        let still = || {
            let now = asleep_by(&mut self.switch_trace, &self.file);
            clock.entries() == entries && now.is_ok_and(|now| now == tasks)
        };
        let leapt =
            self.clock.leap_to_next(self.notified, &self.known, self.timestamps.as_ref(), still);
        if let Some(alone) = alone.filter(|_| leapt && self.is_sole_thread(&tasks[0])) {
            self.clock.mark_sole_thread(alone, head);
        }
        leapt
    }

    /// Whether `task` is the sole thread on the clock, by /proc and not by the way that found the task.
    fn is_sole_thread(&self, task: &SleepingTask) -> bool {
        members(&self.file) == [task.pid] && threads_of(task.pid).eq([task.thread])
    }

    /// Returns the cause that keeps time from leaping at this moment, if `pids` are the processes on the clock.
    fn blocker(&mut self, pids: &[u32], force: bool) -> Option<Blocker> {
        all_asleep(pids).and_then(|tasks| self.unblocked(tasks, force)).err()
    }

    /// Returns `tasks`, which all sleep, if nothing keeps time from leaping.
    ///
    /// # Errors
    ///
    /// The cause that keeps time from leaping.
    fn unblocked(
        &mut self,
        tasks: Vec<SleepingTask>,
        force: bool,
    ) -> Result<Vec<SleepingTask>, Blocker> {
        if force {
            return Ok(tasks);
        }
        let known = self.known_blocker.take_if(|known| known.tasks == tasks);
        if let Some(known) = known.filter(|known| HostMoment::now() < known.again) {
            let blocker = known.blocker.clone();
            self.known_blocker = Some(known);
            return Err(blocker);
        }
        match self.external_blocker(&tasks) {
            None => Ok(tasks),
            Some(blocker) => {
                self.known_blocker = Some(KnownBlocker::at(HostMoment::now(), tasks, &blocker));
                Err(blocker)
            }
        }
    }

    fn external_blocker(&mut self, tasks: &[SleepingTask]) -> Option<Blocker> {
        let now: HashSet<&SleepingTask> = tasks.iter().collect();
        self.quiet.retain(|task| now.contains(task));
        let members: Vec<u32> = processes_of(tasks);
        let mut wakers = ExternalWakers::of(&members, &mut self.wakers);
        for task in tasks {
            if self.quiet.contains(task) {
                continue;
            }
            match wakers.examine(task) {
                WakerFinding::NoneForNow => {}
                WakerFinding::NoneUntilItRuns => {
                    self.quiet.insert(task.clone());
                }
                WakerFinding::Waker(blocker) => return Some(blocker),
            }
        }
        None
    }

    fn asleep(&mut self) -> Result<Vec<SleepingTask>, Blocker> {
        asleep_by(&mut self.switch_trace, &self.file)
    }

    /// Gives the kernel the processes to watch, if programs have come onto the clock since the last time.
    fn watch_new_processes(&mut self) {
        let entries = self.clock.entries();
        if entries != self.entries {
            if let Some(trace) = &mut self.switch_trace {
                // Repeats until a look finds no new process: a process that is not watched yet may have started another.
                while members(&self.file).iter().filter(|pid| trace.watch_process(**pid)).count()
                    > 0
                {}
            }
            self.entries = entries;
        }
    }
}

/// Returns all tasks on the clock in `file` if all of them sleep.
///
/// # Errors
///
/// A task that does not sleep.
fn asleep_by(
    switch_trace: &mut Option<SwitchTrace>,
    file: &FileId,
) -> Result<Vec<SleepingTask>, Blocker> {
    match switch_trace {
        Some(trace) => trace.sleeping_tasks(),
        None => all_asleep(&members(file)),
    }
}

fn processes_of(tasks: &[SleepingTask]) -> Vec<u32> {
    let processes: HashSet<u32> = tasks.iter().map(|task| task.pid).collect();
    processes.into_iter().collect()
}
