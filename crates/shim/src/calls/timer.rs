//! Timers made by timer_create and timerfd_create.

use crate::call::Call;
use crate::clocks::{self, Timebase};
use crate::fd_table;
use crate::filter::Extra;
use crate::layout::{clock, registry};
use crate::process;
use crate::sys::{
    close, sys, to_fd, ClockId, Errno, Fd, Itimerspec, SysResult, Sysno, TimerFlags, Timespec,
    UserPtr,
};
use crate::timers::{arm, remaining, to_come, Entry, Kernel};
use crate::user::Access;
use crate::wait::{self, Masking};
use lorentz_clock::{Deadline, ProcessId, Setting, Span, Timer, TimerKind};

const CAP_WAKE_ALARM: u32 = 35;

/// struct sigevent: a value of eight bytes, the signal, the way it is sent, and the thread.
pub type SigEvent = [u32; 5];

/// timer_create(2): on the monotonic clock, whatever clock the program named.
pub fn timer_create(
    call: &Call,
    clock: ClockId,
    event: Option<UserPtr<SigEvent>>,
    id_at: UserPtr<u32>,
) -> SysResult {
    match clocks::timebase(clock) {
        Err(_) | Ok(Timebase::Cpu) => return call.by_kernel(),
        Ok(_) => {}
    }
    if clock.is_alarm_clock() {
        // The kernel decides whether there is such a clock, and whether this program may use it.
        call.by_kernel()?;
        delete_made(id_at);
    }
    // SAFETY: the kernel checks both pointers.
    unsafe { sys!(Sysno::timer_create, ClockId::MONOTONIC, event, id_at)? };
    // SAFETY: the kernel has just written it.
    let id = unsafe { id_at.get() };
    let (signal, target) = signal_of(event);
    let begin = |timer: &Timer| {
        begin_disarmed(timer, clock);
        timer.set_signal(signal);
        timer.set_target(target);
    };
    Entry::with_claimed(TimerKind::Posix, id, begin).ok_or_else(|| {
        delete_made(id_at);
        Errno::EAGAIN
    })?;
    Ok(0)
}

/// Deletes the timer that the kernel has just made for the program.
fn delete_made(id_at: UserPtr<u32>) {
    // SAFETY: the kernel has just written its number there.
    let _ = unsafe { sys!(Sysno::timer_delete, id_at.get()) };
}

/// The signal of a sigevent that the kernel has accepted, and the thread that it goes to, 0 for the process: SIGALRM where there is
/// no sigevent, signal 0 for SIGEV_NONE.
fn signal_of(event: Option<UserPtr<SigEvent>>) -> (u32, u32) {
    const SIGALRM: u32 = 14;
    const SIGEV_NONE: u32 = 1;
    const SIGEV_THREAD_ID: u32 = 4;
    let Some(event) = event else { return (SIGALRM, 0) };
    // SAFETY: the kernel has just read it.
    match unsafe { event.get() } {
        [.., SIGEV_NONE, _] => (0, 0),
        [_, _, signal, SIGEV_THREAD_ID, thread] => (signal, thread),
        [_, _, signal, ..] => (signal, 0),
    }
}

fn begin_disarmed(timer: &Timer, clock_id: ClockId) {
    let disarmed = Setting { deadline: Deadline::Never, interval: Span::ZERO };
    timer.set_clock(clock_id.number() as u32 & 0xffff);
    timer.set(disarmed, clock().timers_state());
}

/// timer_delete(2).
pub fn timer_delete(call: &Call, id: u32) -> SysResult {
    let result = call.by_kernel()?;
    if let Some(entry) = Entry::find(TimerKind::Posix, id) {
        entry.exclusively(Timer::release);
    }
    Ok(result)
}

/// timerfd_create(2).
pub fn timerfd_create(call: &Call, clock: ClockId, flags: u32) -> SysResult {
    // The kernel decides whether there is such a clock, and whether this program may use it.
    let mut fd = to_fd(call.by_kernel()?);
    if clock != ClockId::MONOTONIC {
        close(fd);
        // SAFETY: makes a descriptor.
        fd = to_fd(unsafe { sys!(Sysno::timerfd_create, ClockId::MONOTONIC, flags)? });
    }
    let begin = |timer: &Timer| {
        // A thread that set the timer anew which had this number before may have set this one.
        if timer.setting().deadline != Deadline::Never {
            Kernel::of(timer, TimerKind::Fd, fd.number()).disarm();
        }
        begin_disarmed(timer, clock);
    };
    Entry::with_claimed(TimerKind::Fd, fd.number(), begin).ok_or_else(|| {
        close(fd);
        Errno::ENOMEM
    })?;
    Ok(fd.number() as isize)
}

