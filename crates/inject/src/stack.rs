//! A sufficient stack for a command that was started under a small RLIMIT_STACK.

use nix::sys::resource::{getrlimit, Resource};
use std::arch::asm;
use std::ptr;

/// Length that the main thread's stack needs, bytes.
const NEEDED: u64 = 1 << 20;
/// Length of the replacement stack, bytes.
const LEN: usize = 8 << 20;
/// Length of the inaccessible page at the lower end of the replacement stack, bytes. An overflow there ends the process.
const GUARD: usize = 4096;

/// Runs `work` on a stack of 8 MiB if RLIMIT_STACK allows this thread less than 1 MiB, else on the current stack.
///
/// A child that `work` forks goes on on its own copy of that stack. A panic in `work` ends the process.
pub fn on_ample_stack<R>(work: impl FnOnce() -> R) -> R {
    let small = getrlimit(Resource::RLIMIT_STACK).is_ok_and(|(soft, _)| soft < NEEDED);
    match small.then(new_stack).flatten() {
        Some(top) => on_stack(top, work),
        None => work(),
    }
}

/// Maps a new stack that stays as long as the process lives, and returns its upper end.
fn new_stack() -> Option<*mut u8> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK | libc::MAP_NORESERVE;
    // SAFETY: the call maps new memory.
    let memory = unsafe { libc::mmap(ptr::null_mut(), LEN, access, kind, -1, 0) };
    if memory == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: this is the lowest page of the new memory, which nobody uses.
    unsafe { libc::mprotect(memory, GUARD, libc::PROT_NONE) };
    // SAFETY: the pointer is one past the end of the new memory.
    Some(unsafe { memory.cast::<u8>().add(LEN) })
}

struct StackJob<F, R> {
    work: Option<F>,
    result: Option<R>,
}

/// Runs the job. The ABI is `extern "C"` so that a panic aborts here, and does not unwind through the assembly below.
extern "C" fn run_job<F: FnOnce() -> R, R>(job: &mut StackJob<F, R>) {
    job.result = job.work.take().map(|work| work());
}

fn on_stack<F: FnOnce() -> R, R>(top: *mut u8, work: F) -> R {
    let mut job = StackJob { work: Some(work), result: None };
    // SAFETY: `top` is the aligned end of an unused stack. The callee preserves r12, which restores the stack pointer.
    unsafe {
        asm!(
            "mov r12, rsp",
            "mov rsp, {top}",
            "call {run_job}",
            "mov rsp, r12",
            top = in(reg) top,
            run_job = in(reg) run_job::<F, R> as extern "C" fn(&mut StackJob<F, R>),
            in("rdi") &raw mut job,
            out("r12") _,
            clobber_abi("C"),
        );
    }
    match job.result {
        Some(result) => result,
        None => unreachable!("the work is done once"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_is_done_on_the_other_stack_and_its_result_comes_back() {
        let here = 0_u8;
        let top = new_stack().unwrap();
        let there = on_stack(top, || {
            let mut large = [0_u8; 1 << 20];
            std::hint::black_box(&mut large);
            large.as_ptr().addr()
        });
        assert!((top.addr() - LEN..top.addr()).contains(&there));
        assert!(!(top.addr() - LEN..top.addr()).contains(&(&raw const here).addr()));
        assert_eq!(on_stack(top, || String::from("again")), "again");
        assert_eq!(on_ample_stack(|| 7), 7);
    }
}
