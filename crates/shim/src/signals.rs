//! The program's view of its signals, where ours differ.
//!
//! SIGSYS and the clock-change signal must never be blocked or lose their handlers, or the next trapped call would end the
//! program. So the filter traps calls that may block signals, and the shim takes those two out. It remembers the program's own
//! wishes for the two, returns them when the program asks, and follows them when another process sends one of the two.

use crate::call::{Arguments, Call};
use crate::handlers;
use crate::layout::{data, Disposition};
use crate::process;
use crate::sys::{
    self, request, sig, sys, Errno, Fd, SaFlags, SigHow, SigSet, Sigaction, Siginfo, SysResult,
    Sysno, Ucontext, UserPtr,
};
use crate::trap_mask;
use crate::user::{self, Access};
use crate::wait::{self, Masking};
use core::sync::atomic::Ordering::Relaxed;

impl Disposition {
    /// Remembers `action`.
    pub fn store(&self, action: &Sigaction) {
        self.handler.store(action.handler, Relaxed);
        self.flags.store(action.flags.bits(), Relaxed);
        self.restorer.store(action.restorer, Relaxed);
        self.mask.store(action.mask.bits(), Relaxed);
    }

    /// Returns the action that was remembered.
    pub fn load(&self) -> Sigaction {
        Sigaction {
            handler: self.handler.load(Relaxed),
            flags: SaFlags::new(self.flags.load(Relaxed)),
            restorer: self.restorer.load(Relaxed),
            mask: SigSet::new(self.mask.load(Relaxed)),
        }
    }
}

/// The program's own disposition of a signal that has a handler of ours.
fn virtual_disposition(signal: u32) -> Option<&'static Disposition> {
    let data = data();
    match signal {
        sig::SIGSYS => Some(&data.sigsys),
        sig::CLOCK_CHANGE => Some(&data.change_signal),
        sig::SIGSEGV if data.tsc_hz.load(Relaxed) != 0 => Some(&data.sigsegv),
        _ => None,
    }
}

/// rt_sigprocmask(2): changes the mask that comes into force at the return. Ours stay open. The shim
/// remembers that the program has blocked them, and returns it when the program asks.
pub fn rt_sigprocmask(
    call: &mut Call,
    how: SigHow,
    new: Option<UserPtr<SigSet>>,
    old: Option<UserPtr<SigSet>>,
    size: usize,
) -> SysResult {
    const NEVER_BLOCKED: SigSet = SigSet::of(9).with(SigSet::of(19));
    if size != SigSet::LEN {
        return Err(Errno::EINVAL);
    }
    let thread = sys::gettid();
    let before = call.mask().with(masks::blocked(thread));
    if let Some(new) = new {
        let set = new.read()?.without(NEVER_BLOCKED);
        let after = match how {
            SigHow::SIG_BLOCK => before.with(set),
            SigHow::SIG_UNBLOCK => before.without(set),
            SigHow::SIG_SETMASK => set,
            _ => return Err(Errno::EINVAL),
        };
        call.context.mask = after.without(sig::OURS);
        masks::set_blocked(thread, after.among(sig::OURS));
    }
    if let Some(old) = old {
        old.write(before)?;
    }
    Ok(0)
}

/// Which of our signals this thread believes to have blocked.
pub fn believed_blocked() -> SigSet {
    masks::blocked(sys::gettid())
}

/// Remembers that this thread, before the shim came, had these of our signals blocked.
pub fn believe_blocked(signals: SigSet) {
    masks::set_blocked(sys::gettid(), signals.among(sig::OURS));
}

/// Whether the program ignores a signal that has a handler of ours.
pub fn ignores(signal: u32) -> bool {
    let ignores = |own: &Disposition| own.handler.load(Relaxed) == Sigaction::SIG_IGN;
    virtual_disposition(signal).is_some_and(ignores)
}

/// Which of our signals a thread believes to have blocked.
mod masks {
    use crate::layout::{data, BlockedSignals};
    use crate::sys::{has_ended, sig, SigSet};
    use core::sync::atomic::Ordering::Relaxed;

    const SIGSYS: SigSet = SigSet::of(sig::SIGSYS);
    const CLOCK_CHANGE: SigSet = SigSet::of(sig::CLOCK_CHANGE);
    /// Bits of an entry below the thread's number.
    const SIGNALS: u32 = 2;

