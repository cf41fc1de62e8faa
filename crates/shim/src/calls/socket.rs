//! Sockets: their timeouts, and the times stamped on their messages.

use crate::clocks;
use crate::filter::Extra;
use crate::noted;
use crate::stamps;
use crate::sys::{errno, nr, sys, Timespec};
use crate::trap::Call;
use crate::user;
use crate::wait::{self, Masking};
use core::sync::atomic::Ordering::Relaxed;
use lorentz_clock::{Deadline, RealInstant, Span};

const SO_RCVTIMEO: [u64; 2] = [20, 66];
const SO_SNDTIMEO: [u64; 2] = [21, 67];
const MICRO: i64 = 1000;
const MSG_DONTWAIT: u64 = 0x40;

/// setsockopt(2) of an option that has to do with time.
pub fn setsockopt(call: &Call) -> isize {
    let [fd, _, option, value, len, _] = call.args;
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
        Ok(tv) if len >= 16 => tv,
        Ok(_) => return call.by_kernel(),
        Err(error) => return error,
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
    let result = call.by_kernel();
    if result != 0 {
        return result;
    }
    let receive = SO_RCVTIMEO.contains(&option);
    if let Some(span) = timeout(fd as u32, receive) {
        let tv = Timespec::from_span(span);
        let told = Timespec { secs: tv.secs, nanos: tv.nanos / MICRO };
        return user::write_timespec(value, told).err().unwrap_or(0);
    }
    0
}

fn timeout(fd: u32, receive: bool) -> Option<Span> {
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
    const POLLIN: u32 = 1;
    let fd = call.args[0] as u32;
    if call.nr == nr::READ && noted::is(fd, noted::CANCEL_ON_SET) {
        if let Some(result) = super::timer::read_cancelled(fd) {
            return result;
        }
    }
    if call.nr == nr::READ && noted::is(fd, noted::UPTIME) {
        super::file::refresh_uptime(fd);
    }
    let flags = match call.nr {
        nr::RECVFROM => call.args[3],
        nr::RECVMSG => call.args[2],
        _ => 0,
    };
    if let Some(span) = timeout(fd, true).filter(|_| call.nr != nr::CONNECT) {
        if let Err(error) = await_ready(call, POLLIN, flags, span) {
            return error;
        }
    }
    let result = blocking(call);
    if call.nr == nr::RECVMSG && result >= 0 && noted::is(fd, noted::STAMPS) {
        stamps::translate_message(call.args[1]);
    }
    result
}

/// A call that gives something to a descriptor: write, sendto, sendmsg.
pub fn send(call: &Call) -> isize {
    const POLLOUT: u32 = 4;
    let fd = call.args[0] as u32;
    let flags = match call.nr {
        nr::SENDTO => call.args[3],
        nr::SENDMSG => call.args[2],
        _ => 0,
    };
    if let Some(span) = timeout(fd, false) {
        if let Err(error) = await_ready(call, POLLOUT, flags, span) {
            return error;
        }
    }
    blocking(call)
}

/// Waits in virtual time until the socket is ready; EAGAIN when its timeout runs out, EINTR for a signal.
fn await_ready(call: &Call, events: u32, flags: u64, timeout: Span) -> Result<(), isize> {
    #[repr(C)]
    struct PollFd {
        fd: u32,
        events: u32,
    }
    if flags & MSG_DONTWAIT != 0 || is_nonblocking(call.args[0]) {
        return Ok(());
    }
    let mut poll = PollFd { fd: call.args[0] as u32, events };
    let poll_at = &mut poll as *mut PollFd as u64;
    let deadline = Deadline::Virtual(clocks::snapshot().now().plus(timeout));
    let mut rest = Timespec::default();
    let rest_at = &mut rest as *mut Timespec;
    let mask = call.mask();
    let ready = wait::wait(
        call,
        deadline,
        Masking::ByCall,
        |until, look| {
            // SAFETY: `rest` outlives the wait.
            unsafe { rest_at.write(Timespec::from_span(until.since(look.real))) };
            let timeout = if until == RealInstant::NEVER { 0 } else { rest_at as u64 };
            [poll_at, 1, timeout, &mask as *const u64 as u64, 8, 0, nr::PPOLL as u64]
        },
        |result| result == 0,
    );
    match ready {
        0 => Err(-errno::EAGAIN),
        error if error < 0 => Err(error),
        _ => Ok(()),
    }
}

fn is_nonblocking(fd: u64) -> bool {
    const FCNTL: u32 = 72;
    const F_GETFL: u64 = 3;
    const O_NONBLOCK: isize = 0o4000;
    // SAFETY: reads the descriptor's flags.
    let flags = unsafe { sys!(FCNTL, fd, F_GETFL) };
    flags >= 0 && flags & O_NONBLOCK != 0
}

/// The program's own call, which may block.
pub fn blocking(call: &Call) -> isize {
    let [a, b, c, d, e, f] = call.args;
    wait::wait_untimed(call, &[a, b, c, d, e, f, call.nr as u64], Masking::Restarts)
}

/// recvmmsg(2): its timeout is looked at only between messages, so it is told in real time once; stamps are translated.
pub fn recvmmsg(call: &Call) -> isize {
    const MESSAGE_LEN: u64 = 64;
    let [fd, messages, _, _, timeout, _] = call.args;
    let mut args = call.args;
    let mut scaled = Timespec::default();
    if timeout != 0 {
        match user::read_timespec(timeout).map(Timespec::to_span) {
            Err(error) => return error,
            Ok(None) => return -errno::EINVAL,
            Ok(Some(span)) => scaled = Timespec::from_span(clocks::real_span(span)),
        }
        args[4] = &mut scaled as *mut Timespec as u64;
    }
    let [a, b, c, d, e, f] = args;
    let result =
        wait::wait_untimed(call, &[a, b, c, d, e, f, nr::RECVMMSG as u64], Masking::Restarts);
    if timeout != 0 && result >= 0 {
        let left = clocks::virtual_span(scaled.to_span().unwrap_or(Span::ZERO));
        let _ = user::write_timespec(timeout, Timespec::from_span(left));
    }
    if result > 0 && noted::is(fd as u32, noted::STAMPS) {
        (0..result as u64).for_each(|i| stamps::translate_message(messages + i * MESSAGE_LEN));
    }
    result
}
