//! The few instructions whose addresses matter.
//!
//! A *gate* is a place where a thread blocks on the clock. It looks at the clock's version and makes the system call only if
//! no change has come since the timeout was computed. A clock-change signal that arrives between the look and the call moves the
//! thread to the gate's exit; one that arrives in the call ends it. Either way the result is [`RETRY`], which no system
//! call returns: a real EINTR stays an EINTR.
//!
//! There are two. The first is for calls that take a signal mask and put it in force by themselves ([`pass`]). The second opens the
//! program's mask for the call and closes it again ([`pass_open`]). In between a handler of the program's may run before the call
//! blocks, and the call must not wait for another signal then:
//!
//! ```text
//!   all masked        program's mask in force                                 all masked
//!   ----------|-------------------------------------------------------------|-----------
//!     clear    rt_sigprocmask   version?   any handler?   call   (result)    rt_sigprocmask   any handler?
//!     mark                      -> RETRY   -> EARLY                                           -> `mark`
//! ```
//!
//! The mark is the lowest word of the frame that the kernel makes when it delivers a signal here: the address to which the handler
//! returns. Frames lie at a known distance below the stack pointer. A signal that is delivered between the look at the mark and the
//! call itself, two instructions, does not interrupt the call; natively the same holds at the call's entry.
//!
//! A clock-change signal leaves this gate with everything masked, so that a signal of the program's that comes next is still
//! pending when the wait begins anew.

use crate::layout::{TRAP_MASK, VERSION};
use crate::sys::{Errno, Request, SigSet};
use core::arch::global_asm;
use core::mem::offset_of;

/// The gate's result when the clock has changed.
pub const RETRY: isize = -5000;
/// The second gate's result when a handler of the program's ran before the call.
pub const EARLY: isize = -5002;

/// The second gate: a call, and the masks around it.
#[repr(C)]
pub struct OpenCall {
    /// The call.
    pub request: Request,
    /// The version of the clock that the timeout was computed from.
    pub version: u64,
    /// The program's signal mask.
    pub open: SigSet,
    /// The mask for the rest of the handler.
    closed: SigSet,
    /// Size of the floating-point state in a signal frame; 0 where the mark cannot be placed.
    pub frame_state: u64,
    /// The rest of the frame of a handler that ran meanwhile, of the last of several: its first word, 0 where none ran, and ...
    pub mark: [u64; MARK],
}

/// ... the word with the signal's number, 0 where its handler did not ask for a siginfo.
pub const MARK_SIGNAL: usize = (8 + 304) / 8;
const MARK: usize = MARK_SIGNAL + 1;

/// struct rt_sigframe without the floating-point state: the return address, struct ucontext, struct siginfo.
const FRAME: usize = 8 + 304 + 128;
/// The kernel leaves so much below the stack pointer alone.
const RED_ZONE: usize = 128;