    /// All places, in the order in which a thread looks for one.
    fn places(thread: u32) -> impl Iterator<Item = &'static BlockedSignals> {
        let table = &data().blocked;
        (0..table.len()).map(move |i| &table[(thread as usize + i) % table.len()])
    }

    /// The place that a thread has.
    fn own(thread: u32) -> Option<&'static BlockedSignals> {
        let reach = data().blocked_reach.load(Relaxed) as usize;
        places(thread).take(reach).find(|place| place.load(Relaxed) >> SIGNALS == thread)
    }

    pub fn blocked(thread: u32) -> SigSet {
        let bits = own(thread).map_or(0, |place| place.load(Relaxed));
        let signal = |bit: u32, signal| if bits & bit != 0 { signal } else { SigSet::EMPTY };
        signal(1, SIGSYS).with(signal(2, CLOCK_CHANGE))
    }

    /// Where there is no room left, another thread's belief is forgotten.
    pub fn set_blocked(thread: u32, signals: SigSet) {
        let own = own(thread);
        if signals == SigSet::EMPTY {
            if let Some(place) = own {
                place.store(0, Relaxed);
            }
            return;
        }
        let bits =
            u32::from(signals.has(sig::SIGSYS)) | u32::from(signals.has(sig::CLOCK_CHANGE)) << 1;
        let entry = thread << SIGNALS | bits;
        if let Some(place) = own {
            return place.store(entry, Relaxed);
        }
        // Two threads may find the same place: it goes to the first. This thread alone looks for its entry, so it alone has to see how
        // far away that is.
        let take = |number: usize, place: &BlockedSignals, of: u32| {
            data().blocked_reach.fetch_max(number as u32 + 1, Relaxed);
            place.compare_exchange(of, entry, Relaxed, Relaxed).is_ok()
        };
        let free = |place: &BlockedSignals| place.load(Relaxed) == 0;
        let mut all = places(thread).enumerate();
        let taken = all.any(|(number, place)| free(place) && take(number, place, 0))
            || places(thread).enumerate().any(|(number, place)| {
                let other = place.load(Relaxed);
                has_ended(other >> SIGNALS) && take(number, place, other)
            });
        if !taken {
            data().blocked_reach.fetch_max(1, Relaxed);
            places(thread).take(1).for_each(|place| place.store(entry, Relaxed));
        }
    }
}

/// rt_sigaction(2). The shim remembers the actions of our signals, and returns them when the program asks. It takes our signals
/// out of the masks of the others.
pub fn rt_sigaction(
    call: &Call,
    signal: u32,
    new: Option<UserPtr<Sigaction>>,
    old: Option<UserPtr<Sigaction>>,
    size: usize,
) -> SysResult {
    if size != SigSet::LEN {
        return Err(Errno::EINVAL);
    }
    let action = new.map(Access::read).transpose()?;
    let Some(disposition) = virtual_disposition(signal) else {
        return set_action(call, signal, action);
    };
    let before = disposition.load();
    // A child made by vfork shares this memory and clears every signal before it execs: not its parent's.
    if let Some(action) = action.filter(|_| process::owns_memory()) {
        disposition.store(&action);
    }
    if let Some(old) = old {
        old.write(before)?;
    }
    Ok(0)
}

/// Sets the action of a signal that has no handler of ours.
fn set_action(call: &Call, signal: u32, action: Option<Sigaction>) -> SysResult {
    let action = action.map(|action| Sigaction { mask: action.mask.without(sig::OURS), ..action });
    let new = action.as_ref().map(UserPtr::to);
    let ignores = action.is_some_and(|action| trap_mask::is_ignored(signal, &action));
    // posix_spawn's child makes sixty of these calls, in its parent's memory.
    let changes = action.is_some() && trap_mask::changes(signal, ignores) && process::owns_memory();
    if changes && !ignores {
        handlers::mask(signal);
    }
    // SAFETY: our copy of the new action; the old one goes where the program said.
    let result = unsafe { call.by_kernel_with(1, new) };
    if changes && ignores && result.is_ok() {
        handlers::unmask(signal);
    }
    result
}

