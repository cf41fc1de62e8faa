//! Signals that the kernel forces on a thread: faults, and calls that a seccomp filter traps. A thread may stop with one on its way.
//! The kernel delivers it before it looks at the mask, if only one such signal is not blocked (`dequeue_synchronous_signal`). So it
//! would end whatever is executed in the stopped thread, by this crate and by CRIU alike: both use a breakpoint, and do not block it.

use crate::attach::StoppedProcess;
use crate::trace::{has_ended, TracedThread};
use crate::tracee::status_of;
use nix::unistd::Pid;
use std::io;
use std::time::{Duration, Instant};

/// The kernel's `SYNCHRONOUS_MASK`.
const FORCED: u64 = bit(libc::SIGSEGV)
    | bit(libc::SIGBUS)
    | bit(libc::SIGILL)
    | bit(libc::SIGTRAP)
    | bit(libc::SIGFPE)
    | bit(libc::SIGSYS);

/// How long a thread may take to stop, or to begin a handler.
const TIMEOUT: Duration = Duration::from_millis(500);

const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Whether a thread of process `pid` has a signal on its way that the kernel has forced on it.
pub fn has_forced_signal(pid: u32) -> bool {
    threads_of(pid).into_iter().any(is_forced)
}

fn is_forced(thread: TracedThread) -> bool {
    let mask = |field| u64::from_str_radix(&status_of(thread, field)?, 16).ok();
    let pending = mask("SigPnd:").unwrap_or(0) & FORCED;
    pending != 0 && pending & !mask("SigBlk:").unwrap_or(0) != 0
}

fn threads_of(pid: u32) -> Vec<TracedThread> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    let numbers = tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok());
    numbers.map(TracedThread).collect()
}

