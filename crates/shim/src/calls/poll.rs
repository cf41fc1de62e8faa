//! poll, select and epoll. All of them take a mask that the kernel puts in force for the time of the wait.

use crate::call::Call;
use crate::deadline::reached;
use crate::signals::{waiting_mask, waiting_mask_of, MaskAndSize};
use crate::sole_thread;
use crate::sys::{request, sys, Errno, Fd, SigSet, SysResult, Sysno, Timespec, Timeval, UserPtr};
use crate::timeout::Timeout;
use crate::user::{self, Access};
use crate::wait::{self, Masking, Wait};
use lorentz_clock::{Deadline, Span};

/// struct pollfd.
pub type PollFd = [u32; 2];
/// struct epoll_event, which the kernel packs.
pub type EpollEvent = [u32; 3];
/// A set of descriptors: a bit for each.
pub type FdSet = [u64; FD_SET_WORDS];
const FD_SET_WORDS: usize = 1024 / 64;

fn in_millis(call: &Call, millis: i32) -> Deadline {
    match millis {
        0.. => call.after(Span(i64::from(millis) * 1_000_000)),
        _ => Deadline::Never,
    }
}

/// poll(2).
pub fn poll(call: &Call, fds: UserPtr<PollFd>, count: u32, timeout: i32) -> SysResult {
    let deadline = in_millis(call, timeout);
    ready_or_poll(
        call,
        fds,
        count,
        deadline,
        call.mask(),
        &mut Timeout::optional_length(2).in_tries(),
    )
}

/// ppoll(2).
pub fn ppoll(
    call: &Call,
    fds: UserPtr<PollFd>,
    count: u32,
    timeout: Option<UserPtr<Timespec>>,
    mask: Option<UserPtr<SigSet>>,
    size: usize,
) -> SysResult {
    // The kernel looks at the timeout first.
    let deadline = call.deadline(timeout)?;
    let mask = waiting_mask(call, mask, size)?;
    let mut counted = Timeout::optional_length(2).in_tries();
    let result = ready_or_poll(call, fds, count, deadline, mask, &mut counted);
    write_left(timeout, deadline, &counted, result, |left| left);
    result
}

fn ready_or_poll(
    call: &Call,
    fds: UserPtr<PollFd>,
    count: u32,
    deadline: Deadline,
    mask: SigSet,
    counted: &mut Timeout,
) -> SysResult {
    let at_once = Timespec::default();
    // SAFETY: the program's own arguments, without waiting.
    let ready = unsafe { sys!(Sysno::ppoll, fds, count, &raw const at_once, 0, SigSet::LEN) };
    let over = || reached(deadline) || (count == 0 && sole_thread::leap_to(deadline, mask));
    if ready != Ok(0) || (deadline != Deadline::Never && over()) {
        return ready;
    }
    wait::wait(
        call,
        deadline,
        Masking::ByCall,
        &mut request!(Sysno::ppoll, fds, count, 0, &raw const mask, SigSet::LEN),
        counted,
        |result| result == Ok(0),
    )
}

/// Writes the time left until `deadline` back, in the form of the call's timeout, as the kernel does; never an error.
fn write_left<T>(
    timeout: Option<UserPtr<T>>,
    deadline: Deadline,
    counted: &Timeout,
    result: SysResult,
    form: impl FnOnce(Timespec) -> T,
) where
    UserPtr<T>: Access<T>,
{
    let Some(timeout) = timeout.filter(|_| deadline != Deadline::Never) else { return };
    let left = match result {
        // Nothing came: the time is up.
        Ok(0) => Span::ZERO,
        _ => counted.left_at_interruption(deadline),
    };
    let _ = timeout.write(form(Timespec::from_span(left)));
}

/// select(2).
pub fn select(
    call: &Call,
    count: i32,
    read: Option<UserPtr<FdSet>>,
    write: Option<UserPtr<FdSet>>,
    except: Option<UserPtr<FdSet>>,
    timeout: UserPtr<Timeval>,
) -> SysResult {
    let time = timeout.read()?;
    if time.secs < 0 || time.micros < 0 {
        return Err(Errno::EINVAL);
    }
    // select accepts more than a second of microseconds.
    let deadline = call.after(time.to_span());
    let mut counted = Timeout::optional_length(4);
    let sets = [read, write, except];
    let result = select_sets(call, count, sets, deadline, call.mask(), &mut counted);
    write_left(Some(timeout), deadline, &counted, result, Timeval::from_timespec);
    result
}

