//! Births: clone, fork and vfork on a clock that skips idle time are counted, so that a thread can know that it is alone.
//!
//! The handler counts, and then the program makes the call itself, from the image, where it is allowed: the child begins
//! with whatever stack and registers the call gives it. From behind the call both must find back to where it was made, and
//! no register is free to tell. So each place in a program that makes such calls has a stub of its own here, and the stub's
//! word in memory, which a child has too, tells the place.

use crate::layout::{data, registry, ProcessData, BIRTHPLACES, DATA};
use crate::sys::{errno, reg};
use crate::trap::{Call, AGAIN};
use core::arch::global_asm;
use core::mem::offset_of;
use core::sync::atomic::Ordering::{AcqRel, Acquire};

const STUB: usize = 16;
const SYSCALL: u64 = 2;

global_asm!(
    ".text",
    ".balign 16",
    ".global lorentz_births",
    "lorentz_births:",
    ".set lorentz_place, {places}",
    ".rept {count}",
    "syscall",
    "jmp qword ptr ds:[lorentz_place]",
    ".balign {stub}",
    ".set lorentz_place, lorentz_place + 8",
    ".endr",
    places = const DATA + offset_of!(ProcessData, birthplaces),
    count = const BIRTHPLACES,
    stub = const STUB,
);

extern "C" {
    static lorentz_births: u8;
}

/// clone(2), fork(2), vfork(2).
pub fn count(call: &mut Call) -> isize {
    let behind = call.context.regs[reg::RIP] as usize;
    let own = data().birthplaces.iter().position(|place| {
        let taken = place.compare_exchange(0, behind, AcqRel, Acquire);
        taken.is_ok() || taken == Err(behind)
    });
    let Some(own) = own else { return -errno::EAGAIN };
    registry().population.bear();
    let stub = &raw const lorentz_births as u64 + (own * STUB) as u64;
    call.context.regs[reg::RIP] = stub + SYSCALL;
    AGAIN
}