/// Runs `work` on the entry of the timer that a call names, while no other thread sets it. `None` where the registry does not know the
/// timer: one on CPU time, or no timer.
fn with_entry<T>(call: &Call, work: impl Fn(&Timer, Kernel) -> T) -> Option<T> {
    let id: u32 = call.arg(0);
    let kind = match call.nr {
        Sysno::timer_settime | Sysno::timer_gettime => TimerKind::Posix,
        _ => TimerKind::Fd,
    };
    loop {
        let entry = match Entry::find(kind, id) {
            None if kind == TimerKind::Fd => entry_of_copy(id)?,
            found => found?,
        };
        let done = entry.exclusively(|timer| work(timer, Kernel::of(timer, kind, id)));
        if done.is_some() {
            return done;
        }
    }
}

/// The entry for a descriptor that has none: that of another number of it, or for one that came from the parent, a new one like its.
fn entry_of_copy(fd: u32) -> Option<Entry> {
    let own = process::own();
    if let Some(same) = same_file(own, own, fd) {
        return Entry::of(same);
    }
    // SAFETY: no arguments.
    let parent = unsafe { sys!(Sysno::getppid) }.unwrap_or(0) as u32;
    let parents = same_file(process::numbered(parent), own, fd);
    let begin = |timer: &Timer| {
        let Some(parents) = parents else { return begin_disarmed(timer, ClockId::MONOTONIC) };
        timer.set_clock(parents.clock());
        timer.set_armed(parents.armed());
        timer.set_signalled_again(parents.signalled_again());
        timer.set(parents.setting(), parents.observed_seq());
    };
    Entry::with_claimed(TimerKind::Fd, fd, begin)?;
    Entry::find(TimerKind::Fd, fd)
}

/// The timer of process `owner` whose descriptor is the same file as `fd` of this process, `own`.
fn same_file(owner: ProcessId, own: ProcessId, fd: u32) -> Option<&'static Timer> {
    const KCMP_FILE: i32 = 0;
    registry().timers().find(|timer| match timer.owner() {
        Some((process, TimerKind::Fd, id)) if process == owner => {
            // SAFETY: numbers only.
            let order =
                unsafe { sys!(Sysno::kcmp, owner.number(), own.number(), KCMP_FILE, id, fd) };
            order == Ok(0)
        }
        _ => false,
    })
}

/// timer_settime(2) and timerfd_settime(2).
pub fn settime(
    call: &Call,
    _timer: u32,
    flags: TimerFlags,
    new: Option<UserPtr<Itimerspec>>,
    old: Option<UserPtr<Itimerspec>>,
) -> SysResult {
    const VALID: TimerFlags = TimerFlags::TIMER_ABSTIME.with(TimerFlags::TFD_TIMER_CANCEL_ON_SET);
    let is_posix = call.nr == Sysno::timer_settime;
    // In the order in which the kernel looks at it; the timer itself comes last.
    let new = match new {
        Some(new) => new.read()?,
        None if is_posix => return Err(Errno::EINVAL),
        None => return Err(Errno::EFAULT),
    };
    if new.interval.to_span().is_none()
        || new.value.to_span().is_none()
        || (!is_posix && flags.without(VALID) != TimerFlags::new(0))
    {
        return Err(Errno::EINVAL);
    }
    let set = |timer: &Timer, kernel: Kernel| {
        let clock_id = ClockId::new((timer.clock() & 0xffff) as i32);
        if !is_posix && clock_id.is_alarm_clock() && !process::has_capability(CAP_WAKE_ALARM) {
            return Err(Errno::EPERM);
        }
        let base = clocks::timebase(clock_id)?;
        let absolute = flags.contains(TimerFlags::TIMER_ABSTIME);
        let setting = setting_of(&new, absolute, base).ok_or(Errno::EINVAL)?;
        let before = remaining(timer, kernel).inspect_err(|_| timer.release())?;
        note_cancel(timer, kernel, flags, base);
        arm(timer, kernel, setting);
        Ok(before)
    };
    let Some(set) = with_entry(call, set) else { return set_cpu_timer(call, new, old) };
    let before = set?;
    if let Some(old) = old {
        old.write(before)?;
    }
    Ok(0)
}

