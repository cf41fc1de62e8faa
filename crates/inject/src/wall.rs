//! Requests of programs to set or discipline their clock.

use crate::trace::TracedThread;
use crate::tracee::status_of;
use crate::user_notification::{self, Notification};
use lorentz_clock::WallTime;
use lorentz_shim::filter::{ASK_SET_WALL, ASK_STEP_WALL};
use nix::errno::Errno;
use nix::sys::uio::{process_vm_readv, process_vm_writev, RemoteIoVec};
use nix::unistd::Pid;
use std::io;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::BorrowedFd;

/// A program's request to change its wall clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WallChange {
    /// Set it to this time.
    To(WallTime),
    /// Move it by this number of nanoseconds.
    By(i128),
}

/// Function that sets the container's wall clock.
pub type SetWall = Box<dyn FnMut(WallChange) -> io::Result<()>>;

/// Length of struct timex, bytes.
pub const TIMEX_LEN: usize = 208;

/// Function that carries out adjtimex(2) on a struct timex, for a program that may set clocks or may not. It returns the state of the
/// clock, or the error of the call: ENOSYS where the clock is not the container's to discipline.
pub type Adjust = Box<dyn FnMut(&mut [u8; TIMEX_LEN], bool) -> Result<i64, Errno>>;

/// Returns the change that the arguments of a request ask for; `None` if the request is another one.
pub(crate) fn requested(args: &[u64; 6]) -> Option<WallChange> {
    let [request, secs, nanos, ..] = *args;
    let wall = WallTime { secs: secs as i64, nanos: nanos.min(999_999_999) as u32 };
    match request {
        ASK_SET_WALL => Some(WallChange::To(wall)),
        ASK_STEP_WALL => Some(WallChange::By(wall.as_nanos())),
        _ => None,
    }
}

/// Makes the change if the program may set clocks, and answers the request.
pub(crate) fn answer(
    set: &mut SetWall,
    change: WallChange,
    listener: BorrowedFd,
    notification: &Notification,
) -> io::Result<()> {
    match may_set_clocks(notification).then(|| set(change)) {
        None => user_notification::fail(listener, notification.id, libc::EPERM),
        Some(Err(_)) => user_notification::fail(listener, notification.id, libc::EINVAL),
        Some(Ok(())) => user_notification::succeed(listener, notification.id),
    }
}

fn may_set_clocks(notification: &Notification) -> bool {
    const CAP_SYS_TIME: u64 = 1 << 25;
    status_of(TracedThread(notification.thread as i32), "CapEff:")
        .and_then(|caps| u64::from_str_radix(&caps, 16).ok())
        .is_some_and(|caps| caps & CAP_SYS_TIME != 0)
}

/// Carries out adjtimex(2) for a program: on the struct timex at the request's address, which is the shim's own copy.
pub(crate) fn answer_adjtime(
    adjust: &mut Adjust,
    listener: BorrowedFd,
    notification: &Notification,
) -> io::Result<()> {
    let (pid, id) = (Pid::from_raw(notification.thread as i32), notification.id);
    let at = [RemoteIoVec { base: notification.args[1] as usize, len: TIMEX_LEN }];
    let mut timex = [0; TIMEX_LEN];
    let adjusted = process_vm_readv(pid, &mut [IoSliceMut::new(&mut timex)], &at).and_then(|_| {
        let state = adjust(&mut timex, may_set_clocks(notification))?;
        // While the request is valid, this process waits for its answer: the number is not another one's.
        if user_notification::is_valid(listener, id) {
            process_vm_writev(pid, &[IoSlice::new(&timex)], &at)?;
        }
        Ok(state)
    });
    match adjusted {
        Ok(state) => user_notification::answer(listener, id, state),
        Err(error) => user_notification::fail(listener, id, error as i32),
    }
}
