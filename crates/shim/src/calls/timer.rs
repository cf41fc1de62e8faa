//! Timers that are armed and go off later: POSIX timers, interval timers, timer descriptors.
//!
//! Each is a timer of the kernel's on the monotonic clock, set to the real instant that its virtual deadline has
//! now. What the program asked for stands in the registry; when the clock changes, a thread of the process sets the
//! kernel's timer anew ([`rearm_all`]). The signals, overruns and read counts are the kernel's own.

use crate::clocks::{self, Timebase};
use crate::filter::Extra;
use crate::layout::{clock, registry};
use crate::noted;
use crate::sys::{self, clk, errno, nr, sys, Itimerspec, Timespec};
use crate::trap::Call;
use crate::user;
use crate::wait::due;
use core::hint::spin_loop;
use lorentz_clock::{
    Armed, Deadline, RealInstant, Setting, Snapshot, Span, Timer, TimerKind, VirtualInstant,
    WallTime,
};

const ABSTIME: u64 = 1;
const CANCEL_ON_SET: u64 = 2;
const ITIMER_REAL: u64 = 0;
const MICRO: i64 = 1000;
/// At once: zero would disarm.
const AT_ONCE: RealInstant = RealInstant(1);

/// The kernel's timer behind a [`Timer`].
#[derive(Clone, Copy)]
struct Kernel {
    kind: TimerKind,
    id: u32,
    /// It is on a clock that the program chose before the shim came, and is set by lengths, which mean the same on all.
    relative: bool,
}

impl Kernel {
    fn of(timer: &Timer, kind: TimerKind, id: u32) -> Kernel {
        Kernel { kind, id, relative: timer.clock() & Timer::RELATIVE != 0 }
    }

    /// Real time until it goes off (zero: not armed); or the kernel's error.
    fn left(self) -> Result<Span, isize> {
        let mut value = Itimerspec::default();
        let at = &mut value as *mut Itimerspec;
        // SAFETY: writes to `value`.
        let result = unsafe {
            match self.kind {
                TimerKind::Posix => sys!(nr::TIMER_GETTIME, self.id, at),
                TimerKind::Fd => sys!(nr::TIMERFD_GETTIME, self.id, at),
                TimerKind::Interval => sys!(nr::GETITIMER, ITIMER_REAL, at),
            }
        };
        if result < 0 {
            return Err(result);
        }
        let unit = if self.kind == TimerKind::Interval { MICRO } else { 1 };
        Ok(Span(Span::from_secs(value.value.secs).0.saturating_add(value.value.nanos * unit)))
    }

    /// Sets it to go off at `armed.at` and every `armed.interval` after that; never disarms it.
    fn set(self, armed: &Armed) {
        let held = armed.at == RealInstant::NEVER;
        let value = match self.kind {
            _ if held => Itimerspec::default(),
            TimerKind::Interval => Itimerspec {
                interval: in_micros(armed.interval),
                value: in_micros(Span(armed.at.since(clocks::host()).0.max(1))),
            },
            _ if self.relative => Itimerspec {
                interval: Timespec::from_span(armed.interval),
                value: Timespec::from_span(Span(armed.at.since(clocks::host()).0.max(1))),
            },
            _ => Itimerspec {
                interval: Timespec::from_span(armed.interval),
                value: Timespec::from_real(armed.at),
            },
        };
        let mode = if self.relative { 0 } else { ABSTIME };
        let at = &value as *const Itimerspec;
        // SAFETY: reads `value`.
        unsafe {
            match self.kind {
                TimerKind::Posix => sys!(nr::TIMER_SETTIME, self.id, mode, at, 0u64),
                TimerKind::Fd => sys!(nr::TIMERFD_SETTIME, self.id, mode, at, 0u64),
                TimerKind::Interval => sys!(nr::SETITIMER, ITIMER_REAL, at, 0u64),
            };
        }
    }
}

/// In seconds and microseconds, rounded up.
fn in_micros(span: Span) -> Timespec {
    let micros = span.0.max(0) / MICRO + (span.0 % MICRO > 0) as i64;
    Timespec { secs: micros / 1_000_000, nanos: micros % 1_000_000 }
}

/// Sets the kernel's timer for `setting`, by the clock as it stands. Setting it makes the kernel forget the expiries
/// that the program has not been told of yet: `untold` of them are told again.
fn arm(timer: &Timer, kernel: Kernel, setting: Setting, untold: i64) {
    loop {
        let look = clocks::snapshot();
        let armed = armed_for(setting, &look, untold);
        kernel.set(&armed);
        timer.set_armed(armed);
        timer.set(setting, look.sequence);
        if clock().sequence() == look.sequence {
            return;
        }
    }
}

