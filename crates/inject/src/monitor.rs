//! The monitor. The kernel notifies it of every exec; it then puts the shim into the new image and lets the program go. At
//! other times it sleeps.

use crate::boot_stub;
use crate::call_site;
use crate::events::{become_subreaper, has_event, has_happened, open_signalfd};
use crate::image::Image;
use crate::launch::{self, Child, Forked, ProgramEnd};
use crate::managed_clock::{ManagedClock, TargetClock};
use crate::namespace;
use crate::registration::{Registered, RegistrationSocket};
use crate::shared::SharedClock;
use crate::trace::{Stop, TracedThread};
use crate::tracee::describe;
use crate::user_notification::{self, Notification};
use crate::wall::{self, Adjust, SetWall};
use crate::{Error, Result};
use lorentz_clock::{failpoint, Failpoint, PidNamespace, Policy, FAILPOINTS};
use lorentz_shim::boot::BootArgs;
use lorentz_shim::filter::{ASK_ADJTIME, ASK_CALL_SITE, ASK_MONITOR};
use lorentz_shim::layout::{IMAGE, IMAGE_LEN};
use lorentz_syscalls::Sysno;
use nix::errno::Errno;
use nix::poll::{ppoll, PollFd, PollFlags};
use nix::sys::signal::{kill, SigSet, Signal};
use nix::sys::signalfd::SignalFd;
use nix::sys::time::TimeSpec;
use nix::unistd::Pid;
use std::collections::HashMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

mod awaited;
mod exec_start;
mod loop_tasks;

pub use loop_tasks::LoopTask;

/// Numbers of the descriptors that were put into a process that is about to exec.
#[derive(Clone, Copy)]
struct InjectedFds {
    image: u32,
    page: u32,
    registry: u32,
    /// The clock-change signal is blocked only for the exec, and must be unblocked after it.
    unblock_change_signal: bool,
}

/// Supervises programs that it has started or attached, and the programs that those start. They are on one clock, or on
/// several; each clock is one managed clock of the monitor.
pub struct ExecMonitor {
    /// The managed clocks, in the order in which they were added.
    clocks: Vec<ManagedClock>,
    image: Image,
    /// Inode of the process id namespace of this process.
    namespace: u32,
    /// Listeners of the filters, each with the number of its managed clock.
    listeners: Vec<(OwnedFd, usize)>,
    /// The registration socket, at which processes come in that the monitor has not started. `processes` are those without a
    /// filter.
    registrations: RegistrationSocket,
    processes: Vec<OwnedFd>,
    signals: SignalFd,
    /// The launched program, until it has ended.
    child: Option<Child>,
    /// Whether its first exec is still to come.
    is_starting: bool,
    ended: Option<ProgramEnd>,
    /// Name of the launched program. `exec_error` says why it could not be executed.
    command: CString,
    exec_error: Option<io::Error>,
    /// The monitor has ended the launched program because it could not be brought in.
    refused: bool,
    /// Threads that the monitor has let go to exec, with their descriptors and the number of their managed clock.
    execs: HashMap<TracedThread, (InjectedFds, usize)>,
    /// Execs of threads that another process of Lorentz traces.
    postponed: Vec<PostponedExec>,
    awaited: Option<Awaited>,
    loop_tasks: Vec<Box<dyn LoopTask>>,
    /// Whether the loop tasks know the first program.
    has_program: bool,
}

/// The thread whose stop [`ExecMonitor::await_stop`] awaits, and the status of that stop.
struct Awaited {
    thread: TracedThread,
    status: Option<i32>,
}

/// An exec whose thread another process of Lorentz traces.
struct PostponedExec {
    listener: OwnedFd,
    index: usize,
    notification: Notification,
    retry: Instant,
}

impl ExecMonitor {
    /// Starts `command` on the target's clock, and in the control group `group` if the kernel can start it there. Calls `prepare`
    /// with the child before the child runs anything of the command. The caller must be the only thread of its process.
    ///
    /// # Errors
    ///
    /// The command cannot be found or started, or `prepare` fails.
    pub fn launch(
        command: &[CString],
        target: TargetClock,
        group: Option<BorrowedFd<'_>>,
        prepare: impl FnOnce(Forked) -> io::Result<()>,
    ) -> Result<ExecMonitor> {
        become_subreaper();
        let mask = SigSet::thread_get_mask()?;
        let signals = open_signalfd()?;
        let policy = target.shim.then_some(target.policy);
        let child = launch::fork_child(command, policy, &mask, group)?;
        // The child installs its filter meanwhile.
        let mut monitor = ExecMonitor::new(target, signals)?;
        monitor.child = Some(monitor.start(0, child, prepare)?);
        monitor.command = command[0].clone();
        monitor.is_starting = policy.is_some();
        Ok(monitor)
    }

