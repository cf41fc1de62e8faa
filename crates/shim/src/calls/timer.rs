//! Timers made by timer_create and timerfd_create.

use crate::clocks::{self, Timebase};
use crate::filter::Extra;
use crate::layout::{clock, registry};
use crate::noted;
use crate::process;
use crate::sys::{self, clk, errno, sys, Itimerspec, Sysno, Timespec};
use crate::timers::{alone, arm, told, Kernel};
use crate::trap::Call;
use crate::user;
use crate::wait::{self, Masking};
use lorentz_clock::{Deadline, ProcessId, Setting, Span, Timer, TimerKind};

const ABSTIME: u64 = 1;
const CANCEL_ON_SET: u64 = 2;
const CAP_WAKE_ALARM: u32 = 35;

/// timer_create(2): on the monotonic clock, whatever clock the program named.
pub fn create(call: &Call) -> isize {
    let [clock, event, id_at, ..] = call.args;
    match clocks::timebase(clock as i32, &clocks::snapshot()) {
        Err(_) | Ok(Timebase::Cpu) => return call.by_kernel(),
        Ok(_) => {}
    }
    if clocks::is_alarm_clock(clock as i32) {
        // The kernel decides whether there is such a clock, and whether this program may use it.
        let result = call.by_kernel();
        if result < 0 {
            return result;
        }
        delete_made(id_at);
    }
    // SAFETY: the kernel checks both pointers.
    let result = unsafe { sys!(Sysno::timer_create, clk::MONOTONIC as u64, event, id_at) };
    if result < 0 {
        return result;
    }
    // SAFETY: the kernel has just written it.
    let id = unsafe { (id_at as *const u32).read_unaligned() };
    match registry().claim_timer(process::own(), TimerKind::Posix, id) {
        Some(timer) => {
            begin_disarmed(timer, clock as u32);
            let (signal, target) = signal_of(event);
            timer.set_signal(signal);
            timer.set_target(target);
        }
        None => {
            delete_made(id_at);
            return -errno::EAGAIN;
        }
    }
    0
}

/// Deletes the timer that the kernel has just made for the program.
fn delete_made(id_at: u64) {
    // SAFETY: the kernel has just written its number there.
    unsafe { sys!(Sysno::timer_delete, (id_at as *const u32).read_unaligned()) };
}

/// The signal of a sigevent that the kernel has accepted, and the thread that it goes to, 0 for the process: SIGALRM where there is
/// no sigevent, signal 0 for SIGEV_NONE. A sigevent is a value, the signal, how it is sent, and the thread.
fn signal_of(event: u64) -> (u32, u32) {
    const SIGALRM: u32 = 14;
    const SIGEV_NONE: u32 = 1;
    const SIGEV_THREAD_ID: u32 = 4;
    if event == 0 {
        return (SIGALRM, 0);
    }
    // SAFETY: the kernel has just read it.
    match unsafe { ((event + 8) as *const [u32; 3]).read_unaligned() } {
        [_, SIGEV_NONE, _] => (0, 0),
        [signal, SIGEV_THREAD_ID, thread] => (signal, thread),
        [signal, ..] => (signal, 0),
    }
}

/// Another thread may be setting an older timer of the same number anew.
fn begin_disarmed(timer: &Timer, clock_id: u32) {
    let disarmed = Setting { deadline: Deadline::Never, interval: Span::ZERO };
    alone(timer, || {
        timer.set_clock(clock_id & 0xffff);
        timer.set(disarmed, clock().timers_state());
    });
}

/// timer_delete(2).
pub fn delete(call: &Call) -> isize {
    let result = call.by_kernel();
    if result == 0 {
        if let Some(timer) =
            registry().find_timer(process::own(), TimerKind::Posix, call.args[0] as u32)
        {
            timer.release();
        }
    }
    result
}

