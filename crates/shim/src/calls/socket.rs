//! Sockets: their timeouts, and the times stamped on their messages.

use crate::clocks;
use crate::deadline::{due, reached};
use crate::filter::Extra;
use crate::noted;
use crate::stamps;
use crate::sys::{errno, sys, Request, Sysno, Timespec};
use crate::timeout::{self, Timeout};
use crate::trap::{Call, AGAIN};
use crate::user;
use crate::wait::{self, Masking};
use core::sync::atomic::Ordering::Relaxed;
use lorentz_clock::{Deadline, Span};

const SO_RCVTIMEO: [u64; 2] = [20, 66];
const SO_SNDTIMEO: [u64; 2] = [21, 67];
const MICRO: i64 = 1000;

/// setsockopt(2) of an option that has to do with time.
pub fn setsockopt(call: &Call) -> isize {
    let [fd, _, option, value, len, _] = call.args;
    let option = u64::from(option as u32);
    if SO_RCVTIMEO.contains(&option) || SO_SNDTIMEO.contains(&option) {
        return set_timeout(call, option, value, len);
    }
    let result = call.by_kernel();
    if result == 0 {
        noted::note(fd as u32, noted::STAMPS);
        noted::also_trap(Extra::Messages);
    }
    result
}

/// The kernel gets the timeout at the rate in force, for what is not looked at here; the virtual one is remembered.
fn set_timeout(call: &Call, option: u64, value: u64, len: u64) -> isize {
    let tv = match user::read_timespec(value) {
        Ok(tv) if len as i32 >= 16 => tv,
        // Refused by the kernel, which may find another error first.
        _ => return call.by_kernel(),
    };
    if !(0..1_000_000).contains(&tv.nanos) {
        return call.by_kernel();
    }
    let span = Span(Span::from_secs(tv.secs.max(0)).0.saturating_add(tv.nanos * MICRO));
    let real = clocks::real_span(span).0;
    let scaled = match span.0 {
        0 => tv,
        _ => Timespec { secs: real / 1_000_000_000, nanos: (real % 1_000_000_000) / MICRO },
    };
    // Never rounded to zero, which would mean no timeout.
    let scaled = if span.0 > 0 && scaled == Timespec::default() {
        Timespec { secs: 0, nanos: 1 }
    } else {
        scaled
    };
    let mut args = call.args;
    args[3] = &scaled as *const Timespec as u64;
    // SAFETY: the program's own call, with our copy of the timeout.
    let result = unsafe { crate::sys::syscall(call.nr, args) };
    if result == 0 {
        remember_timeout(call.args[0] as u32, SO_RCVTIMEO.contains(&option), span);
    }
    result
}

fn remember_timeout(fd: u32, receive: bool, span: Span) {
    let what = if receive { noted::RECEIVE_TIMEOUT } else { noted::SEND_TIMEOUT };
    if span.0 == 0 {
        return noted::forget(fd, what);
    }
    if let Some(entry) = noted::note(fd, what) {
        let place = if receive { &entry.receive_timeout } else { &entry.send_timeout };
        place.store(span.0 as u64, Relaxed);
        noted::also_trap(Extra::Sockets);
    }
}

/// getsockopt(2) of a timeout: what was set, in virtual time.
pub fn getsockopt(call: &Call) -> isize {
    let [fd, _, option, value, ..] = call.args;
    let option = u64::from(option as u32);
    let result = call.by_kernel();
    if result != 0 {
        return result;
    }
    let receive = SO_RCVTIMEO.contains(&option);
    if let Some(span) = timeout_of(fd as u32, receive) {
        let tv = Timespec::from_span(span);
        let told = Timespec { secs: tv.secs, nanos: tv.nanos / MICRO };
        return user::write_timespec(value, told).err().unwrap_or(0);
    }
    0
}

fn timeout_of(fd: u32, receive: bool) -> Option<Span> {
    let entry = noted::find(fd)?;
    let what = if receive { noted::RECEIVE_TIMEOUT } else { noted::SEND_TIMEOUT };
    if entry.what.load(Relaxed) & what == 0 {
        return None;
    }
    let place = if receive { &entry.receive_timeout } else { &entry.send_timeout };
    Some(Span(place.load(Relaxed) as i64))
}