    /// Starts `command` on one more clock, which becomes a managed clock of its own. Returns its number. `group` and
    /// `prepare` are as for [`ExecMonitor::launch`]. The program begins with the signals of `mask` blocked.
    pub fn launch_on_new_clock(
        &mut self,
        command: &[CString],
        target: TargetClock,
        mask: &SigSet,
        group: Option<BorrowedFd<'_>>,
        prepare: impl FnOnce(Forked) -> io::Result<()>,
    ) -> Result<usize> {
        let index = self.clocks.len();
        let policy = target.shim.then_some(target.policy);
        self.clocks.push(ManagedClock::new(target, &self.image)?);
        let child = launch::fork_child(command, policy, mask, group)?;
        self.start(index, child, prepare)?;
        Ok(index)
    }

    /// Lets `child` execute its program on a managed clock.
    fn start(
        &mut self,
        index: usize,
        mut child: Child,
        prepare: impl FnOnce(Forked) -> io::Result<()>,
    ) -> Result<Child> {
        let forked = child.forked;
        if let Some(listener) = child.listener()? {
            self.add_listener_for(index, listener);
        }
        let started = prepare(forked).map_err(|e| Error::System("preparing the program", e));
        if let Err(error) = started.and_then(|()| child.start()) {
            let _ = kill(forked.pid, Signal::SIGKILL);
            return Err(error);
        }
        Ok(child)
    }

    pub(crate) fn new(target: TargetClock, signals: SignalFd) -> Result<ExecMonitor> {
        let mut monitor = ExecMonitor::without_clock(signals)?;
        monitor.clocks.push(ManagedClock::new(target, &monitor.image)?);
        Ok(monitor)
    }

    /// Makes a monitor without a managed clock.
    fn without_clock(signals: SignalFd) -> Result<ExecMonitor> {
        let namespace = namespace::of("self");
        let namespace = namespace.map_err(|e| Error::System("reading /proc/self/ns/pid", e))?;
        Ok(ExecMonitor {
            clocks: Vec::new(),
            image: Image::new()?,
            namespace,
            listeners: Vec::new(),
            registrations: RegistrationSocket::default(),
            processes: Vec::new(),
            signals,
            child: None,
            is_starting: false,
            ended: None,
            command: CString::default(),
            exec_error: None,
            refused: false,
            execs: HashMap::new(),
            postponed: Vec::new(),
            awaited: None,
            loop_tasks: Vec::new(),
            has_program: false,
        })
    }

    /// Makes a monitor whose programs are all started by [`ExecMonitor::launch_on_new_clock`].
    pub fn for_batch() -> Result<ExecMonitor> {
        become_subreaper();
        ExecMonitor::without_clock(open_signalfd()?)
    }

    /// Sets the function that sets the container's wall clock when a program with the right to set clocks asks for it. Without
    /// the function, such a request fails with ENOSYS.
    pub fn on_set_wall(&mut self, set: SetWall) {
        self.on_set_wall_of(0, set);
    }

    /// Does the same for one managed clock of several.
    pub fn on_set_wall_of(&mut self, index: usize, set: SetWall) {
        self.clocks[index].set_wall = Some(set);
    }

    /// Has programs' calls of adjtimex(2) carried out by `adjust`.
    pub fn on_adjust(&mut self, adjust: Adjust) {
        self.on_adjust_of(0, adjust);
    }

    /// Does the same for one managed clock of several.
    pub fn on_adjust_of(&mut self, index: usize, adjust: Adjust) {
        self.clocks[index].adjust = Some(adjust);
    }

    /// Lets processes come in at the registration socket `socket`.
    pub fn accept_registrations(&mut self, socket: RegistrationSocket) {
        self.registrations = socket;
    }

    /// Stays until the process of this pidfd, which has no filter, has ended.
    pub fn wait_for(&mut self, process: OwnedFd) {
        self.processes.push(process);
    }

    /// Listens to one more filter.
    pub(crate) fn add_listener(&mut self, listener: OwnedFd) {
        self.add_listener_for(0, listener);
    }