global_asm!(
    ".text",
    // r13: the mark, as the kernel computes the place of a frame. rbx is the call. For a caller that has pushed three registers.
    ".macro lorentz_place_mark",
    "lea r13, [rbx + {mark}]",
    "mov rax, [rbx + {frame_state}]",
    "test rax, rax",
    "jz 2f",
    "lea r13, [rsp - {red_zone}]",
    "sub r13, rax",
    "and r13, -64",
    "sub r13, {frame}",
    "and r13, -16",
    // As if it were called.
    "sub r13, 8",
    "2:",
    "mov qword ptr [r13], 0",
    "mov dword ptr [r13 + {signal}], 0",
    ".endm",
    ".macro lorentz_load_call",
    "mov rax, [rbx + 48]",
    "mov rdi, [rbx]",
    "mov rsi, [rbx + 8]",
    "mov rdx, [rbx + 16]",
    "mov r10, [rbx + 24]",
    "mov r8, [rbx + 32]",
    "mov r9, [rbx + 40]",
    "mov r12, [rbx + {call_version}]",
    ".endm",
    ".macro lorentz_keep_mark",
    "mov rax, [r13]",
    "mov [rbx + {mark}], rax",
    "mov eax, [r13 + {signal}]",
    "mov [rbx + {mark} + {signal}], rax",
    ".endm",
    ".global lorentz_gate",
    ".type lorentz_gate, @function",
    "lorentz_gate:",
    ".cfi_startproc",
    "push rbx",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbx, -16",
    "push r12",
    ".cfi_def_cfa_offset 24",
    ".cfi_offset r12, -24",
    "push r13",
    ".cfi_def_cfa_offset 32",
    ".cfi_offset r13, -32",
    "mov rbx, rdi",
    "lorentz_place_mark",
    "lorentz_load_call",
    ".global lorentz_gate_look",
    "lorentz_gate_look:",
    "cmp qword ptr ds:[{version}], r12",
    "jne lorentz_gate_leave",
    "syscall",
    ".global lorentz_gate_done",
    "lorentz_gate_done:",
    "mov r12, rax",
    "lorentz_keep_mark",
    "mov rax, r12",
    "pop r13",
    ".cfi_def_cfa_offset 24",
    "pop r12",
    ".cfi_def_cfa_offset 16",
    "pop rbx",
    ".cfi_def_cfa_offset 8",
    "ret",
    ".cfi_def_cfa_offset 32",
    "lorentz_gate_leave:",
    "mov rax, {retry}",
    "jmp lorentz_gate_done",
    ".cfi_endproc",
    ".size lorentz_gate, . - lorentz_gate",
    version = const VERSION,
    retry = const RETRY,
    mark = const offset_of!(OpenCall, mark),
    signal = const 8 * MARK_SIGNAL,
    frame_state = const offset_of!(OpenCall, frame_state),
    call_version = const offset_of!(OpenCall, version),
    red_zone = const RED_ZONE,
    frame = const FRAME,
);

global_asm!(
    ".text",
    ".global lorentz_open_gate",
    ".type lorentz_open_gate, @function",
    "lorentz_open_gate:",
    ".cfi_startproc",
    "push rbx",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbx, -16",
    "push r12",
    ".cfi_def_cfa_offset 24",
    ".cfi_offset r12, -24",
    "push r13",
    ".cfi_def_cfa_offset 32",
    ".cfi_offset r13, -32",
    "mov rbx, rdi",
    "lorentz_place_mark",
    "mov eax, {sigprocmask}",
    "mov edi, {setmask}",
    "lea rsi, [rbx + {open}]",
    "xor edx, edx",
    "mov r10d, 8",
    "syscall",
    ".global lorentz_open_gate_look",
    "lorentz_open_gate_look:",
    "lorentz_load_call",
    "cmp qword ptr ds:[{version}], r12",
    "jne 3f",
    "cmp qword ptr [r13], 0",
    "jne 4f",
    "syscall",
    ".global lorentz_open_gate_done",
    "lorentz_open_gate_done:",
    "mov r12, rax",
    "jmp 5f",
    "3:",
    "mov r12, {retry}",
    "jmp 5f",
    "4:",
    "mov r12, {early}",
    "5:",
    // The handler's mask leaves ignored signals unblocked, unless the program itself blocks them.
    "mov rax, ds:[{trap_mask}]",
    "or rax, [rbx + {open}]",
    "mov [rbx + {closed}], rax",
    "lea rsi, [rbx + {closed}]",
    "mov eax, {sigprocmask}",
    "mov edi, {setmask}",
    "xor edx, edx",
    "mov r10d, 8",
    "syscall",
    "6:",
    "lorentz_keep_mark",
    "mov rax, r12",
    "pop r13",
    ".cfi_def_cfa_offset 24",
    "pop r12",
    ".cfi_def_cfa_offset 16",
    "pop rbx",
    ".cfi_def_cfa_offset 8",
    "ret",
    // A clock-change signal comes here, with everything masked.
    ".cfi_def_cfa_offset 32",
    ".global lorentz_open_gate_changed",
    "lorentz_open_gate_changed:",
    "mov r12, {retry}",
    "mov qword ptr [r13], 0",
    "jmp 6b",
    ".cfi_endproc",
    ".size lorentz_open_gate, . - lorentz_open_gate",
    version = const VERSION,
    retry = const RETRY,
    early = const EARLY,
    open = const offset_of!(OpenCall, open),
    closed = const offset_of!(OpenCall, closed),
    trap_mask = const TRAP_MASK,
    sigprocmask = const crate::sys::Sysno::rt_sigprocmask.number(),
    setmask = const 2,
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
    fn lorentz_gate(call: *mut OpenCall) -> isize;
    fn lorentz_open_gate(call: *mut OpenCall) -> isize;
    fn lorentz_restorer();
    static lorentz_gate_look: u8;
    static lorentz_gate_done: u8;
    static lorentz_open_gate_look: u8;
    static lorentz_open_gate_done: u8;
    static lorentz_open_gate_changed: u8;
}

