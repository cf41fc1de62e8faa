//! The few instructions whose addresses matter.
//!
//! *The gate* is the one place where a thread blocks on the clock. It looks at the clock's sequence number and
//! makes the system call only if no change has come since the timeout was computed. A kick that arrives between
//! the look and the call moves the thread to the gate's exit; one that arrives in the call ends it. Either way
//! the result is [`RETRY`], which no system call returns: a real EINTR stays an EINTR.

use crate::layout::SEQUENCE;
use core::arch::global_asm;

/// The gate's result when the clock has changed.
pub const RETRY: isize = -5000;

global_asm!(
    ".text",
    ".global lorentz_gate",
    ".type lorentz_gate, @function",
    "lorentz_gate:",
    ".cfi_startproc",
    "push rbx",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbx, -16",
    "mov ebx, esi",
    "mov rax, [rdi + 48]",
    "mov rsi, [rdi + 8]",
    "mov rdx, [rdi + 16]",
    "mov r10, [rdi + 24]",
    "mov r8, [rdi + 32]",
    "mov r9, [rdi + 40]",
    "mov rdi, [rdi]",
    ".global lorentz_gate_look",
    "lorentz_gate_look:",
    "cmp dword ptr ds:[{sequence}], ebx",
    "jne lorentz_gate_leave",
    "syscall",
    ".global lorentz_gate_done",
    "lorentz_gate_done:",
    "pop rbx",
    ".cfi_def_cfa_offset 8",
    "ret",
    ".cfi_def_cfa_offset 16",
    "lorentz_gate_leave:",
    "mov rax, {retry}",
    "pop rbx",
    ".cfi_def_cfa_offset 8",
    "ret",
    ".cfi_endproc",
    ".size lorentz_gate, . - lorentz_gate",
    sequence = const SEQUENCE,
    retry = const RETRY,
);

// Unwinders know a signal frame by exactly these bytes, or by the frame description they read from .eh_frame;
// the nop before them is what they look one byte back from the return address into.
global_asm!(
    ".text",
    "nop",
    ".global lorentz_restorer",
    ".type lorentz_restorer, @function",
    "lorentz_restorer:",
    ".byte 0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05",
    ".size lorentz_restorer, . - lorentz_restorer",
);

extern "C" {
    fn lorentz_gate(args: *const [u64; 7], sequence: u32) -> isize;
    fn lorentz_restorer();
    static lorentz_gate_look: u8;
    static lorentz_gate_done: u8;
}

/// Makes the call `args[6]` with `args[..6]`, unless the clock has left state `sequence`.
///
/// # Safety
/// As for any system call: the kernel reads and writes what the arguments point at.
pub unsafe fn pass(args: &[u64; 7], sequence: u32) -> isize {
    // SAFETY: the caller answers for the arguments.
    unsafe { lorentz_gate(args, sequence) }
}

/// Where signal handlers return to.
pub fn restorer() -> usize {
    lorentz_restorer as *const () as usize
}

/// Whether `ip` lies in the gate: before the call, at it, or just behind it.
pub fn is_at(ip: usize) -> bool {
    (&raw const lorentz_gate_look as usize..=&raw const lorentz_gate_done as usize).contains(&ip)
}

/// Where a thread interrupted at the gate, at `ip` and with `before` in its result register, goes on when the clock has
/// changed: the address, and `result`. `None` where its call has ended by itself.
pub fn turn_back(ip: usize, before: isize, result: isize) -> Option<(usize, isize)> {
    let done = &raw const lorentz_gate_done as usize;
    if ip == done && before != -crate::sys::errno::EINTR {
        return None;
    }
    Some((done, result))
}
