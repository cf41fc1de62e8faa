//! Calls that come from a rewritten call site, without a trap: see [`crate::call_sites`].
//!
//! Such a call runs on the program's stack and under the program's signal mask, as a function of the program would. So it does
//! only what a signal handler may interrupt at any instruction, and what a handler may leave by a long jump: it reads the clock, or
//! makes the kernel's call and translates its answer. A call that may wait, or that changes the shim's state, is left to the
//! trap: the program then makes the call at its own site.
//!
//! A signal that arrives here finds a stack that unwinders can walk: the assembly below describes where its frame keeps the
//! program's registers, and that the program goes on behind its call site.

use crate::call::Arguments;
use crate::calls::{clock, file};
use crate::layout::{data, CallSite, ANY_CALL, CALL_SITES, CALL_SITES_LEN};
use crate::read::clock_time;
use crate::signals;
use crate::sys::{sys, ClockId, Errno, FutexOp, SysResult, Sysno, Timespec, Timeval, UserPtr};
use crate::user::{self, Access};
use crate::vdso;
use core::arch::global_asm;
use core::mem::{offset_of, size_of};
use core::sync::atomic::Ordering::Relaxed;
use lorentz_syscalls::Handler;

/// Result of [`carry_out`] for a call that the program makes at its own site. No system call returns it.
const BY_TRAP: isize = -5003;

/// The program's registers at a rewritten call site.
#[repr(C)]
struct Frame {
    rax: u64,
    rbx: u64,
    r9: u64,
    r8: u64,
    r10: u64,
    rdx: u64,
    rsi: u64,
    rdi: u64,
    r11: u64,
    /// Sixteen times the place of the call site in the table.
    rcx: u64,
    flags: u64,
}

/// The kernel leaves so much below the stack pointer alone.
const RED_ZONE: usize = 128;
/// From the frame to the program's stack pointer.
const TO_STACK: usize = size_of::<Frame>() + RED_ZONE;
/// Bytes of one stub: a power of two.
const STUB_LEN: usize = 16;
const VECTORS_LEN: usize = 16 * 16;
/// TF and DF in the second byte of the flags. A single step, or string instructions that go backwards: by the trap.
const STEP_OR_BACKWARDS: u8 = 0b101;