/// rt_sigaction(2) without a trap: where it concerns neither our signals nor what the program ignores. `None` where it does.
pub fn set_plain_action(call: &Arguments) -> Option<SysResult> {
    let (signal, new, size): (u32, Option<UserPtr<Sigaction>>, usize) =
        (call.arg(0), call.arg(1), call.arg(3));
    if size != SigSet::LEN || virtual_disposition(signal).is_some() {
        return None;
    }
    let mut action = user::read_nearby(new?).ok()?;
    if trap_mask::changes(signal, trap_mask::is_ignored(signal, &action)) {
        return None;
    }
    action.mask = action.mask.without(sig::OURS);
    // SAFETY: our copy of the new action; the old one goes where the program said.
    Some(unsafe { call.by_kernel_with(1, UserPtr::to(&action)) })
}

/// rt_sigprocmask(2) without a trap: where it does not concern our signals, and this thread does not believe to have blocked them.
/// `None` where it does.
pub fn set_plain_mask(call: &Arguments) -> Option<SysResult> {
    let (new, size): (Option<UserPtr<SigSet>>, usize) = (call.arg(1), call.arg(3));
    if size != SigSet::LEN {
        return None;
    }
    let set = match new {
        Some(new) => user::read_nearby(new).ok()?,
        None => SigSet::EMPTY,
    };
    if set.among(sig::OURS) != SigSet::EMPTY || believed_blocked() != SigSet::EMPTY {
        return None;
    }
    let set = new.map(|_| UserPtr::to(&set));
    // SAFETY: our copy of the set; the mask before goes where the program said.
    Some(unsafe { call.by_kernel_with(1, set) })
}

/// rt_sigsuspend(2): with ours left open.
pub fn rt_sigsuspend(call: &Call, set: UserPtr<SigSet>, size: usize) -> SysResult {
    if size != SigSet::LEN {
        return Err(Errno::EINVAL);
    }
    let mask = set.read()?.without(sig::OURS);
    let request = request!(Sysno::rt_sigsuspend, &raw const mask, size);
    wait::wait_untimed(call, &request, Masking::ByCall)
}

/// signalfd(2): ours are not the program's to read.
pub fn signalfd(call: &Call, _fd: Fd, set: UserPtr<SigSet>, size: usize) -> SysResult {
    match set.read() {
        Ok(set) if size == SigSet::LEN => {
            let set = set.without(sig::OURS);
            // SAFETY: our copy of the set.
            unsafe { call.by_kernel_with(1, UserPtr::to(&set)) }
        }
        _ => call.by_kernel(),
    }
}

/// A mask that a waiting call puts in force, read from the program and cleaned of ours; the program's own
/// where it gives none.
pub fn waiting_mask(call: &Call, mask: Option<UserPtr<SigSet>>, size: usize) -> SysResult<SigSet> {
    let Some(mask) = mask else { return Ok(call.mask()) };
    if size != SigSet::LEN {
        return Err(Errno::EINVAL);
    }
    Ok(mask.read()?.without(sig::OURS))
}

/// A mask and its length in the program's memory, as pselect6(2) and io_pgetevents(2) take them.
pub type MaskAndSize = [u64; 2];

/// The same as [`waiting_mask`] of a mask whose address and length the program gives in memory.
pub fn waiting_mask_of(call: &Call, [mask, size]: MaskAndSize) -> SysResult<SigSet> {
    waiting_mask(call, (mask != 0).then_some(UserPtr::new(mask)), size as usize)
}

/// Somebody else sent a signal that has a handler of ours: do with it what the program wants done.
///
/// # Safety
/// The arguments of a signal handler.
pub unsafe fn forward(signal: u32, info: *mut Siginfo, context: *mut Ucontext) {
    let Some(disposition) = virtual_disposition(signal) else { return };
    let action = disposition.load();
    match action.handler {
        Sigaction::SIG_IGN => {}
        Sigaction::SIG_DFL => {
            sys::set_action(signal, &Sigaction::default());
            // SAFETY: a signal to this very thread; it ends the process at the latest when the handler returns.
            let _ = unsafe { sys!(Sysno::tgkill, sys::getpid(), sys::gettid(), signal) };
        }
        handler => {
            // SAFETY: the program's own handler, called as the kernel would have called it.
            unsafe {
                let own = action.mask.with(SigSet::of(signal));
                sys::set_mask((*context).mask.with(own).without(sig::OURS));
                core::mem::transmute::<usize, extern "C" fn(i32, *mut Siginfo, *mut Ucontext)>(
                    handler,
                )(signal as i32, info, context);
                sys::set_mask((*context).mask.with(trap_mask::get()));
            }
        }
    }
}