    fn add_listener_for(&mut self, index: usize, listener: OwnedFd) {
        user_notification::prefer_sync_wake_up(listener.as_fd());
        self.listeners.push((listener, index));
    }

    /// Whether no program of a managed clock is left.
    pub fn is_clock_abandoned(&self, index: usize) -> bool {
        self.listeners.iter().all(|(_, of)| *of != index)
    }

    /// Returns the launched program's pid.
    pub fn pid(&self) -> Option<Pid> {
        self.child.as_ref().map(|child| child.forked.pid)
    }

    /// Serves until the launched program begins, or has failed to.
    pub fn serve_start(&mut self) -> Result<()> {
        while self.is_starting && self.ended.is_none() {
            self.serve_event()?;
        }
        Ok(())
    }

    /// Serves until the launched program has ended. Other programs on the clock may go on: see [`ExecMonitor::serve_rest`].
    pub fn serve(&mut self) -> Result<ProgramEnd> {
        loop {
            if let Some(error) = self.exec_error.take() {
                return Err(Error::NotExecutable(self.command.clone(), error));
            }
            // This process traces each thread that is in the midst of its exec. No other process could complete that exec.
            if let Some(ended) =
                self.ended.filter(|_| self.execs.is_empty() && self.postponed.is_empty())
            {
                return Ok(ended);
            }
            self.serve_event()?;
        }
    }

    /// Serves until no program is left.
    pub fn serve_rest(&mut self) -> Result<()> {
        while !self.is_abandoned() {
            self.serve_event()?;
        }
        Ok(())
    }

    /// Handles all events that have occurred. If `wait` is true and there are none, waits for one.
    pub fn serve_once(&mut self, wait: bool) -> Result<()> {
        self.poll_events(if wait { None } else { Some(Duration::ZERO) })
    }

    /// Whether the monitor has nothing left to supervise. Then no process under the filters lives (the kernel has hung up the
    /// listeners), and no connection to the registration socket is open.
    pub fn is_abandoned(&mut self) -> bool {
        self.drop_abandoned_listeners();
        self.processes.retain(|process| !has_event(process.as_fd(), PollFlags::POLLIN));
        self.listeners.is_empty() && self.processes.is_empty() && self.registrations.is_empty()
    }

    /// Drops each listener that the kernel has hung up: no process under its filter is left. It would wake every poll.
    fn drop_abandoned_listeners(&mut self) {
        self.listeners.retain(|(listener, _)| !has_event(listener.as_fd(), PollFlags::POLLHUP));
    }

    /// Waits for an event and handles it.
    fn serve_event(&mut self) -> Result<()> {
        self.poll_events(None)
    }