global_asm!(
    ".text",
    // One stub for each place in the table of call sites. The program's registers are as at its site: all are kept but rcx, which the syscall
    // instruction changes too.
    ".balign {stubs_len}",
    ".global lorentz_call_stubs",
    ".type lorentz_call_stubs, @function",
    "lorentz_call_stubs:",
    ".cfi_startproc",
    ".cfi_def_cfa rsp, 0",
    // The program goes on where the table says: DW_CFA_expression for rip: (rip & mask of the place) + table.
    ".cfi_escape 0x10, 16, 12, 0x80, 0, 0x0a, {place_mask} & 0xff, {place_mask} >> 8, 0x1a, 0x23, \
        ({sites} & 0x7f) | 0x80, (({sites} >> 7) & 0x7f) | 0x80, (({sites} >> 14) & 0x7f) | 0x80, \
        (({sites} >> 21) & 0x7f) | 0x80, {sites} >> 28",
    ".set place, 0",
    ".rept {stubs}",
    "mov ecx, offset place",
    "jmp lorentz_direct_call",
    ".balign {stub_len}, 0xcc",
    ".set place, place + {stub_len}",
    ".endr",
    ".cfi_endproc",
    ".size lorentz_call_stubs, . - lorentz_call_stubs",

    ".type lorentz_direct_call, @function",
    "lorentz_direct_call:",
    ".cfi_startproc",
    ".cfi_def_cfa rsp, 0",
    // The same with the place in rcx.
    ".cfi_escape 0x10, 16, 6, 0x72, \
        ({sites} & 0x7f) | 0x80, (({sites} >> 7) & 0x7f) | 0x80, (({sites} >> 14) & 0x7f) | 0x80, \
        (({sites} >> 21) & 0x7f) | 0x80, {sites} >> 28",
    "lea rsp, [rsp - {red_zone}]",
    ".cfi_adjust_cfa_offset {red_zone}",
    "pushfq",
    ".cfi_adjust_cfa_offset 8",
    ".irp register, rcx, r11, rdi, rsi, rdx, r10, r8, r9, rbx, rax",
    "push \\register",
    ".cfi_adjust_cfa_offset 8",
    ".endr",
    ".cfi_offset rbx, {rbx} - {to_stack}",
    "mov rbx, rsp",
    ".cfi_def_cfa rbx, {to_stack}",
    // The same with the place in the frame, at rbx.
    ".cfi_escape 0x10, 16, 10, 0x73, {rcx} & 0x7f | 0x80, 0, 0x06, 0x23, \
        ({sites} & 0x7f) | 0x80, (({sites} >> 7) & 0x7f) | 0x80, (({sites} >> 14) & 0x7f) | 0x80, \
        (({sites} >> 21) & 0x7f) | 0x80, {sites} >> 28",
    "mov eax, [rcx + {sites} + {number}]",
    "cmp eax, {any_call}",
    "je 2f",
    "mov [rbx], rax",
    "1:",
    "test byte ptr [rbx + {flags} + 1], {step_or_backwards}",
    "jnz 4f",
    "and rsp, -16",
    "sub rsp, {vectors_len}",
    ".set vector, 0",
    ".irp vector, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    "movaps [rsp + 16 * \\vector], xmm\\vector",
    ".endr",
    "mov rdi, rbx",
    "call {carry_out}",
    ".irp vector, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    "movaps xmm\\vector, [rsp + 16 * \\vector]",
    ".endr",
    "mov rsp, rbx",
    "cmp rax, {by_trap}",
    "je 4f",
    "mov [rbx], rax",
    // Back behind the site, with the result. The flags without popf, which takes twenty cycles.
    "mov r11, [rbx + {flags}]",
    "mov rax, r11",
    "shr eax, 11",
    "and eax, 1",
    "add al, 0x7f",
    "mov rax, r11",
    "mov ah, al",
    "sahf",
    ".macro lorentz_load_registers",
    "mov rax, [rbx]",
    "mov r9, [rbx + {r9}]",
    "mov r8, [rbx + {r8}]",
    "mov r10, [rbx + {r10}]",
    "mov rdx, [rbx + {rdx}]",
    "mov rsi, [rbx + {rsi}]",
    "mov rdi, [rbx + {rdi}]",
    "mov rcx, [rbx + {rcx}]",
    ".endm",
    "lorentz_load_registers",
    ".cfi_remember_state",
    ".cfi_def_cfa rsp, {to_stack}",
    ".cfi_escape 0x10, 16, 6, 0x72, \
        ({sites} & 0x7f) | 0x80, (({sites} >> 7) & 0x7f) | 0x80, (({sites} >> 14) & 0x7f) | 0x80, \
        (({sites} >> 21) & 0x7f) | 0x80, {sites} >> 28",
    "mov rbx, [rsp + {rbx}]",
    ".cfi_same_value rbx",
    "lea rsp, [rsp + {to_stack}]",
    ".cfi_def_cfa_offset 0",
    // rcx differs from the address behind the site: see `call::was_trapped`.
    "jmp [rcx + {sites}]",
    ".cfi_restore_state",
    // syscall(2) of glibc: the instruction that the jump has replaced loads its last argument.
    "2:",
    "mov rax, [rbx + {to_stack} + 8]",
    "mov [rbx + {r9}], rax",
    "jmp 1b",
    // By the trap: at the syscall instruction, as if it had never been left.
    "4:",
    "lorentz_load_registers",
    ".cfi_def_cfa rsp, {to_stack}",
    ".cfi_escape 0x10, 16, 6, 0x72, \
        ({sites} & 0x7f) | 0x80, (({sites} >> 7) & 0x7f) | 0x80, (({sites} >> 14) & 0x7f) | 0x80, \
        (({sites} >> 21) & 0x7f) | 0x80, {sites} >> 28",
    "mov r11, [rbx + {r11}]",
    "mov rbx, [rsp + {rbx}]",
    ".cfi_same_value rbx",
    "lea rsp, [rsp + {flags}]",
    ".cfi_adjust_cfa_offset -{flags}",
    "popfq",
    ".cfi_adjust_cfa_offset -8",
    "lea rsp, [rsp + {red_zone}]",
    ".cfi_adjust_cfa_offset -{red_zone}",
    "mov rcx, [rcx + {sites}]",
    // DW_CFA_val_expression: rcx itself.
    ".cfi_escape 0x16, 16, 2, 0x72, 0",
    "lea rcx, [rcx - 2]",
    "jmp rcx",
    ".cfi_endproc",
    ".size lorentz_direct_call, . - lorentz_direct_call",
    stubs = const CALL_SITES_LEN,
    stub_len = const STUB_LEN,
    stubs_len = const CALL_SITES_LEN * STUB_LEN,
    place_mask = const CALL_SITES_LEN * STUB_LEN - STUB_LEN,
    sites = const CALL_SITES,
    number = const offset_of!(CallSite, number),
    any_call = const ANY_CALL as i32,
    by_trap = const BY_TRAP,
    red_zone = const RED_ZONE,
    to_stack = const TO_STACK,
    vectors_len = const VECTORS_LEN,
    step_or_backwards = const STEP_OR_BACKWARDS,
    rbx = const offset_of!(Frame, rbx),
    r9 = const offset_of!(Frame, r9),
    r8 = const offset_of!(Frame, r8),
    r10 = const offset_of!(Frame, r10),
    rdx = const offset_of!(Frame, rdx),
    rsi = const offset_of!(Frame, rsi),
    rdi = const offset_of!(Frame, rdi),
    r11 = const offset_of!(Frame, r11),
    rcx = const offset_of!(Frame, rcx),
    flags = const offset_of!(Frame, flags),
    carry_out = sym carry_out_frame,
);