/// When the kernel's timer has to go off. A series that is behind (it was set in the past, or time has leapt over some
/// of it) is begun so far back that the kernel counts what was missed and goes on in step.
fn armed_for(setting: Setting, look: &Snapshot, untold: i64) -> Armed {
    let wall = look.segment.wall;
    let first = due(setting.deadline, look);
    let now = look.now();
    if first == VirtualInstant::NEVER {
        return Armed { at: RealInstant::NEVER, interval: Span::ZERO, wall };
    }
    if setting.interval.0 == 0 {
        let at = if first <= now { AT_ONCE } else { look.real_at(first) };
        return Armed { at, interval: Span::ZERO, wall };
    }
    let missed = if first > now { 0 } else { now.since(first).0 / setting.interval.0 + 1 };
    let next = look.real_at(first.plus(Span(missed.saturating_mul(setting.interval.0))));
    let interval = Span(clocks::real_span(setting.interval).0.max(1));
    if next == RealInstant::NEVER {
        return Armed { at: next, interval, wall };
    }
    let behind = (missed + untold).saturating_mul(interval.0);
    let at = RealInstant(next.0.saturating_sub(behind).max(AT_ONCE.0));
    Armed { at, interval, wall }
}

/// What `timer` is set to from now on: its next expiry, as the kernel's timer tells it, in virtual time. `None` where
/// it is not armed any more.
fn upcoming(timer: &Timer, kernel: Kernel) -> Result<Option<Setting>, isize> {
    let setting = timer.setting();
    let armed = timer.armed();
    let left = kernel.left()?;
    if setting.deadline == Deadline::Never {
        return Ok(None);
    }
    if armed.at == RealInstant::NEVER || timer.clock() & Timer::CANCELLED != 0 {
        return Ok(Some(setting));
    }
    if left.0 == 0 {
        return Ok(None);
    }
    if setting.interval.0 == 0 || armed.interval.0 == 0 {
        return Ok(Some(setting));
    }
    let behind = clocks::host().plus(left).since(armed.at).0 + armed.interval.0 / 2;
    let gone_off = Span((behind.max(0) / armed.interval.0).saturating_mul(setting.interval.0));
    let deadline = match setting.deadline {
        Deadline::Virtual(instant) => Deadline::Virtual(instant.plus(gone_off)),
        Deadline::Wall(wall) => Deadline::Wall(wall.plus(gone_off)),
        Deadline::Never => Deadline::Never,
    };
    Ok(Some(Setting { deadline, interval: setting.interval }))
}

/// Sets every timer of this process anew that was set by an earlier state of the clock; true where one of them goes off
/// at once.
pub fn rearm_all() -> bool {
    let mut pid = None;
    let mut at_once = false;
    for timer in registry().timers() {
        let Some((process, kind, id)) = timer.owner() else { continue };
        if process != *pid.get_or_insert_with(sys::getpid) || timer.seen() == clock().sequence() {
            continue;
        }
        if timer.begin() {
            rearm(timer, Kernel::of(timer, kind, id));
            timer.end();
            at_once |= timer.armed().at <= clocks::host();
        }
    }
    at_once
}

fn rearm(timer: &Timer, kernel: Kernel) {
    match upcoming(timer, kernel) {
        // The timer is gone: closed, or deleted by an exec.
        Err(_) => timer.release(),
        Ok(None) => timer.set_seen(clock().sequence()),
        Ok(Some(setting)) => {
            let stepped = clocks::snapshot().segment.wall != timer.armed().wall;
            if stepped && timer.clock() & Timer::CANCEL_ON_SET != 0 {
                timer.set_clock(timer.clock() | Timer::CANCELLED);
                kernel.set(&Armed { at: AT_ONCE, interval: Span::ZERO, wall: WallTime::default() });
                timer.set(setting, clock().sequence());
            } else {
                arm(timer, kernel, setting, untold(timer, kernel, &setting));
            }
        }
    }
}