/// pselect6(2).
pub fn pselect6(
    call: &Call,
    count: i32,
    read: Option<UserPtr<FdSet>>,
    write: Option<UserPtr<FdSet>>,
    except: Option<UserPtr<FdSet>>,
    timeout: Option<UserPtr<Timespec>>,
) -> SysResult {
    let mask_and_size: Option<UserPtr<MaskAndSize>> = call.arg(5);
    // The kernel reads the pointer to the mask first, and the mask after the timeout.
    let mask = mask_and_size.map_or(Ok([0; 2]), Access::read)?;
    let deadline = call.deadline(timeout)?;
    let mask = waiting_mask_of(call, mask)?;
    let mut counted = Timeout::optional_length(4);
    let result = select_sets(call, count, [read, write, except], deadline, mask, &mut counted);
    write_left(timeout, deadline, &counted, result, |left| left);
    result
}

/// Length of a set of 1024 descriptors, bytes.
const SET_LEN: usize = size_of::<FdSet>();

fn select_sets(
    call: &Call,
    count: i32,
    sets: [Option<UserPtr<FdSet>>; 3],
    deadline: Deadline,
    mask: SigSet,
    counted: &mut Timeout,
) -> SysResult {
    if count == 0 && sole_thread::leap_to(deadline, mask) {
        return Ok(0);
    }
    // When the kernel's timeout runs out it clears the sets. If that turns out to have been too early, because the
    // clock has changed meanwhile, they are wanted again.
    let mut saved = [[0u8; SET_LEN]; 3];
    let len = (count as usize).div_ceil(64) * 8;
    let keep = len <= SET_LEN
        && sets.iter().zip(&mut saved).all(|(set, saved)| match set {
            Some(set) if len > 0 => user::read_bytes(set.field(0), &mut saved[..len]).is_ok(),
            _ => true,
        });
    if keep {
        *counted = Timeout::optional_length(4).in_tries();
    }
    let mask_and_size: MaskAndSize = [&raw const mask as u64, SigSet::LEN as u64];
    let [read, write, except] = sets;
    let mut request =
        request!(Sysno::pselect6, count, read, write, except, 0, mask_and_size.as_ptr());
    let mut wait = Wait::new(call, deadline, Masking::ByCall);
    loop {
        if let Some(result) = wait.attempt(&mut request, counted, |result| result == Ok(0)) {
            return result;
        }
        if keep {
            restore(&sets, &saved, len);
        }
    }
}

fn restore(sets: &[Option<UserPtr<FdSet>>; 3], saved: &[[u8; SET_LEN]; 3], len: usize) {
    for (set, saved) in sets.iter().zip(saved) {
        if let Some(set) = set {
            // SAFETY: the kernel has read and written these bytes in the call before.
            unsafe {
                core::ptr::copy_nonoverlapping(saved.as_ptr(), set.address() as *mut u8, len)
            };
        }
    }
}

/// epoll_wait(2).
pub fn epoll_wait(
    call: &Call,
    epoll: Fd,
    events: UserPtr<EpollEvent>,
    max: i32,
    timeout: i32,
) -> SysResult {
    ready_or_epoll(call, epoll, events, max, in_millis(call, timeout), call.mask())
}

/// epoll_pwait(2).
pub fn epoll_pwait(
    call: &Call,
    epoll: Fd,
    events: UserPtr<EpollEvent>,
    max: i32,
    timeout: i32,
    mask: Option<UserPtr<SigSet>>,
    size: usize,
) -> SysResult {
    let mask = waiting_mask(call, mask, size)?;
    ready_or_epoll(call, epoll, events, max, in_millis(call, timeout), mask)
}

/// epoll_pwait2(2).
pub fn epoll_pwait2(
    call: &Call,
    epoll: Fd,
    events: UserPtr<EpollEvent>,
    max: i32,
    timeout: Option<UserPtr<Timespec>>,
    mask: Option<UserPtr<SigSet>>,
    size: usize,
) -> SysResult {
    let deadline = call.deadline(timeout)?;
    let mask = waiting_mask(call, mask, size)?;
    ready_or_epoll(call, epoll, events, max, deadline, mask)
}

fn ready_or_epoll(
    call: &Call,
    epoll: Fd,
    events: UserPtr<EpollEvent>,
    max: i32,
    deadline: Deadline,
    mask: SigSet,
) -> SysResult {
    // SAFETY: the program's own arguments, without waiting.
    let ready = unsafe { sys!(Sysno::epoll_wait, epoll, events, max, 0) };
    if ready != Ok(0) || (deadline != Deadline::Never && reached(deadline)) {
        return ready;
    }
    wait::wait(
        call,
        deadline,
        Masking::ByCall,
        &mut request!(Sysno::epoll_pwait2, epoll, events, max, 0, &raw const mask, SigSet::LEN),
        &mut Timeout::optional_length(3).in_tries(),
        |result| result == Ok(0),
    )
}
