//! Making system calls in a stopped process, by its borrowed first thread. All its other threads are stopped.

use crate::launch::duplicate_fd;
use crate::trace::TracedThread;
use crate::user_notification;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{sendmsg, ControlMessage, MsgFlags, UnixAddr};
use nix::unistd::Pid;
use std::fs;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// A borrowed thread. Its state is restored when this value is dropped.
pub struct BorrowedThread {
    thread: TracedThread,
    registers: libc::user_regs_struct,
    /// The vector registers, which the code that the thread runs may use for copying.
    vector_registers: Vec<u8>,
    mask: u64,
    /// Address of the instructions that the thread executes. `before` is the memory they replace.
    code_address: u64,
    before: Vec<u8>,
}

/// Length of the memory for instructions, bytes.
const CODE_LEN: usize = 512;
/// A signal mask for borrowed threads. Where the signal of a breakpoint is blocked, the kernel removes its handler.
pub const ALL_BUT_BREAKPOINT: u64 = !(1 << (libc::SIGTRAP - 1));
const STOPPED: &str = "a borrowed thread did not come back";

impl BorrowedThread {
    /// Borrows a stopped thread. All threads of its process must have stopped.
    pub fn new(thread: TracedThread) -> io::Result<BorrowedThread> {
        BorrowedThread::at(thread, code_of(thread)?)
    }

    /// Borrows a stopped thread. It makes its calls at `code_address`, in an executable mapping.
    pub fn at(thread: TracedThread, code_address: u64) -> io::Result<BorrowedThread> {
        let registers = thread.registers()?;
        let vector_registers = thread.vector_registers()?;
        let mask = thread.mask()?;
        let mut before = vec![0; CODE_LEN];
        thread.read(code_address, &mut before)?;
        // No handler of the program runs meanwhile.
        thread.set_mask(ALL_BUT_BREAKPOINT)?;
        Ok(BorrowedThread { thread, registers, vector_registers, mask, code_address, before })
    }

    /// Makes a system call in the process. Returns the kernel's result: a negative number is an errno.
    pub fn call(&self, number: i64, args: [u64; 6]) -> io::Result<i64> {
        self.begin(number, args)?;
        self.finish()
    }

    /// Makes a system call that must succeed. Its failure is an error here.
    pub fn must(&self, number: i64, args: [u64; 6]) -> io::Result<u64> {
        match self.call(number, args)? {
            error if error < 0 => Err(io::Error::from_raw_os_error(-error as i32)),
            result => Ok(result as u64),
        }
    }

    /// Receives copies of `files` by a pair of sockets, which the thread makes for it; `scratch` is memory of the process. Returns
    /// the descriptors' numbers. A filter that the process had before may refuse these calls.
    pub fn receive_files<const N: usize>(
        &self,
        scratch: u64,
        files: [&OwnedFd; N],
    ) -> io::Result<[u32; N]> {
        const STREAM: u64 = (libc::SOCK_STREAM | libc::SOCK_CLOEXEC) as u64;
        self.must(libc::SYS_socketpair, [libc::AF_UNIX as u64, STREAM, 0, scratch, 0, 0])?;
        let mut pair = [0; 2 * size_of::<u32>()];
        self.thread.read(scratch, &mut pair)?;
        let [its, ours] = [0, 4].map(|at| number_at(&pair, at));
        let received = self.receive_by(scratch, its, ours, files);
        for socket in [its, ours] {
            self.must(libc::SYS_close, [u64::from(socket), 0, 0, 0, 0, 0])?;
        }
        received
    }

