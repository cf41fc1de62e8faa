//! The monitor. The kernel notifies it of every exec; it then puts the shim into the new image and lets the program go. At
//! other times it sleeps.

use crate::blob;
use crate::door::{Door, Handed as HandedIn};
use crate::host::{tsc_hz, Host};
use crate::image::Image;
use crate::launch::{self, Child, Ended};
use crate::namespace;
use crate::notify::{self, Notification};
use crate::shared::SharedClock;
use crate::trace::Thread;
use crate::tracee::{describe, refuse};
use crate::wall::{self, SetWall};
use crate::{Error, Result};
use lorentz_clock::{failpoint, Failpoint, Policy, Space, FAILPOINTS};
use lorentz_shim::boot::BootArgs;
use lorentz_shim::filter::{ASK_MONITOR, EXEC_CHANGE_SIGNAL_OPEN};
use lorentz_shim::layout::{IMAGE, IMAGE_LEN};
use nix::errno::Errno;
use nix::poll::{poll, ppoll, PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{kill, SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;
use nix::unistd::Pid;
use std::collections::HashMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// The clock onto which programs are brought.
pub struct Target {
    /// The clock's file, open for reading and writing.
    pub clock: OwnedFd,
    /// The clock's policy. It decides which calls the filter traps.
    pub policy: Policy,
    /// Whether programs get the filter and the shim. Without them the monitor only starts programs and waits for them: their
    /// clocks are those of their time namespace.
    pub shim: bool,
}

/// Numbers of the descriptors that were put into a process that is about to exec.
#[derive(Clone, Copy)]
struct Handed {
    image: u32,
    page: u32,
    registry: u32,
    /// The clock-change signal is blocked only for the exec, and must be unblocked after it.
    change_signal_open: bool,
}

/// Another task of a monitor's process, which the monitor's loop serves.
pub trait Attendant {
    /// Returns the descriptors whose events the task waits for.
    fn fds(&self) -> Vec<BorrowedFd<'_>>;

    /// Returns the time after which the loop calls the task even without an event; `None` for no limit.
    fn left(&self) -> Option<Duration>;

    /// Runs the task. The loop calls it when a descriptor has an event, or the time is over.
    fn attend(&mut self);
}

/// A managed clock, and all that a program on it needs.
struct Ward {
    target: Target,
    /// The clock's file, open for reading only.
    page: OwnedFd,
    args: BootArgs,
    set_wall: Option<SetWall>,
}

impl Ward {
    fn new(target: Target, image: &Image) -> Result<Ward> {
        let page = read_only(&target.clock)?;
        let hz = if target.policy.trap_tsc { tsc_hz() } else { 0 };
        let args = blob::args(image, &Host::look(), hz);
        Ok(Ward { target, page, args, set_wall: None })
    }

    /// Maps the clock's file.
    fn clock(&self) -> io::Result<SharedClock> {
        SharedClock::map(&self.target.clock)
    }
}

/// Supervises programs that it has started or attached, and the programs that those start. They are on one clock, or on
/// several; each clock is one managed clock of the monitor.
pub struct Monitor {
    /// The managed clocks, in the order in which they were added.
    wards: Vec<Ward>,
    image: Image,
    /// Inode of the process id namespace of this process.
    namespace: u32,
    /// Listeners of the filters, each with the number of its managed clock.
    listeners: Vec<(OwnedFd, usize)>,
    /// The registration socket, at which processes come in that the monitor has not started. `processes` are those without a
    /// filter.
    door: Door,
    processes: Vec<OwnedFd>,
    signals: SignalFd,
    /// The launched program, until it has ended.
    child: Option<Child>,
    ended: Option<Ended>,
    /// Name of the launched program. `exec_error` says why it could not be executed.
    command: CString,
    exec_error: Option<io::Error>,
    /// The monitor has ended the launched program because it could not be brought in.
    refused: bool,
    /// Threads that the monitor has let go to exec, with their descriptors and the number of their managed clock.
    execs: HashMap<Thread, (Handed, usize)>,
    attendant: Option<Box<dyn Attendant>>,
}

/// Signals that the monitor passes on to the program when somebody sends them to the monitor.
const FORWARDED: [Signal; 8] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGWINCH,
];

impl Monitor {
    /// Starts `command` on the target's clock. Calls `prepare` with the child's pid before the child runs anything of the
    /// command. The caller must be the only thread of its process.
    ///
    /// # Errors
    ///
    /// The command cannot be found or started, or `prepare` fails.
    pub fn launch(
        command: &[CString],
        target: Target,
        prepare: impl FnOnce(Pid) -> io::Result<()>,
    ) -> Result<Monitor> {
        become_subreaper();
        let mask = SigSet::thread_get_mask()?;
        let signals = listen_to_signals()?;
        let mut monitor = Monitor::new(target, signals)?;
        let child = monitor.begin(0, command, &mask, prepare)?;
        monitor.child = Some(child);
        monitor.command = command[0].clone();
        Ok(monitor)
    }

    /// Starts `command` on one more clock, which becomes a managed clock of its own. Returns its number. `prepare` is as for
    /// [`Monitor::launch`]. The program begins with the signals of `mask` blocked.
    pub fn launch_beside(
        &mut self,
        command: &[CString],
        target: Target,
        mask: &SigSet,
        prepare: impl FnOnce(Pid) -> io::Result<()>,
    ) -> Result<usize> {
        let ward = self.wards.len();
        self.wards.push(Ward::new(target, &self.image)?);
        self.begin(ward, command, mask, prepare)?;
        Ok(ward)
    }

    /// Starts `command` on a managed clock.
    fn begin(
        &mut self,
        ward: usize,
        command: &[CString],
        mask: &SigSet,
        prepare: impl FnOnce(Pid) -> io::Result<()>,
    ) -> Result<Child> {
        let target = &self.wards[ward].target;
        let policy = target.shim.then_some(target.policy);
        let mut child = launch::fork_child(command, policy, mask)?;
        let (pid, listener) = (child.pid, child.listener.take());
        if let Some(listener) = listener {
            self.listen_for(ward, listener);
        }
        let started = prepare(pid).map_err(|e| Error::System("preparing the program", e));
        if let Err(error) = started.and_then(|()| child.let_go()) {
            let _ = kill(pid, Signal::SIGKILL);
            return Err(error);
        }
        Ok(child)
    }

    pub(crate) fn new(target: Target, signals: SignalFd) -> Result<Monitor> {
        let mut monitor = Monitor::of_none(signals)?;
        monitor.wards.push(Ward::new(target, &monitor.image)?);
        Ok(monitor)
    }

    /// Makes a monitor without a managed clock.
    fn of_none(signals: SignalFd) -> Result<Monitor> {
        let namespace = namespace::of("self");
        let namespace = namespace.map_err(|e| Error::System("reading /proc/self/ns/pid", e))?;
        Ok(Monitor {
            wards: Vec::new(),
            image: Image::new()?,
            namespace,
            listeners: Vec::new(),
            door: Door::default(),
            processes: Vec::new(),
            signals,
            child: None,
            ended: None,
            command: CString::default(),
            exec_error: None,
            refused: false,
            execs: HashMap::new(),
            attendant: None,
        })
    }

    /// Makes a monitor whose programs are all started by [`Monitor::launch_beside`].
    pub fn of_many() -> Result<Monitor> {
        become_subreaper();
        Monitor::of_none(listen_to_signals()?)
    }

    /// Sets the function that sets the container's wall clock when a program with the right to set clocks asks for it. Without
    /// the function, such a request fails with ENOSYS.
    pub fn when_wall_is_set(&mut self, set: SetWall) {
        self.when_wall_of_is_set(0, set);
    }

    /// Does the same for one managed clock of several.
    pub fn when_wall_of_is_set(&mut self, ward: usize, set: SetWall) {
        self.wards[ward].set_wall = Some(set);
    }

    /// Makes this monitor's loop serve `attendant`.
    pub fn attended_by(&mut self, attendant: Box<dyn Attendant>) {
        self.attendant = Some(attendant);
    }

    /// Lets processes come in at the registration socket `door`.
    pub fn open(&mut self, door: Door) {
        self.door = door;
    }

    /// Listens to one more filter.
    pub(crate) fn listen(&mut self, listener: OwnedFd) {
        self.listen_for(0, listener);
    }

    fn listen_for(&mut self, ward: usize, listener: OwnedFd) {
        notify::prefer_sync_wake_up(listener.as_fd());
        self.listeners.push((listener, ward));
    }

    /// Whether no program of a managed clock is left.
    pub fn is_ward_abandoned(&self, ward: usize) -> bool {
        self.listeners.iter().all(|(_, of)| *of != ward)
    }

    /// Returns the launched program's pid.
    pub fn pid(&self) -> Option<Pid> {
        self.child.as_ref().map(|child| child.pid)
    }

    /// Serves until the launched program has ended. Other programs on the clock may go on: see [`Monitor::serve_rest`].
    pub fn serve(&mut self) -> Result<Ended> {
        loop {
            if let Some(error) = self.exec_error.take() {
                return Err(Error::NotExecutable(self.command.clone(), error));
            }
            // This process traces each thread that is in the midst of its exec. No other process could complete that exec.
            if let Some(ended) = self.ended.filter(|_| self.execs.is_empty()) {
                return Ok(ended);
            }
            self.once()?;
        }
    }

    /// Serves until no program is left.
    pub fn serve_rest(&mut self) -> Result<()> {
        while !self.is_abandoned() {
            self.once()?;
        }
        Ok(())
    }

    /// Handles all events that have occurred. If `wait` is true and there are none, waits for one.
    pub fn serve_once(&mut self, wait: bool) -> Result<()> {
        self.deal(if wait { None } else { Some(Duration::ZERO) })
    }

    /// Whether the monitor has nothing left to supervise. Then no process under the filters lives (the kernel has hung up the
    /// listeners), and no connection to the registration socket is open.
    pub fn is_abandoned(&mut self) -> bool {
        self.listeners.retain(|(listener, _)| !has_event(listener.as_fd(), PollFlags::POLLHUP));
        self.processes.retain(|process| !has_event(process.as_fd(), PollFlags::POLLIN));
        self.listeners.is_empty() && self.processes.is_empty() && self.door.is_empty()
    }

    /// Waits for an event and handles it.
    fn once(&mut self) -> Result<()> {
        self.deal(None)
    }

    fn deal(&mut self, limit: Option<Duration>) -> Result<()> {
        let left = self.attendant.as_ref().and_then(|attendant| attendant.left());
        let limit = [limit, left].into_iter().flatten().min();
        let mut fds = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        fds.extend(self.listeners.iter().map(|(fd, _)| PollFd::new(fd.as_fd(), PollFlags::POLLIN)));
        let others = self.processes.iter().map(|fd| fd.as_fd()).chain(self.door.fds());
        fds.extend(others.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        let own = fds.len();
        let attended = self.attendant.iter().flat_map(|attendant| attendant.fds());
        fds.extend(attended.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        match ppoll(&mut fds, limit.map(TimeSpec::from), None) {
            Err(Errno::EINTR) => return Ok(()),
            other => other?,
        };
        let ready =
            |fd: &PollFd| fd.revents().is_some_and(|events| events.contains(PollFlags::POLLIN));
        let signalled = ready(&fds[0]);
        let notified: Vec<usize> =
            (0..self.listeners.len()).filter(|i| ready(&fds[i + 1])).collect();
        let attended = self.attendant.as_ref().is_some_and(|attendant| {
            let woken = fds[own..].iter().any(has_happened);
            woken || attendant.left() == Some(Duration::ZERO)
        });
        let at_door = fds[1 + self.listeners.len()..own].iter().any(has_happened);
        if signalled {
            self.on_signal()?;
        }
        for listener in notified {
            let notification =
                notify::receive(self.listeners[listener].0.as_fd()).map_err(listening)?;
            if let Some(notification) = notification {
                self.on_notification(listener, &notification);
            }
        }
        if at_door {
            self.on_callers();
        }
        if let Some(attendant) = self.attendant.as_mut().filter(|_| attended) {
            attendant.attend();
        }
        Ok(())
    }

    fn on_callers(&mut self) {
        for handed in self.door.serve() {
            match handed {
                HandedIn::Listener(listener) => self.listen(listener),
                HandedIn::Process(process) => self.processes.push(process),
            }
        }
    }

    /// Handles an exec: seizes the thread, gives it the descriptors that the new image needs, and lets the call go on.
    fn on_notification(&mut self, listener: usize, notification: &Notification) {
        let ((listener, ward), id) = (&self.listeners[listener], notification.id);
        let (listener, number) = (listener.as_fd(), *ward);
        let ward = &mut self.wards[number];
        if notification.call == ASK_MONITOR.number() as i32 {
            let _ = match (wall::requested(&notification.args), &mut ward.set_wall) {
                (Some(change), Some(set)) => wall::answer(set, change, listener, notification),
                _ => notify::fail(listener, id, libc::ENOSYS),
            };
            return;
        }
        let thread = Thread(notification.thread as i32);
        if let Err(error) = thread.seize() {
            refuse(thread, &error);
            let _ = notify::fail(listener, id, libc::EPERM);
            return;
        }
        stop_for_test(ward, Failpoint::ExecSeized);
        // If the exec fails, the thread stops on its way back, and the monitor detaches there.
        let handed = thread.interrupt().and_then(|()| {
            Ok(Handed {
                image: notify::add_fd(listener, id, self.image.file.as_fd())?,
                page: notify::add_fd(listener, id, ward.page.as_fd())?,
                registry: notify::add_fd(listener, id, ward.target.clock.as_fd())?,
                change_signal_open: notification.args[5] & EXEC_CHANGE_SIGNAL_OPEN != 0,
            })
        });
        match handed {
            Ok(handed) => {
                self.execs.insert(thread, (handed, number));
                let _ = notify::go_on(listener, id);
                stop_for_test(ward, Failpoint::ExecLetGo);
            }
            Err(_) => {
                let _ = notify::fail(listener, id, libc::EMFILE);
            }
        }
    }

    fn on_signal(&mut self) -> Result<()> {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            let number = signal.ssi_signo as i32;
            if number == libc::SIGCHLD {
                continue;
            }
            // The kernel sent a signal of the terminal to the program too.
            const FROM_KERNEL: i32 = 0x80;
            if let (Some(child), true) = (&self.child, signal.ssi_code != FROM_KERNEL) {
                // SAFETY: the process is a child that has not been waited for.
                unsafe { libc::kill(child.pid.as_raw(), number) };
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
            if libc::WIFSTOPPED(status) {
                self.on_stop(Thread(pid), status);
            } else {
                self.execs.remove(&Thread(pid));
                self.on_end(pid, status);
            }
        }
    }

    fn on_end(&mut self, pid: i32, status: i32) {
        if let Some(mut child) = self.child.take_if(|child| child.pid.as_raw() == pid) {
            self.exec_error = child.exec_error();
            const CANNOT_BE_EXECUTED: i32 = 126;
            self.ended = Some(if self.refused {
                Ended::Exited(CANNOT_BE_EXECUTED)
            } else if libc::WIFSIGNALED(status) {
                Ended::Killed(libc::WTERMSIG(status))
            } else {
                Ended::Exited(libc::WEXITSTATUS(status))
            });
        }
    }

    /// Handles the stop of a traced thread: at its exec, on its way back from a failed one, or for a signal.
    fn on_stop(&mut self, thread: Thread, status: i32) {
        let event = status >> 16;
        if event == libc::PTRACE_EVENT_EXEC {
            let former = thread.former().unwrap_or(thread);
            let handed = self.execs.remove(&former).or_else(|| self.execs.remove(&thread));
            if let Err(why) = handed
                .ok_or_else(unexpected)
                .and_then(|(handed, ward)| self.put_in(thread, handed, ward))
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
            if let Some((handed, _)) = self.execs.remove(&thread) {
                let _ = take_back(thread, handed);
            }
            let _ = thread.detach();
        } else {
            let _ = thread.go_on(libc::WSTOPSIG(status));
        }
    }

    /// Writes the boot code over the page of the entry point, and makes the thread go on there.
    fn put_in(&self, thread: Thread, handed: Handed, ward: usize) -> io::Result<()> {
        const PAGE: u64 = 4096;
        const COMPATIBILITY_SEGMENT: u64 = 0x23;
        stop_for_test(&self.wards[ward], Failpoint::ExecStopped);
        let mut regs = thread.registers()?;
        if regs.cs == COMPATIBILITY_SEGMENT {
            return Err(io::Error::other("it is a 32-bit program"));
        }
        let page = regs.rip & !(PAGE - 1);
        let args = BootArgs {
            entry: regs.rip,
            page,
            image_fd: handed.image,
            page_fd: handed.page,
            registry_fd: handed.registry,
            change_signal_open: handed.change_signal_open.into(),
            space: self.space_in(ward, thread)?.bits(),
            time_offsets: namespace::time_offsets_from(
                self.wards[ward].args.base_offsets,
                thread.0,
            )?,
            ..self.wards[ward].args
        };
        thread.write(page, &blob::blob(&args))?;
        regs.rip = page;
        thread.set_registers(&regs)?;
        stop_for_test(&self.wards[ward], Failpoint::ExecPutIn);
        Ok(())
    }

    /// Returns the descriptors that a new process on the clock needs, and the arguments of the boot code. The descriptors are the
    /// image, the clock's file for reading, and the clock's file for writing.
    pub(crate) fn gifts(&self) -> ([&OwnedFd; 3], BootArgs) {
        let ward = &self.wards[0];
        ([&self.image.file, &ward.page, &ward.target.clock], ward.args)
    }

    /// Maps the clock's file.
    pub(crate) fn clock(&self) -> io::Result<SharedClock> {
        self.wards[0].clock()
    }

    /// Returns the name that the clock's registry has for the process id namespace of `process`.
    pub(crate) fn space_of(&self, process: Thread) -> io::Result<Space> {
        self.space_in(0, process)
    }

    fn space_in(&self, ward: usize, process: Thread) -> io::Result<Space> {
        let registry = || self.wards[ward].clock();
        namespace::space_of(process.0, self.namespace, registry)
    }

    /// Returns the clock's file.
    pub fn clock_file(&self) -> BorrowedFd<'_> {
        self.wards[0].target.clock.as_fd()
    }

    /// Returns the policy that decides which calls the filter traps.
    pub(crate) fn policy(&self) -> Policy {
        self.wards[0].target.policy
    }
}

/// Stops this thread if this build has failpoints and the test has armed `point`.
fn stop_for_test(ward: &Ward, point: Failpoint) {
    if FAILPOINTS {
        if let Ok(clock) = ward.clock() {
            failpoint(clock.registry(), point);
        }
    }
}

fn has_happened(fd: &PollFd) -> bool {
    fd.revents().is_some_and(|events| !events.is_empty())
}

/// Whether `event` has happened to `fd`.
fn has_event(fd: BorrowedFd, event: PollFlags) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    let _ = poll(&mut fds, PollTimeout::ZERO);
    fds[0].revents().is_some_and(|events| events.contains(event))
}

/// Tells the shim, in three registers, which descriptors to close after a failed exec. The launcher's own child needs none of
/// this before its first exec: it exits.
fn take_back(thread: Thread, handed: Handed) -> io::Result<()> {
    let mut regs = thread.registers()?;
    if (IMAGE as u64..(IMAGE + IMAGE_LEN) as u64).contains(&regs.rip) {
        regs.r12 = handed.image as u64;
        regs.r13 = handed.page as u64;
        regs.r14 = handed.registry as u64;
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

/// Opens the same file anew, for reading only.
fn read_only(file: &OwnedFd) -> Result<OwnedFd> {
    use std::os::fd::AsRawFd;
    let again = std::fs::File::open(format!("/proc/self/fd/{}", file.as_raw_fd()));
    again.map(OwnedFd::from).map_err(|e| Error::System("opening the clock for reading", e))
}

/// Makes this process a subreaper: orphans stay descendants of the monitor, which may therefore trace them.
fn become_subreaper() {
    // SAFETY: the call concerns only this process.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

pub(crate) fn listen_to_signals() -> Result<SignalFd> {
    let mut set = SigSet::empty();
    set.add(Signal::SIGCHLD);
    FORWARDED.iter().for_each(|signal| set.add(*signal));
    nix::sys::signal::sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), None)?;
    Ok(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?)
}
