//! Timeouts of poll, select and epoll that end as precisely as a sleep, with `LORENTZ_TIMERS_WAITS=1`. They spin for the last
//! microseconds, as a sleep does, and look for events meanwhile. Without the variable, libc's own functions are called.

use crate::{behind, next, now, spec};
use libc::{c_int, c_void, epoll_event, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};
use lorentz_timers::{wait_for_event, Reference};
use std::sync::OnceLock;

/// Longest sets of descriptors that are copied, in words: those of FD_SETSIZE.
const SET_WORDS: usize = size_of::<fd_set>() / 8;

type Poll = unsafe extern "C-unwind" fn(*mut pollfd, nfds_t, c_int) -> c_int;
type Select = unsafe extern "C-unwind" fn(
    c_int,
    *mut fd_set,
    *mut fd_set,
    *mut fd_set,
    *mut timeval,
) -> c_int;
type Ppoll =
    unsafe extern "C-unwind" fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int;
type Pselect = unsafe extern "C-unwind" fn(
    c_int,
    *mut fd_set,
    *mut fd_set,
    *mut fd_set,
    *const timespec,
    *const sigset_t,
) -> c_int;
type EpollPwait2 = unsafe extern "C-unwind" fn(
    c_int,
    *mut epoll_event,
    c_int,
    *const timespec,
    *const sigset_t,
) -> c_int;
type EpollPwait =
    unsafe extern "C-unwind" fn(c_int, *mut epoll_event, c_int, c_int, *const sigset_t) -> c_int;

/// The functions of libc that this library stands in front of.
struct Behind {
    poll: Poll,
    ppoll: Ppoll,
    select: Select,
    pselect: Pselect,
    epoll_pwait: EpollPwait,
    /// `None` in a glibc before 2.35, and on Linux before 5.11.
    epoll_pwait2: Option<EpollPwait2>,
    is_asked_for: bool,
}

fn waits() -> &'static Behind {
    static BEHIND: OnceLock<Behind> = OnceLock::new();
    BEHIND.get_or_init(|| {
        behind();
        // SAFETY: libc's functions of these names have these types.
        unsafe {
            Behind {
                poll: std::mem::transmute::<*mut c_void, Poll>(next(c"poll")),
                ppoll: std::mem::transmute::<*mut c_void, Ppoll>(next(c"ppoll")),
                select: std::mem::transmute::<*mut c_void, Select>(next(c"select")),
                pselect: std::mem::transmute::<*mut c_void, Pselect>(next(c"pselect")),
                epoll_pwait: std::mem::transmute::<*mut c_void, EpollPwait>(next(c"epoll_pwait")),
                epoll_pwait2: epoll_with_nanoseconds(),
                is_asked_for: std::env::var_os("LORENTZ_TIMERS_WAITS")
                    .is_some_and(|set| set == "1"),
            }
        }
    })
}

fn epoll_with_nanoseconds() -> Option<EpollPwait2> {
    const NONE: c_int = -1;
    // SAFETY: the name ends with a zero byte.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"epoll_pwait2".as_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: libc's function of this name has this type.
    let wait = unsafe { std::mem::transmute::<*mut c_void, EpollPwait2>(found) };
    let mut event = epoll_event { events: 0, u64: 0 };
    // SAFETY: `event` is a local variable. There is no descriptor -1.
    let result = unsafe { wait(NONE, &mut event, 1, &spec(0), std::ptr::null()) };
    // SAFETY: errno belongs to this thread.
    (result == 0 || unsafe { *libc::__errno_location() } != libc::ENOSYS).then_some(wait)
}

/// Makes `call` with a timeout. It returns 0 if the time is over; every other result is one for the caller, with libc's errno.
fn timed(timeout: Option<timespec>, mut call: impl FnMut(*const timespec) -> c_int) -> c_int {
    let nanos = timeout.and_then(|timeout| crate::nanos(&timeout)).filter(|nanos| *nanos > 0);
    let Some(nanos) = nanos else {
        return call(timeout.as_ref().map_or(std::ptr::null(), |timeout| timeout));
    };
    // SAFETY: errno belongs to this thread.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *place };
    let event =
        wait_for_event(nanos, |nanos| Some(call(&spec(nanos))).filter(|result| *result != 0));
    if event.is_none_or(|result| result > 0) {
        // SAFETY: as above.
        unsafe { *place = before };
    }
    event.unwrap_or(0)
}

/// A timeout in milliseconds; `None` if it is negative, which is for ever.
fn of_millis(millis: c_int) -> Option<timespec> {
    (millis >= 0).then(|| spec(i64::from(millis) * 1_000_000))
}

/// poll(2).
///
/// # Safety
/// The requirements are those of libc's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn poll(fds: *mut pollfd, count: nfds_t, millis: c_int) -> c_int {
    let libc = waits();
    if !libc.is_asked_for {
        // SAFETY: the caller guarantees it.
        return unsafe { (libc.poll)(fds, count, millis) };
    }
    // SAFETY: as above.
    timed(of_millis(millis), |timeout| unsafe {
        (libc.ppoll)(fds, count, timeout, std::ptr::null())
    })
}

/// ppoll(2).
///
/// # Safety
/// The requirements are those of libc's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let libc = waits();
    if !libc.is_asked_for {
        // SAFETY: the caller guarantees it.
        return unsafe { (libc.ppoll)(fds, count, timeout, mask) };
    }
    // SAFETY: as above.
    let given = unsafe { timeout.as_ref() }.copied();
    // SAFETY: as above.
    timed(given, |timeout| unsafe { (libc.ppoll)(fds, count, timeout, mask) })
}

