//! Skipping idle time: when everything on a clock only waits, its time leaps to the next deadline.
//!
//! A process of its own, the skipper, watches over one clock. It leaps when, and only when, every task of every process on
//! the clock sleeps, none of them waits for something that the outside can bring, and a second look, taken after all that
//! was found out, shows that nothing has run in between. It leaps to the earliest deadline there is and wakes whose
//! deadline that is; nobody else. What they do then is done before the next leap, for until it is done they run.

mod kernel;
mod netlink;
mod outside;
mod proc_files;
mod sockets;
mod tasks;

use std::collections::HashSet;
use std::ffi::c_int;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use lorentz_clock::{SkipMode, Span, VirtualInstant};
use nix::fcntl::{fcntl, FcntlArg};
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;

use crate::background::{self, close_standard_streams, keep_only};
use crate::file_stamps::FileStamps;
use crate::host_time::{sleep, Moment};
use crate::processes::{threads_of, FileId, Process};
use crate::{host_time, Clock, Container};
pub use kernel::{Scheduler, Seen};
use outside::{Known, Outside};
pub use tasks::Cause;
use tasks::{asleep, members};
pub use tasks::{look_through, Asleep};

/// How a clock goes about idle time, and what has come of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SkipReport {
    /// What was asked for.
    pub mode: SkipMode,
    /// Whether the process that skips is there.
    pub skipper: Option<u32>,
    /// How many leaps there were.
    pub leaps: i64,
    /// Virtual time leapt over.
    pub skipped: Span,
    /// What keeps time from leaping at this moment; none where it leaps, or has nowhere to leap to.
    pub held_by: Option<Cause>,
}

/// Whether the kernel tells when all sleep.
///
/// # Errors
///
/// Why it does not.
pub fn can_be_told() -> Result<(), String> {
    Scheduler::new().map(drop).map_err(|error| error.to_string())
}

/// Looks at how `container` skips. `processes` are all on its clock, those of other containers too.
///
/// # Errors
///
/// Where its clock cannot be read.
pub fn report(container: &Container, processes: &[Process]) -> anyhow::Result<SkipReport> {
    let clock = container.clock()?;
    let reading = clock.reading();
    let mode = reading.skipping.mode;
    let held_by = match mode {
        SkipMode::Off => None,
        _ => {
            let running = processes.iter().filter(|process| !process.has_ended());
            let pids: Vec<u32> = running.map(|process| process.pid).collect();
            Watch::new(container)?.held_by(&pids, mode == SkipMode::Force)
        }
    };
    let path = container.clock_path();
    Ok(SkipReport {
        mode,
        skipper: skipper_of(&path)?,
        leaps: reading.leaps,
        skipped: reading.leapt,
        held_by,
    })
}

/// Sets whether `container` skips, and sees to it that a process does.
///
/// # Errors
///
/// Where its clock cannot be changed.
pub fn set(container: &Container, mode: SkipMode, read_cost: Option<Span>) -> anyhow::Result<()> {
    let clock = container.clock_to_change()?;
    let cost = read_cost.unwrap_or(clock.reading().skipping.read_cost);
    clock.set_skipping(mode, cost)?;
    match (mode, skipper_of(&container.clock_path())?) {
        (SkipMode::Off, Some(skipper)) => end(skipper),
        // From inside, the container's monitor starts it: a process begun here would live on the clock that it watches.
        (SkipMode::On | SkipMode::Force, None) if !host_time::is_virtual() => start(container)?,
        _ => {}
    }
    Ok(())
}

/// Starts the skipper of `container`'s clock, where it is to skip and has none.
///
/// # Errors
///
/// Where no process can be started.
pub fn start_where_asked(container: &Container) -> anyhow::Result<()> {
    let asked = container.clock()?.reading().skipping.mode != SkipMode::Off;
    if asked && skipper_of(&container.clock_path())?.is_none() {
        start(container)?;
    }
    Ok(())
}

