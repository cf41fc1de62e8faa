//! Threads that have been signalled and have not followed yet.
//!
//! A clock that changes oftener than a thread comes to run, as in short rounds, would queue ever more clock-change signals for that
//! thread. The kernel hands a thread's own signals over before those of its process. So such a thread would do nothing but look at
//! the clock.

use std::collections::HashMap;
use std::fs;

use lorentz_clock::signal::CLOCK_CHANGE;

use crate::processes::Thread;

/// The state of the clock that each thread had followed when it was last signalled.
#[derive(Default)]
pub(crate) struct Signalled {
    /// For a thread and the address of its wait or timer: the state of the clock that these were computed from.
    observed: HashMap<(Thread, usize), u32>,
}

impl Signalled {
    /// Whether `thread` needs a signal for its wait or timer `what`, which was computed from state `observed` of the clock. It does not
    /// while an earlier one waits for it: that one makes it look at the clock as it is now.
    pub(crate) fn needs_signal<T>(&mut self, thread: Thread, what: &T, observed: u32) -> bool {
        const MAX_THREADS: usize = 4_096;
        if self.observed.len() >= MAX_THREADS {
            // Ended threads are among them. A thread that is forgotten gets one signal more.
            self.observed.clear();
        }
        let place = (thread, std::ptr::from_ref(what).addr());
        let has_not_followed = self.observed.insert(place, observed) == Some(observed);
        !(has_not_followed && is_pending(thread))
    }
}

/// Whether a clock-change signal waits for the thread.
fn is_pending(thread: Thread) -> bool {
    let Thread { pid, tid } = thread;
    let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).unwrap_or_default();
    let pending = status.lines().find_map(|line| line.strip_prefix("SigPnd:"));
    let mask = pending.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 << (CLOCK_CHANGE - 1) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::send;
    use lorentz_clock::signal::NO_CALL;

    /// Runs `test` in a thread that blocks the signal.
    fn with_blocked_signal(test: impl FnOnce(Thread) + Send) {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: a local set of signals; the mask is this thread's.
                let tid = unsafe {
                    let mut set = std::mem::zeroed();
                    libc::sigemptyset(&mut set);
                    libc::sigaddset(&mut set, CLOCK_CHANGE as i32);
                    libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
                    libc::gettid() as u32
                };
                test(Thread { pid: std::process::id(), tid });
            });
        });
    }

    #[test]
    fn a_thread_that_has_not_followed_is_not_signalled_again() {
        with_blocked_signal(|thread| {
            let (mut signalled, wait) = (Signalled::default(), 0);
            assert!(signalled.needs_signal(thread, &wait, 7));
            send(thread.pid, thread.tid, NO_CALL).unwrap();
            assert!(!signalled.needs_signal(thread, &wait, 7));
            assert!(!signalled.needs_signal(thread, &wait, 7));
            // It has followed that change, so the signal that waits is for another.
            assert!(signalled.needs_signal(thread, &wait, 8));
        });
    }

    #[test]
    fn a_lost_signal_is_sent_again() {
        with_blocked_signal(|thread| {
            let (mut signalled, wait) = (Signalled::default(), 0);
            assert!(signalled.needs_signal(thread, &wait, 7));
            assert!(signalled.needs_signal(thread, &wait, 7));
        });
    }
}
