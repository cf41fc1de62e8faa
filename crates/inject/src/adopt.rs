//! Adopting a process whose monitor has died: this monitor gets the listener of a new filter.
//!
//! The kernel lets a process have one filter with a living listener. Where the listener has died, it accepts one more, and notifies
//! the newest. The process installs that filter itself, in the handler of the clock-change signal ([`lorentz_shim::adopt`]), because
//! the older filter allows the call from the image alone. The kernel saves and restores the thread's state for the handler, and the
//! handler repeats the wait that the signal has interrupted. Therefore the process goes on unharmed if this monitor dies at any step.
//!
//! ```text
//! monitor                       one thread of the process
//!   seize, interrupt ---------->
//!   <-------------------------- stopped
//!   signal 64, ADOPT ---------->
//!   go on to the next call ---->  handler: seccomp(NEW_LISTENER)
//!   <-------------------------- stopped behind the call: the listener's number
//!   pidfd_getfd
//!   go on to the next call ---->  close(listener)
//!   <-------------------------- stopped behind the call
//!   detach -------------------->  the wait is made again
//! ```

use crate::image;
use crate::launch::duplicate_fd;
use crate::monitor::ExecMonitor;
use crate::trace::{has_ended, Stop, TracedThread};
use crate::tracee::{is_pending, state_of, Tracer};
use crate::{Error, Result};
use lorentz_clock::signal::{fingerprint, ADOPT, ADOPT_NO_NEW_PRIVS, CLOCK_CHANGE, NO_CALL};
use lorentz_clock::Failpoint;
use lorentz_shim::filter::{flag, SET_MODE_FILTER};
use lorentz_shim::layout::{IMAGE, IMAGE_LEN};
use nix::unistd::Pid;
use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long a thread may take to stop, and then to install the filter.
const THREAD_TIMEOUT: Duration = Duration::from_millis(200);
/// How long one try goes on to further threads of a process.
const PROCESS_TIMEOUT: Duration = Duration::from_secs(1);

/// The result of a try to adopt a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Adoption {
    /// This monitor supervises the process from now on.
    Adopted,
    /// A living monitor supervises the process.
    Supervised,
    /// The process has ended.
    Ended,
    /// No thread of the process could run its handler in time, or be sent the signal. The next try may succeed.
    Busy,
}

/// Whether a process may set no_new_privs so that the kernel accepts the filter. The program can see it, and set-user-id programs
/// that it starts have no effect any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoNewPrivs {
    /// It stays as it is.
    Keep,
    /// The process sets it.
    Set,
}

/// A monitor that adopts processes.
pub struct Adopter {
    monitor: ExecMonitor,
    no_new_privs: NoNewPrivs,
    /// Threads to which the signal was sent.
    asked: HashSet<TracedThread>,
}

impl Adopter {
    /// Makes the adopter of `monitor`, which has no program yet.
    pub fn new(monitor: ExecMonitor, no_new_privs: NoNewPrivs) -> Adopter {
        Adopter { monitor, no_new_privs, asked: HashSet::new() }
    }

    /// The monitor.
    pub fn monitor(&mut self) -> &mut ExecMonitor {
        &mut self.monitor
    }

    /// Ends the adoption. The monitor supervises the processes.
    pub fn into_monitor(self) -> ExecMonitor {
        self.monitor.stop_for_test(Failpoint::AdoptUnrecorded);
        self.monitor
    }

    /// Stops all threads of processes that the freezer of control groups has stopped. So their tasks run nothing when they are
    /// thawed, and [`Adopter::adopt_stopped`] can adopt them. `list` returns the processes; the call repeats it until it finds no
    /// new one. Processes that may not be traced are left out.
    pub fn stop(&mut self, list: impl Fn() -> Vec<u32>) -> StoppedProcesses {
        let mut stopped = StoppedProcesses { threads: Vec::new() };
        loop {
            let before = stopped.threads.len();
            for pid in list() {
                stopped.add(&mut self.monitor, Pid::from_raw(pid as i32));
            }
            if stopped.threads.len() == before {
                return stopped;
            }
        }
    }