/// Ends the skipper of a clock that nobody uses any more.
pub fn end_unused(clock: &std::path::Path) {
    let last = std::fs::metadata(clock).is_ok_and(|file| file.nlink() == 1);
    if let (true, Ok(Some(skipper))) = (last, skipper_of(clock)) {
        end(skipper);
    }
}

fn end(skipper: u32) {
    let _ = kill(Pid::from_raw(skipper as i32), Signal::SIGKILL);
}

/// In a process of its own; it is there when this returns.
fn start(container: &Container) -> anyhow::Result<()> {
    background::start(|ready| {
        let file = OpenOptions::new().read(true).write(true).open(container.clock_path())?;
        let mut watch = Watch::new(container)?;
        close_standard_streams()?;
        keep_only(&[file.as_fd(), ready.as_fd()]);
        // From here on no other descriptor of the file may be closed: the lock would go with it.
        if !claim(&file) {
            return Ok(());
        }
        drop(ready);
        watch.scheduler = Scheduler::new().ok();
        watch.stamps = FileStamps::new().ok();
        let mut seen = None;
        loop {
            match watch.once(seen.take()) {
                Next::Again(tasks) => seen = Some(tasks),
                Next::Rest if watch.is_used(container) || watch.stays(&file, container) => {
                    watch.rest()
                }
                Next::Rest | Next::End => return Ok(()),
            }
        }
    })
}

/// The right to skip on a clock: a lock on a byte of its file that tells who holds it, by whichever name one looks.
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

fn skipper_of(clock: &std::path::Path) -> io::Result<Option<u32>> {
    let file = OpenOptions::new().read(true).write(true).open(clock)?;
    let mut lock = lock_of(libc::F_WRLCK);
    fcntl(&file, FcntlArg::F_GETLK(&mut lock))?;
    let taken = c_int::from(lock.l_type) != libc::F_UNLCK;
    Ok(taken.then_some(lock.l_pid as u32))
}

/// What comes after a look.
enum Next {
    /// Another: all is idle again. These are the tasks, for its first look at them.
    Again(Vec<Asleep>),
    /// A rest, then another.
    Rest,
    /// The clock is not to skip any more.
    End,
}

/// Watches over one clock.
struct Watch {
    clock: Clock,
    file: FileId,
    /// None where none can be made, and where nothing leaps.
    stamps: Option<FileStamps>,
    /// What the kernel tells of its tasks, where it does.
    scheduler: Option<Scheduler>,
    /// How many programs had been brought onto the clock when the kernel was last told whom to watch.
    entries: u32,
    /// Tasks that were found to wait for nothing outside, and have not run since.
    quiet: HashSet<Asleep>,
    /// What holds time.
    held: Option<Held>,
    /// What has been found out about who can reach them.
    reach: Known,
    /// The processes on the clock at the last look.
    known: Vec<u32>,
    /// How long nothing could be done: the longer, the rarer the looks.
    rest: Duration,
    /// Until when those have been told whose waits a leap has made late.
    told: VirtualInstant,
    /// Leaps that came soon after one another, and when the last one was.
    in_a_row: u32,
    leapt_at: Moment,
    /// When to look next.
    look_at: Moment,
    /// When a clock without a name was last looked for in its programs.
    used_at: Moment,
}

/// What held time at a look, and until when that is taken for true as long as no task runs. To find it out takes
/// milliseconds, and what the outside brings makes a task run.
struct Held {
    tasks: Vec<Asleep>,
    cause: Cause,
    again: Moment,
}

impl Held {
    fn at(now: Moment, tasks: Vec<Asleep>, cause: &Cause) -> Held {
        /// Somebody outside may let go without a word.
        const TRUE_FOR: Duration = Duration::from_millis(500);
        let again = if cause.passes { now } else { now.after(TRUE_FOR) };
        Held { tasks, cause: cause.clone(), again }
    }
}

/// After something has happened.
const SHORTEST_REST: Duration = Duration::from_micros(100);
/// A leap is at most this late, and a wait that a leap has made late.
const LONGEST_REST: Duration = Duration::from_millis(5);
/// How seldom /proc is looked through, at last.
const SELDOM: Duration = Duration::from_millis(50);
/// Where there is nothing to leap to.
const IDLE_REST: Duration = Duration::from_millis(20);