impl TracedThread {
    /// Lets the thread, which has stopped for an interrupt, take the signals that are forced on it. It stops again at the first
    /// instruction of a handler. No freezer may hold it. Returns whether it has stopped by `deadline`.
    pub fn take_forced_signals(self, deadline: Instant) -> io::Result<bool> {
        // Of each signal one is pending at most.
        for _ in 0..FORCED.count_ones() {
            if !is_forced(self) {
                break;
            }
            self.go_on(0)?;
            if !self.go_on_until_interrupted(|| self.wait_until(deadline))? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl StoppedProcess {
    /// Lets the threads take the signals that are forced on them, as [`TracedThread::take_forced_signals`].
    pub fn take_forced_signals(&self) -> io::Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        for thread in &self.threads {
            match thread.take_forced_signals(deadline) {
                Ok(true) => {}
                Ok(false) => return Err(io::Error::other("a thread does not come to its handler")),
                // Nothing handles the signal, or the process was killed.
                Err(error) if has_ended(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Processes of a frozen control group. They stay stopped when the group is thawed, until this value is dropped.
pub struct HeldProcesses(Vec<StoppedProcess>);

impl HeldProcesses {
    /// Holds all threads of the processes `pids`. Processes that have ended are left out.
    pub fn hold(pids: &[u32]) -> HeldProcesses {
        let stop = |pid: &u32| StoppedProcess::stop(Pid::from_raw(*pid as i32)).ok();
        HeldProcesses(pids.iter().filter_map(stop).collect())
    }

    /// Lets them take the signals that are forced on them, and nothing else. The control group is thawed.
    ///
    /// # Errors
    ///
    /// A thread does not take its signal.
    pub fn take_forced_signals(&self) -> io::Result<()> {
        self.0.iter().try_for_each(StoppedProcess::take_forced_signals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::borrowed_thread::BorrowedThread;
    use crate::trace::Stop;
    use nix::sys::mman::{mmap_anonymous, MapFlags, ProtFlags};
    use nix::sys::signal::{kill, Signal};
    use nix::sys::wait::waitpid;
    use nix::unistd::{fork, getpid, ForkResult};
    use std::num::NonZeroUsize;
    use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

    /// How many times the child has executed the instruction, and how many its handler has run.
    struct Counts {
        executed: AtomicU64,
        handled: AtomicU64,
    }

    static COUNTS: AtomicPtr<Counts> = AtomicPtr::new(std::ptr::null_mut());

    fn counts() -> &'static Counts {
        // SAFETY: the test has mapped them.
        unsafe { &*COUNTS.load(Ordering::Relaxed) }
    }

    extern "C" fn handle(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
        const UD2_LEN: i64 = 2;
        counts().handled.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the kernel gives a handler the context of its thread.
        let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
        context.uc_mcontext.gregs[libc::REG_RIP as usize] += UD2_LEN;
    }

    /// Executes an instruction that no processor has, again and again.
    fn fault_for_ever() -> ! {
        // SAFETY: plain numbers, and a handler that makes no calls.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handle as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGILL, &action, std::ptr::null_mut());
        }
        loop {
            counts().executed.fetch_add(1, Ordering::Relaxed);
            // SAFETY: the handler goes on behind it.
            unsafe { std::arch::asm!("ud2") };
        }
    }

    struct Faulting(Pid);

    impl Faulting {
        fn start() -> Faulting {
            let length = NonZeroUsize::new(size_of::<Counts>()).unwrap();
            let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
            // SAFETY: a new mapping.
            let memory = unsafe { mmap_anonymous(None, length, access, MapFlags::MAP_SHARED) };
            COUNTS.store(memory.unwrap().as_ptr().cast(), Ordering::Relaxed);
            // SAFETY: the child makes one system call, and no call of a library.
            match unsafe { fork() }.unwrap() {
                ForkResult::Parent { child } => Faulting(child),
                ForkResult::Child => fault_for_ever(),
            }
        }

        /// Stops it for an interrupt, with its fault on the way. A signal that is blocked when it would be delivered waits again.
        fn stop_with_a_signal_on_its_way(&self, deadline: Instant) -> TracedThread {
            let thread = TracedThread(self.0.as_raw());
            thread.seize().unwrap();
            assert_eq!(thread.wait_until(deadline).unwrap(), Some(Stop::Signal(libc::SIGILL)));
            let mask = thread.mask().unwrap();
            thread.set_mask(!0).unwrap();
            thread.interrupt().unwrap();
            thread.go_on(libc::SIGILL).unwrap();
            assert_eq!(thread.wait_until(deadline).unwrap(), Some(Stop::Other));
            thread.set_mask(mask).unwrap();
            thread
        }
    }

    impl Drop for Faulting {
        fn drop(&mut self) {
            let _ = kill(self.0, Signal::SIGKILL);
            let _ = waitpid(self.0, None);
        }
    }

    #[test]
    fn calls_in_a_thread_that_has_stopped_with_a_forced_signal() {
        let deadline = Instant::now() + Duration::from_secs(20);
        let child = Faulting::start();
        let thread = child.stop_with_a_signal_on_its_way(deadline);
        assert!(has_forced_signal(child.0.as_raw() as u32));
        assert!(thread.take_forced_signals(deadline).unwrap());
        assert!(!has_forced_signal(child.0.as_raw() as u32));
        let parent = BorrowedThread::new(thread).unwrap().call(libc::SYS_getppid, [0; 6]).unwrap();
        assert_eq!(parent, i64::from(getpid().as_raw()));
        thread.detach().unwrap();
        let before = counts().handled.load(Ordering::Relaxed);
        while counts().handled.load(Ordering::Relaxed) < before + 1000 {
            assert!(Instant::now() < deadline);
            std::thread::yield_now();
        }
        let handled = counts().handled.load(Ordering::Relaxed);
        assert!(counts().executed.load(Ordering::Relaxed) >= handled);
        let lost =
            counts().executed.load(Ordering::Relaxed) - counts().handled.load(Ordering::Relaxed);
        assert!(lost <= 1, "{lost} signals are lost");
    }
}
