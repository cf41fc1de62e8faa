//! The monitor: told of every exec, it puts the shim into the new image and lets go. Otherwise it sleeps.

use crate::blob;
use crate::door::{Door, Handed as HandedIn};
use crate::host::{tsc_hz, Host};
use crate::image::Image;
use crate::launch::{self, Child, Ended};
use crate::namespace;
use crate::notify::{self, Notification};
use crate::shared::SharedClock;
use crate::trace::Thread;
use crate::wall::{self, SetWall};
use crate::{Error, Result};
use lorentz_clock::{failpoint, Failpoint, Policy, Space, FAILPOINTS};
use lorentz_shim::boot::BootArgs;
use lorentz_shim::filter::{ASK_MONITOR, EXEC_KICK_OPEN};
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

/// The clock that programs are brought onto.
pub struct Target {
    /// The clock's file, open for reading and writing.
    pub clock: OwnedFd,
    /// The clock's policy: decides what the filter traps.
    pub policy: Policy,
    /// Whether programs get the filter and the shim at all. Without them they are only started and waited for: their
    /// clocks are those of the time namespace they are in.
    pub shim: bool,
}

/// Descriptors put into a process that is about to exec.
#[derive(Clone, Copy)]
struct Handed {
    image: u32,
    page: u32,
    registry: u32,
    /// The kick signal is blocked for the exec alone.
    kick_open: bool,
}

/// Another task of a monitor's process, in the same loop.
pub trait Attendant {
    /// The descriptors that wake it.
    fn fds(&self) -> Vec<BorrowedFd<'_>>;

    /// After so long it is called even if the descriptors stay quiet; none: never.
    fn left(&self) -> Option<Duration>;

    /// Called when a descriptor has an event, or the time is over.
    fn attend(&mut self);
}

/// A clock, and what programs that are brought onto it get.
struct Ward {
    target: Target,
    /// The clock's file, for reading alone.
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

    /// The clock's file, mapped.
    fn clock(&self) -> io::Result<SharedClock> {
        SharedClock::map(&self.target.clock)
    }
}

/// Watches over programs that it or they have started: on one clock, or on several, each of which is a ward of its.
pub struct Monitor {
    /// By the order in which they came.
    wards: Vec<Ward>,
    image: Image,
    /// The process id namespace that this process is in.
    namespace: u32,
    /// Each with the number of its ward.
    listeners: Vec<(OwnedFd, usize)>,
    /// Where processes come in that it has not started, and those of them that have no filter.
    door: Door,
    processes: Vec<OwnedFd>,
    signals: SignalFd,
    /// The program that was launched, until it has ended.
    child: Option<Child>,
    ended: Option<Ended>,
    /// Its name, and why it could not be executed.
    command: CString,
    exec_error: Option<io::Error>,
    /// The launched program was ended because it could not be brought in.
    refused: bool,
    /// Threads that have been let go to exec, by their number, with their ward's.
    execs: HashMap<Thread, (Handed, usize)>,
    attendant: Option<Box<dyn Attendant>>,
}