/// A timer descriptor that a step of the wall clock cancels: its reads are looked at from now on.
fn note_cancel(timer: &Timer, kernel: Kernel, flags: TimerFlags, base: Timebase) {
    const BOTH: TimerFlags = TimerFlags::TIMER_ABSTIME.with(TimerFlags::TFD_TIMER_CANCEL_ON_SET);
    timer.set_clock(timer.clock() & (0xffff | Timer::RELATIVE));
    if kernel.kind == TimerKind::Fd && flags.contains(BOTH) && matches!(base, Timebase::Wall(_)) {
        timer.set_clock(timer.clock() | Timer::CANCEL_ON_SET);
        fd_table::add(Fd::new(kernel.id as i32), fd_table::CANCEL_ON_SET);
        fd_table::also_trap(Extra::Reads);
    }
}

/// A program's setting in virtual time; `None` where it is invalid.
pub fn setting_of(new: &Itimerspec, absolute: bool, base: Timebase) -> Option<Setting> {
    let interval = new.interval.to_span()?;
    let value = new.value.to_span()?;
    let deadline = match (value.0, absolute) {
        (0, _) => Deadline::Never,
        (_, true) => clocks::absolute(new.value, base)?,
        (_, false) => clocks::after(value, base, &clocks::snapshot()),
    };
    Some(Setting { deadline, interval })
}

/// A timer on CPU time, unknown to the registry: the kernel's, with its lengths scaled.
fn set_cpu_timer(call: &Call, new: Itimerspec, old: Option<UserPtr<Itimerspec>>) -> SysResult {
    let scaled = match (new.value.to_span(), new.interval.to_span()) {
        (Some(value), Some(interval)) if !clock().policy().real_cpu_clocks => Itimerspec {
            interval: Timespec::from_span(clocks::real_span(interval)),
            value: Timespec::from_span(clocks::real_span(value)),
        },
        _ => new,
    };
    // SAFETY: our copy of the setting.
    let result = unsafe { call.by_kernel_with(2, UserPtr::to(&scaled))? };
    scale_back(old)?;
    Ok(result)
}

/// Makes the real lengths virtual that the kernel has written to `out`.
fn scale_back(out: Option<UserPtr<Itimerspec>>) -> SysResult<()> {
    let Some(out) = out.filter(|_| !clock().policy().real_cpu_clocks) else { return Ok(()) };
    let Ok(real) = out.read() else { return Ok(()) };
    let scaled = |time: Timespec| {
        Timespec::from_span(clocks::virtual_span(time.to_span().unwrap_or(Span::ZERO)))
    };
    out.write(Itimerspec { interval: scaled(real.interval), value: scaled(real.value) })
}

/// timer_gettime(2) and timerfd_gettime(2).
pub fn gettime(call: &Call, _timer: u32, out: UserPtr<Itimerspec>) -> SysResult {
    match with_entry(call, remaining) {
        None => {
            call.by_kernel()?;
            scale_back(Some(out))?;
        }
        Some(left) => out.write(left?)?,
    }
    Ok(0)
}

/// A read of a timer descriptor that a step of the wall clock cancels: then it is ECANCELED, once.
pub fn read_cancellable(call: &Call, fd: Fd) -> SysResult {
    // Before it blocks, and after it was woken by the cancelling.
    take_cancellation(fd)?;
    let result = wait::blocking(call, Masking::Restarts);
    take_cancellation(fd)?;
    result
}

/// ECANCELED where a step of the wall clock has cancelled the timer.
fn take_cancellation(fd: Fd) -> SysResult<()> {
    let is_cancelled = |timer: &Timer| timer.clock() & Timer::CANCELLED != 0;
    let entry = Entry::find(TimerKind::Fd, fd.number());
    let Some(entry) = entry.filter(|entry| is_cancelled(entry.timer)) else { return Ok(()) };
    let take = |timer: &Timer| {
        // Another reader may have taken it.
        if !is_cancelled(timer) {
            return Ok(());
        }
        let setting = timer.setting();
        timer.set_clock(timer.clock() & !Timer::CANCELLED);
        // Setting it clears what made it readable. The kernel forgets the expiries that have come by then, too.
        arm(timer, Kernel::of(timer, TimerKind::Fd, fd.number()), to_come(setting));
        Err(Errno::ECANCELED)
    };
    entry.exclusively(take).unwrap_or(Ok(()))
}
