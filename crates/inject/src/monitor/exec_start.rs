//! The start of an exec: its notification, until the kernel is told to go on with it.
//!
//! Race: another process of Lorentz traces the thread, for an adoption or a checkpoint, and this monitor has received the
//! notification before. It cannot seize the thread then, and the other's interrupt does not reach a thread that waits for this
//! monitor's answer. So this monitor tries again, and then has the thread make its call again: the thread stops for the other on its
//! way. If the other is killed before this monitor has read its name, the monitor looks again ([`Tracer::of`]).

use super::{stop_for_test, ExecMonitor, InjectedFds, PostponedExec};
use crate::image::Image;
use crate::managed_clock::ManagedClock;
use crate::trace::TracedThread;
use crate::tracee::{report_refusal, Tracer};
use crate::user_notification::{self, Notification};
use lorentz_clock::Failpoint;
use lorentz_shim::filter::EXEC_CHANGE_SIGNAL_OPEN;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// After this time a thread that another process of Lorentz traces makes its call again.
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// A try to seize the thread of an exec.
enum Seized {
    Yes,
    /// Another process of Lorentz traces it.
    NotYet,
    No(io::Error),
}

impl Seized {
    fn try_to(thread: TracedThread, clock: &ManagedClock) -> Seized {
        /// The tracer may let the thread go between the refusal and the look.
        const MAX_TRIES: u32 = 10;
        let mut refusal = io::Error::from_raw_os_error(libc::ESRCH);
        for _ in 0..MAX_TRIES {
            let Err(error) = thread.seize() else { return Seized::Yes };
            refusal = error;
            match Tracer::of(thread, || stop_for_test(clock, Failpoint::ExecTraced)) {
                Tracer::Nobody => {}
                // A thread that this monitor is about to adopt is seized already.
                Tracer::This => return Seized::Yes,
                Tracer::Lorentz => return Seized::NotYet,
                Tracer::Other(_) => break,
            }
        }
        Seized::No(refusal)
    }
}

/// The result of a notification.
enum Start {
    /// The exec goes on, with these descriptors.
    LetGo(InjectedFds),
    /// Another process of Lorentz traces the thread.
    NotYet,
    /// The exec has failed, or nobody waits for the answer.
    Failed,
}

impl ExecMonitor {
    /// Handles the notification of an exec: seizes the thread, gives it the descriptors that the new image needs, and lets the call
    /// go on.
    pub(super) fn on_exec(&mut self, listener: usize, notification: &Notification) {
        let (fd, index) = &self.listeners[listener];
        let (index, thread) = (*index, TracedThread(notification.thread as i32));
        let clock = &self.clocks[index];
        stop_for_test(clock, Failpoint::ExecNotified);
        match start(fd.as_fd(), notification, clock, &self.image) {
            Start::LetGo(fds) => {
                self.execs.insert(thread, (fds, index));
            }
            Start::NotYet => {
                if let Ok(listener) = fd.try_clone() {
                    self.postponed.push(PostponedExec {
                        listener,
                        index,
                        notification: *notification,
                        retry: Instant::now() + RETRY_INTERVAL,
                    });
                }
            }
            Start::Failed => {}
        }
    }

    /// How long the loop may wait before it tries the postponed execs again; `None` if there are none.
    pub(super) fn retry_interval(&self) -> Option<Duration> {
        (!self.postponed.is_empty()).then_some(RETRY_INTERVAL)
    }

    /// Tries the postponed execs again that are due. Those that are still traced are made again.
    pub(super) fn retry_postponed(&mut self) {
        for exec in std::mem::take(&mut self.postponed) {
            let (fd, id) = (exec.listener.as_fd(), exec.notification.id);
            if !user_notification::is_valid(fd, id) {
                continue;
            }
            if Instant::now() < exec.retry {
                self.postponed.push(exec);
                continue;
            }
            match start(fd, &exec.notification, &self.clocks[exec.index], &self.image) {
                Start::LetGo(fds) => {
                    let thread = TracedThread(exec.notification.thread as i32);
                    self.execs.insert(thread, (fds, exec.index));
                }
                Start::NotYet => {
                    let _ = user_notification::make_exec_again(fd, id);
                }
                Start::Failed => {}
            }
        }
    }
}

/// Seizes the thread of an exec, and lets the exec go on.
fn start(
    listener: BorrowedFd,
    notification: &Notification,
    clock: &ManagedClock,
    image: &Image,
) -> Start {
    match Seized::try_to(TracedThread(notification.thread as i32), clock) {
        Seized::Yes => let_go(listener, notification, clock, image),
        Seized::NotYet => Start::NotYet,
        Seized::No(error) => {
            refuse(listener, notification, &error);
            Start::Failed
        }
    }
}

fn refuse(listener: BorrowedFd, notification: &Notification, error: &io::Error) {
    report_refusal(TracedThread(notification.thread as i32), error);
    let _ = user_notification::fail(listener, notification.id, libc::EPERM);
}

/// Gives a seized thread the descriptors, and lets its exec go on. If the exec fails, the thread stops on its way back, and the
/// monitor detaches there.
fn let_go(
    listener: BorrowedFd,
    notification: &Notification,
    clock: &ManagedClock,
    image: &Image,
) -> Start {
    let (thread, id) = (TracedThread(notification.thread as i32), notification.id);
    stop_for_test(clock, Failpoint::ExecSeized);
    let injected = thread.interrupt().and_then(|()| {
        Ok(InjectedFds {
            image: user_notification::add_fd(listener, id, image.file.as_fd())?,
            page: user_notification::add_fd(listener, id, clock.page.as_fd())?,
            registry: user_notification::add_fd(listener, id, clock.target.clock.as_fd())?,
            unblock_change_signal: notification.args[5] & EXEC_CHANGE_SIGNAL_OPEN != 0,
        })
    });
    match injected {
        Ok(fds) => {
            let _ = user_notification::go_on(listener, id);
            stop_for_test(clock, Failpoint::ExecLetGo);
            Start::LetGo(fds)
        }
        Err(_) => {
            let _ = user_notification::fail(listener, id, libc::EMFILE);
            Start::Failed
        }
    }
}