/// Signals that somebody sends to the launcher to reach the program.
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
    /// Starts `command` on the target's clock. `prepare` is called with its pid when it exists and before it runs anything
    /// of the command. The caller must be the only thread of its process.
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

    /// Starts `command` on one more clock, which is a ward of its own; its number is returned. `prepare` is as for
    /// [`Monitor::launch`]; `mask` are the signals the program begins with blocked.
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

    /// Starts `command` on the clock of a ward.
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

    /// A monitor without a ward.
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

    /// A monitor for programs that are all launched beside one another, by [`Monitor::launch_beside`].
    pub fn of_many() -> Result<Monitor> {
        become_subreaper();
        Monitor::of_none(listen_to_signals()?)
    }

    /// What to do when a program that may set clocks sets its wall clock. Without it, it is told ENOSYS.
    pub fn when_wall_is_set(&mut self, set: SetWall) {
        self.when_wall_of_is_set(0, set);
    }

    /// The same for one ward of several.
    pub fn when_wall_of_is_set(&mut self, ward: usize, set: SetWall) {
        self.wards[ward].set_wall = Some(set);
    }

    /// Has `attendant` called in this monitor's loop.
    pub fn attended_by(&mut self, attendant: Box<dyn Attendant>) {
        self.attendant = Some(attendant);
    }

    /// Lets processes in at `door`.
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

    /// Whether the last program of a ward has ended.
    pub fn is_ward_abandoned(&self, ward: usize) -> bool {
        self.listeners.iter().all(|(_, of)| *of != ward)
    }

    /// The launched program's pid.
    pub fn pid(&self) -> Option<Pid> {
        self.child.as_ref().map(|child| child.pid)
    }

    /// Serves until the launched program has ended. Other programs of the clock may go on: see [`Monitor::serve_rest`].
    pub fn serve(&mut self) -> Result<Ended> {
        loop {
            if let Some(error) = self.exec_error.take() {
                return Err(Error::NotExecutable(self.command.clone(), error));
            }
            // A thread in the midst of its exec is traced by this very process: nobody else could go on with it.
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

    /// Deals with what has happened, and waits for something to happen where `wait`.
    pub fn serve_once(&mut self, wait: bool) -> Result<()> {
        self.deal(if wait { None } else { Some(Duration::ZERO) })
    }

    /// Whether the last process under the filters has ended: the kernel then hangs up the listeners. Nor may anybody stand
    /// in the door.
    pub fn is_abandoned(&mut self) -> bool {
        self.listeners.retain(|(listener, _)| !has_event(listener.as_fd(), PollFlags::POLLHUP));
        self.processes.retain(|process| !has_event(process.as_fd(), PollFlags::POLLIN));
        self.listeners.is_empty() && self.processes.is_empty() && self.door.is_empty()
    }

    /// Waits for one event and deals with it.
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

    /// An exec: the thread is seized, given what the new image needs, and let go on.
    fn on_notification(&mut self, listener: usize, notification: &Notification) {
        let ((listener, ward), id) = (&self.listeners[listener], notification.id);
        let (listener, number) = (listener.as_fd(), *ward);
        let ward = &mut self.wards[number];
        if notification.call == ASK_MONITOR as i32 {
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
        // If the exec fails, the thread stops on its way back, and is let go there.
        let handed = thread.interrupt().and_then(|()| {
            Ok(Handed {
                image: notify::add_fd(listener, id, self.image.file.as_fd())?,
                page: notify::add_fd(listener, id, ward.page.as_fd())?,
                registry: notify::add_fd(listener, id, ward.target.clock.as_fd())?,
                kick_open: notification.args[5] & EXEC_KICK_OPEN != 0,
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
            // From the terminal it has reached the program too.
            const FROM_KERNEL: i32 = 0x80;
            if let (Some(child), true) = (&self.child, signal.ssi_code != FROM_KERNEL) {
                // SAFETY: our own child, not yet waited for.
                unsafe { libc::kill(child.pid.as_raw(), number) };
            }
        }
        self.reap()
    }

    /// Deals with every child and traced thread that has changed.
    fn reap(&mut self) -> Result<()> {
        loop {
            let mut status = 0;
            // SAFETY: writes to `status`.
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

    /// A traced thread has stopped: at its exec, on its way back from a failed one, or for a signal.
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

    /// Writes the boot code over the page of the entry point, and points the thread at it.
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
            kick_open: handed.kick_open.into(),
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

    /// What a process that is being brought in gets: the image, the clock's file for reading and for
    /// writing, and what the boot code is told.
    pub(crate) fn gifts(&self) -> ([&OwnedFd; 3], BootArgs) {
        let ward = &self.wards[0];
        ([&self.image.file, &ward.page, &ward.target.clock], ward.args)
    }

    /// The clock's file, mapped.
    pub(crate) fn clock(&self) -> io::Result<SharedClock> {
        self.wards[0].clock()
    }

    /// How the programs on the clock name the process id namespace that a process is in.
    pub(crate) fn space_of(&self, process: Thread) -> io::Result<Space> {
        self.space_in(0, process)
    }

    fn space_in(&self, ward: usize, process: Thread) -> io::Result<Space> {
        let registry = || self.wards[ward].clock();
        namespace::space_of(process.0, self.namespace, registry)
    }

    /// The clock's file.
    pub fn clock_file(&self) -> BorrowedFd<'_> {
        self.wards[0].target.clock.as_fd()
    }

    /// What the filter is to trap.
    pub(crate) fn policy(&self) -> Policy {
        self.wards[0].target.policy
    }
}

/// Where there are failpoints: stops this thread, if a test wants that.
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

/// Tells the shim, in three registers it looks at, which descriptors to close after a failed exec. The launcher's own child,
/// before its first exec, ends anyway.
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

fn refuse(thread: Thread, error: &io::Error) {
    if tracer_of(thread).is_some() {
        eprintln!(
            "lorentz: exec refused in {}: it is traced (strace or gdb inside). Attach from outside instead, with -p",
            describe(thread)
        );
    } else {
        eprintln!("lorentz: exec refused in {}: ptrace: {error}", describe(thread));
    }
}

fn tracer_of(thread: Thread) -> Option<i32> {
    status_of(thread, "TracerPid:")?.parse().ok().filter(|tracer| *tracer != 0)
}

/// A field of /proc/PID/status.
pub(crate) fn status_of(thread: Thread, field: &str) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", thread.0)).ok()?;
    status.lines().find_map(|line| line.strip_prefix(field)).map(|value| value.trim().to_string())
}

fn describe(thread: Thread) -> String {
    let name = std::fs::read_to_string(format!("/proc/{}/comm", thread.0)).unwrap_or_default();
    format!("process {} ({})", thread.0, name.trim())
}

fn unexpected() -> io::Error {
    io::Error::other("its exec was not announced")
}

fn listening(error: io::Error) -> Error {
    Error::System("listening for execs", error)
}

/// The same file, opened anew for reading.
fn read_only(file: &OwnedFd) -> Result<OwnedFd> {
    use std::os::fd::AsRawFd;
    let again = std::fs::File::open(format!("/proc/self/fd/{}", file.as_raw_fd()));
    again.map(OwnedFd::from).map_err(|e| Error::System("opening the clock for reading", e))
}

/// Processes whose parents end stay descendants of the monitor, and so may be traced by it.
fn become_subreaper() {
    // SAFETY: concerns only this process.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

pub(crate) fn listen_to_signals() -> Result<SignalFd> {
    let mut set = SigSet::empty();
    set.add(Signal::SIGCHLD);
    FORWARDED.iter().for_each(|signal| set.add(*signal));
    nix::sys::signal::sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), None)?;
    Ok(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?)
}