    fn receive_by<const N: usize>(
        &self,
        scratch: u64,
        its: u32,
        ours: u32,
        files: [&OwnedFd; N],
    ) -> io::Result<[u32; N]> {
        // struct msghdr with one byte of data, then a struct cmsghdr with the descriptors.
        const MESSAGE: u64 = 0;
        const VECTOR: u64 = 64;
        const DATA: u64 = 80;
        const CONTROL: u64 = 96;
        const HEADER: usize = 16;
        let control_len = HEADER + N * size_of::<u32>();
        let control_room = control_len.next_multiple_of(size_of::<u64>());
        let at = |part: u64| scratch + part;
        let message = [0, 0, at(VECTOR), 1, at(CONTROL), control_room as u64, 0, 0];
        let words = message.into_iter().chain([at(DATA), 1]);
        let bytes: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
        self.thread.write(scratch, &bytes)?;
        let socket = duplicate_fd(Pid::from_raw(self.thread.0), ours as i32)
            .map_err(|error| io::Error::other(error.to_string()))?;
        let fds = files.map(|file| file.as_raw_fd());
        let rights = [ControlMessage::ScmRights(&fds)];
        sendmsg::<UnixAddr>(
            socket.as_raw_fd(),
            &[IoSlice::new(b"f")],
            &rights,
            MsgFlags::MSG_NOSIGNAL,
            None,
        )?;
        let cloexec = libc::MSG_CMSG_CLOEXEC as u64;
        self.must(libc::SYS_recvmsg, [u64::from(its), at(MESSAGE), cloexec, 0, 0, 0])?;
        let mut control = vec![0; control_len];
        self.thread.read(at(CONTROL), &mut control)?;
        let numbers = std::array::from_fn(|i| number_at(&control, HEADER + i * size_of::<u32>()));
        let received = (number_at(&control, 0) as usize).saturating_sub(HEADER) / size_of::<u32>();
        if received < N {
            // It has as many descriptors as its limit allows.
            for fd in &numbers[..received] {
                self.must(libc::SYS_close, [u64::from(*fd), 0, 0, 0, 0, 0])?;
            }
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        Ok(numbers)
    }

    /// Makes a call of which the kernel notifies `listener`. Answers it with a copy of `file`, and returns that descriptor's
    /// number in the process.
    pub fn receive_fd(
        &self,
        number: u32,
        listener: BorrowedFd,
        file: BorrowedFd,
    ) -> io::Result<u32> {
        const RECEIVE_TIMEOUT_MS: u16 = 2000;
        self.begin(i64::from(number), [0; 6])?;
        let mut fds = [PollFd::new(listener, PollFlags::POLLIN)];
        // A filter of the program's may answer the call in the monitor's place.
        let is_there = poll(&mut fds, PollTimeout::from(RECEIVE_TIMEOUT_MS))? == 1;
        let notification = match is_there {
            true => user_notification::receive(listener)?,
            false => None,
        };
        let notification =
            notification.ok_or_else(|| io::Error::other("a seccomp filter refuses the monitor"))?;
        user_notification::answer_with_fd(listener, notification.id, file)?;
        match self.finish()? {
            error if error < 0 => Err(io::Error::from_raw_os_error(-error as i32)),
            fd => Ok(fd as u32),
        }
    }

    /// Runs `code`, which ends in a breakpoint, with the stack pointer `stack`.
    pub fn run(&self, code: &[u8], stack: u64) -> io::Result<()> {
        assert!(code.len() <= CODE_LEN, "the boot code has outgrown its room");
        self.thread.write(self.code_address, code)?;
        let mut regs = self.borrowed_registers();
        regs.rsp = stack;
        self.thread.set_registers(&regs)?;
        self.thread.go_on(0)?;
        self.finish().map(|_| ())
    }

    fn borrowed_registers(&self) -> libc::user_regs_struct {
        let mut regs = self.registers;
        regs.rip = self.code_address;
        // Say that the thread is not in a system call, so that the kernel does not restart one.
        regs.orig_rax = u64::MAX;
        regs
    }

    fn begin(&self, number: i64, args: [u64; 6]) -> io::Result<()> {
        const SYSCALL_AND_BREAKPOINT: [u8; 3] = [0x0f, 0x05, 0xcc];
        self.thread.write(self.code_address, &SYSCALL_AND_BREAKPOINT)?;
        let mut regs = self.borrowed_registers();
        regs.rax = number as u64;
        [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9] = args;
        self.thread.set_registers(&regs)?;
        self.thread.go_on(0)
    }

    /// Waits for the breakpoint, and returns the result register there.
    fn finish(&self) -> io::Result<i64> {
        const MAX_STOPS: u32 = 100;
        for _ in 0..MAX_STOPS {
            let stop = self.thread.wait()?;
            if stop == libc::SIGTRAP {
                return Ok(self.thread.registers()?.rax as i64);
            }
            if stop >> 8 == 0 {
                let regs = self.thread.registers()?;
                let what = format!("{STOPPED}: signal {stop} at {:#x}", regs.rip);
                return Err(io::Error::other(what));
            }
            self.thread.go_on(0)?;
        }
        Err(io::Error::other(STOPPED))
    }
}

impl Drop for BorrowedThread {
    fn drop(&mut self) {
        // If the process has ended meanwhile, there is nothing to restore.
        let _ = self.thread.write(self.code_address, &self.before);
        let _ = self.thread.set_registers(&self.registers);
        let _ = self.thread.set_vector_registers(&mut self.vector_registers);
        let _ = self.thread.set_mask(self.mask);
    }
}

/// Returns the number at byte `at`.
fn number_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].try_into().map_or(0, u32::from_ne_bytes)
}

/// Returns the start of a code mapping. No other thread executes there, because all are stopped.
fn code_of(thread: TracedThread) -> io::Result<u64> {
    let maps = fs::read_to_string(format!("/proc/{}/maps", thread.0))?;
    let code = |line: &&str| {
        let mut words = line.split_ascii_whitespace();
        let access = words.nth(1).unwrap_or("");
        access.starts_with("r-x") && !line.contains("[vsyscall]")
    };
    let line = maps.lines().find(code).ok_or_else(|| io::Error::other("it has no code"))?;
    let start = line.split('-').next().unwrap_or("");
    u64::from_str_radix(start, 16).map_err(io::Error::other)
}
