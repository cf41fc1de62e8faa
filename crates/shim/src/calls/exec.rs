//! Becoming another program, and a program's own sandbox.

use crate::boot;
use crate::filter::{self, Instruction, EXEC_KICK_OPEN, EXEC_MAGIC, EXTRA_LEN};
use crate::signals;
use crate::sys::{self, errno, sig, sys, Sigaction, Sysno};
use crate::trap::Call;
use crate::trap_mask;
use crate::user;
use core::arch::asm;

/// execve and execveat. The monitor is told by the call itself (the filter sends it there), puts the shim into the new
/// image and lets it run. A monitor that is gone means ENOSYS: nothing runs in real time by accident.
pub fn exec(call: &Call) -> isize {
    let refused = cannot_execute(call);
    if refused < 0 {
        return refused;
    }
    // The new program inherits what is blocked and ignored now, in the program's eyes.
    let pass_on = Inheritance::of(call);
    pass_on.begin();
    let [a, b, c, d, e, _] = call.args;
    let args = [a, b, c, d, e, EXEC_MAGIC as u64 | pass_on.kick_open()];
    // SAFETY: the program's own call. It comes back only when it has failed.
    let (result, left_open) = unsafe { exec_by_monitor(call.nr, args) };
    pass_on.take_back();
    for fd in left_open {
        // SAFETY: descriptors the monitor put there for the new image, which has not come to be.
        unsafe { sys!(Sysno::close, fd) };
    }
    if result == -errno::ENOSYS {
        const WORD: &[u8] =
            b"lorentz: exec refused: the monitor of this clock is gone (see lorentz ps)\n";
        // SAFETY: reads the message.
        unsafe { sys!(Sysno::write, 2u64, WORD.as_ptr(), WORD.len()) };
    }
    result
}

const KICK_BIT: u64 = 1 << (sig::KICK - 1);

/// What a new program inherits of its signals: the mask, and that SIGSYS or the kick signal is ignored.
struct Inheritance {
    mask: u64,
    ignored: [(u32, bool); 2],
}

impl Inheritance {
    fn of(call: &Call) -> Inheritance {
        let ignored = |signal: u32| (signal, signals::ignores(signal));
        Inheritance {
            mask: call.mask() | signals::believed_blocked(),
            ignored: [ignored(sig::SIGSYS), ignored(sig::KICK)],
        }
    }

    fn begin(&self) {
        const SIG_IGN: usize = 1;
        for (signal, _) in self.ignored.iter().filter(|(_, ignored)| *ignored) {
            sys::sigaction(
                *signal,
                Some(&Sigaction { handler: SIG_IGN, ..Default::default() }),
                None,
            );
        }
        // Race: a controller sends a kick while the kernel executes the new program, which has no handler of ours yet. The signal
        // would end the program. Therefore it stays pending until there is one.
        sys::set_mask(self.mask | KICK_BIT);
    }

    /// Tells the boot code whose doing it is that the kick is blocked.
    fn kick_open(&self) -> u64 {
        if self.mask & KICK_BIT == 0 {
            EXEC_KICK_OPEN
        } else {
            0
        }
    }

    fn take_back(&self) {
        sys::set_mask(self.mask & !sig::OURS | trap_mask::get());
        if self.ignored.iter().any(|(_, ignored)| *ignored) {
            boot::set_actions();
        }
    }
}

/// ptrace that makes somebody a tracer: refused. Every trapped call would look like a signal to a debugger inside, and
/// the monitor could not bring in what it starts.
pub fn trace() -> isize {
    const WORD: &[u8] =
        b"lorentz: ptrace refused: debuggers work from outside (gdb -p, strace -p), not inside\n";
    // SAFETY: reads the message.
    unsafe { sys!(Sysno::write, 2u64, WORD.as_ptr(), WORD.len()) };
    -errno::EPERM
}

