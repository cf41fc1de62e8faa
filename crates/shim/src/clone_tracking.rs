//! Clone tracking: calls of clone, fork and vfork that the shim must know of.
//!
//! - On a clock that skips idle time the shim counts each, so that a thread can know that it is the sole one.
//! - A child that begins on a stack of the program's choice, and is no thread, gets an alternate signal stack: a trap needs some
//!   KiB, and the shim does not know the size of the child's own stack.
//!
//! The handler prepares, and then the program makes the call itself, from the image, where it is allowed: the child begins
//! with whatever stack and registers the call gives it. Behind the call both must return to the place where it was made, and
//! no register is free to hold that place. So each place in a program that makes such calls has a stub of its own here. The stub's
//! word in memory, which a child has too, holds the place.

use crate::altstack;
use crate::call::{Call, AGAIN};
use crate::layout::{clock, data, registry, ProcessData, CLONE_SITES, DATA};
use crate::sys::{reg, CloneFlags, Errno, SysResult, Sysno, UserPtr};
use crate::user::Access;
use core::arch::global_asm;
use core::mem::offset_of;
use core::sync::atomic::Ordering::{AcqRel, Acquire};

/// Length of a stub, and of one that gives the child a stack.
const STUB: usize = 16;
const STACK_STUB: usize = 64;
const SYSCALL: u64 = 2;

global_asm!(
    ".text",
    ".balign 16",
    ".global lorentz_clone_stubs",
    "lorentz_clone_stubs:",
    ".set lorentz_place, {places}",
    ".rept {count}",
    "syscall",
    "jmp qword ptr ds:[lorentz_place]",
    ".balign {stub}",
    ".set lorentz_place, lorentz_place + 8",
    ".endr",
    ".balign 64",
    ".global lorentz_clone_stubs_with_stack",
    "lorentz_clone_stubs_with_stack:",
    ".set lorentz_place, {places}",
    ".rept {count}",
    "syscall",
    "mov rcx, rax",
    "jrcxz 2f",
    "jmp qword ptr ds:[lorentz_place]",
    // The child. Its parent has left the address of its struct stack_t below its stack pointer. Flags stay as they are.
    "2:",
    "xchg rdi, [rsp - 8]",
    "mov [rsp - 16], rsi",
    "mov esi, 0",
    "mov eax, {sigaltstack}",
    "syscall",
    "mov rsi, [rsp - 16]",
    "mov rdi, [rsp - 8]",
    "mov eax, 0",
    "jmp qword ptr ds:[lorentz_place]",
    ".balign {stack_stub}",
    ".set lorentz_place, lorentz_place + 8",
    ".endr",
    places = const DATA + offset_of!(ProcessData, clone_sites),
    count = const CLONE_SITES,
    stub = const STUB,
    stack_stub = const STACK_STUB,
    sigaltstack = const Sysno::sigaltstack.number(),
);

extern "C" {
    static lorentz_clone_stubs: u8;
    static lorentz_clone_stubs_with_stack: u8;
}

/// clone(2), fork(2), vfork(2).
pub fn prepare(call: &mut Call) -> SysResult {
    let behind = call.context.regs[reg::RIP] as usize;
    let own = data().clone_sites.iter().position(|place| {
        let taken = place.compare_exchange(0, behind, AcqRel, Acquire);
        taken.is_ok() || taken == Err(behind)
    });
    let Some(own) = own else { return Err(Errno::EAGAIN) };
    if clock().policy().counts_tasks {
        registry().task_counters.count_task();
    }
    let stub = match gives_stack(call) {
        true => &raw const lorentz_clone_stubs_with_stack as u64 + (own * STACK_STUB) as u64,
        false => &raw const lorentz_clone_stubs as u64 + (own * STUB) as u64,
    };
    call.context.regs[reg::RIP] = stub + SYSCALL;
    Err(AGAIN)
}

/// Prepares an alternate stack for a child that begins on a stack of the program's choice, and says whether there is one. The
/// program writes below the child's stack pointer itself, so a bad pointer is left to the kernel.
fn gives_stack(call: &Call) -> bool {
    let flags: CloneFlags = call.arg(0);
    let stack: u64 = call.arg(1);
    if call.nr != Sysno::clone || !is_process_on_own_stack(flags, stack) {
        return false;
    }
    let shared = flags.contains(CloneFlags::CLONE_VM);
    let waited_for = flags.contains(CloneFlags::CLONE_VFORK);
    let given = match (shared, waited_for) {
        // The child has the alternate stack that this thread has.
        (false, _) | (true, true) if altstack::is_there(call.context.stack) => return false,
        (false, _) => Some(altstack::spare_stack_for(altstack::NONE)),
        (true, true) => altstack::vfork_stack_for(altstack::NONE),
        (true, false) => altstack::stack_for(altstack::NONE),
    };
    let word: UserPtr<u64> = UserPtr::new(stack.wrapping_sub(8));
    given.is_some_and(|given| word.write(altstack::given_at(given).address()).is_ok())
}

/// Whether clone(2) begins a process, and not a thread, on a stack of its own. So does posix_spawn; musl's has 5 KiB.
fn is_process_on_own_stack(flags: CloneFlags, stack: u64) -> bool {
    stack != 0 && !flags.contains(CloneFlags::CLONE_THREAD)
}