const _: () = assert!(size_of::<CallSite>() == STUB_LEN);

extern "C" {
    static lorentz_call_stubs: u8;
}

/// The address of the stub of a call site.
pub fn stub(place: usize) -> usize {
    &raw const lorentz_call_stubs as usize + place * STUB_LEN
}

/// Carries out the call of a frame. Returns its result, or [`BY_TRAP`].
unsafe extern "C" fn carry_out_frame(frame: *const Frame) -> isize {
    // SAFETY: the assembly above has just written it.
    let frame = unsafe { &*frame };
    let arguments = Arguments {
        nr: Sysno::new(frame.rax as u32),
        args: [frame.rdi, frame.rsi, frame.rdx, frame.r10, frame.r8, frame.r9],
    };
    match carry_out(&arguments) {
        None => BY_TRAP,
        Some(Ok(result)) => result,
        Some(Err(error)) => error.in_register(),
    }
}

/// The result of a call; `None` where it is to be made by the trap.
fn carry_out(call: &Arguments) -> Option<SysResult> {
    // A filter of the program's own shall see the call where the program makes it.
    if data().sandboxed.load(Relaxed) != 0 {
        return None;
    }
    match lorentz_syscalls::handler(call.nr)? {
        Handler::ClockGettime => clock_gettime(call.arg(0), call.arg(1)),
        Handler::Gettimeofday => gettimeofday(call.arg(0), call.arg(1)),
        Handler::Time => Some(clock::time_into(call.arg(0))),
        Handler::Stat => Some(file::stat(call)),
        Handler::Open => Some(file::open_directly(call)),
        Handler::SigAction => signals::set_plain_action(call),
        Handler::SigProcMask => signals::set_plain_mask(call),
        Handler::Poll => ready(call, 2),
        Handler::EpollWait => ready(call, 3),
        Handler::EpollPwait if call.arg::<u64>(4) == 0 => ready(call, 3),
        Handler::Futex => has_other_value(call),
        _ => None,
    }
}

fn clock_gettime(clock: ClockId, out: UserPtr<Timespec>) -> Option<SysResult> {
    // The CPU clocks keep a state.
    if clock.is_cpu_clock() {
        return None;
    }
    if user::is_on_this_page(out) {
        // SAFETY: the page is that of a stack in use.
        let result = unsafe { vdso::clock_gettime(clock, out.address() as *mut Timespec) };
        return Some(Errno::check(result as isize));
    }
    Some(clock_time(clock).and_then(|time| out.write(time)).map(|()| 0))
}

fn gettimeofday(out: UserPtr<Timeval>, zone: u64) -> Option<SysResult> {
    if zone != 0 || !user::is_on_this_page(out) {
        return None;
    }
    // SAFETY: the page is that of a stack in use.
    let result =
        unsafe { vdso::gettimeofday(out.address() as *mut Timeval, core::ptr::null_mut()) };
    Some(Errno::check(result as isize))
}

/// poll and epoll with a timeout, argument `timeout` in milliseconds: what is ready at once. Else they wait, or say by the trap what
/// broke them off.
fn ready(call: &Arguments, timeout: usize) -> Option<SysResult> {
    if call.arg::<i32>(timeout) <= 0 {
        return None;
    }
    // SAFETY: the program's own call, without waiting.
    let result = unsafe { call.by_kernel_with(timeout, 0u64) };
    (result != Ok(0) && result != Err(Errno::EINTR)).then_some(result)
}

/// A futex wait with a timeout: EAGAIN where the word has another value.
fn has_other_value(call: &Arguments) -> Option<SysResult> {
    let op: FutexOp = call.arg(1);
    let looks_at_word = match op.command() {
        FutexOp::FUTEX_WAIT => !op.contains(FutexOp::FUTEX_CLOCK_REALTIME),
        FutexOp::FUTEX_WAIT_BITSET => call.arg::<u32>(5) != 0,
        _ => false,
    };
    if !looks_at_word {
        return None;
    }
    // The kernel refuses these before it reads the futex word: by the trap.
    user::read_nearby(call.arg::<UserPtr<Timespec>>(3)).ok()?.to_span()?;
    let op = FutexOp::FUTEX_CMP_REQUEUE.with(op.among(FutexOp::FUTEX_PRIVATE_FLAG));
    let (word, value) = (call.args[0], call.args[2]);
    // SAFETY: looks at the word. It wakes and moves nobody: both numbers are 0.
    let other = unsafe { sys!(Sysno::futex, word, op, 0, 0, word, value) };
    (other == Err(Errno::EAGAIN)).then_some(other)
}