/// The sets of descriptors of a select. The kernel empties them when nothing is ready, and the next call needs them.
struct Sets {
    places: [*mut fd_set; 3],
    words: usize,
    asked: [[u64; SET_WORDS]; 3],
}

impl Sets {
    /// Copies the sets of descriptors below `count`; `None` if they are too long.
    ///
    /// # Safety
    /// Each of `places` is null or as long as libc's select requires.
    unsafe fn of(count: c_int, places: [*mut fd_set; 3]) -> Option<Sets> {
        let words = usize::try_from(count).ok()?.div_ceil(64);
        if words > SET_WORDS {
            return None;
        }
        let mut sets = Sets { places, words, asked: [[0; SET_WORDS]; 3] };
        for (place, asked) in places.iter().zip(&mut sets.asked).filter(|(at, _)| !at.is_null()) {
            // SAFETY: the caller guarantees it.
            unsafe { place.cast::<u64>().copy_to_nonoverlapping(asked.as_mut_ptr(), words) };
        }
        Some(sets)
    }

    /// Writes what was asked back.
    ///
    /// # Safety
    /// As for [`Sets::of`].
    unsafe fn ask_again(&self) {
        for (place, asked) in self.places.iter().zip(&self.asked).filter(|(at, _)| !at.is_null()) {
            // SAFETY: the caller guarantees it.
            unsafe { asked.as_ptr().copy_to_nonoverlapping(place.cast(), self.words) };
        }
    }
}

/// pselect(2).
///
/// # Safety
/// The requirements are those of libc's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let libc = waits();
    // SAFETY: the caller guarantees it, here and below.
    let sets = unsafe { Sets::of(count, [read, write, except]) };
    let Some(sets) = sets.filter(|_| libc.is_asked_for) else {
        // SAFETY: as above.
        return unsafe { (libc.pselect)(count, read, write, except, timeout, mask) };
    };
    // SAFETY: as above.
    let given = unsafe { timeout.as_ref() }.copied();
    timed(given, |timeout| {
        // SAFETY: as above.
        unsafe {
            sets.ask_again();
            (libc.pselect)(count, read, write, except, timeout, mask)
        }
    })
}

/// select(2). It writes the time that is left.
///
/// # Safety
/// The requirements are those of libc's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let libc = waits();
    // SAFETY: the caller guarantees it.
    let given = unsafe { timeout.as_ref() }.copied();
    let Some(given) = given.filter(|_| libc.is_asked_for) else {
        // SAFETY: as above.
        return unsafe { (libc.select)(count, read, write, except, timeout) };
    };
    // The kernel accepts more than a second of microseconds.
    let micros = given.tv_sec.saturating_mul(1_000_000).saturating_add(given.tv_usec);
    let wanted = match given.tv_sec < 0 || given.tv_usec < 0 {
        true => timespec { tv_sec: -1, tv_nsec: 0 },
        false => spec(micros.saturating_mul(1_000)),
    };
    let begun = crate::nanos(&now(Reference::Monotonic)).unwrap_or(0);
    // SAFETY: as above.
    let result = unsafe { pselect(count, read, write, except, &wanted, std::ptr::null()) };
    let passed = crate::nanos(&now(Reference::Monotonic)).unwrap_or(0) - begun;
    let left = spec((micros.saturating_mul(1_000) - passed).max(0));
    if wanted.tv_sec >= 0 {
        let left = timeval { tv_sec: left.tv_sec, tv_usec: left.tv_nsec / 1_000 };
        // SAFETY: as above.
        unsafe { timeout.write(left) };
    }
    result
}

/// epoll_pwait2(2).
///
/// # Safety
/// The requirements are those of libc's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn epoll_pwait2(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let libc = waits();
    let Some(wait) = libc.epoll_pwait2 else {
        // SAFETY: errno belongs to this thread.
        unsafe { *libc::__errno_location() = libc::ENOSYS };
        return -1;
    };
    // SAFETY: the caller guarantees it.
    let given = unsafe { timeout.as_ref() }.copied();
    match libc.is_asked_for {
        // SAFETY: as above.
        true => timed(given, |timeout| unsafe { wait(epoll, events, most, timeout, mask) }),
        // SAFETY: as above.
        false => unsafe { wait(epoll, events, most, timeout, mask) },
    }
}

/// epoll_pwait(2).
///
/// # Safety
/// The requirements are those of libc's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn epoll_pwait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    millis: c_int,
    mask: *const sigset_t,
) -> c_int {
    match waits() {
        Behind { epoll_pwait2: Some(wait), is_asked_for: true, .. } if millis > 0 => {
            // SAFETY: the caller guarantees it.
            let call = |timeout| unsafe { wait(epoll, events, most, timeout, mask) };
            timed(of_millis(millis), call)
        }
        // SAFETY: as above.
        behind => unsafe { (behind.epoll_pwait)(epoll, events, most, millis, mask) },
    }
}

/// epoll_wait(2).
///
/// # Safety
/// The requirements are those of libc's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    millis: c_int,
) -> c_int {
    // SAFETY: the caller guarantees it.
    unsafe { epoll_pwait(epoll, events, most, millis, std::ptr::null()) }
}
