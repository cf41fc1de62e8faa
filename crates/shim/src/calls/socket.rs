//! Sockets: their timeouts, and the times stamped on their messages.

use super::poll::PollFd;
use crate::call::{Call, AGAIN};
use crate::clocks;
use crate::deadline::{due, is_near, reached};
use crate::fd_table;
use crate::filter::Extra;
use crate::sys::{
    request, sys, Errno, Fd, MsgFlags, OpenFlags, SigSet, SocketOption, SysResult, Sysno, Timespec,
    Timeval, UserPtr,
};
use crate::timeout::{self, Timeout};
use crate::timestamps::{self, Message};
use crate::user::Access;
use crate::wait::{self, Masking, Wait};
use core::sync::atomic::Ordering::Relaxed;
use lorentz_clock::{Deadline, Span};

/// Direction of a socket's timeout.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Receive,
    Send,
}

impl Direction {
    /// The direction of a timeout option; `None` for other options.
    fn of(option: SocketOption) -> Option<Direction> {
        match option {
            _ if option.is_receive_timeout() => Some(Direction::Receive),
            _ if option.is_send_timeout() => Some(Direction::Send),
            _ => None,
        }
    }

    /// The option by which the shim sets the timeout.
    fn option(self) -> SocketOption {
        match self {
            Direction::Receive => SocketOption::SO_RCVTIMEO_OLD,
            Direction::Send => SocketOption::SO_SNDTIMEO_OLD,
        }
    }

    /// The bit of an entry of the fd table.
    fn bit(self) -> u32 {
        match self {
            Direction::Receive => fd_table::RECEIVE_TIMEOUT,
            Direction::Send => fd_table::SEND_TIMEOUT,
        }
    }
}

/// setsockopt(2) of an option that has to do with time.
pub fn setsockopt(
    call: &Call,
    fd: Fd,
    _level: i32,
    option: SocketOption,
    value: UserPtr<Timeval>,
    len: i32,
) -> SysResult {
    if let Some(direction) = Direction::of(option) {
        return set_timeout(call, fd, direction, value, len);
    }
    let result = call.by_kernel();
    if result == Ok(0) {
        fd_table::add(fd, fd_table::TIMESTAMPS);
        fd_table::also_trap(Extra::Messages);
    }
    result
}

/// The kernel gets the timeout at the rate in force, for calls that the shim does not trap. The shim remembers the virtual one.
fn set_timeout(
    call: &Call,
    fd: Fd,
    direction: Direction,
    value: UserPtr<Timeval>,
    len: i32,
) -> SysResult {
    let time = match value.read() {
        Ok(time) if len >= size_of::<Timeval>() as i32 && time.is_normal() => time,
        // Refused by the kernel, which may find another error first.
        _ => return call.by_kernel(),
    };
    let span = Timeval { secs: time.secs.max(0), ..time }.to_span();
    let scaled = match span {
        Span::ZERO => time,
        _ => match Timeval::from_span(clocks::real_span(span)) {
            // Never rounded to zero, which would mean no timeout.
            Timeval { secs: 0, micros: 0 } => Timeval { secs: 0, micros: 1 },
            scaled => scaled,
        },
    };
    // SAFETY: our copy of the timeout.
    let result = unsafe { call.by_kernel_with(3, UserPtr::to(&scaled)) };
    if result == Ok(0) {
        remember_timeout(fd, direction, span);
    }
    result
}

fn remember_timeout(fd: Fd, direction: Direction, span: Span) {
    if span == Span::ZERO {
        return fd_table::remove(fd, direction.bit());
    }
    if let Some(entry) = fd_table::add(fd, direction.bit()) {
        let place = match direction {
            Direction::Receive => &entry.receive_timeout,
            Direction::Send => &entry.send_timeout,
        };
        place.store(span.0 as u64, Relaxed);
        fd_table::also_trap(Extra::Sockets);
    }
}