    fn poll_events(&mut self, limit: Option<Duration>) -> Result<()> {
        let left = self.loop_tasks.iter().filter_map(|task| task.timeout()).min();
        let limit = [limit, left, self.retry_interval()].into_iter().flatten().min();
        let mut fds = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        fds.extend(self.listeners.iter().map(|(fd, _)| PollFd::new(fd.as_fd(), PollFlags::POLLIN)));
        let others = self.processes.iter().map(|fd| fd.as_fd()).chain(self.registrations.fds());
        fds.extend(others.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        let own = fds.len();
        let task_ends = self.push_task_fds(&mut fds);
        match ppoll(&mut fds, limit.map(TimeSpec::from), None) {
            Err(Errno::EINTR) => return Ok(()),
            other => other?,
        };
        let ready =
            |fd: &PollFd| fd.revents().is_some_and(|events| events.contains(PollFlags::POLLIN));
        let signalled = ready(&fds[0]);
        let notified: Vec<usize> =
            (0..self.listeners.len()).filter(|i| ready(&fds[i + 1])).collect();
        let is_hung_up = |fd: &PollFd| has_happened(fd) && !ready(fd);
        let hung_up = fds[1..=self.listeners.len()].iter().any(is_hung_up);
        let due_tasks = self.due_tasks(&fds, own, &task_ends);
        let registering = fds[1 + self.listeners.len()..own].iter().any(has_happened);
        if signalled {
            self.on_signal()?;
        }
        for listener in notified {
            let notification = user_notification::receive(self.listeners[listener].0.as_fd())
                .map_err(listening)?;
            if let Some(notification) = notification {
                self.on_notification(listener, &notification);
            }
        }
        self.retry_postponed();
        if hung_up {
            self.drop_abandoned_listeners();
        }
        if registering {
            self.on_registrations();
        }
        self.run_loop_tasks(&due_tasks);
        Ok(())
    }

    fn on_registrations(&mut self) {
        for registered in self.registrations.serve() {
            match registered {
                Registered::Listener(listener) => self.add_listener(listener),
                Registered::Process(process) => self.processes.push(process),
            }
        }
    }

    /// Handles a notification: a question of the shim's, or an exec.
    fn on_notification(&mut self, listener: usize, notification: &Notification) {
        if notification.call != ASK_MONITOR.number() as i32 {
            self.program_begins(Pid::from_raw(notification.thread as i32));
            return self.on_exec(listener, notification);
        }
        let ((fd, index), id) = (&self.listeners[listener], notification.id);
        let (fd, clock) = (fd.as_fd(), &mut self.clocks[*index]);
        let policy = clock.target.policy;
        let _ = if notification.args[0] == ASK_CALL_SITE {
            let [_, end, number, ..] = notification.args;
            match call_site::shape(notification.thread, end, Sysno::new(number as u32)) {
                Some(shape) => user_notification::answer(fd, id, shape as i64),
                None => user_notification::fail(fd, id, libc::ENOENT),
            }
        } else if notification.args[0] == ASK_ADJTIME {
            match &mut clock.adjust {
                Some(adjust) => wall::answer_adjtime(adjust, policy, fd, notification),
                None => user_notification::fail(fd, id, libc::ENOSYS),
            }
        } else {
            match (wall::requested(&notification.args), &mut clock.set_wall) {
                (Some(change), Some(set)) => wall::answer(set, change, policy, fd, notification),
                _ => user_notification::fail(fd, id, libc::ENOSYS),
            }
        };
    }

    fn on_signal(&mut self) -> Result<()> {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            let number = signal.ssi_signo as i32;
            if number == libc::SIGCHLD {
                continue;
            }
            // The kernel sent a signal of the terminal to the program too, but not that of an alarm from before the launch.
            const FROM_KERNEL: i32 = 0x80;
            let is_programs = signal.ssi_code != FROM_KERNEL || number == libc::SIGALRM;
            if let (Some(child), true) = (&self.child, is_programs) {
                // SAFETY: the process is a child that has not been waited for.
                unsafe { libc::kill(child.forked.pid.as_raw(), number) };
            }
        }
        self.reap()
    }