/// timerfd_create(2).
pub fn fd_create(call: &Call) -> isize {
    let [clock, flags, ..] = call.args;
    // The kernel decides whether there is such a clock, and whether this program may use it.
    let result = call.by_kernel();
    if result < 0 {
        return result;
    }
    if clock as i32 != clk::MONOTONIC {
        // SAFETY: the descriptor just made.
        unsafe { sys!(Sysno::close, result) };
    }
    let fd = match clock as i32 {
        clk::MONOTONIC => result,
        // SAFETY: makes a descriptor.
        _ => unsafe { sys!(Sysno::timerfd_create, clk::MONOTONIC as u64, flags) },
    };
    if fd < 0 {
        return fd;
    }
    match registry().claim_timer(process::own(), TimerKind::Fd, fd as u32) {
        Some(timer) => begin_disarmed(timer, clock as u32),
        None => {
            // SAFETY: the descriptor just made.
            unsafe { sys!(Sysno::close, fd) };
            return -errno::ENOMEM;
        }
    }
    fd
}

/// The registry's entry for the timer a call names: for a descriptor that came from the parent, a new one like its.
fn entry(call: &Call) -> Option<(&'static Timer, Kernel)> {
    let id = call.args[0] as u32;
    let kind = match call.nr {
        Sysno::timer_settime | Sysno::timer_gettime => TimerKind::Posix,
        _ => TimerKind::Fd,
    };
    let own = process::own();
    if let Some(timer) = registry().find_timer(own, kind, id) {
        return Some((timer, Kernel::of(timer, kind, id)));
    }
    if kind != TimerKind::Fd {
        return None;
    }
    // Another number of a descriptor that has an entry, here or in the parent.
    if let Some(same) = same_file(own, own, id) {
        return Some((same, Kernel::of(same, kind, id)));
    }
    // SAFETY: no arguments.
    let parent = unsafe { sys!(Sysno::getppid) } as u32;
    let parents = same_file(process::numbered(parent), own, id);
    let timer = registry().claim_timer(own, kind, id)?;
    if let Some(parents) = parents {
        timer.set_clock(parents.clock());
        timer.set_armed(parents.armed());
        timer.set_signalled_again(parents.signalled_again());
        timer.set(parents.setting(), parents.seen());
        return Some((timer, Kernel::of(timer, kind, id)));
    }
    begin_disarmed(timer, clk::MONOTONIC as u32);
    Some((timer, Kernel::of(timer, kind, id)))
}

/// The timer of process `owner` whose descriptor is the same file as `fd` of this process, `own`.
fn same_file(owner: ProcessId, own: ProcessId, fd: u32) -> Option<&'static Timer> {
    const KCMP_FILE: u64 = 0;
    registry().timers().find(|timer| match timer.owner() {
        Some((process, TimerKind::Fd, id)) if process == owner => {
            // SAFETY: numbers only.
            unsafe { sys!(Sysno::kcmp, owner.number(), own.number(), KCMP_FILE, id, fd) == 0 }
        }
        _ => false,
    })
}

/// timer_settime(2) and timerfd_settime(2).
pub fn settime(call: &Call) -> isize {
    let [_, flags, new, old, ..] = call.args;
    let flags = u64::from(flags as u32);
    let is_posix = call.nr == Sysno::timer_settime;
    // In the order in which the kernel looks at it; the timer itself comes last.
    if new == 0 && is_posix {
        return -errno::EINVAL;
    }
    let new = match user::read_itimer(new) {
        Ok(new) => new,
        Err(error) => return error,
    };
    if new.interval.to_span().is_none()
        || new.value.to_span().is_none()
        || (!is_posix && flags & !(ABSTIME | CANCEL_ON_SET) != 0)
    {
        return -errno::EINVAL;
    }
    let Some((timer, kernel)) = entry(call) else { return set_cpu_timer(call, new) };
    let clock_id = (timer.clock() & 0xffff) as i32;
    if !is_posix && clocks::is_alarm_clock(clock_id) && !process::has_capability(CAP_WAKE_ALARM) {
        return -errno::EPERM;
    }
    let base = match clocks::timebase(clock_id, &clocks::snapshot()) {
        Ok(base) => base,
        Err(error) => return error,
    };
    let Some(setting) = setting_of(&new, flags & ABSTIME != 0, base) else { return -errno::EINVAL };
    let before = alone(timer, || {
        let before = told(timer, kernel);
        if before.is_ok() {
            note_cancel(timer, kernel, flags, base);
            arm(timer, kernel, setting, 0);
        }
        before
    });
    match before {
        Err(error) => {
            timer.release();
            error
        }
        Ok(before) if old != 0 => user::write_itimer(old, before).err().unwrap_or(0),
        Ok(_) => 0,
    }
}

