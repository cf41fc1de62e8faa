//! Alternate signal stacks. A stack that is too small for the handlers of the shim is replaced by a larger one, and so is one that
//! is not there where the program's own is too small ([`crate::births`]). The program sees the one that it asked for.

use crate::layout::{data, VforkStack, SPARE_STACK, SPARE_STACK_LEN};
use crate::sys::{self, errno, reg, sys, Sysno};
use crate::trap::Call;
use crate::user;
use core::arch::global_asm;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};

/// At the lowest address of a stack of ours.
#[repr(C)]
struct Header {
    magic: u64,
    /// struct stack_t as the program asked for it.
    asked: [u64; 3],
    /// The same as the kernel is to have it.
    given: [u64; 3],
    unused: u64,
}

const MAGIC: u64 = 0x4c5a_7374_6163_6b21;
const HEADER: u64 = size_of::<Header>() as u64;
/// A stack that the program gives is used if it has at least this size: a frame of a signal takes up to 4 KiB with
/// wide registers, and three may lie on top of each other.
const ENOUGH: u64 = 16 * 1024;
/// Size of ours.
const OURS: u64 = SPARE_STACK_LEN as u64;
const SS_DISABLE: u64 = 2;
/// struct stack_t of a thread that has none.
pub static NONE: [u64; 3] = [0, SS_DISABLE, 0];

// The change itself, when the handler has returned. The handler stands on the stack that is to be replaced, and the kernel takes no
// other from a thread that stands on its alternate stack, nor at the handler's return: it ignores the uc_stack of such a frame.
// rax is the new struct stack_t, r11 a stack of ours that is out of use then or 0, rcx the place in the program to go on at.
// Behind a system call these registers are anybody's.
global_asm!(
    ".text",
    ".global lorentz_change_stack",
    ".type lorentz_change_stack, @function",
    "lorentz_change_stack:",
    ".cfi_startproc",
    ".cfi_undefined rip",
    "lea rsp, [rsp - 128]",
    "push rcx",
    "push rdi",
    "push rsi",
    "push r11",
    "mov rdi, rax",
    "mov esi, 0",
    "mov eax, {sigaltstack}",
    "syscall",
    "pop rcx",
    "jrcxz 2f",
    "mov rdi, rcx",
    "mov esi, {len}",
    "mov eax, {munmap}",
    "syscall",
    "2:",
    "pop rsi",
    "pop rdi",
    "pop rcx",
    "lea rsp, [rsp + 128]",
    "mov eax, 0",
    "jmp rcx",
    ".cfi_endproc",
    ".size lorentz_change_stack, . - lorentz_change_stack",
    sigaltstack = const Sysno::sigaltstack.number(),
    len = const OURS,
    munmap = const Sysno::munmap.number(),
);

extern "C" {
    static lorentz_change_stack: u8;
}

/// sigaltstack(2). A small alternate stack is replaced by a larger one. Carried out behind the handler's return.
pub fn sigaltstack(call: &mut Call) -> isize {
    const SS_ONSTACK: u64 = 1;
    const SS_AUTODISARM: u64 = 1 << 31;
    const SMALLEST: u64 = 2048;
    let [new, old, ..] = call.args;
    let before = call.context.stack;
    let on_it = on_stack(before, call.context.regs[reg::RSP]);
    if old != 0 {
        if let Err(error) = tell(old, as_told(before, on_it)) {
            return error;
        }
    }
    if new == 0 {
        return 0;
    }
    // struct stack_t is 24 bytes: two words, then one that a timespec has room for.
    let (first, last) = match (user::read_timespec(new), user::read_sigset(new + 16)) {
        (Ok(first), Ok(last)) => (first, last),
        (Err(error), _) | (_, Err(error)) => return error,
    };
    let wanted = [first.secs as u64, first.nanos as u64 & 0xffff_ffff, last];
    let mode = wanted[1] & !SS_AUTODISARM;
    if on_it {
        return -errno::EPERM;
    }
    if ![0, SS_ONSTACK, SS_DISABLE].contains(&mode) {
        return -errno::EINVAL;
    }
    if mode != SS_DISABLE && wanted[2] < SMALLEST {
        return -errno::ENOMEM;
    }
    let given_at = match mode {
        // A child whose own stack is too small keeps the one that it does not know of.
        SS_DISABLE if asked_for(before) == NONE => return 0,
        SS_DISABLE => NONE.as_ptr() as u64,
        _ if wanted[2] < ENOUGH => stack_for(wanted).map_or(new, given_at),
        _ => new,
    };
    change_behind(call, before, given_at)
}

/// Has the alternate stack changed behind the handler's return, to the struct stack_t at `given_at`, and `before` given back where it
/// is of ours. Gives what is in the result register until then.
fn change_behind(call: &mut Call, before: [u64; 3], given_at: u64) -> isize {
    let out_of_use = header_of(before).map_or(0, |header| header as u64);
    let regs = &mut call.context.regs;
    regs[reg::R11] = if out_of_use == SPARE_STACK as u64 { 0 } else { out_of_use };
    regs[reg::RCX] = regs[reg::RIP];
    regs[reg::RIP] = &raw const lorentz_change_stack as u64;
    given_at as isize
}

