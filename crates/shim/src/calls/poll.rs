//! poll, select and epoll. All of them take a mask that the kernel puts in force for the time of the wait.

use crate::alone;
use crate::deadline::reached;
use crate::signals::waiting_mask;
use crate::sys::{errno, sys, Request, Sysno, Timespec};
use crate::timeout::Timeout;
use crate::trap::Call;
use crate::user;
use crate::wait::{self, Masking, Wait};
use lorentz_clock::{Deadline, Span};

fn in_millis(call: &Call, timeout: u64) -> Deadline {
    let millis = timeout as i32 as i64;
    if millis < 0 {
        return Deadline::Never;
    }
    call.after(Span(millis * 1_000_000))
}

/// poll(2).
pub fn poll(call: &Call) -> isize {
    let [fds, count, timeout, ..] = call.args;
    let deadline = in_millis(call, timeout);
    ready_or_poll(call, fds, count, deadline, call.mask(), &mut Timeout::optional_length(2))
}

/// ppoll(2).
pub fn ppoll(call: &Call) -> isize {
    let [fds, count, timeout, mask, size, _] = call.args;
    // The kernel looks at the timeout first.
    let deadline = match relative_timespec(call, timeout) {
        Ok(deadline) => deadline,
        Err(error) => return error,
    };
    let mask = match waiting_mask(call, mask, size) {
        Ok(mask) => mask,
        Err(error) => return error,
    };
    let mut counted = Timeout::optional_length(2);
    let result = ready_or_poll(call, fds, count, deadline, mask, &mut counted);
    write_left(timeout, deadline, &counted, result, 1);
    result
}

fn ready_or_poll(
    call: &Call,
    fds: u64,
    count: u64,
    deadline: Deadline,
    mask: u64,
    counted: &mut Timeout,
) -> isize {
    let at_once = Timespec::default();
    // SAFETY: the program's own arguments, without waiting.
    let ready = unsafe { sys!(Sysno::ppoll, fds, count, &at_once as *const Timespec, 0u64, 8u64) };
    let over = || reached(deadline) || (count == 0 && alone::leap_to(deadline, mask));
    if ready != 0 || (deadline != Deadline::Never && over()) {
        return ready;
    }
    wait::wait(
        call,
        deadline,
        Masking::ByCall,
        &mut Request::new(Sysno::ppoll, [fds, count, 0, &mask as *const u64 as u64, 8, 0]),
        counted,
        |result| result == 0,
    )
}

fn relative_timespec(call: &Call, at: u64) -> Result<Deadline, isize> {
    if at == 0 {
        return Ok(Deadline::Never);
    }
    match user::read_timespec(at)?.to_span() {
        Some(span) => Ok(call.after(span)),
        None => Err(-errno::EINVAL),
    }
}

/// What is left until `deadline`, written back in units of `unit` nanoseconds, as the kernel does; never an error.
fn write_left(at: u64, deadline: Deadline, counted: &Timeout, result: isize, unit: i64) {
    if at != 0 && deadline != Deadline::Never {
        let left = match result {
            // Nothing came: the time is up.
            0 => Span::ZERO,
            _ => counted.left_at_interruption(deadline),
        };
        let left = Timespec::from_span(left);
        let _ = user::write_timespec(at, Timespec { secs: left.secs, nanos: left.nanos / unit });
    }
}

/// select(2).
pub fn select(call: &Call) -> isize {
    const MICRO: i64 = 1000;
    let [count, read, write, except, timeout, _] = call.args;
    let deadline = match user::read_timespec(timeout) {
        Err(error) => return error,
        Ok(tv) if tv.secs < 0 || tv.nanos < 0 => return -errno::EINVAL,
        // select accepts more than a second of microseconds.
        Ok(tv) => call
            .after(Span(Span::from_secs(tv.secs).0.saturating_add(tv.nanos.saturating_mul(MICRO)))),
    };
    let mut counted = Timeout::optional_length(4);
    let sets = [read, write, except];
    let result = select_sets(call, count, sets, deadline, call.mask(), &mut counted);
    write_left(timeout, deadline, &counted, result, MICRO);
    result
}