    /// As [`Adopter::adopt`], for a process among `stopped`. Its other threads stay stopped.
    ///
    /// # Errors
    ///
    /// As for [`Adopter::adopt`].
    pub fn adopt_stopped(&mut self, stopped: &StoppedProcesses, pid: Pid) -> Result<Adoption> {
        let refused = |error: io::Error| Error::Refused(format!("process {pid}: {error}"));
        let Some(tracee) = stopped.threads.iter().find(|tracee| tracee.pid == pid) else {
            return Ok(Adoption::Busy);
        };
        let end = Instant::now() + THREAD_TIMEOUT;
        let outcome = Tracee::or_busy(tracee.listen_stopped(self, end));
        Ok(self.settle(outcome.map_err(refused)?))
    }

    /// Takes a listener over.
    fn settle(&mut self, outcome: Outcome) -> Adoption {
        match outcome {
            Outcome::Listening(listener) => {
                self.monitor.add_listener(listener);
                Adoption::Adopted
            }
            Outcome::Supervised => Adoption::Supervised,
            Outcome::Busy => Adoption::Busy,
            Outcome::Ended => Adoption::Ended,
        }
    }

    /// Supervises process `pid`, which is on the clock of the monitor, if its own monitor has died.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] says why the process cannot be adopted. It goes on as before.
    pub fn adopt(&mut self, pid: Pid) -> Result<Adoption> {
        let refused = |error: io::Error| Error::Refused(format!("process {pid}: {error}"));
        let mut last = Adoption::Ended;
        let end = Instant::now() + PROCESS_TIMEOUT;
        for thread in threads_of(pid).into_iter().take_while(|_| Instant::now() < end) {
            let outcome = Tracee { pid, thread }.listen(self).map_err(refused)?;
            match self.settle(outcome) {
                Adoption::Ended => {}
                Adoption::Busy => last = Adoption::Busy,
                done => return Ok(done),
            }
        }
        // A busy one may have ended meanwhile. A program that starts others all the time has one such at any time.
        let lives = threads_of(pid).into_iter().any(is_there);
        Ok(if lives { last } else { Adoption::Ended })
    }
}

/// Processes whose threads are all stopped. They go on when this value is dropped, unless the freezer stops them.
pub struct StoppedProcesses {
    threads: Vec<Tracee>,
}

impl StoppedProcesses {
    /// Stops the threads of a process that are not stopped yet.
    fn add(&mut self, monitor: &mut ExecMonitor, pid: Pid) {
        for thread in threads_of(pid) {
            let is_known = self.threads.iter().any(|known| known.thread == thread);
            if is_known || seize_and_interrupt(monitor, thread).is_err() {
                continue;
            }
            let tracee = Tracee { pid, thread };
            // A parent in vfork does not stop, and does not run either: its child is stopped.
            match monitor.await_interrupt(thread, Instant::now() + THREAD_TIMEOUT) {
                Ok(true) => self.threads.push(tracee),
                // One that executes a program is let go when it has the shim.
                _ if monitor.is_executing(thread) => {}
                _ => tracee.let_go(),
            }
        }
    }
}

impl Drop for StoppedProcesses {
    fn drop(&mut self) {
        self.threads.iter().for_each(Tracee::let_go);
    }
}

/// Seizes a thread, and interrupts it.
fn seize_and_interrupt(monitor: &ExecMonitor, thread: TracedThread) -> io::Result<()> {
    thread.seize_for_calls()?;
    monitor.stop_for_test(Failpoint::AdoptSeized);
    thread.interrupt()
}

/// Returns the threads of a process, the first one first; none if it has ended.
fn threads_of(pid: Pid) -> Vec<TracedThread> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    let numbers = tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok());
    let mut numbers: Vec<i32> = numbers.collect();
    numbers.sort_by_key(|number| (*number != pid.as_raw(), *number));
    numbers.into_iter().map(TracedThread).collect()
}

/// Whether a thread has not ended.
fn is_there(thread: TracedThread) -> bool {
    !matches!(state_of(thread), None | Some('Z' | 'X'))
}

enum Outcome {
    Listening(OwnedFd),
    Supervised,
    Ended,
    Busy,
}

/// A thread that installs the filter.
struct Tracee {
    pid: Pid,
    thread: TracedThread,
}