/// Expiries of a periodic timer that the program has not been told of.
fn untold(timer: &Timer, kernel: Kernel, upcoming: &Setting) -> i64 {
    if upcoming.interval.0 == 0 {
        return 0;
    }
    match kernel.kind {
        TimerKind::Fd => unread(kernel.id),
        // A signal that is still waiting stands for all since the timer was set.
        TimerKind::Posix if signal_waits(timer.signal()) => {
            let look = clocks::snapshot();
            let gone = due(upcoming.deadline, &look).since(due(timer.setting().deadline, &look));
            gone.0 / upcoming.interval.0
        }
        _ => 0,
    }
}

/// What a read of a timer descriptor would tell, taken from it.
fn unread(fd: u32) -> i64 {
    const POLLIN: u64 = 1;
    let poll = fd as u64 | POLLIN << 32;
    let mut count = 0u64;
    let at_once = Timespec::default();
    // SAFETY: asks whether it can be read without waiting, and reads eight bytes.
    unsafe {
        let poll_at = &poll as *const u64;
        if sys!(nr::PPOLL, poll_at, 1u64, &at_once as *const Timespec, 0u64, 8u64) == 1 {
            sys!(nr::READ, fd, &mut count as *mut u64, 8u64);
        }
    }
    count as i64
}

fn signal_waits(signal: u32) -> bool {
    let mut pending = 0u64;
    // SAFETY: writes to `pending`.
    unsafe { sys!(nr::RT_SIGPENDING, &mut pending as *mut u64, 8u64) };
    (1..=64).contains(&signal) && pending & 1 << (signal - 1) != 0
}

/// Runs `work` while no other thread sets this timer.
fn alone<T>(timer: &Timer, work: impl FnOnce() -> T) -> T {
    while !timer.begin() {
        spin_loop();
    }
    let result = work();
    timer.end();
    result
}

/// Virtual time left and the interval, as timer_gettime tells them.
fn told(timer: &Timer, kernel: Kernel) -> Result<Itimerspec, isize> {
    let interval = Timespec::from_span(timer.setting().interval);
    let left = match upcoming(timer, kernel)? {
        None => Span::ZERO,
        Some(setting) => {
            let look = clocks::snapshot();
            Span(due(setting.deadline, &look).since(look.now()).0.max(1))
        }
    };
    let disarmed = timer.setting().deadline == Deadline::Never;
    Ok(Itimerspec {
        interval: if disarmed { Timespec::default() } else { interval },
        value: Timespec::from_span(left),
    })
}

/// timer_create(2): on the monotonic clock, whatever clock the program named.
pub fn create(call: &Call) -> isize {
    let [clock, event, id_at, ..] = call.args;
    match clocks::timebase(clock as i32, &clocks::snapshot()) {
        Err(_) | Ok(Timebase::Cpu) => return call.by_kernel(),
        Ok(_) => {}
    }
    // SAFETY: the kernel checks both pointers.
    let result = unsafe { sys!(nr::TIMER_CREATE, clk::MONOTONIC as u64, event, id_at) };
    if result < 0 {
        return result;
    }
    // SAFETY: the kernel has just written it.
    let id = unsafe { (id_at as *const u32).read_unaligned() };
    match registry().claim_timer(sys::getpid(), TimerKind::Posix, id) {
        Some(timer) => {
            begin_disarmed(timer, clock as u32);
            timer.set_signal(signal_of(event));
        }
        None => {
            // SAFETY: the timer made above.
            unsafe { sys!(nr::TIMER_DELETE, id) };
            return -errno::EAGAIN;
        }
    }
    0
}

/// The signal of a sigevent that the kernel has accepted: SIGALRM where there is none. A value, then the signal.
fn signal_of(event: u64) -> u32 {
    const SIGALRM: u32 = 14;
    match event {
        0 => SIGALRM,
        // SAFETY: the kernel has just read it.
        at => unsafe { ((at + 8) as *const u32).read_unaligned() },
    }
}

fn begin_disarmed(timer: &Timer, clock_id: u32) {
    timer.set_clock(clock_id & 0xffff);
    timer.set(Setting { deadline: Deadline::Never, interval: Span::ZERO }, clock().sequence());
}