/// pselect6(2).
pub fn pselect6(call: &Call) -> isize {
    let [count, read, write, except, timeout, mask_and_size] = call.args;
    // A pointer and a length, two words as in a timespec. The kernel reads them first, and the mask after the timeout.
    let mask = match mask_and_size {
        0 => Ok(Timespec::default()),
        at => user::read_timespec(at),
    };
    let deadline = mask.and_then(|mask| Ok((mask, relative_timespec(call, timeout)?)));
    let (mask, deadline) = match deadline {
        Ok((mask, deadline)) => (waiting_mask(call, mask.secs as u64, mask.nanos as u64), deadline),
        Err(error) => return error,
    };
    let mask = match mask {
        Ok(mask) => mask,
        Err(error) => return error,
    };
    let mut counted = Timeout::optional_length(4);
    let result = select_sets(call, count, [read, write, except], deadline, mask, &mut counted);
    write_left(timeout, deadline, &counted, result, 1);
    result
}

/// Room for three sets of 1024 descriptors.
const SETS: usize = 3 * 128;

fn select_sets(
    call: &Call,
    count: u64,
    sets: [u64; 3],
    deadline: Deadline,
    mask: u64,
    counted: &mut Timeout,
) -> isize {
    if count == 0 && alone::leap_to(deadline, mask) {
        return 0;
    }
    // When the kernel's timeout runs out it clears the sets. If that turns out to have been too early, because the
    // clock has changed meanwhile, they are wanted again.
    let mut saved = [0u8; SETS];
    let bytes = (count as usize).div_ceil(64) * 8;
    let keep = bytes <= SETS / 3
        && sets.iter().enumerate().all(|(i, at)| {
            *at == 0 || bytes == 0 || user::read_bytes(*at, &mut saved[i * 128..i * 128 + bytes])
        });
    let mask_and_size = [&mask as *const u64 as u64, 8];
    let mask_at = mask_and_size.as_ptr() as u64;
    let args = [count, sets[0], sets[1], sets[2], 0, mask_at];
    let mut request = Request::new(Sysno::pselect6, args);
    let mut wait = Wait::new(call, deadline, Masking::ByCall);
    loop {
        if let Some(result) = wait.attempt(&mut request, counted, |result| result == 0) {
            return result;
        }
        if keep {
            restore(&sets, &saved, bytes);
        }
    }
}

fn restore(sets: &[u64; 3], saved: &[u8; SETS], bytes: usize) {
    for (i, at) in sets.iter().enumerate() {
        if *at != 0 {
            // SAFETY: the kernel has read and written these bytes in the call before.
            unsafe {
                core::ptr::copy_nonoverlapping(saved[i * 128..].as_ptr(), *at as *mut u8, bytes)
            };
        }
    }
}

/// epoll_wait(2).
pub fn epoll_wait(call: &Call) -> isize {
    ready_or_epoll(call, in_millis(call, call.args[3]), call.mask())
}

/// epoll_pwait(2).
pub fn epoll_pwait(call: &Call) -> isize {
    match waiting_mask(call, call.args[4], call.args[5]) {
        Ok(mask) => ready_or_epoll(call, in_millis(call, call.args[3]), mask),
        Err(error) => error,
    }
}

/// epoll_pwait2(2).
pub fn epoll_pwait2(call: &Call) -> isize {
    let deadline = match relative_timespec(call, call.args[3]) {
        Ok(deadline) => deadline,
        Err(error) => return error,
    };
    match waiting_mask(call, call.args[4], call.args[5]) {
        Ok(mask) => ready_or_epoll(call, deadline, mask),
        Err(error) => error,
    }
}

fn ready_or_epoll(call: &Call, deadline: Deadline, mask: u64) -> isize {
    let [epoll, events, max, ..] = call.args;
    // SAFETY: the program's own arguments, without waiting.
    let ready = unsafe { sys!(Sysno::epoll_wait, epoll, events, max, 0u64) };
    if ready != 0 || (deadline != Deadline::Never && reached(deadline)) {
        return ready;
    }
    let mask_at = &mask as *const u64 as u64;
    wait::wait(
        call,
        deadline,
        Masking::ByCall,
        &mut Request::new(Sysno::epoll_pwait2, [epoll, events, max, 0, mask_at, 8]),
        &mut Timeout::optional_length(3),
        |result| result == 0,
    )
}