    /// Handles every child and traced thread whose state has changed.
    fn reap(&mut self) -> Result<()> {
        loop {
            let mut status = 0;
            // SAFETY: the kernel writes to `status`.
            let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG | libc::__WALL) };
            if pid <= 0 {
                return Ok(());
            }
            if self.take_awaited(TracedThread(pid), status) {
                continue;
            }
            if libc::WIFSTOPPED(status) {
                self.on_stop(TracedThread(pid), status);
            } else {
                self.execs.remove(&TracedThread(pid));
                self.on_end(pid, status);
            }
        }
    }

    fn on_end(&mut self, pid: i32, status: i32) {
        if let Some(mut child) = self.child.take_if(|child| child.forked.pid.as_raw() == pid) {
            self.exec_error = child.exec_error();
            const CANNOT_BE_EXECUTED: i32 = 126;
            self.ended = Some(if self.refused {
                ProgramEnd::Exited(CANNOT_BE_EXECUTED)
            } else if libc::WIFSIGNALED(status) {
                ProgramEnd::Killed(libc::WTERMSIG(status))
            } else {
                ProgramEnd::Exited(libc::WEXITSTATUS(status))
            });
        }
    }

    /// Handles the stop of a traced thread: at its exec, on its way back from a failed one, or for a signal.
    fn on_stop(&mut self, thread: TracedThread, status: i32) {
        let event = status >> 16;
        if event != libc::PTRACE_EVENT_EXEC && !self.execs.contains_key(&thread) {
            // A thread that was too busy to be adopted.
            let signal = match Stop::of(status) {
                Stop::Signal(signal) => signal,
                _ => 0,
            };
            let _ = thread.detach_with(signal);
            return;
        }
        if event == libc::PTRACE_EVENT_EXEC {
            self.is_starting = false;
            let former = thread.former().unwrap_or(thread);
            let expected = self.execs.remove(&former).or_else(|| self.execs.remove(&thread));
            if let Err(why) = expected
                .ok_or_else(unexpected)
                .and_then(|(fds, index)| self.inject_shim(thread, fds, index))
            {
                eprintln!(
                    "lorentz: {} is ended: it cannot be brought into virtual time: {why}",
                    describe(thread)
                );
                let _ = kill(Pid::from_raw(thread.0), Signal::SIGKILL);
                self.refused = self.pid().is_some_and(|pid| pid.as_raw() == thread.0);
            }
            let _ = thread.detach();
        } else if event == libc::PTRACE_EVENT_STOP {
            if let Some((fds, _)) = self.execs.remove(&thread) {
                let _ = return_fds(thread, fds);
            }
            let _ = thread.detach();
        } else {
            let _ = thread.go_on(libc::WSTOPSIG(status));
        }
    }

    /// Writes the boot code over the page of the entry point, and makes the thread go on there.
    fn inject_shim(&self, thread: TracedThread, fds: InjectedFds, index: usize) -> io::Result<()> {
        const PAGE: u64 = 4096;
        const COMPATIBILITY_SEGMENT: u64 = 0x23;
        stop_for_test(&self.clocks[index], Failpoint::ExecStopped);
        let mut regs = thread.registers()?;
        if regs.cs == COMPATIBILITY_SEGMENT {
            return Err(io::Error::other("it is a 32-bit program"));
        }
        let page = regs.rip & !(PAGE - 1);
        let args = BootArgs {
            entry: regs.rip,
            page,
            image_fd: fds.image,
            page_fd: fds.page,
            registry_fd: fds.registry,
            change_signal_open: fds.unblock_change_signal.into(),
            space: self.namespace_in(index, thread)?.bits(),
            time_offsets: namespace::time_offsets_from(
                self.clocks[index].args.base_offsets,
                thread.0,
            )?,
            ..self.clocks[index].args
        };
        thread.write(page, &boot_stub::bytes(&args))?;
        regs.rip = page;
        thread.set_registers(&regs)?;
        stop_for_test(&self.clocks[index], Failpoint::ExecPutIn);
        Ok(())
    }

    /// Returns the descriptors that a new process on the clock needs, and the arguments of the boot code. The descriptors are the
    /// image, the clock's file for reading, and the clock's file for writing.
    pub(crate) fn injection_parts(&self) -> ([&OwnedFd; 3], BootArgs) {
        let clock = &self.clocks[0];
        ([&self.image.file, &clock.page, &clock.target.clock], clock.args)
    }

    /// Maps the clock's file.
    pub(crate) fn clock(&self) -> io::Result<SharedClock> {
        self.clocks[0].map()
    }

    /// Returns the name that the clock's registry has for the process id namespace of `process`.
    pub(crate) fn namespace_of(&self, process: TracedThread) -> io::Result<PidNamespace> {
        self.namespace_in(0, process)
    }

    fn namespace_in(&self, index: usize, process: TracedThread) -> io::Result<PidNamespace> {
        let registry = || self.clocks[index].map();
        namespace::registry_name_of(process.0, self.namespace, registry)
    }

    /// Stops this thread if this build has failpoints and the test has armed `point`.
    pub(crate) fn stop_for_test(&self, point: Failpoint) {
        stop_for_test(&self.clocks[0], point);
    }

    /// Returns the clock's file.
    pub fn clock_file(&self) -> BorrowedFd<'_> {
        self.clocks[0].target.clock.as_fd()
    }

    /// Returns the policy that decides which calls the filter traps.
    pub(crate) fn policy(&self) -> Policy {
        self.clocks[0].target.policy
    }
}

/// Stops this thread if this build has failpoints and the test has armed `point`.
fn stop_for_test(clock: &ManagedClock, point: Failpoint) {
    if FAILPOINTS {
        if let Ok(shared) = clock.map() {
            failpoint(shared.registry(), point);
        }
    }
}

/// Tells the shim, in three registers, which descriptors to close after a failed exec. The launcher's own child needs none of
/// this before its first exec: it exits.
fn return_fds(thread: TracedThread, fds: InjectedFds) -> io::Result<()> {
    let mut regs = thread.registers()?;
    if (IMAGE as u64..(IMAGE + IMAGE_LEN) as u64).contains(&regs.rip) {
        regs.r12 = fds.image as u64;
        regs.r13 = fds.page as u64;
        regs.r14 = fds.registry as u64;
        thread.set_registers(&regs)?;
    }
    Ok(())
}

fn unexpected() -> io::Error {
    io::Error::other("its exec was not announced")
}

fn listening(error: io::Error) -> Error {
    Error::System("listening for execs", error)
}
