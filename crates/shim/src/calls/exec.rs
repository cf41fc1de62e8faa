//! Becoming another program, and a program's own sandbox.

use crate::call::{Call, AGAIN};
use crate::filter::{self, Instruction, EXEC_CHANGE_SIGNAL_OPEN, EXEC_MAGIC, EXTRA_LEN};
use crate::handlers;
use crate::layout::data;
use crate::signals;
use crate::sys::{
    self, close, say, sig, sys, AtFlags, Errno, Fd, Request, SigSet, Sigaction, SysResult, Sysno,
    UserPtr,
};
use crate::trap_mask;
use crate::user::{self, Access};
use core::arch::asm;
use core::sync::atomic::Ordering::Relaxed;

/// execve and execveat. The filter sends the call itself to the monitor, which puts the shim into the new
/// image and lets it run. A monitor that is gone means ENOSYS: nothing runs in real time by accident.
pub fn exec(call: &Call) -> SysResult {
    check_executable(call)?;
    // The new program inherits what is blocked and ignored now, in the program's eyes.
    let pass_on = Inheritance::of(call);
    pass_on.begin();
    let request = call.request().with(5, u64::from(EXEC_MAGIC) | pass_on.change_signal_open());
    // SAFETY: the program's own call. It comes back only when it has failed.
    let (result, left_open) = unsafe { exec_by_monitor(&request) };
    pass_on.take_back();
    // Descriptors the monitor put there for the new image, which has not come to be.
    left_open.into_iter().for_each(close);
    match result {
        // Another process of Lorentz traces this thread.
        Err(Errno::EXEC_AGAIN) => Err(AGAIN),
        Err(Errno::ENOSYS) => {
            say("lorentz: exec refused: the monitor of this clock is gone (see lorentz ps)\n");
            result
        }
        _ => result,
    }
}

/// The signal state that a new program inherits: the mask, and that SIGSYS or the clock-change signal is ignored.
struct Inheritance {
    mask: SigSet,
    ignored: [(u32, bool); 2],
}

impl Inheritance {
    fn of(call: &Call) -> Inheritance {
        let ignored = |signal: u32| (signal, signals::ignores(signal));
        Inheritance {
            mask: call.mask().with(signals::believed_blocked()),
            ignored: [ignored(sig::SIGSYS), ignored(sig::CLOCK_CHANGE)],
        }
    }

    fn begin(&self) {
        let ignore = Sigaction { handler: Sigaction::SIG_IGN, ..Default::default() };
        for (signal, _) in self.ignored.iter().filter(|(_, ignored)| *ignored) {
            sys::set_action(*signal, &ignore);
        }
        // Race: a controller sends a clock-change signal while the kernel executes the new program, which has no handler of ours
        // yet. The signal would end the program. Therefore it stays pending until there is one.
        sys::set_mask(self.mask.with(SigSet::of(sig::CLOCK_CHANGE)));
    }

    /// Tells the boot code whether the program itself has blocked the clock-change signal.
    fn change_signal_open(&self) -> u64 {
        if self.mask.has(sig::CLOCK_CHANGE) {
            0
        } else {
            EXEC_CHANGE_SIGNAL_OPEN
        }
    }

    fn take_back(&self) {
        sys::set_mask(self.mask.without(sig::OURS).with(trap_mask::get()));
        if self.ignored.iter().any(|(_, ignored)| *ignored) {
            handlers::install();
        }
    }
}

/// ptrace that makes a process a tracer: refused. Every trapped call would look like a signal to a debugger inside, and
/// the monitor could not bring in what it starts.
pub fn trace(_: &Call) -> SysResult {
    say("lorentz: ptrace refused: debuggers work from outside (gdb -p, strace -p), not inside\n");
    Err(Errno::EPERM)
}

/// Returns the kernel's error where the file is plainly not there or not executable, as a search along PATH meets it: the
/// monitor need not be troubled.
fn check_executable(call: &Call) -> SysResult<()> {
    const X_OK: u32 = 1;
    let (dir, path, flags): (Fd, UserPtr<u8>, AtFlags) = match call.nr {
        Sysno::execve => (Fd::AT_FDCWD, call.arg(0), AtFlags::new(0)),
        _ => (call.arg(0), call.arg(1), call.arg(4)),
    };
    if flags.contains(AtFlags::AT_EMPTY_PATH) {
        return Ok(());
    }
    // SAFETY: the kernel checks the path.
    match unsafe { sys!(Sysno::faccessat2, dir, path, X_OK, AtFlags::AT_EACCESS) } {
        Ok(_) | Err(Errno::ENOSYS | Errno::EPERM) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Makes the call. When it fails, returns also the descriptors that the monitor had put into this process: they are in r12 to r14.
///
/// # Safety
/// As for any exec.
unsafe fn exec_by_monitor(request: &Request) -> (SysResult, [Fd; 3]) {
    const NONE: u64 = u64::MAX;
    let (nr, args) = (request.nr(), request.args);
    let result: isize;
    let (mut r12, mut r13, mut r14) = (NONE, NONE, NONE);
    // SAFETY: the caller's promise. These three are the kernel's to keep and the monitor's to change.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") nr => result,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            inlateout("r12") r12, inlateout("r13") r13, inlateout("r14") r14,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    (Errno::check(result), [r12, r13, r14].map(|fd| Fd::new(fd as i32)))
}

/// seccomp and prctl(PR_SET_SECCOMP): a program's own filter gets a few instructions in front, so that the trap handler
/// can do its work and return under it.
pub fn sandbox(call: &Call, operation: u32) -> SysResult {
    const SECCOMP_MODE_FILTER: u64 = 2;
    const PROGRAM: usize = 2;
    let is_filter = match call.nr {
        Sysno::seccomp => operation == filter::SET_MODE_FILTER,
        _ => call.arg::<u64>(1) == SECCOMP_MODE_FILTER,
    };
    if !is_filter {
        return call.by_kernel();
    }
    let [len, code] = call.arg::<UserPtr<FilterProgram>>(PROGRAM).read()?;
    let len = len as u16 as usize;
    const MAX_LEN: usize = 4096;
    if len == 0 || len > MAX_LEN - EXTRA_LEN {
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
        user::read_bytes(UserPtr::new(code), theirs)?;
        let program: FilterProgram = [(ours + len) as u64, all.as_ptr() as u64];
        // Before: from the filter on, the handler makes only calls that the instructions in front allow.
        data().sandboxed.store(1, Relaxed);
        // SAFETY: our copy of the filter.
        unsafe { call.by_kernel_with(PROGRAM, UserPtr::to(&program)) }
    })
}

/// struct sock_fprog: the length in the low 16 bits of a word, then a pointer.
type FilterProgram = [u64; 2];

fn with_memory(len: usize, work: impl FnOnce(*mut u8) -> SysResult) -> SysResult {
    const READ_WRITE: i32 = 3;
    const PRIVATE_ANONYMOUS: i32 = 0x22;
    // SAFETY: new memory, given back below.
    unsafe {
        let memory = sys!(Sysno::mmap, 0, len, READ_WRITE, PRIVATE_ANONYMOUS, Fd::NONE, 0)?;
        let result = work(memory as *mut u8);
        let _ = sys!(Sysno::munmap, memory, len);
        result
    }
}
