//! The functions that a program without a standard library has to bring itself. In the image only.

use core::arch::{asm, global_asm};

// The compiler calls these for copies it does not unroll. Written in assembly, or it would turn the loops of their
// bodies into calls of themselves.
global_asm!(
    ".text",
    ".global memcpy",
    ".global memmove",
    ".global memset",
    ".global memcmp",
    ".global bcmp",
    // Named by the compiler's own division routines, which were built to unwind. A program's thread may be cancelled in the
    // midst of one: the unwinder is to go on to the next frame (_URC_CONTINUE_UNWIND).
    ".global rust_eh_personality",
    "rust_eh_personality:",
    "mov eax, 8",
    "ret",
    "memmove:",
    "mov rax, rdi",
    "mov rcx, rdx",
    "mov r8, rdi",
    "sub r8, rsi",
    "cmp r8, rdx",
    "jb 2f",
    "rep movsb",
    "ret",
    "2:",
    "lea rdi, [rdi + rcx - 1]",
    "lea rsi, [rsi + rcx - 1]",
    "std",
    "rep movsb",
    "cld",
    "ret",
    "memcpy:",
    "mov rax, rdi",
    "mov rcx, rdx",
    "rep movsb",
    "ret",
    "memset:",
    "mov r8, rdi",
    "mov eax, esi",
    "mov rcx, rdx",
    "rep stosb",
    "mov rax, r8",
    "ret",
    "memcmp:",
    "bcmp:",
    "xor eax, eax",
    "mov rcx, rdx",
    "test rcx, rcx",
    "jz 3f",
    "repe cmpsb",
    "je 3f",
    "movzx eax, byte ptr [rdi - 1]",
    "movzx ecx, byte ptr [rsi - 1]",
    "sub eax, ecx",
    "3:",
    "ret",
);

/// A defect in the shim: end the program with a signal that says so, rather than let it go on with wrong time.
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo) -> ! {
    loop {
        // SAFETY: ends the program.
        unsafe { asm!("ud2", options(noreturn)) };
    }
}
