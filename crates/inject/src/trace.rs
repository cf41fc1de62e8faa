//! ptrace, as far as it is needed.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// A thread seized by this one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Thread(pub i32);

fn ptrace(request: libc::c_uint, thread: Thread, address: usize, data: usize) -> io::Result<i64> {
    // SAFETY: the requests used here read and write only through pointers that their callers own.
    match unsafe { libc::ptrace(request, thread.0, address, data) } {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

impl Thread {
    /// Seizes it without stopping it; it will stop at an exec.
    pub fn seize(self) -> io::Result<()> {
        ptrace(libc::PTRACE_SEIZE, self, 0, libc::PTRACE_O_TRACEEXEC as usize).map(|_| ())
    }

    /// Has it stop the next time it would return to its program.
    pub fn interrupt(self) -> io::Result<()> {
        ptrace(libc::PTRACE_INTERRUPT, self, 0, 0).map(|_| ())
    }

    /// Lets it run on, delivering `signal` unless that is 0.
    pub fn go_on(self, signal: i32) -> io::Result<()> {
        ptrace(libc::PTRACE_CONT, self, 0, signal as usize).map(|_| ())
    }

    /// Lets it run and lets go of it.
    pub fn detach(self) -> io::Result<()> {
        ptrace(libc::PTRACE_DETACH, self, 0, 0).map(|_| ())
    }

    /// Its registers; it must have stopped.
    pub fn registers(self) -> io::Result<libc::user_regs_struct> {
        // SAFETY: plain numbers, filled by the kernel.
        let mut regs: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        ptrace(libc::PTRACE_GETREGS, self, 0, &raw mut regs as usize)?;
        Ok(regs)
    }

    /// Replaces its registers.
    pub fn set_registers(self, regs: &libc::user_regs_struct) -> io::Result<()> {
        ptrace(libc::PTRACE_SETREGS, self, 0, regs as *const _ as usize).map(|_| ())
    }

    /// Its floating-point and vector registers, in the processor's own format; it must have stopped.
    pub fn vector_registers(self) -> io::Result<Vec<u8>> {
        /// No processor has more.
        const MOST: usize = 64 * 1024;
        let mut state = vec![0; MOST];
        let length = self.regset(libc::PTRACE_GETREGSET, &mut state)?;
        state.truncate(length);
        Ok(state)
    }

    /// Replaces them by what they were.
    pub fn set_vector_registers(self, state: &mut [u8]) -> io::Result<()> {
        self.regset(libc::PTRACE_SETREGSET, state).map(|_| ())
    }

    fn regset(self, request: libc::c_uint, state: &mut [u8]) -> io::Result<usize> {
        const NT_X86_XSTATE: usize = 0x202;
        let mut place = libc::iovec { iov_base: state.as_mut_ptr().cast(), iov_len: state.len() };
        ptrace(request, self, NT_X86_XSTATE, &raw mut place as usize)?;
        Ok(place.iov_len)
    }

    /// Lets it execute one instruction.
    pub fn step(self) -> io::Result<()> {
        ptrace(libc::PTRACE_SINGLESTEP, self, 0, 0).map(|_| ())
    }

    /// Waits until it stops, and says what for: a signal number, with an event above it. It must have been told to, or
    /// be about to.
    pub fn wait(self) -> io::Result<i32> {
        let mut status = 0;
        // SAFETY: writes to `status`.
        match unsafe { libc::waitpid(self.0, &mut status, libc::__WALL) } {
            -1 => Err(io::Error::last_os_error()),
            _ if libc::WIFSTOPPED(status) => Ok(status >> 8),
            _ => Err(io::Error::other("it has ended")),
        }
    }

    /// Its signal mask; it must have stopped.
    pub fn mask(self) -> io::Result<u64> {
        const GETSIGMASK: libc::c_uint = 0x420a;
        let mut mask = 0u64;
        ptrace(GETSIGMASK, self, 8, &raw mut mask as usize)?;
        Ok(mask)
    }

    /// Replaces its signal mask.
    pub fn set_mask(self, mask: u64) -> io::Result<()> {
        const SETSIGMASK: libc::c_uint = 0x420b;
        ptrace(SETSIGMASK, self, 8, &raw const mask as usize).map(|_| ())
    }

    /// Reads memory at `address`.
    pub fn read(self, address: u64, into: &mut [u8]) -> io::Result<()> {
        self.memory()?.read_exact_at(into, address)
    }

    /// At an exec stop: the number the thread had before it became its process's only one.
    pub fn former(self) -> Option<Thread> {
        let mut number: libc::c_ulong = 0;
        ptrace(libc::PTRACE_GETEVENTMSG, self, 0, &raw mut number as usize).ok()?;
        Some(Thread(number as i32))
    }

    /// Its memory, writable also where it is not writable itself.
    pub fn memory(self) -> io::Result<File> {
        File::options().read(true).write(true).open(format!("/proc/{}/mem", self.0))
    }

    /// Writes `bytes` at `address`.
    pub fn write(self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.memory()?.write_all_at(bytes, address)
    }
}
