//! Requests of programs to set their wall clock.

use crate::trace::TracedThread;
use crate::tracee::status_of;
use crate::user_notification::{self, Notification};
use lorentz_clock::WallTime;
use lorentz_shim::filter::{ASK_SET_WALL, ASK_STEP_WALL};
use std::io;
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
    const CAP_SYS_TIME: u64 = 1 << 25;
    let may = status_of(TracedThread(notification.thread as i32), "CapEff:")
        .and_then(|caps| u64::from_str_radix(&caps, 16).ok())
        .is_some_and(|caps| caps & CAP_SYS_TIME != 0);
    match may.then(|| set(change)) {
        None => user_notification::fail(listener, notification.id, libc::EPERM),
        Some(Err(_)) => user_notification::fail(listener, notification.id, libc::EINVAL),
        Some(Ok(())) => user_notification::succeed(listener, notification.id),
    }
}
