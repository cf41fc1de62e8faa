//! Requests of programs to set or discipline their clock.

use crate::trace::TracedThread;
use crate::tracee::status_of;
use crate::user_notification::{self, Notification};
use lorentz_clock::{Policy, WallTime};
use lorentz_shim::filter::{ASK_SET_WALL, ASK_STEP_WALL};
use lorentz_syscalls::{Errno, Timex};
use nix::sys::uio::{process_vm_readv, process_vm_writev, RemoteIoVec};
use nix::unistd::Pid;
use std::io::{self, IoSlice, IoSliceMut};
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

/// Function that carries out adjtimex(2) for a program that may set clocks or may not: the struct becomes the answer. It returns the state
/// of the clock, or the kernel's refusal; `None` where the clock is not the container's to discipline.
pub type Adjust = Box<dyn FnMut(&mut Timex, bool) -> Option<Result<i64, Errno>>>;

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
    policy: Policy,
    listener: BorrowedFd,
    notification: &Notification,
) -> io::Result<()> {
    match may_set_clocks(notification, policy).then(|| set(change)) {
        None => user_notification::fail(listener, notification.id, libc::EPERM),
        Some(Err(_)) => user_notification::fail(listener, notification.id, libc::EINVAL),
        Some(Ok(())) => user_notification::succeed(listener, notification.id),
    }
}

fn may_set_clocks(notification: &Notification, policy: Policy) -> bool {
    const CAP_SYS_TIME: u64 = 1 << 25;
    let capable = || {
        status_of(TracedThread(notification.thread as i32), "CapEff:")
            .and_then(|caps| u64::from_str_radix(&caps, 16).ok())
            .is_some_and(|caps| caps & CAP_SYS_TIME != 0)
    };
    policy.may_set_clock || capable()
}

/// Carries out adjtimex(2) for a program: on the struct timex at the request's address, which is the shim's own copy.
pub(crate) fn answer_adjtime(
    adjust: &mut Adjust,
    policy: Policy,
    listener: BorrowedFd,
    notification: &Notification,
) -> io::Result<()> {
    let (pid, id) = (Pid::from_raw(notification.thread as i32), notification.id);
    let at = [RemoteIoVec { base: notification.args[1] as usize, len: Timex::LEN }];
    let mut bytes = [0; Timex::LEN];
    if process_vm_readv(pid, &mut [IoSliceMut::new(&mut bytes)], &at).is_err() {
        return user_notification::fail(listener, id, libc::EFAULT);
    }
    let mut timex = Timex::from_bytes(bytes);
    match adjust(&mut timex, may_set_clocks(notification, policy)) {
        None => user_notification::fail(listener, id, libc::ENOSYS),
        Some(Err(refused)) => user_notification::fail(listener, id, -refused.in_register() as i32),
        Some(Ok(state)) => {
            // While the request is valid, the process waits for its answer: the number is not another one's.
            if user_notification::is_valid(listener, id) {
                let _ = process_vm_writev(pid, &[IoSlice::new(&timex.to_bytes())], &at);
            }
            user_notification::answer(listener, id, state)
        }
    }
}