/// timer_delete(2).
pub fn delete(call: &Call) -> isize {
    let result = call.by_kernel();
    if result == 0 {
        if let Some(timer) =
            registry().find_timer(sys::getpid(), TimerKind::Posix, call.args[0] as u32)
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
        unsafe { sys!(nr::CLOSE, result) };
    }
    let fd = match clock as i32 {
        clk::MONOTONIC => result,
        // SAFETY: makes a descriptor.
        _ => unsafe { sys!(nr::TIMERFD_CREATE, clk::MONOTONIC as u64, flags) },
    };
    if fd < 0 {
        return fd;
    }
    match registry().claim_timer(sys::getpid(), TimerKind::Fd, fd as u32) {
        Some(timer) => begin_disarmed(timer, clock as u32),
        None => {
            // SAFETY: the descriptor just made.
            unsafe { sys!(nr::CLOSE, fd) };
            return -errno::ENOMEM;
        }
    }
    fd
}

/// The registry's entry for the timer a call names: for a descriptor that came from the parent, a new one like its.
fn entry(call: &Call) -> Option<(&'static Timer, Kernel)> {
    let id = call.args[0] as u32;
    let kind = match call.nr {
        nr::TIMER_SETTIME | nr::TIMER_GETTIME => TimerKind::Posix,
        _ => TimerKind::Fd,
    };
    let pid = sys::getpid();
    if let Some(timer) = registry().find_timer(pid, kind, id) {
        return Some((timer, Kernel::of(timer, kind, id)));
    }
    if kind != TimerKind::Fd {
        return None;
    }
    // Another number of a descriptor that has an entry, here or in the parent.
    if let Some(same) = same_file(pid, pid, id) {
        return Some((same, Kernel::of(same, kind, id)));
    }
    const GETPPID: u32 = 110;
    // SAFETY: no arguments.
    let parent = unsafe { sys!(GETPPID) } as u32;
    let parents = same_file(parent, pid, id);
    let timer = registry().claim_timer(pid, kind, id)?;
    if let Some(parents) = parents {
        timer.set_clock(parents.clock());
        timer.set_armed(parents.armed());
        timer.set(parents.setting(), parents.seen());
        return Some((timer, Kernel::of(timer, kind, id)));
    }
    begin_disarmed(timer, clk::MONOTONIC as u32);
    Some((timer, Kernel::of(timer, kind, id)))
}

/// The timer of process `owner` whose descriptor is the same file as `fd` of this process, `own`.
fn same_file(owner: u32, own: u32, fd: u32) -> Option<&'static Timer> {
    const KCMP: u32 = 312;
    const KCMP_FILE: u64 = 0;
    registry().timers().find(|timer| match timer.owner() {
        Some((process, TimerKind::Fd, id)) if process == owner => {
            // SAFETY: numbers only.
            unsafe { sys!(KCMP, owner, own, KCMP_FILE, id, fd) == 0 }
        }
        _ => false,
    })
}

/// timer_settime(2) and timerfd_settime(2).
pub fn settime(call: &Call) -> isize {
    let [_, flags, new, old, ..] = call.args;
    let Some((timer, kernel)) = entry(call) else { return set_cpu_timer(call) };
    if new == 0 && kernel.kind == TimerKind::Posix {
        return -errno::EINVAL;
    }
    let new = match user::read_itimer(new) {
        Ok(new) => new,
        Err(error) => return error,
    };
    let base = match clocks::timebase((timer.clock() & 0xffff) as i32, &clocks::snapshot()) {
        Ok(base) => base,
        Err(error) => return error,
    };
    let Some(setting) = setting_of(&new, flags & ABSTIME != 0, base) else { return -errno::EINVAL };
    if kernel.kind == TimerKind::Fd && flags & !(ABSTIME | CANCEL_ON_SET) != 0 {
        return -errno::EINVAL;
    }
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
fn setting_of(new: &Itimerspec, absolute: bool, base: Timebase) -> Option<Setting> {
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
fn set_cpu_timer(call: &Call) -> isize {
    let mut args = call.args;
    let new = match user::read_itimer(args[2]) {
        Ok(new) => new,
        Err(error) => return error,
    };
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
        let result = super::socket::blocking(call);
        take_cancellation(fd).unwrap_or(result)
    })
}