/// Makes a call that puts the program's mask in force by itself, unless the clock has left the version.
///
/// # Safety
/// As for any system call: the kernel reads and writes what the arguments point at. Where the mark can be placed, a signal frame
/// must fit on this stack.
pub unsafe fn pass(call: &mut OpenCall) -> isize {
    // SAFETY: the caller answers for the arguments and the stack.
    unsafe { lorentz_gate(call) }
}

/// Makes a call with the program's signals let in, unless the clock has left the version or one has come before it.
///
/// # Safety
/// As for [`pass`].
pub unsafe fn pass_open(call: &mut OpenCall) -> isize {
    // SAFETY: the caller answers for the arguments and the stack.
    unsafe { lorentz_open_gate(call) }
}

/// Where signal handlers return to.
pub fn restorer() -> usize {
    lorentz_restorer as *const () as usize
}

/// A thread that was interrupted at a gate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// The gate whose call has a mask of its own.
    Gate,
    /// The gate that has let the program's signals in.
    OpenGate,
}

/// At which gate a thread was interrupted at `ip`: before the call, in it, or just behind it. `None` where it was elsewhere.
pub fn at(ip: usize) -> Option<At> {
    let simple = &raw const lorentz_gate_look as usize..=&raw const lorentz_gate_done as usize;
    let open =
        &raw const lorentz_open_gate_look as usize..=&raw const lorentz_open_gate_done as usize;
    match ip {
        ip if simple.contains(&ip) => Some(At::Gate),
        ip if open.contains(&ip) => Some(At::OpenGate),
        _ => None,
    }
}

impl OpenCall {
    /// A call at `version` of the clock, while the program's mask is `open`.
    pub fn new(request: &Request, version: u64, open: SigSet, frame_state: u64) -> OpenCall {
        OpenCall {
            request: *request,
            version,
            open,
            closed: SigSet::EMPTY,
            frame_state,
            mark: [0; MARK],
        }
    }

    /// Whether a handler that runs meanwhile leaves its mark.
    pub fn can_be_marked(&self) -> bool {
        self.frame_state != 0
    }

    /// The signal whose handler of the program's ran meanwhile, the last of several. `None` for none, and 0 where it is not known.
    pub fn handled(&self) -> Option<u32> {
        match self.mark[0] as usize {
            0 => None,
            // The clock-change signal.
            ours if ours == restorer() => None,
            _ => Some(self.mark[MARK_SIGNAL] as u32),
        }
    }
}

impl At {
    /// Where the thread, interrupted at `ip` with `result` in its result register, goes on when the clock has changed, and with
    /// which result. `None` where its call has ended by itself.
    pub fn turned_back(self, ip: usize, result: isize) -> Option<(usize, isize)> {
        let (done, exit) = match self {
            At::Gate => {
                let done = &raw const lorentz_gate_done as usize;
                (done, done)
            }
            At::OpenGate => (
                &raw const lorentz_open_gate_done as usize,
                &raw const lorentz_open_gate_changed as usize,
            ),
        };
        let ended = ip == done && result != Errno::EINTR.in_register();
        (!ended).then_some((exit, RETRY))
    }
}