/// getsockopt(2) of a timeout: the one that was set, in virtual time.
pub fn getsockopt(
    call: &Call,
    fd: Fd,
    _level: i32,
    option: SocketOption,
    value: UserPtr<Timeval>,
) -> SysResult {
    let result = call.by_kernel()?;
    let direction = Direction::of(option).unwrap_or(Direction::Send);
    if let Some(span) = timeout_of(fd, direction) {
        value.write(Timeval::from_span(span))?;
    }
    Ok(result)
}

fn timeout_of(fd: Fd, direction: Direction) -> Option<Span> {
    let entry = fd_table::find(fd)?;
    if entry.properties.load(Relaxed) & direction.bit() == 0 {
        return None;
    }
    let place = match direction {
        Direction::Receive => &entry.receive_timeout,
        Direction::Send => &entry.send_timeout,
    };
    Some(Span(place.load(Relaxed) as i64))
}

/// A call that takes something from a descriptor: read, recvfrom, recvmsg, accept, ...
pub fn receive(call: &Call, fd: Fd) -> SysResult {
    if call.nr == Sysno::read && fd_table::has(fd, fd_table::CANCEL_ON_SET) {
        return super::timer::read_cancellable(call, fd);
    }
    if call.nr == Sysno::read && fd_table::has(fd, fd_table::UPTIME) {
        super::proc_files::refresh_uptime(fd);
    }
    // connect(2) is bounded by the send timeout.
    let direction = match call.nr {
        Sysno::connect => Direction::Send,
        _ => Direction::Receive,
    };
    let result = match timeout_of(fd, direction) {
        Some(span) => within(call, fd, direction, span),
        None => match wait::blocking(call, Masking::Restarts) {
            // A call that does not block is never interrupted.
            Err(Errno::EINTR) if is_nonblocking(call, fd) => Err(AGAIN),
            result => result,
        },
    };
    if call.nr == Sysno::recvmsg && result.is_ok() && fd_table::has(fd, fd_table::TIMESTAMPS) {
        timestamps::translate_message(call.arg(1));
    }
    result
}

/// A call that gives something to a descriptor: write, writev, sendto, sendmsg.
pub fn send(call: &Call, fd: Fd) -> SysResult {
    match timeout_of(fd, Direction::Send) {
        Some(span) => within(call, fd, Direction::Send, span),
        None => wait::blocking(call, Masking::Repeats),
    }
}

/// The program's own call on a socket with a timeout. The shim sets the kernel's timeout to the real time that is left, for the
/// length of the call. The kernel then ends the call as it always does.
fn within(call: &Call, fd: Fd, direction: Direction, timeout: Span) -> SysResult {
    let deadline = call.after(timeout);
    let mut kernels = Timeout::of_socket(fd, direction.option());
    let result = if may_return_a_part(call, fd) {
        let (masking, request) = (Masking::Interrupts, &mut call.request());
        wait::wait(call, deadline, masking, request, &mut kernels, |result| {
            timed_out(call, fd, result)
        })
    } else {
        receive_until(call, fd, deadline, kernels.in_tries())
    };
    timeout::set_of_socket(fd, direction.option(), clocks::real_span(timeout));
    result
}

/// A call that receives, until `deadline`. The kernel's timeout of a socket counts ticks, so the last of the time is spent in poll.
fn receive_until(call: &Call, fd: Fd, deadline: Deadline, mut kernels: Timeout) -> SysResult {
    const LAST_PART: Span = Span(50_000_000);
    let mut wait = Wait::new(call, deadline, Masking::Interrupts);
    let mut request = call.request();
    loop {
        let ended = |result| timed_out(call, fd, result);
        if let Some(result) = wait.attempt(&mut request, &mut kernels, ended) {
            return result;
        }
        while is_near(deadline, LAST_PART) {
            match readable(&mut wait, fd) {
                // The clock has changed.
                None => {}
                Some(Ok(0)) => return Err(Errno::EAGAIN),
                Some(Ok(_)) => break,
                Some(error) => return error,
            }
        }
    }
}

/// Waits until the socket has something to receive. The result is that of poll(2).
fn readable(wait: &mut Wait, fd: Fd) -> Option<SysResult> {
    const POLLIN: u32 = 1;
    let mut polled: PollFd = [fd.number(), POLLIN];
    let mut request = request!(Sysno::ppoll, &raw mut polled, 1, 0, 0, SigSet::LEN);
    wait.attempt(&mut request, &mut Timeout::optional_length(2), |result| result == Ok(0))
}

