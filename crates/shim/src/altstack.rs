//! Alternate signal stacks. A stack that is too small for the handlers of the shim is replaced by a larger one, and so is one that
//! is not there where the program's own is too small ([`crate::clone_tracking`]). The program sees the one that it asked for.

use crate::call::Call;
use crate::layout::{data, VforkStack, SPARE_STACK, SPARE_STACK_LEN};
use crate::sys::{self, has_ended, reg, sys, Errno, Fd, SsFlags, Stack, SysResult, Sysno, UserPtr};
use crate::user::Access;
use core::arch::global_asm;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};

/// At the lowest address of a stack of ours.
#[repr(C)]
struct Header {
    magic: u64,
    /// struct stack_t as the program asked for it.
    asked: Stack,
    /// The same as the kernel is to have it.
    given: Stack,
    unused: u64,
}

const MAGIC: u64 = 0x4c5a_7374_6163_6b21;
const HEADER_LEN: u64 = size_of::<Header>() as u64;
/// A stack that the program gives is used if it has at least this size. A frame of a signal takes up to 4 KiB with wide registers, and
/// three may lie on top of each other: the program's, that of a trapped call in its handler, and that of the clock-change signal.
/// With what the shim's two handlers need, half is left to the program's.
const MIN_SUFFICIENT: u64 = 32 * 1024;
/// Size of ours.
const STACK_LEN: u64 = SPARE_STACK_LEN as u64;
/// struct stack_t of a thread that has none.
pub static NONE: Stack = Stack { sp: 0, flags: SsFlags::SS_DISABLE, padding: 0, size: 0 };

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
    len = const STACK_LEN,
    munmap = const Sysno::munmap.number(),
);

extern "C" {
    static lorentz_change_stack: u8;
}

/// sigaltstack(2). A small alternate stack is replaced by a larger one. Carried out behind the handler's return.
pub fn sigaltstack(
    call: &mut Call,
    new: Option<UserPtr<Stack>>,
    old: Option<UserPtr<Stack>>,
) -> SysResult {
    const MIN_SIZE: u64 = 2048;
    let before = call.context.stack;
    let on_it = on_stack(before, call.context.regs[reg::RSP]);
    if let Some(old) = old {
        write_stack(old, as_reported(before, on_it))?;
    }
    let Some(new) = new else { return Ok(0) };
    let wanted = Stack { padding: 0, ..new.read()? };
    let mode = wanted.flags.without(SsFlags::SS_AUTODISARM);
    if on_it {
        return Err(Errno::EPERM);
    }
    if ![SsFlags::new(0), SsFlags::SS_ONSTACK, SsFlags::SS_DISABLE].contains(&mode) {
        return Err(Errno::EINVAL);
    }
    if mode != SsFlags::SS_DISABLE && wanted.size < MIN_SIZE {
        return Err(Errno::ENOMEM);
    }
    let given = match mode {
        // A child whose own stack is too small keeps the one that it does not know of.
        SsFlags::SS_DISABLE if asked_for(before) == NONE => return Ok(0),
        SsFlags::SS_DISABLE => UserPtr::to(&NONE),
        _ if wanted.size < MIN_SUFFICIENT => stack_for(wanted).map_or(new, given_at),
        _ => new,
    };
    Ok(change_behind(call, before, given))
}

/// Has the alternate stack changed behind the handler's return, to the one at `given`, and `before` given back where it is of ours.
/// Returns the content of the result register until then.
fn change_behind(call: &mut Call, before: Stack, given: UserPtr<Stack>) -> isize {
    let out_of_use = header_of(before).map_or(0, |header| header as u64);
    let regs = &mut call.context.regs;
    regs[reg::R11] = if out_of_use == SPARE_STACK as u64 { 0 } else { out_of_use };
    regs[reg::RCX] = regs[reg::RIP];
    regs[reg::RIP] = &raw const lorentz_change_stack as u64;
    given.address() as isize
}

/// `stack` as sigaltstack(2) returns it.
fn as_reported(stack: Stack, on_it: bool) -> Stack {
    let asked = asked_for(stack);
    let flags = match (asked.size, asked.flags.among(SsFlags::SS_AUTODISARM)) {
        (0, _) => SsFlags::SS_DISABLE,
        (_, flags) if on_it => flags.with(SsFlags::SS_ONSTACK),
        (_, flags) => flags,
    };
    Stack { flags, ..asked }
}

