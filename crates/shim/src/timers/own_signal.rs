//! The pending signal of a POSIX timer. It alone tells how many expiries it stands for: the program may have taken others since the
//! timer was set.
//!
//! CRIU queues a timer's signal as one that anybody has sent: that one tells of one expiry, and setting the timer anew does not drop it.

use crate::sys::{self, sys, SigSet, Sysno, Timespec};

/// struct siginfo: the number and errno, the code, the timer's id and its overruns, the rest.
type Info = [u64; 16];

/// si_code of a timer's signal.
const SI_TIMER: i32 = -2;

/// Signals of other senders with the same number that are looked through.
const MAX_OTHERS: usize = 8;

/// Takes the signal of timer `id` from the queue. Those of other senders may change their order. Returns the number of expiries that it
/// tells; 0 where there is none.
pub fn take(signal: u32, id: u32) -> i64 {
    let mut others = [Info::default(); MAX_OTHERS];
    let (mut count, mut expiries) = (0, 0);
    while count < MAX_OTHERS {
        match next(signal) {
            Some(info) if info[1] as i32 == SI_TIMER && info[2] as u32 == id => {
                expiries = 1 + (info[2] >> 32) as i64;
                break;
            }
            Some(info) => others[count] = info,
            None => break,
        }
        count += 1;
    }
    for info in &others[..count] {
        // SAFETY: reads `info`.
        let _ = unsafe { sys!(Sysno::rt_sigqueueinfo, sys::getpid(), signal, info.as_ptr()) };
    }
    expiries
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