impl Watch {
    fn new(container: &Container) -> anyhow::Result<Watch> {
        let file = FileId::of(&container.clock_path())?;
        let clock = container.clock()?;
        let told = clock.reading().virt;
        Ok(Watch {
            clock,
            file,
            stamps: None,
            scheduler: None,
            entries: 0,
            quiet: HashSet::new(),
            held: None,
            reach: Known::default(),
            known: Vec::new(),
            rest: SHORTEST_REST,
            told,
            in_a_row: 0,
            leapt_at: Moment::now(),
            look_at: Moment::now(),
            used_at: Moment::now(),
        })
    }

    /// Whether a program is on the clock, or a monitor is left that may start one. Neither is where the container was removed, or its
    /// monitor was killed and its programs have ended. To find that out takes milliseconds, so it is looked at once a second.
    fn is_used(&mut self, container: &Container) -> bool {
        const OFTEN: Duration = Duration::from_secs(1);
        if self.used_at.elapsed() < OFTEN {
            return true;
        }
        self.used_at = Moment::now();
        self.has_users(container)
    }

    /// Race: nobody uses the clock. A monitor begins, and finds that this skipper has the lock. The skipper ends. Therefore it gives
    /// the lock up and looks once more: a monitor that begins after that look starts another skipper.
    fn stays(&mut self, file: &File, container: &Container) -> bool {
        give_up(file);
        self.has_users(container) && claim(file)
    }

    fn has_users(&self, container: &Container) -> bool {
        let monitored = |one: &Container| one.record().monitors.iter().any(|m| m.is_alive());
        let is_monitored =
            || container.sharing_its_clock().is_ok_and(|sharing| sharing.iter().any(monitored));
        !members(&self.file).is_empty() || is_monitored()
    }

    /// One look, and a leap where it allows one. `seen` are the tasks, where all were asleep a moment ago.
    fn once(&mut self, seen: Option<Vec<Asleep>>) -> Next {
        let mode = self.clock.skipping().mode;
        if mode == SkipMode::Off {
            return Next::End;
        }
        if Moment::now() >= self.look_at
            && self.clock.can_leap()
            && self.leap(seen, mode == SkipMode::Force)
        {
            self.rest = SHORTEST_REST;
            self.in_a_row += 1;
            self.leapt_at = Moment::now();
            let soon = self.scheduler.as_mut().and_then(Scheduler::idle_soon);
            return soon.map_or(Next::Rest, Next::Again);
        }
        self.told = self.clock.tell_late(self.told, &self.known, LONGEST_REST);
        let longest = if self.clock.has_deadlines() { LONGEST_REST } else { IDLE_REST };
        self.rest = (self.rest * 2).min(longest);
        if self.scheduler.is_none() {
            // A look through /proc takes milliseconds: the longer it was in vain, the later the next.
            let in_vain = self.leapt_at.elapsed();
            self.look_at = Moment::now().after((in_vain / 8).min(SELDOM));
        }
        Next::Rest
    }

    fn rest(&mut self) {
        /// So many leaps in a row, and more are to come.
        const A_ROW: u32 = 4;
        /// So long without one, and the row is over.
        const OVER: Duration = Duration::from_millis(100);
        if self.leapt_at.elapsed() > OVER {
            self.in_a_row = 0;
        }
        match &mut self.scheduler {
            Some(scheduler) => {
                scheduler.be_told(self.in_a_row >= A_ROW);
                match scheduler.is_told() {
                    // It need not look in between; but for those that a leap has made late.
                    true => scheduler.wait(LONGEST_REST),
                    false => sleep(self.rest),
                }
            }
            None => sleep(self.rest),
        }
    }