/// Whether a call that its timeout ends returns a part of what it was asked for, which a second try would not return again.
fn may_return_a_part(call: &Call, fd: Fd) -> bool {
    match call.nr {
        Sysno::accept | Sysno::accept4 => false,
        Sysno::read | Sysno::readv | Sysno::recvfrom | Sysno::recvmsg => {
            flags_of(call).contains(MsgFlags::MSG_WAITALL) || least_of(fd) != Ok(1)
        }
        _ => true,
    }
}

/// The number of bytes for which a receiving call waits.
fn least_of(fd: Fd) -> Result<u32, Errno> {
    const SOL_SOCKET: i32 = 1;
    let (mut least, mut len) = (0u32, size_of::<u32>() as u32);
    let option = SocketOption::SO_RCVLOWAT;
    // SAFETY: the kernel writes one number.
    unsafe { sys!(Sysno::getsockopt, fd, SOL_SOCKET, option, &raw mut least, &raw mut len)? };
    Ok(least)
}

/// Whether the kernel's timeout has ended the call. A socket that does not block says the same at once, long before its time.
fn timed_out(call: &Call, fd: Fd, result: SysResult) -> bool {
    let says_so = match result {
        Err(Errno::EAGAIN) => true,
        Err(Errno::EINPROGRESS) => call.nr == Sysno::connect,
        _ => false,
    };
    says_so && !is_nonblocking(call, fd)
}

fn is_nonblocking(call: &Call, fd: Fd) -> bool {
    const F_GETFL: i32 = 3;
    // SAFETY: reads the descriptor's flags.
    let status = unsafe { sys!(Sysno::fcntl, fd, F_GETFL) };
    let is_set = |status| OpenFlags::new(status as u32).contains(OpenFlags::O_NONBLOCK);
    flags_of(call).contains(MsgFlags::MSG_DONTWAIT) || status.is_ok_and(is_set)
}

fn flags_of(call: &Call) -> MsgFlags {
    match call.nr {
        Sysno::recvfrom | Sysno::sendto => call.arg(3),
        Sysno::recvmsg | Sysno::sendmsg => call.arg(2),
        _ => MsgFlags::new(0),
    }
}

/// struct mmsghdr, in words: a struct msghdr, and the length.
pub type MultiMessage = [u64; 8];

/// recvmmsg(2): its timeout is looked at only after each message, so the messages are fetched one by one.
pub fn recvmmsg(
    call: &Call,
    socket: Fd,
    messages: UserPtr<MultiMessage>,
    count: u32,
    flags: MsgFlags,
    timeout: Option<UserPtr<Timespec>>,
) -> SysResult {
    const MAX_MESSAGES: u32 = 1024;
    let deadline = call.deadline(timeout)?;
    if count == 0 {
        // Only to learn whether it is a socket.
        return call.by_kernel();
    }
    let mut fetched = 0;
    while fetched < count.min(MAX_MESSAGES) {
        let message = messages.element(fetched.into());
        let only_one = flags.contains(MsgFlags::MSG_WAITFORONE) && fetched > 0;
        let flags = match flags.without(MsgFlags::MSG_WAITFORONE) {
            flags if only_one => flags.with(MsgFlags::MSG_DONTWAIT),
            flags => flags,
        };
        let request = request!(Sysno::recvmmsg, socket, message, 1, flags);
        let result = wait::wait_untimed(call, &request, Masking::Restarts);
        if !matches!(result, Ok(1..)) {
            return if fetched > 0 { Ok(fetched as isize) } else { result };
        }
        if fd_table::has(socket, fd_table::TIMESTAMPS) {
            timestamps::translate_message(message.field::<Message>(0));
        }
        fetched += 1;
        if deadline != Deadline::Never && reached(deadline) {
            break;
        }
    }
    if let Some(timeout) = timeout {
        let look = clocks::snapshot();
        let left = due(deadline, &look).since(look.now());
        timeout.write(Timespec::from_span(left))?;
    }
    Ok(fetched as isize)
}