fn take_cancellation(fd: u32) -> Option<isize> {
    let timer = registry().find_timer(sys::getpid(), TimerKind::Fd, fd)?;
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

/// setitimer(2).
pub fn setitimer(call: &Call) -> isize {
    let [which, new, old, ..] = call.args;
    let new = match new {
        0 => Itimerspec::default(),
        at => match user::read_itimer(at) {
            Ok(new) => new,
            Err(error) => return error,
        },
    };
    let valid = |tv: Timespec| tv.secs >= 0 && (0..1_000_000).contains(&tv.nanos);
    if !valid(new.value) || !valid(new.interval) {
        return -errno::EINVAL;
    }
    let new = from_micros(new);
    let result =
        if which == ITIMER_REAL { set_real_timer(&new) } else { set_cpu_interval(which, &new) };
    match result {
        Err(error) => error,
        Ok(before) if old != 0 => user::write_itimer(old, to_micros(before)).err().unwrap_or(0),
        Ok(_) => 0,
    }
}

fn from_micros(value: Itimerspec) -> Itimerspec {
    let nanos = |tv: Timespec| Timespec { secs: tv.secs, nanos: tv.nanos * MICRO };
    Itimerspec { interval: nanos(value.interval), value: nanos(value.value) }
}

fn to_micros(value: Itimerspec) -> Itimerspec {
    // A timer that is armed is never told as zero.
    let armed = value.value != Timespec::default();
    let mut left = Timespec { secs: value.value.secs, nanos: value.value.nanos / MICRO };
    if armed && left == Timespec::default() {
        left.nanos = 1;
    }
    let interval = Timespec { secs: value.interval.secs, nanos: value.interval.nanos / MICRO };
    Itimerspec { interval, value: left }
}

/// Sets ITIMER_REAL; gives what it was.
fn set_real_timer(new: &Itimerspec) -> Result<Itimerspec, isize> {
    let Some(timer) = registry().claim_timer(sys::getpid(), TimerKind::Interval, 0) else {
        return Err(-errno::ENOMEM);
    };
    let kernel = Kernel::of(timer, TimerKind::Interval, 0);
    let setting = setting_of(new, false, Timebase::Virtual(Span::ZERO)).ok_or(-errno::EINVAL)?;
    alone(timer, || {
        let before = told(timer, kernel)?;
        arm(timer, kernel, setting, 0);
        Ok(before)
    })
}

/// Sets ITIMER_VIRTUAL or ITIMER_PROF, which count CPU time.
fn set_cpu_interval(which: u64, new: &Itimerspec) -> Result<Itimerspec, isize> {
    let real = clock().policy().real_cpu_clocks;
    let scale = |ts: Timespec| {
        let span = ts.to_span().unwrap_or(Span::ZERO);
        in_micros(if real { span } else { clocks::real_span(span) })
    };
    let value = Itimerspec { interval: scale(new.interval), value: scale(new.value) };
    let mut before = Itimerspec::default();
    // SAFETY: reads `value`, writes `before`.
    let result = unsafe {
        sys!(nr::SETITIMER, which, &value as *const Itimerspec, &mut before as *mut Itimerspec)
    };
    if result < 0 {
        return Err(result);
    }
    Ok(told_of_cpu(from_micros(before)))
}

fn told_of_cpu(value: Itimerspec) -> Itimerspec {
    if clock().policy().real_cpu_clocks {
        return value;
    }
    let scale = |ts: Timespec| {
        Timespec::from_span(clocks::virtual_span(ts.to_span().unwrap_or(Span::ZERO)))
    };
    Itimerspec { interval: scale(value.interval), value: scale(value.value) }
}

/// getitimer(2).
pub fn getitimer(call: &Call) -> isize {
    let [which, at, ..] = call.args;
    let value = if which == ITIMER_REAL {
        match registry().find_timer(sys::getpid(), TimerKind::Interval, 0) {
            None => Ok(Itimerspec::default()),
            Some(timer) => alone(timer, || told(timer, Kernel::of(timer, TimerKind::Interval, 0))),
        }
    } else {
        let mut value = Itimerspec::default();
        // SAFETY: writes to `value`.
        match unsafe { sys!(nr::GETITIMER, which, &mut value as *mut Itimerspec) } {
            0 => Ok(told_of_cpu(from_micros(value))),
            error => Err(error),
        }
    };
    match value {
        Err(error) => error,
        Ok(value) => user::write_itimer(at, to_micros(value)).err().unwrap_or(0),
    }
}

/// alarm(2).
pub fn alarm(call: &Call) -> isize {
    let value = Timespec { secs: call.args[0] as u32 as i64, nanos: 0 };
    let new = Itimerspec { interval: Timespec::default(), value };
    match set_real_timer(&new) {
        Err(_) => 0,
        Ok(before) => {
            let left = before.value;
            // Rounded to the nearest second, but an armed timer is never told as zero.
            let up = left.nanos >= 500_000_000 || (left.secs == 0 && left.nanos > 0);
            (left.secs + up as i64) as isize
        }
    }
}