/// A call that takes something from a descriptor: read, recvfrom, recvmsg, accept, ...
pub fn receive(call: &Call) -> isize {
    let fd = call.args[0] as u32;
    if call.nr == Sysno::read && noted::is(fd, noted::CANCEL_ON_SET) {
        return super::timer::read_cancellable(call);
    }
    if call.nr == Sysno::read && noted::is(fd, noted::UPTIME) {
        super::proc_files::refresh_uptime(fd);
    }
    // connect(2) is bounded by the send timeout.
    let receives = call.nr != Sysno::connect;
    let result = match timeout_of(fd, receives) {
        Some(span) => within(call, receives, span),
        None => match wait::blocking(call, Masking::Restarts) {
            // A call that does not block is never interrupted.
            result if result == -errno::EINTR && is_nonblocking(call) => AGAIN,
            result => result,
        },
    };
    if call.nr == Sysno::recvmsg && result >= 0 && noted::is(fd, noted::STAMPS) {
        stamps::translate_message(call.args[1]);
    }
    result
}

/// A call that gives something to a descriptor: write, writev, sendto, sendmsg.
pub fn send(call: &Call) -> isize {
    match timeout_of(call.args[0] as u32, false) {
        Some(span) => within(call, false, span),
        None => wait::blocking(call, Masking::Repeats),
    }
}

/// The program's own call on a socket with a timeout: the kernel is given what is left of it in real time, for the length
/// of the call, and tells the end as it always does.
fn within(call: &Call, receives: bool, timeout: Span) -> isize {
    let deadline = call.after(timeout);
    let (socket, option) = (call.args[0], if receives { SO_RCVTIMEO[0] } else { SO_SNDTIMEO[0] });
    let result = wait::wait(
        call,
        deadline,
        Masking::Interrupts,
        &mut Request::new(call.nr, call.args),
        &mut Timeout::of_socket(socket, option),
        // A socket that does not block says so at once, long before its time.
        |result| timed_out(call, result) && !is_nonblocking(call),
    );
    timeout::set_of_socket(socket, option, clocks::real_span(timeout));
    result
}

fn timed_out(call: &Call, result: isize) -> bool {
    result == -errno::EAGAIN || (call.nr == Sysno::connect && result == -errno::EINPROGRESS)
}

fn is_nonblocking(call: &Call) -> bool {
    const F_GETFL: u64 = 3;
    const O_NONBLOCK: isize = 0o4000;
    const MSG_DONTWAIT: u64 = 0x40;
    let flags = match call.nr {
        Sysno::recvfrom | Sysno::sendto => call.args[3],
        Sysno::recvmsg | Sysno::sendmsg => call.args[2],
        _ => 0,
    };
    // SAFETY: reads the descriptor's flags.
    let status = unsafe { sys!(Sysno::fcntl, call.args[0], F_GETFL) };
    flags & MSG_DONTWAIT != 0 || (status >= 0 && status & O_NONBLOCK != 0)
}

/// recvmmsg(2): its timeout is looked at only after each message, so the messages are fetched one by one.
pub fn recvmmsg(call: &Call) -> isize {
    const MESSAGE_LEN: u64 = 64;
    const MSG_DONTWAIT: u64 = 0x40;
    const MSG_WAITFORONE: u64 = 0x1_0000;
    const MOST: u64 = 1024;
    let [socket, messages, count, flags, timeout, _] = call.args;
    let deadline = match timeout {
        0 => Deadline::Never,
        at => match user::read_timespec(at).map(Timespec::to_span) {
            Err(error) => return error,
            Ok(None) => return -errno::EINVAL,
            Ok(Some(span)) => call.after(span),
        },
    };
    let count = count as u32;
    if count == 0 {
        // Only to learn whether it is a socket.
        return call.by_kernel();
    }
    let mut fetched = 0;
    while fetched < u64::from(count).min(MOST) {
        let at = messages + fetched * MESSAGE_LEN;
        let only_one = flags & MSG_WAITFORONE != 0 && fetched > 0;
        let flags = flags & !MSG_WAITFORONE | if only_one { MSG_DONTWAIT } else { 0 };
        let request = Request::new(Sysno::recvmmsg, [socket, at, 1, flags, 0, 0]);
        let result = wait::wait_untimed(call, &request, Masking::Restarts);
        if result < 1 {
            return if fetched > 0 { fetched as isize } else { result };
        }
        if noted::is(socket as u32, noted::STAMPS) {
            stamps::translate_message(at);
        }
        fetched += 1;
        if deadline != Deadline::Never && reached(deadline) {
            break;
        }
    }
    if timeout != 0 {
        let look = clocks::snapshot();
        let left = due(deadline, &look).since(look.now());
        if let Err(error) = user::write_timespec(timeout, Timespec::from_span(left)) {
            return error;
        }
    }
    fetched as isize
}
