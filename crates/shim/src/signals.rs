//! The program's view of its signals, where ours differ.
//!
//! SIGSYS and the kick signal must never be blocked or lose their handlers, or the next trapped call would end the
//! program. So calls that may block signals are trapped and those two taken out; what the program does with
//! the two themselves is remembered, told back, and followed when somebody else sends them.

use crate::layout::{data, fork_data, Disposition};
use crate::sys::{self, errno, sig, sys, Itimerspec, Request, Sigaction, Siginfo, Sysno, Ucontext};
use crate::trap::Call;
use crate::trap_mask;
use crate::user;
use crate::wait::{self, Masking};
use core::sync::atomic::Ordering::Relaxed;

const SIGSET_LEN: u64 = 8;

impl Disposition {
    /// Remembers `action`.
    pub fn store(&self, action: &Sigaction) {
        self.handler.store(action.handler, Relaxed);
        self.flags.store(action.flags, Relaxed);
        self.restorer.store(action.restorer, Relaxed);
        self.mask.store(action.mask, Relaxed);
    }

    /// What is remembered.
    pub fn load(&self) -> Sigaction {
        Sigaction {
            handler: self.handler.load(Relaxed),
            flags: self.flags.load(Relaxed),
            restorer: self.restorer.load(Relaxed),
            mask: self.mask.load(Relaxed),
        }
    }
}

/// The program's own disposition of a signal that has a handler of ours.
fn virtual_disposition(signal: u64) -> Option<&'static Disposition> {
    let data = data();
    match signal as u32 {
        sig::SIGSYS => Some(&data.sigsys),
        sig::KICK => Some(&data.kick),
        sig::SIGSEGV if data.tsc_hz.load(Relaxed) != 0 => Some(&data.sigsegv),
        _ => None,
    }
}

/// rt_sigprocmask(2): changes the mask that comes into force at the return. Ours stay open; that the program has blocked
/// them is remembered and told back.
pub fn rt_sigprocmask(call: &mut Call) -> isize {
    const BLOCK: i32 = 0;
    const UNBLOCK: i32 = 1;
    const SETMASK: i32 = 2;
    const NEVER_BLOCKED: u64 = 1 << (9 - 1) | 1 << (19 - 1);
    let [how, new, old, size, ..] = call.args;
    if size != SIGSET_LEN {
        return -errno::EINVAL;
    }
    let thread = sys::gettid();
    let before = call.context.mask | masks::blocked(thread);
    if new != 0 {
        let set = match user::read_sigset(new) {
            Ok(set) => set & !NEVER_BLOCKED,
            Err(error) => return error,
        };
        let after = match how as i32 {
            BLOCK => before | set,
            UNBLOCK => before & !set,
            SETMASK => set,
            _ => return -errno::EINVAL,
        };
        call.context.mask = after & !sig::OURS;
        masks::set_blocked(thread, after & sig::OURS);
    }
    if old != 0 {
        if let Err(error) = user::write_u64(old, before) {
            return error;
        }
    }
    0
}

/// Which of our signals this thread believes to have blocked.
pub fn believed_blocked() -> u64 {
    masks::blocked(sys::gettid())
}

/// Remembers that this thread, before the shim came, had these of our signals blocked.
pub fn believe_blocked(signals: u64) {
    masks::set_blocked(sys::gettid(), signals & sig::OURS);
}

/// Whether the program ignores a signal that has a handler of ours.
pub fn ignores(signal: u32) -> bool {
    const IGNORE: usize = 1;
    virtual_disposition(signal as u64).is_some_and(|own| own.handler.load(Relaxed) == IGNORE)
}

/// Which of our signals a thread believes to have blocked.
mod masks {
    use crate::layout::{data, BlockedSignals};
    use crate::sys::{errno, sig, sys, Sysno};
    use core::sync::atomic::Ordering::Relaxed;

    const SIGSYS: u64 = 1 << (sig::SIGSYS - 1);
    const KICK: u64 = 1 << (sig::KICK - 1);
    /// Bits of an entry below the thread's number.
    const SIGNALS: u32 = 2;

    fn places(thread: u32) -> impl Iterator<Item = &'static BlockedSignals> {
        let table = &data().blocked;
        (0..32).map(move |i| &table[(thread as usize + i) % table.len()])
    }

    fn is_of(place: &BlockedSignals, thread: u32) -> bool {
        place.load(Relaxed) >> SIGNALS == thread
    }

    pub fn blocked(thread: u32) -> u64 {
        let own = places(thread).find(|place| is_of(place, thread));
        let bits = own.map_or(0, |place| place.load(Relaxed));
        (if bits & 1 != 0 { SIGSYS } else { 0 }) | (if bits & 2 != 0 { KICK } else { 0 })
    }

    /// Where there is no room left, another thread's belief is forgotten.
    pub fn set_blocked(thread: u32, signals: u64) {
        let own = places(thread).find(|place| is_of(place, thread));
        if signals == 0 {
            if let Some(place) = own {
                place.store(0, Relaxed);
            }
            return;
        }
        let bits = u32::from(signals & SIGSYS != 0) | u32::from(signals & KICK != 0) << 1;
        let entry = thread << SIGNALS | bits;
        if let Some(place) = own {
            return place.store(entry, Relaxed);
        }
        // Two threads may find the same place: it goes to the first.
        let take = |place: &&BlockedSignals, of: u32| {
            place.compare_exchange(of, entry, Relaxed, Relaxed).is_ok()
        };
        let taken = places(thread).any(|place| take(&place, 0))
            || places(thread).any(|place| {
                let other = place.load(Relaxed);
                has_ended(other >> SIGNALS) && take(&place, other)
            });
        if !taken {
            places(thread).take(1).for_each(|place| place.store(entry, Relaxed));
        }
    }

    fn has_ended(thread: u32) -> bool {
        // Not by its process: a child of vfork shares the table, and asks about threads of its parent.
        // SAFETY: numbers only; no signal is sent.
        unsafe { sys!(Sysno::tkill, thread, 0u64) == -errno::ESRCH }
    }
}