impl Tracee {
    fn listen(&self, adopter: &mut Adopter) -> io::Result<Outcome> {
        // Its exec came by one of the monitor's listeners.
        if adopter.monitor.is_executing(self.thread) {
            return Ok(Outcome::Supervised);
        }
        match state_of(self.thread) {
            // A parent in vfork, which no signal reaches, and which would stop only when its child has executed its program.
            Some('D') => return Ok(Outcome::Busy),
            None | Some('Z' | 'X') => return Ok(Outcome::Ended),
            _ => {}
        }
        match seize_and_interrupt(&adopter.monitor, self.thread) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(Outcome::Ended),
            Err(error) => {
                if let Some(outcome) = self.explain_refusal(error)? {
                    return Ok(outcome);
                }
            }
        }
        let outcome = self.listen_seized(adopter);
        // As above. It is let go when it has the shim.
        if adopter.monitor.is_executing(self.thread) {
            return Ok(Outcome::Supervised);
        }
        self.let_go();
        Tracee::or_busy(outcome)
    }

    /// Takes a thread that is gone for a busy one: another thread may have executed a program.
    fn or_busy(outcome: io::Result<Outcome>) -> io::Result<Outcome> {
        match outcome {
            Err(error) if has_ended(&error) => Ok(Outcome::Busy),
            outcome => outcome,
        }
    }

    /// Returns why the thread could not be seized; `None` if this monitor has seized and interrupted it in an earlier try, in which the
    /// thread did not stop in time.
    fn explain_refusal(&self, error: io::Error) -> io::Result<Option<Outcome>> {
        match Tracer::of(self.thread, || {}) {
            Tracer::This => Ok(None),
            // Another adoption, or a monitor at an exec.
            Tracer::Lorentz => Ok(Some(Outcome::Busy)),
            Tracer::Other(tracer) => {
                Err(io::Error::other(format!("it is traced by process {tracer} (strace, gdb)")))
            }
            // It has ended since the look at its state: the kernel refuses that as it refuses a thread with a tracer.
            Tracer::Nobody if !is_there(self.thread) => Ok(Some(Outcome::Ended)),
            Tracer::Nobody => Err(io::Error::new(error.kind(), format!("ptrace: {error}"))),
        }
    }

    fn listen_seized(&self, adopter: &mut Adopter) -> io::Result<Outcome> {
        let deadline = Instant::now() + THREAD_TIMEOUT;
        match adopter.monitor.await_interrupt(self.thread, deadline)? {
            false => Ok(Outcome::Busy),
            true => self.listen_stopped(adopter, deadline),
        }
    }

    /// Has the stopped thread install the filter. It is stopped again afterwards, unless the result is [`Outcome::Busy`].
    fn listen_stopped(&self, adopter: &mut Adopter, deadline: Instant) -> io::Result<Outcome> {
        adopter.monitor.stop_for_test(Failpoint::AdoptStopped);
        let mut flags = [0];
        if self.thread.read(image::FLAGS, &mut flags).is_err() {
            // Killed meanwhile.
            return Ok(Outcome::Busy);
        }
        if flags[0] & image::CAN_BE_ADOPTED == 0 {
            return Err(io::Error::other("it was started by an older version of Lorentz"));
        }
        // Each signal would add a filter.
        if !adopter.asked.contains(&self.thread) || !is_pending(self.thread, CLOCK_CHANGE) {
            match self.send_signal(adopter.no_new_privs) {
                // The user's queue of signals is full: any of the user's programs may have filled it.
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                    return Ok(Outcome::Busy)
                }
                sent => sent?,
            }
            adopter.asked.insert(self.thread);
        }
        adopter.monitor.stop_for_test(Failpoint::AdoptSignalled);
        let is_filter = |regs: &libc::user_regs_struct| {
            regs.orig_rax == libc::SYS_seccomp as u64
                && (regs.rdi, regs.rsi) == (SET_MODE_FILTER.into(), flag::LISTENING_LIVE.into())
        };
        let Some(result) = self.run_to(&mut adopter.monitor, deadline, is_filter)? else {
            return Ok(Outcome::Busy);
        };
        match i32::try_from(-result) {
            Ok(libc::EBUSY) => return Ok(Outcome::Supervised),
            Ok(error) if error > 0 => return Err(explain_filter(error)),
            _ => {}
        }
        adopter.monitor.stop_for_test(Failpoint::AdoptListening);
        let listener = match duplicate_fd(self.pid, result as i32) {
            Ok(listener) => listener,
            // Killed meanwhile: its descriptors are closed, or it is gone.
            Err(Error::System(_, error)) if has_ended(&error) => return Ok(Outcome::Busy),
            Err(error) => return Err(io::Error::other(error.to_string())),
        };
        adopter.monitor.stop_for_test(Failpoint::AdoptFetched);
        // A process that somebody has stopped would keep the listener open.
        let is_close = |regs: &libc::user_regs_struct| {
            regs.orig_rax == libc::SYS_close as u64 && regs.rdi == result as u64
        };
        self.run_to(&mut adopter.monitor, Instant::now() + THREAD_TIMEOUT, is_close)?;
        Ok(Outcome::Listening(listener))
    }

    /// Sends the clock-change signal, with the call that the stop has interrupted.
    fn send_signal(&self, no_new_privs: NoNewPrivs) -> io::Result<()> {
        let regs = self.thread.registers()?;
        let low = match u32::try_from(regs.orig_rax) {
            Ok(call) => fingerprint(call, regs.rip, regs.rsp),
            Err(_) => NO_CALL,
        };
        let high = match no_new_privs {
            NoNewPrivs::Keep => ADOPT,
            NoNewPrivs::Set => ADOPT_NO_NEW_PRIVS,
        };
        let value = u64::from(high) << 32 | u64::from(low);
        self.thread.queue_signal(self.pid.as_raw(), CLOCK_CHANGE as i32, value)
    }

    /// Lets the thread run until it has come out of a system call of the image that `is_it` recognizes. Returns the call's result;
    /// `None` if it has not come there by `deadline`.
    fn run_to(
        &self,
        monitor: &mut ExecMonitor,
        deadline: Instant,
        is_it: impl Fn(&libc::user_regs_struct) -> bool,
    ) -> io::Result<Option<i64>> {
        /// The result register at the entry of each call.
        const NOT_YET: i64 = -(libc::ENOSYS as i64);
        let places = IMAGE as u64..=(IMAGE + IMAGE_LEN) as u64;
        let mut signal = 0;
        loop {
            self.thread.go_on_to_call(signal)?;
            signal = match monitor.await_stop(self.thread, deadline)? {
                None => return Ok(None),
                Some(Stop::Call) => {
                    let regs = self.thread.registers()?;
                    let result = regs.rax as i64;
                    if result != NOT_YET && places.contains(&regs.rip) && is_it(&regs) {
                        return Ok(Some(result));
                    }
                    0
                }
                Some(Stop::Signal(signal)) => signal,
                Some(Stop::Exec | Stop::Other) => 0,
            }
        }
    }

    /// Stops tracing the thread. Where it runs, the monitor's loop detaches it when it has stopped.
    fn let_go(&self) {
        if self.thread.detach().is_err() {
            let _ = self.thread.interrupt();
        }
    }
}

fn explain_filter(errno: i32) -> io::Error {
    let why = match errno {
        libc::EACCES => {
            "it has neither no_new_privs nor CAP_SYS_ADMIN, and without one of them the kernel accepts no seccomp filter; \
             --no-new-privs sets it"
        }
        libc::ESRCH => "its threads have different seccomp filters",
        libc::ENOMEM => "it has too many seccomp filters",
        libc::EPERM => "its own seccomp filter refuses another one",
        _ => return io::Error::from_raw_os_error(errno),
    };
    io::Error::other(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_ends_while_it_is_seized_has_ended() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid::from_raw(child.id() as i32);
        let thread = TracedThread(pid.as_raw());
        while state_of(thread) != Some('Z') {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        // The kernel's answer for it.
        let refused = thread.seize_for_calls().unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
        let outcome = Tracee { pid, thread }.explain_refusal(refused);
        assert!(matches!(outcome, Ok(Some(Outcome::Ended))));
        child.wait().unwrap();
    }
}
