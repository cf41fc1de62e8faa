//! Pending signals of timers in a restored process.
//!
//! CRIU queues them again as signals that anybody has sent: they do not tell how many expiries they stand for, and setting the timer
//! anew does not drop them.

use crate::sys::{self, sys, SigSet, Sysno, Timespec};

/// struct siginfo: the number and errno, the code, the timer's id and its overruns, the rest.
type Info = [u64; 16];

/// si_code of a timer's signal.
const SI_TIMER: i32 = -2;

/// Signals of other senders with the same number that are looked through.
const MAX_OTHERS: usize = 8;

/// Takes the signal of timer `id` from the queue. Those of other senders come after it then.
pub fn take(signal: u32, id: u32) {
    let mut others = [Info::default(); MAX_OTHERS];
    let mut count = 0;
    while count < MAX_OTHERS {
        match next(signal) {
            Some(info) if info[1] as i32 == SI_TIMER && info[2] as u32 == id => break,
            Some(info) => others[count] = info,
            None => break,
        }
        count += 1;
    }
    for info in &others[..count] {
        // SAFETY: reads `info`.
        let _ = unsafe { sys!(Sysno::rt_sigqueueinfo, sys::getpid(), signal, info.as_ptr()) };
    }
}

/// Takes a pending signal.
fn next(signal: u32) -> Option<Info> {
    let (set, at_once) = (SigSet::of(signal), Timespec::default());
    let mut info = Info::default();
    // SAFETY: reads `set` and `at_once`, writes `info`.
    let taken = unsafe {
        sys!(
            Sysno::rt_sigtimedwait,
            &raw const set,
            info.as_mut_ptr(),
            &raw const at_once,
            SigSet::LEN
        )
    };
    taken.is_ok().then_some(info)
}