/// The kernel's error where the file is plainly not there or not executable, as a search along PATH meets it: the
/// monitor need not be troubled. Zero where it is worth trying.
fn cannot_execute(call: &Call) -> isize {
    const AT_FDCWD: u64 = -100i64 as u64;
    const AT_EACCESS: u64 = 0x200;
    const X_OK: u64 = 1;
    const AT_EMPTY_PATH: u64 = 0x1000;
    let (dir, path, flags) = match call.nr {
        Sysno::execve => (AT_FDCWD, call.args[0], 0),
        _ => (call.args[0], call.args[1], call.args[4]),
    };
    if flags & AT_EMPTY_PATH != 0 {
        return 0;
    }
    // SAFETY: the kernel checks the path.
    match unsafe { sys!(Sysno::faccessat2, dir, path, X_OK, AT_EACCESS) } {
        error if error == -errno::ENOSYS || error == -errno::EPERM => 0,
        result => result,
    }
}

/// The call, and the descriptors that the monitor had put into this process, told in r12 to r14 when it fails.
///
/// # Safety
/// As for any exec.
unsafe fn exec_by_monitor(nr: Sysno, args: [u64; 6]) -> (isize, [u64; 3]) {
    const NONE: u64 = u64::MAX;
    let result: isize;
    let (mut r12, mut r13, mut r14) = (NONE, NONE, NONE);
    // SAFETY: the caller's promise. These three are the kernel's to keep and the monitor's to change.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") nr.number() as u64 => result,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            inlateout("r12") r12, inlateout("r13") r13, inlateout("r14") r14,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    (result, [r12, r13, r14])
}

/// seccomp and prctl(PR_SET_SECCOMP): a program's own filter gets a few instructions in front, so that the trap handler
/// can do its work and return under it.
pub fn sandbox(call: &Call) -> isize {
    const SET_MODE_FILTER: u64 = 1;
    const PR_SECCOMP_MODE_FILTER: u64 = 2;
    let (is_filter, place) = match call.nr {
        Sysno::seccomp => (call.args[0] == SET_MODE_FILTER, 2),
        _ => (call.args[1] == PR_SECCOMP_MODE_FILTER, 2),
    };
    if !is_filter {
        return call.by_kernel();
    }
    // struct sock_fprog: a length in the low 16 bits, then a pointer.
    let program = match user::read_timespec(call.args[place]) {
        Ok(program) => program,
        Err(error) => return error,
    };
    let (len, code) = (program.secs as u16 as usize, program.nanos as u64);
    const LONGEST: usize = 4096;
    if len == 0 || len > LONGEST - EXTRA_LEN {
        return call.by_kernel();
    }
    with_memory(size_of::<Instruction>() * (len + EXTRA_LEN), |memory| {
        // SAFETY: `memory` has room for both, and any bytes are instructions.
        let all =
            unsafe { core::slice::from_raw_parts_mut(memory as *mut Instruction, len + EXTRA_LEN) };
        let ours = filter::allow_handler(all);
        // SAFETY: as above.
        let theirs = unsafe {
            core::slice::from_raw_parts_mut(
                all[ours..].as_mut_ptr() as *mut u8,
                len * size_of::<Instruction>(),
            )
        };
        if !user::read_bytes(code, theirs) {
            return user::FAULT;
        }
        let program = [(ours + len) as u64, all.as_ptr() as u64];
        let mut args = call.args;
        args[place] = program.as_ptr() as u64;
        // SAFETY: the program's own call, with our copy of the filter.
        unsafe { sys::syscall(call.nr, args) }
    })
}

fn with_memory(len: usize, work: impl FnOnce(*mut u8) -> isize) -> isize {
    const READ_WRITE: u64 = 3;
    const PRIVATE_ANONYMOUS: u64 = 0x22;
    // SAFETY: new memory, given back below.
    unsafe {
        let memory = sys!(Sysno::mmap, 0u64, len, READ_WRITE, PRIVATE_ANONYMOUS, -1i64, 0u64);
        if memory < 0 {
            return memory;
        }
        let result = work(memory as *mut u8);
        sys!(Sysno::munmap, memory, len);
        result
    }
}