    /// Leaps, if all is idle and stays so until that has been made sure.
    fn leap(&mut self, seen: Option<Vec<Asleep>>, whatever_comes: bool) -> bool {
        self.watch_who_came();
        let head = self.clock.population();
        let seen = seen.map_or_else(|| self.asleep(), Ok);
        let Ok(tasks) = seen.and_then(|tasks| self.not_held(tasks, whatever_comes)) else {
            return false;
        };
        if tasks.is_empty() || self.clock.has_strangers(&tasks.iter().map(|t| t.thread).collect()) {
            // Somebody is not watched yet.
            self.entries = self.entries.wrapping_sub(1);
            return false;
        }
        self.known = processes_of(&tasks);
        let (clock, entries) = (&self.clock, self.entries);
        let still = || {
            let now = asleep_by(&mut self.scheduler, &self.file);
            clock.entries() == entries && now.is_ok_and(|now| now == tasks)
        };
        let leapt = self.clock.leap_to_next(self.told, &self.known, self.stamps.as_ref(), still);
        if leapt && tasks.len() == 1 && self.clock.may_vouch(head) && self.is_alone(&tasks[0]) {
            self.clock.vouch_alone(head);
        }
        leapt
    }

    /// Whether there is no task on the clock but this one, by another way than that which found it.
    fn is_alone(&self, task: &Asleep) -> bool {
        members(&self.file) == [task.pid] && threads_of(task.pid).eq([task.thread])
    }

    /// The cause that keeps time from leaping at this moment, where `pids` are on the clock.
    fn held_by(&mut self, pids: &[u32], whatever_comes: bool) -> Option<Cause> {
        asleep(pids).and_then(|tasks| self.not_held(tasks, whatever_comes)).err()
    }

    /// The tasks, all asleep, where nothing keeps time from leaping; else what does.
    fn not_held(&mut self, tasks: Vec<Asleep>, whatever_comes: bool) -> Result<Vec<Asleep>, Cause> {
        if whatever_comes {
            return Ok(tasks);
        }
        let held = self.held.take_if(|held| held.tasks == tasks);
        if let Some(held) = held.filter(|held| Moment::now() < held.again) {
            let cause = held.cause.clone();
            self.held = Some(held);
            return Err(cause);
        }
        match self.held_from_outside(&tasks) {
            None => Ok(tasks),
            Some(cause) => {
                self.held = Some(Held::at(Moment::now(), tasks, &cause));
                Err(cause)
            }
        }
    }

    fn held_from_outside(&mut self, tasks: &[Asleep]) -> Option<Cause> {
        let now: HashSet<&Asleep> = tasks.iter().collect();
        self.quiet.retain(|task| now.contains(task));
        let members: Vec<u32> = processes_of(tasks);
        let mut outside = Outside::of(&members, &mut self.reach);
        for task in tasks {
            if self.quiet.contains(task) {
                continue;
            }
            match outside.holds(task) {
                Ok(false) => {}
                Ok(true) => {
                    self.quiet.insert(task.clone());
                }
                Err(cause) => return Some(cause),
            }
        }
        None
    }

    fn asleep(&mut self) -> Result<Vec<Asleep>, Cause> {
        asleep_by(&mut self.scheduler, &self.file)
    }

    /// Tells the kernel whom to watch, where programs have come to the clock since.
    fn watch_who_came(&mut self) {
        let entries = self.clock.entries();
        if entries != self.entries {
            if let Some(scheduler) = &mut self.scheduler {
                // Until a look finds nobody new: one that is not watched yet may have started another.
                while members(&self.file).iter().filter(|pid| scheduler.add(**pid)).count() > 0 {}
            }
            self.entries = entries;
        }
    }
}

/// All tasks on the clock in `file`, if all of them sleep; else one that does not.
fn asleep_by(scheduler: &mut Option<Scheduler>, file: &FileId) -> Result<Vec<Asleep>, Cause> {
    match scheduler {
        Some(scheduler) => scheduler.asleep(),
        None => asleep(&members(file)),
    }
}

fn processes_of(tasks: &[Asleep]) -> Vec<u32> {
    let processes: HashSet<u32> = tasks.iter().map(|task| task.pid).collect();
    processes.into_iter().collect()
}