/// rt_sigaction(2): what concerns ours is remembered and told back, the others' masks are cleaned of ours.
pub fn rt_sigaction(call: &mut Call) -> isize {
    let [signal, new, old, size, ..] = call.args;
    if size != SIGSET_LEN {
        return -errno::EINVAL;
    }
    let disposition = virtual_disposition(signal);
    let action = match new {
        0 => None,
        _ => match user::read_itimer(new) {
            // SAFETY: both are four words.
            Ok(words) => Some(unsafe { core::mem::transmute::<Itimerspec, Sigaction>(words) }),
            Err(error) => return error,
        },
    };
    let Some(disposition) = disposition else {
        let action = action.map(|action| Sigaction { mask: action.mask & !sig::OURS, ..action });
        let new = action.as_ref().map_or(core::ptr::null(), |action| action as *const Sigaction);
        let signal = signal as u32;
        let ignores = action.is_some_and(|action| trap_mask::is_ignored(signal, &action));
        // posix_spawn's child makes sixty of these calls, in its parent's memory.
        let changes = action.is_some() && trap_mask::changes(signal, ignores) && owns_memory();
        if changes && !ignores {
            trap_mask::add(signal);
        }
        // SAFETY: our copy of the new action; the old one goes where the program said.
        let result = unsafe { sys!(Sysno::rt_sigaction, signal, new, old, size) };
        if changes && ignores && result == 0 {
            trap_mask::remove(signal);
        }
        return result;
    };
    let before = disposition.load();
    // A child made by vfork shares this memory and clears every signal before it execs: not its parent's.
    if let Some(action) = action.filter(|_| owns_memory()) {
        disposition.store(&action);
    }
    if old == 0 {
        return 0;
    }
    // SAFETY: both are four words.
    let words = unsafe { core::mem::transmute::<Sigaction, Itimerspec>(before) };
    user::write_itimer(old, words).err().unwrap_or(0)
}

/// Whether this process is the one whose memory this is, not a child of its vfork.
fn owns_memory() -> bool {
    let owner = &fork_data().process;
    let pid = sys::getpid();
    match owner.load(Relaxed) {
        0 => {
            owner.store(pid, Relaxed);
            true
        }
        known => known == pid,
    }
}

/// rt_sigsuspend(2): with ours left open.
pub fn rt_sigsuspend(call: &mut Call) -> isize {
    let [set, size, ..] = call.args;
    if size != SIGSET_LEN {
        return -errno::EINVAL;
    }
    let mask = match user::read_sigset(set) {
        Ok(mask) => mask & !sig::OURS,
        Err(error) => return error,
    };
    let request =
        Request::new(Sysno::rt_sigsuspend, [&mask as *const u64 as u64, size, 0, 0, 0, 0]);
    wait::wait_untimed(call, &request, Masking::ByCall)
}

/// signalfd(2): ours are not the program's to read.
pub fn signalfd(call: &Call) -> isize {
    let mut args = call.args;
    match user::read_sigset(args[1]) {
        Ok(set) if args[2] == SIGSET_LEN => {
            let set = set & !sig::OURS;
            args[1] = &set as *const u64 as u64;
            // SAFETY: the program's own call, with our copy of the set.
            unsafe { sys::syscall(call.nr, args) }
        }
        _ => call.by_kernel(),
    }
}

/// A mask that a waiting call puts in force, read from the program and cleaned of ours; the program's own
/// where it gives none.
pub fn waiting_mask(call: &Call, at: u64, size: u64) -> Result<u64, isize> {
    if at == 0 {
        return Ok(call.mask());
    }
    if size != SIGSET_LEN {
        return Err(-errno::EINVAL);
    }
    Ok(user::read_sigset(at)? & !sig::OURS)
}

/// Somebody else sent a signal that has a handler of ours: do with it what the program wants done.
///
/// # Safety
/// The arguments of a signal handler.
pub unsafe fn forward(signal: u32, info: *mut Siginfo, context: *mut Ucontext) {
    const DEFAULT: usize = 0;
    const IGNORE: usize = 1;
    let Some(disposition) = virtual_disposition(signal as u64) else { return };
    let action = disposition.load();
    match action.handler {
        IGNORE => {}
        DEFAULT => {
            sys::sigaction(signal, Some(&Sigaction::default()), None);
            // SAFETY: a signal to this very thread; it ends the process at the latest when the handler returns.
            unsafe { sys!(Sysno::tgkill, sys::getpid(), sys::gettid(), signal) };
        }
        handler => {
            // SAFETY: the program's own handler, called as the kernel would have called it.
            unsafe {
                sys::set_mask(((*context).mask | action.mask | 1 << (signal - 1)) & !sig::OURS);
                core::mem::transmute::<usize, extern "C" fn(i32, *mut Siginfo, *mut Ucontext)>(
                    handler,
                )(signal as i32, info, context);
                sys::set_mask((*context).mask | trap_mask::get());
            }
        }
    }
}