/// What sigaltstack(2) tells of `stack`.
fn as_told(stack: [u64; 3], on_it: bool) -> [u64; 3] {
    const SS_AUTODISARM: u64 = 1 << 31;
    let [sp, flags, size] = asked_for(stack);
    let flags = match size {
        0 => SS_DISABLE,
        _ => flags & SS_AUTODISARM | on_it as u64,
    };
    [sp, flags, size]
}

/// Writes a struct stack_t to the program. The padding behind the flags is the program's own.
fn tell(at: u64, [sp, flags, size]: [u64; 3]) -> Result<(), isize> {
    user::write_u64(at, sp)?;
    user::write_u64(at + 16, size)?;
    // SAFETY: between two words that the kernel has just written.
    unsafe { ((at + 8) as *mut u32).write_unaligned(flags as u32) };
    Ok(())
}

fn on_stack(stack: [u64; 3], sp: u64) -> bool {
    stack[2] != 0 && sp > stack[0] && sp - stack[0] <= stack[2]
}

/// A new stack of ours in place of `asked`; none where there is no memory.
pub fn stack_for(asked: [u64; 3]) -> Option<[u64; 3]> {
    const READ_WRITE: u64 = 3;
    const PRIVATE_ANONYMOUS_STACK: u64 = 0x2_0022;
    // SAFETY: new memory.
    let memory =
        unsafe { sys!(Sysno::mmap, 0u64, OURS, READ_WRITE, PRIVATE_ANONYMOUS_STACK, -1i64, 0u64) };
    // SAFETY: as long as a stack of ours, and nobody else's.
    (memory > 0).then(|| unsafe { begin(memory as usize, asked) })
}

/// The spare stack in place of `asked`, for a child that gets a copy of this process's memory. No thread of this process stands on
/// it, or this one does, and is such a child itself: then the header is there already.
pub fn spare_stack_for(asked: [u64; 3]) -> [u64; 3] {
    // SAFETY: the boot code has mapped it; only its header is written.
    unsafe { begin(SPARE_STACK, asked) }
}

/// A stack in place of `asked` for a child that shares this memory while this thread waits for it. It is this thread's: its child
/// before has ended or exec'd, and is off it. A thread that has ended leaves its own to others.
pub fn vfork_stack_for(asked: [u64; 3]) -> Option<[u64; 3]> {
    let own = sys::gettid();
    let stacks = &data().vfork_stacks;
    let mine = stacks.iter().find(|stack| stack.parent.load(Relaxed) == own);
    let stack = mine.or_else(|| stacks.iter().find(|stack| take_over(stack, own)))?;
    let memory = match stack.memory.load(Relaxed) {
        0 => stack_for(asked)?[0] as usize - HEADER as usize,
        memory => memory,
    };
    stack.memory.store(memory, Relaxed);
    // SAFETY: a stack that `stack_for` made, and no child of this thread is on it.
    Some(unsafe { begin(memory, asked) })
}

/// Makes a stack `own`, if the thread that it was for has ended, or there was none.
fn take_over(stack: &VforkStack, own: u32) -> bool {
    let before = stack.parent.load(Relaxed);
    // SAFETY: signal 0 asks only.
    let ended = before == 0 || unsafe { sys!(Sysno::tkill, before, 0u64) } == -errno::ESRCH;
    ended && stack.parent.compare_exchange(before, own, AcqRel, Relaxed).is_ok()
}

/// Where struct stack_t of a stack of ours lies, for the kernel to read.
pub fn given_at(stack: [u64; 3]) -> u64 {
    stack[0] - HEADER + core::mem::offset_of!(Header, given) as u64
}

/// # Safety
/// At `memory` lies a stack of ours, whose header may be written.
unsafe fn begin(memory: usize, asked: [u64; 3]) -> [u64; 3] {
    const SS_AUTODISARM: u64 = 1 << 31;
    let given = [memory as u64 + HEADER, asked[1] & SS_AUTODISARM, OURS - HEADER];
    // SAFETY: the caller's promise.
    unsafe { (memory as *mut Header).write(Header { magic: MAGIC, asked, given, unused: 0 }) };
    given
}

fn header_of(stack: [u64; 3]) -> Option<*const Header> {
    if stack[2] != OURS - HEADER {
        return None;
    }
    let header = stack[0].wrapping_sub(HEADER);
    // The program may ask for a stack of this size as well, anywhere.
    (user::read_u64(header) == Ok(MAGIC)).then_some(header as *const Header)
}

/// What the program asked for when it got `stack`.
fn asked_for(stack: [u64; 3]) -> [u64; 3] {
    // SAFETY: a header that `begin` wrote.
    header_of(stack).map_or(stack, |header| unsafe { (*header).asked })
}

/// Whether a thread whose alternate stack is `stack` has one that handlers can stand on.
pub fn is_there(stack: [u64; 3]) -> bool {
    stack[1] & SS_DISABLE == 0 && stack[2] != 0
}
