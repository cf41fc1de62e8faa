//! A stack of sufficient size for a command that was started under a small RLIMIT_STACK.

use nix::sys::resource::{getrlimit, Resource};
use std::arch::asm;
use std::ptr;

/// What the main thread's stack has to have.
const NEEDED: u64 = 1 << 20;
/// The length of the stack that takes its place.
const LEN: usize = 8 << 20;
/// No access at its lower end: an overflow ends the process.
const GUARD: usize = 4096;

/// Does `work` on a stack of 8 MiB, where RLIMIT_STACK allows the one of this thread less than 1 MiB; else on this stack. A
/// child of fork goes on on its copy of that stack. A panic in `work` ends the process.
pub fn on_ample_stack<R>(work: impl FnOnce() -> R) -> R {
    let small = getrlimit(Resource::RLIMIT_STACK).is_ok_and(|(soft, _)| soft < NEEDED);
    match small.then(new_stack).flatten() {
        Some(top) => on_stack(top, work),
        None => work(),
    }
}

/// The upper end of new memory that stays mapped as long as the process lives.
fn new_stack() -> Option<*mut u8> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK | libc::MAP_NORESERVE;
    // SAFETY: new memory.
    let memory = unsafe { libc::mmap(ptr::null_mut(), LEN, access, kind, -1, 0) };
    if memory == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the lowest page of that memory, which nobody uses.
    unsafe { libc::mprotect(memory, GUARD, libc::PROT_NONE) };
    // SAFETY: one past its end.
    Some(unsafe { memory.cast::<u8>().add(LEN) })
}

struct Job<F, R> {
    work: Option<F>,
    result: Option<R>,
}

/// `extern "C"`: a panic aborts here and does not unwind through the assembly below.
extern "C" fn perform<F: FnOnce() -> R, R>(job: &mut Job<F, R>) {
    job.result = job.work.take().map(|work| work());
}

fn on_stack<F: FnOnce() -> R, R>(top: *mut u8, work: F) -> R {
    let mut job = Job { work: Some(work), result: None };
    // SAFETY: `top` is the aligned end of an unused stack. The callee keeps r12, by which the stack pointer comes back.
    unsafe {
        asm!(
            "mov r12, rsp",
            "mov rsp, {top}",
            "call {perform}",
            "mov rsp, r12",
            top = in(reg) top,
            perform = in(reg) perform::<F, R> as extern "C" fn(&mut Job<F, R>),
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
