//! Seccomp user notification: the kernel's structures and calls.

use lorentz_syscalls::Errno;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// struct seccomp_notif.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Notification {
    /// Id of the notification. The answer names it.
    pub id: u64,
    /// The thread that made the call, by its number in this process's namespace.
    pub thread: u32,
    flags: u32,
    /// Number of the system call.
    pub call: i32,
    architecture: u32,
    ip: u64,
    /// Arguments of the system call.
    pub args: [u64; 6],
}

#[repr(C)]
struct Response {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

#[repr(C)]
struct AddFd {
    id: u64,
    flags: u32,
    source: u32,
    new: u32,
    new_flags: u32,
}

const fn request(direction: u64, number: u64, size: usize) -> u64 {
    direction << 30 | (size as u64) << 16 | (b'!' as u64) << 8 | number
}
const WRITE: u64 = 1;
const READ_WRITE: u64 = 3;
const RECEIVE: u64 = request(READ_WRITE, 0, size_of::<Notification>());
const SEND: u64 = request(READ_WRITE, 1, size_of::<Response>());
const IS_VALID: u64 = request(WRITE, 2, size_of::<u64>());
const ADD_FD: u64 = request(WRITE, 3, size_of::<AddFd>());
const SET_FLAGS: u64 = request(WRITE, 4, size_of::<u64>());

fn ioctl<T>(fd: BorrowedFd, request: u64, value: *mut T) -> io::Result<i32> {
    // SAFETY: each request is made with its own structure.
    match unsafe { libc::ioctl(fd.as_raw_fd(), request, value) } {
        result if result < 0 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

/// Asks the kernel to run the notified process at once on the caller's processor (Linux 6.6). On an older kernel notifications
/// are only slower.
pub fn prefer_sync_wake_up(listener: BorrowedFd) {
    const SYNC_WAKE_UP: u64 = 1;
    // SAFETY: this request takes its argument by value.
    unsafe { libc::ioctl(listener.as_raw_fd(), SET_FLAGS, SYNC_WAKE_UP) };
}

/// Receives the next notification; `None` if the caller of an announced one was killed or interrupted meanwhile.
pub fn receive(listener: BorrowedFd) -> io::Result<Option<Notification>> {
    let mut notification = Notification::default();
    match ioctl(listener, RECEIVE, &mut notification) {
        Ok(_) => Ok(Some(notification)),
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EINTR | libc::EAGAIN)) => {
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

/// Whether the thread still waits for an answer to this notification.
pub fn is_valid(listener: BorrowedFd, mut id: u64) -> bool {
    ioctl(listener, IS_VALID, &mut id).is_ok()
}

/// Lets the kernel carry out the call unchanged.
pub fn go_on(listener: BorrowedFd, id: u64) -> io::Result<()> {
    const CONTINUE: u32 = 1;
    ioctl(listener, SEND, &mut Response { id, value: 0, error: 0, flags: CONTINUE }).map(|_| ())
}

/// Makes the call fail with `errno`.
pub fn fail(listener: BorrowedFd, id: u64, errno: i32) -> io::Result<()> {
    ioctl(listener, SEND, &mut Response { id, value: 0, error: -errno, flags: 0 }).map(|_| ())
}

/// Has the caller of an exec make the call again. A signal or an interrupt that waits for the thread comes before that.
pub fn make_exec_again(listener: BorrowedFd, id: u64) -> io::Result<()> {
    answer(listener, id, Errno::EXEC_AGAIN.in_register() as i64)
}

/// Makes the call return 0. The kernel does not carry it out.
pub fn succeed(listener: BorrowedFd, id: u64) -> io::Result<()> {
    answer(listener, id, 0)
}

/// Makes the call return `value`. The kernel does not carry it out.
pub fn answer(listener: BorrowedFd, id: u64, value: i64) -> io::Result<()> {
    ioctl(listener, SEND, &mut Response { id, value, error: 0, flags: 0 }).map(|_| ())
}

/// Puts `source` into the caller's descriptor table, without close-on-exec. Returns its number there.
pub fn add_fd(listener: BorrowedFd, id: u64, source: BorrowedFd) -> io::Result<u32> {
    let source = source.as_raw_fd() as u32;
    let mut add = AddFd { id, flags: 0, source, new: 0, new_flags: 0 };
    ioctl(listener, ADD_FD, &mut add).map(|fd| fd as u32)
}

/// Puts `source` into the caller's descriptor table and makes the call return its number, in one step.
pub fn answer_with_fd(listener: BorrowedFd, id: u64, source: BorrowedFd) -> io::Result<()> {
    const AND_SEND: u32 = 2;
    let source = source.as_raw_fd() as u32;
    let mut add = AddFd { id, flags: AND_SEND, source, new: 0, new_flags: 0 };
    ioctl(listener, ADD_FD, &mut add).map(|_| ())
}
