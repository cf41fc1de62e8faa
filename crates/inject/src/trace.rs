//! The part of ptrace that this crate uses.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// A thread that this thread has seized or is about to seize, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TracedThread(pub i32);

/// The reason of a stop of a thread that was seized by [`TracedThread::seize_for_calls`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// The entry or the exit of a system call.
    Call,
    /// The kernel is about to deliver this signal.
    Signal(i32),
    /// A new program in the middle of its exec: the kernel has yet to write the result of the call.
    Exec,
    /// An interrupt, or a stop of the whole process.
    Other,
}

impl Stop {
    /// The reason in a status of waitpid(2), for a stopped thread.
    pub fn of(status: i32) -> Stop {
        const SYSCALL_BIT: i32 = 0x80;
        match (status >> 16, libc::WSTOPSIG(status)) {
            (0, signal) if signal == libc::SIGTRAP | SYSCALL_BIT => Stop::Call,
            (0, signal) => Stop::Signal(signal),
            (libc::PTRACE_EVENT_EXEC, _) => Stop::Exec,
            _ => Stop::Other,
        }
    }
}

fn ptrace(
    request: libc::c_uint,
    thread: TracedThread,
    address: usize,
    data: usize,
) -> io::Result<i64> {
    // SAFETY: the requests used here read and write only memory that their callers own.
    match unsafe { libc::ptrace(request, thread.0, address, data) } {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

impl TracedThread {
    /// Seizes the thread without stopping it. The thread will stop at an exec.
    pub fn seize(self) -> io::Result<()> {
        ptrace(libc::PTRACE_SEIZE, self, 0, libc::PTRACE_O_TRACEEXEC as usize).map(|_| ())
    }

    /// Seizes the thread without stopping it, for [`TracedThread::go_on_to_call`]. The thread will stop at an exec.
    pub fn seize_for_calls(self) -> io::Result<()> {
        let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACEEXEC;
        ptrace(libc::PTRACE_SEIZE, self, 0, options as usize).map(|_| ())
    }

    /// Makes the thread stop the next time that it would return to its program.
    pub fn interrupt(self) -> io::Result<()> {
        ptrace(libc::PTRACE_INTERRUPT, self, 0, 0).map(|_| ())
    }

    /// Lets the thread run on. Delivers `signal` unless it is 0.
    pub fn go_on(self, signal: i32) -> io::Result<()> {
        ptrace(libc::PTRACE_CONT, self, 0, signal as usize).map(|_| ())
    }

    /// Lets the thread run on until the entry or the exit of a system call. Delivers `signal` unless it is 0.
    pub fn go_on_to_call(self, signal: i32) -> io::Result<()> {
        ptrace(libc::PTRACE_SYSCALL, self, 0, signal as usize).map(|_| ())
    }

    /// Lets the thread run on and stops tracing it.
    pub fn detach(self) -> io::Result<()> {
        self.detach_with(0)
    }

    /// Lets the thread run on and stops tracing it. Delivers `signal` unless it is 0.
    pub fn detach_with(self, signal: i32) -> io::Result<()> {
        ptrace(libc::PTRACE_DETACH, self, 0, signal as usize).map(|_| ())
    }

    /// Queues `signal` for the thread, which is one of process `pid`, as sigqueue(3) does with `value`.
    pub fn queue_signal(self, pid: i32, signal: i32, value: u64) -> io::Result<()> {
        /// Offset of si_value in siginfo_t, bytes.
        const VALUE: usize = 24;
        // SAFETY: the structure consists of plain numbers.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        info.si_signo = signal;
        info.si_code = libc::SI_QUEUE;
        // SAFETY: the value lies within the structure, aligned; the kernel reads a whole siginfo.
        let result = unsafe {
            (&raw mut info).byte_add(VALUE).cast::<u64>().write(value);
            libc::syscall(libc::SYS_rt_tgsigqueueinfo, pid, self.0, signal, &raw const info)
        };
        match result {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Returns the registers of a stopped thread.
    pub fn registers(self) -> io::Result<libc::user_regs_struct> {
        // SAFETY: the structure consists of plain numbers; the kernel fills it.
        let mut regs: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        ptrace(libc::PTRACE_GETREGS, self, 0, &raw mut regs as usize)?;
        Ok(regs)
    }

    /// Replaces the registers of a stopped thread.
    pub fn set_registers(self, regs: &libc::user_regs_struct) -> io::Result<()> {
        ptrace(libc::PTRACE_SETREGS, self, 0, regs as *const _ as usize).map(|_| ())
    }

    /// Returns the floating-point and vector registers of a stopped thread, in the processor's own format.
    pub fn vector_registers(self) -> io::Result<Vec<u8>> {
        /// Upper bound of their length on any processor, bytes.
        const MAX_LEN: usize = 64 * 1024;
        let mut state = vec![0; MAX_LEN];
        let length = self.regset(libc::PTRACE_GETREGSET, &mut state)?;
        state.truncate(length);
        Ok(state)
    }

    /// Replaces the floating-point and vector registers by a saved state.
    pub fn set_vector_registers(self, state: &mut [u8]) -> io::Result<()> {
        self.regset(libc::PTRACE_SETREGSET, state).map(|_| ())
    }

    fn regset(self, request: libc::c_uint, state: &mut [u8]) -> io::Result<usize> {
        const NT_X86_XSTATE: usize = 0x202;
        let mut buffer = libc::iovec { iov_base: state.as_mut_ptr().cast(), iov_len: state.len() };
        ptrace(request, self, NT_X86_XSTATE, &raw mut buffer as usize)?;
        Ok(buffer.iov_len)
    }

    /// Lets the thread execute one instruction.
    pub fn step(self) -> io::Result<()> {
        ptrace(libc::PTRACE_SINGLESTEP, self, 0, 0).map(|_| ())
    }

    /// Waits until the thread stops, and returns the reason: the signal number, and the ptrace event in the bits above it. The
    /// thread must have been told to stop, or be about to.
    pub fn wait(self) -> io::Result<i32> {
        let mut status = 0;
        // SAFETY: the kernel writes to `status`.
        match unsafe { libc::waitpid(self.0, &mut status, libc::__WALL) } {
            -1 => Err(io::Error::last_os_error()),
            _ if libc::WIFSTOPPED(status) => Ok(status >> 8),
            _ => Err(io::Error::other("it has ended")),
        }
    }

    /// Makes the thread stop the next time that it would return to its program, and waits for it; returns whether it has stopped by
    /// `deadline`.
    pub fn stop(self, deadline: Instant) -> io::Result<bool> {
        self.interrupt()?;
        self.go_on_until_interrupted(|| self.wait_until(deadline))
    }

    /// Lets the thread, which was interrupted, go on with each signal for which the kernel stops it before: its stop would swallow the
    /// signal. Lets it complete an exec too: no other call can be made in the middle. `next` waits for its next stop. Returns whether it has stopped for the interrupt; false if `next` has given up.
    pub fn go_on_until_interrupted(
        self,
        mut next: impl FnMut() -> io::Result<Option<Stop>>,
    ) -> io::Result<bool> {
        loop {
            let signal = match next()? {
                None => return Ok(false),
                Some(Stop::Call | Stop::Other) => return Ok(true),
                Some(Stop::Signal(signal)) => signal,
                Some(Stop::Exec) => 0,
            };
            // The kernel has forgotten an interrupt that came before this stop.
            self.interrupt()?;
            self.go_on(signal)?;
        }
    }

    /// Waits until the thread stops, and returns the reason; `None` if it has not stopped by `deadline`.
    pub fn wait_until(self, deadline: Instant) -> io::Result<Option<Stop>> {
        /// Looks that only give the processor away: a stop takes some ten microseconds.
        const YIELDS: u32 = 200;
        const POLL_INTERVAL: Duration = Duration::from_micros(100);
        for look in 0.. {
            let mut status = 0;
            // SAFETY: the kernel writes to `status`.
            match unsafe { libc::waitpid(self.0, &mut status, libc::__WALL | libc::WNOHANG) } {
                -1 => return Err(io::Error::last_os_error()),
                0 if Instant::now() > deadline => return Ok(None),
                0 if look < YIELDS => std::thread::yield_now(),
                0 => std::thread::sleep(POLL_INTERVAL),
                _ if libc::WIFSTOPPED(status) => return Ok(Some(Stop::of(status))),
                _ => return Err(io::Error::from_raw_os_error(libc::ESRCH)),
            }
        }
        Ok(None)
    }

    /// Returns the signal mask of a stopped thread.
    pub fn mask(self) -> io::Result<u64> {
        const GETSIGMASK: libc::c_uint = 0x420a;
        let mut mask = 0u64;
        ptrace(GETSIGMASK, self, 8, &raw mut mask as usize)?;
        Ok(mask)
    }

    /// Replaces the signal mask of a stopped thread.
    pub fn set_mask(self, mask: u64) -> io::Result<()> {
        const SETSIGMASK: libc::c_uint = 0x420b;
        ptrace(SETSIGMASK, self, 8, &raw const mask as usize).map(|_| ())
    }

    /// Reads the thread's memory at `address`.
    pub fn read(self, address: u64, into: &mut [u8]) -> io::Result<()> {
        self.memory()?.read_exact_at(into, address)
    }

    /// Returns, at an exec stop, the number that the thread had before it became the only thread of its process.
    pub fn former(self) -> Option<TracedThread> {
        let mut number: libc::c_ulong = 0;
        ptrace(libc::PTRACE_GETEVENTMSG, self, 0, &raw mut number as usize).ok()?;
        Some(TracedThread(number as i32))
    }

    /// Opens the thread's memory. Read-only mappings can be written through it too.
    pub fn memory(self) -> io::Result<File> {
        File::options().read(true).write(true).open(format!("/proc/{}/mem", self.0))
    }

    /// Writes `bytes` to the thread's memory at `address`.
    pub fn write(self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.memory()?.write_all_at(bytes, address)
    }
}

/// Whether the error of a call says that the thread which it concerns has ended.
pub fn has_ended(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ECHILD | libc::EBADF))
}