/// Writes a struct stack_t to the program. The padding behind the flags is the program's own.
fn write_stack(to: UserPtr<Stack>, stack: Stack) -> SysResult<()> {
    to.field::<u64>(0).write(stack.sp)?;
    to.field::<u64>(16).write(stack.size)?;
    // SAFETY: between two words that the kernel has just written.
    unsafe { to.field::<u32>(8).set(stack.flags.bits()) };
    Ok(())
}

fn on_stack(stack: Stack, sp: u64) -> bool {
    stack.size != 0 && sp > stack.sp && sp - stack.sp <= stack.size
}

/// A new stack of ours in place of `asked`; none where there is no memory.
pub fn stack_for(asked: Stack) -> Option<Stack> {
    const READ_WRITE: i32 = 3;
    const PRIVATE_ANONYMOUS_STACK: i32 = 0x2_0022;
    // SAFETY: new memory.
    let memory = unsafe {
        sys!(Sysno::mmap, 0, STACK_LEN, READ_WRITE, PRIVATE_ANONYMOUS_STACK, Fd::NONE, 0).ok()?
    };
    // SAFETY: as long as a stack of ours, and nobody else's.
    Some(unsafe { begin(memory as usize, asked) })
}

/// The spare stack in place of `asked`, for a child that gets a copy of this process's memory. No thread of this process stands on
/// it, or this one does, and is such a child itself: then the header is there already.
pub fn spare_stack_for(asked: Stack) -> Stack {
    // SAFETY: the boot code has mapped it; only its header is written.
    unsafe { begin(SPARE_STACK, asked) }
}

/// A stack in place of `asked` for a child that shares this memory while this thread waits for it. It is this thread's: its child
/// before has ended or exec'd, and is off it. A thread that has ended leaves its own to others.
pub fn vfork_stack_for(asked: Stack) -> Option<Stack> {
    let own = sys::gettid();
    let stacks = &data().vfork_stacks;
    let mine = stacks.iter().find(|stack| stack.parent.load(Relaxed) == own);
    let stack = mine.or_else(|| stacks.iter().find(|stack| take_over(stack, own)))?;
    let memory = match stack.memory.load(Relaxed) {
        0 => stack_for(asked)?.sp as usize - HEADER_LEN as usize,
        memory => memory,
    };
    stack.memory.store(memory, Relaxed);
    // SAFETY: a stack that `stack_for` made, and no child of this thread is on it.
    Some(unsafe { begin(memory, asked) })
}

/// Makes a stack `own`, if the thread that it was for has ended, or there was none.
fn take_over(stack: &VforkStack, own: u32) -> bool {
    let before = stack.parent.load(Relaxed);
    let ended = before == 0 || has_ended(before);
    ended && stack.parent.compare_exchange(before, own, AcqRel, Relaxed).is_ok()
}

/// Where struct stack_t of a stack of ours lies, for the kernel to read.
pub fn given_at(stack: Stack) -> UserPtr<Stack> {
    UserPtr::new(stack.sp - HEADER_LEN + core::mem::offset_of!(Header, given) as u64)
}

/// # Safety
/// At `memory` lies a stack of ours, whose header may be written.
unsafe fn begin(memory: usize, asked: Stack) -> Stack {
    let flags = asked.flags.among(SsFlags::SS_AUTODISARM);
    let given =
        Stack { sp: memory as u64 + HEADER_LEN, flags, padding: 0, size: STACK_LEN - HEADER_LEN };
    // SAFETY: the caller's promise.
    unsafe { (memory as *mut Header).write(Header { magic: MAGIC, asked, given, unused: 0 }) };
    given
}

fn header_of(stack: Stack) -> Option<*const Header> {
    if stack.size != STACK_LEN - HEADER_LEN {
        return None;
    }
    let header: UserPtr<u64> = UserPtr::new(stack.sp.wrapping_sub(HEADER_LEN));
    // The program may ask for a stack of this size as well, anywhere.
    (header.read() == Ok(MAGIC)).then_some(header.address() as *const Header)
}

/// The stack that the program asked for when it got `stack`.
fn asked_for(stack: Stack) -> Stack {
    // SAFETY: a header that `begin` wrote.
    header_of(stack).map_or(stack, |header| unsafe { (*header).asked })
}

/// Whether a thread whose alternate stack is `stack` has one that handlers can stand on.
pub fn is_there(stack: Stack) -> bool {
    !stack.flags.contains(SsFlags::SS_DISABLE) && stack.size != 0
}