/// A timer descriptor that a step of the wall clock cancels: its reads are looked at from now on.
fn note_cancel(timer: &Timer, kernel: Kernel, flags: u64, base: Timebase) {
    const BOTH: u64 = ABSTIME | CANCEL_ON_SET;
    timer.set_clock(timer.clock() & (0xffff | Timer::RELATIVE));
    if kernel.kind == TimerKind::Fd && flags & BOTH == BOTH && matches!(base, Timebase::Wall(_)) {
        timer.set_clock(timer.clock() | Timer::CANCEL_ON_SET);
        noted::note(kernel.id, noted::CANCEL_ON_SET);
        noted::also_trap(Extra::Reads);
    }
}

/// What a program's setting means; `None` where it is invalid.
pub fn setting_of(new: &Itimerspec, absolute: bool, base: Timebase) -> Option<Setting> {
    let interval = new.interval.to_span()?;
    let value = new.value.to_span()?;
    let deadline = match (value.0, absolute) {
        (0, _) => Deadline::Never,
        (_, true) => super::sleep::absolute(new.value, base)?,
        (_, false) => Deadline::Virtual(clocks::snapshot().now().plus(value)),
    };
    Some(Setting { deadline, interval })
}

/// A timer on CPU time, unknown to the registry: the kernel's, with its lengths scaled.
fn set_cpu_timer(call: &Call, new: Itimerspec) -> isize {
    let mut args = call.args;
    let scaled = match (new.value.to_span(), new.interval.to_span()) {
        (Some(value), Some(interval)) if !clock().policy().real_cpu_clocks => Itimerspec {
            interval: Timespec::from_span(clocks::real_span(interval)),
            value: Timespec::from_span(clocks::real_span(value)),
        },
        _ => new,
    };
    args[2] = &scaled as *const Itimerspec as u64;
    // SAFETY: the program's own call, with our copy of the setting.
    let result = unsafe { sys::syscall(call.nr, args) };
    scale_back(result, args[3])
}

/// Real lengths that the kernel has written to `at`, as virtual ones.
fn scale_back(result: isize, at: u64) -> isize {
    if result == 0 && at != 0 && !clock().policy().real_cpu_clocks {
        if let Ok(real) = user::read_itimer(at) {
            let scaled = |ts: Timespec| {
                Timespec::from_span(clocks::virtual_span(ts.to_span().unwrap_or(Span::ZERO)))
            };
            let told = Itimerspec { interval: scaled(real.interval), value: scaled(real.value) };
            return user::write_itimer(at, told).err().unwrap_or(0);
        }
    }
    result
}

/// timer_gettime(2) and timerfd_gettime(2).
pub fn gettime(call: &Call) -> isize {
    match entry(call) {
        None => scale_back(call.by_kernel(), call.args[1]),
        Some((timer, kernel)) => match alone(timer, || told(timer, kernel)) {
            Err(error) => error,
            Ok(value) => user::write_itimer(call.args[1], value).err().unwrap_or(0),
        },
    }
}

/// A read of a timer descriptor that a step of the wall clock cancels: then it is ECANCELED, once.
pub fn read_cancellable(call: &Call) -> isize {
    let fd = call.args[0] as u32;
    // Before it blocks, and after it was woken by the cancelling.
    take_cancellation(fd).unwrap_or_else(|| {
        let result = wait::blocking(call, Masking::Restarts);
        take_cancellation(fd).unwrap_or(result)
    })
}

fn take_cancellation(fd: u32) -> Option<isize> {
    let timer = registry().find_timer(process::own(), TimerKind::Fd, fd)?;
    if timer.clock() & Timer::CANCELLED == 0 {
        return None;
    }
    alone(timer, || {
        let setting = timer.setting();
        timer.set_clock(timer.clock() & !Timer::CANCELLED);
        // Setting it clears what made it readable.
        arm(timer, Kernel::of(timer, TimerKind::Fd, fd), setting, 0);
    });
    Some(-errno::ECANCELED)
}
