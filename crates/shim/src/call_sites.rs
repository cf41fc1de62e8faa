//! Call sites that are rewritten because a process makes trapped calls there often.
//!
//! A site that ends in `mov eax, NUMBER; syscall` is given a jump in the place of its first five bytes:
//!
//! ```text
//!   b8 NN NN NN NN   mov eax, NUMBER                                      ff 24 25 XX XX 0f 05   jmp [0x050fXXXX]
//!   0f 05            syscall                                       ->
//! ```
//!
//! The last two bytes of the jump's operand are the syscall instruction itself. So the syscall instruction stays where it is: a
//! thread that was about to execute it, or whose call the kernel makes again after a signal, finds it there, and falls back to the
//! trap. The jump's operand names a slot below 2 GiB; the slot names a stub of the image ([`crate::direct`]), of which each site has
//! its own, so that the way back is known. glibc's `syscall` function, whose call stands in a register, loads its last argument
//! in front of the syscall instruction by five bytes as well, and is rewritten in the same way.
//!
//! The monitor decodes the function that the site lies in and says whether the bytes are these instructions: bytes alone could be
//! part of another instruction, or the target of a jump. Where nobody answers, the site stays as it is.
//!
//! Threads execute the site meanwhile. The five bytes change in one store. In memory that another thread may execute, they must lie
//! within an aligned block of 16 bytes, which processors fetch as one.

use crate::call::Arguments;
use crate::direct;
use crate::filter::ASK_CALL_SITE;
use crate::layout::{
    clock, data, fork_data, registry, CallSite, ANY_CALL, CALL_SITES_LEN, CALL_SLOTS,
};
use crate::process;
use crate::sys::{self, sys, Fd, Sysno, UserPtr};
use crate::user;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use lorentz_clock::{failpoint, Failpoint};
use lorentz_syscalls::ASK_MONITOR;

/// A site is rewritten after this number of trapped calls. The monitor's answer and the change of the page take as long as some
/// thirty traps.
const HOT: u32 = 16;
/// A thread asks for the site, or the thread that did has been left behind by a fork.
const ASKED: u32 = HOT;
/// The site is rewritten.
pub const REWRITTEN: u32 = HOT + 1;
const LEFT: u32 = HOT + 2;

/// The monitor's verdict on a site.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Shape {
    /// `mov eax, NUMBER; syscall`.
    Number = 1,
    /// `mov r9, [rsp + 8]; syscall`, with the number in rax.
    AnyCall = 2,
}

/// Bytes of a site: five that change, then the syscall instruction.
pub const SITE_LEN: usize = 7;
const CHANGED: usize = 5;
/// `mov r9, [rsp + 8]; syscall`.
const ANY_CALL_CODE: [u8; SITE_LEN] = [0x4c, 0x8b, 0x4c, 0x24, 0x08, 0x0f, 0x05];

impl Shape {
    /// The code of a site of this shape.
    pub fn code(self, number: Sysno) -> [u8; SITE_LEN] {
        match self {
            Shape::AnyCall => ANY_CALL_CODE,
            Shape::Number => {
                let [a, b, c, d] = number.number().to_le_bytes();
                [0xb8, a, b, c, d, 0x0f, 0x05]
            }
        }
    }

    fn of(answer: isize) -> Option<Shape> {
        [Shape::Number, Shape::AnyCall].into_iter().find(|shape| *shape as isize == answer)
    }
}

/// Counts a trapped call at the site that ends at `end`, and rewrites the site once it is hot. Says whether it tried.
pub fn trapped(end: u64, call: &Arguments) -> bool {
    if clock().policy().keeps_code || data().sandboxed.load(Relaxed) != 0 {
        return false;
    }
    let Some((place, site)) = find_or_add(end) else { return false };
    let count = site.state.load(Relaxed);
    if count >= HOT || site.state.compare_exchange(count, count + 1, Relaxed, Relaxed).is_err() {
        return false;
    }
    if count + 1 < ASKED {
        return false;
    }
    let state = match rewrite(place, end, call.nr) {
        Ok(()) => REWRITTEN,
        Err(Refusal::StaysTrapped) => LEFT,
        Err(Refusal::NotNow) => 0,
    };
    site.state.store(state, Relaxed);
    true
}

/// The number of the call at the site that ends at `end`, where `code`, the bytes of the site, shows that it is rewritten.
pub fn number_at(end: u64, code: &[u8; SITE_LEN]) -> Option<u32> {
    let sites = &data().call_sites;
    let place = places(end).find(|place| sites[*place].is_at(end))?;
    let number = sites[place].number.load(Acquire);
    // Another library may lie there by now.
    (code[..CHANGED] == jump(place) && number != ANY_CALL).then_some(number)
}

/// The places at which a site may stand in the table.
fn places(end: u64) -> impl Iterator<Item = usize> {
    const TRIES: usize = 8;
    let first = (end >> 1) as usize;
    (0..TRIES).map(move |i| (first + i) % CALL_SITES_LEN)
}

fn find_or_add(end: u64) -> Option<(usize, &'static CallSite)> {
    let sites = &data().call_sites;
    places(end).map(|place| (place, &sites[place])).find(|(_, site)| match site.end.load(Relaxed) {
        0 => site.end.compare_exchange(0, end, Relaxed, Relaxed).is_ok() || site.is_at(end),
        known => known == end,
    })
}

/// Why a site is not rewritten.
enum Refusal {
    /// It cannot be.
    StaysTrapped,
    /// This thread may not change code now.
    NotNow,
}
use Refusal::{NotNow, StaysTrapped};

/// The right to change the code of this process. One thread has it at a time: another would take the write permission of the page
/// away from it.
struct CodeWriter;

impl CodeWriter {
    /// Takes the right, if no thread has it. A child of vfork, in its parent's memory, leaves the parent's code alone.
    fn begin() -> Option<CodeWriter> {
        let holder = &fork_data().code_writer;
        let is_free = || holder.compare_exchange(0, sys::gettid(), Acquire, Relaxed).is_ok();
        (process::owns_memory() && is_free()).then(|| CodeWriter)
    }
}

impl Drop for CodeWriter {
    fn drop(&mut self) {
        fork_data().code_writer.store(0, Release);
    }
}

fn rewrite(place: usize, end: u64, call: Sysno) -> Result<(), Refusal> {
    let _alone = CodeWriter::begin().ok_or(NotNow)?;
    if end < SITE_LEN as u64 {
        return Err(StaysTrapped);
    }
    // SAFETY: asks the monitor; numbers only.
    let answer = unsafe { sys!(ASK_MONITOR, ASK_CALL_SITE, end, call.number()) };
    let shape = Shape::of(answer.map_err(|_| StaysTrapped)?).ok_or(StaysTrapped)?;
    let before = shape.code(call);
    let mut code = [0; 8];
    let begin = end - SITE_LEN as u64;
    user::read_bytes(UserPtr::new(begin - 1), &mut code).map_err(|_| StaysTrapped)?;
    if code[1..] != before {
        return Err(StaysTrapped);
    }
    failpoint(registry(), Failpoint::SiteKnown);
    make_slots()?;
    let number = if shape == Shape::AnyCall { ANY_CALL } else { call.number() };
    data().call_sites[place].number.store(number, Release);
    write_code(begin, jump(place))
}

/// The address of the slot of a place.
fn slot(place: usize) -> u32 {
    (CALL_SLOTS + place * size_of::<usize>()) as u32
}

/// The bytes in front of the syscall instruction of a rewritten site.
fn jump(place: usize) -> [u8; CHANGED] {
    let [a, b, ..] = slot(place).to_le_bytes();
    [0xff, 0x24, 0x25, a, b]
}

/// Maps the slots, each with the stub of its place, once. A child that is forked in the midst of it rewrites no site.
fn make_slots() -> Result<(), Refusal> {
    const PAGE: usize = 4096;
    const READ: i32 = 1;
    const READ_WRITE: i32 = 3;
    const PRIVATE_ANONYMOUS_NEW: i32 = 0x10_0022;
    if data().call_slots.load(Relaxed) != 0 {
        return Ok(());
    }
    let none = Fd::NONE;
    // SAFETY: MAP_FIXED_NOREPLACE maps over nothing. The new page has room for all slots.
    unsafe {
        sys!(Sysno::mmap, CALL_SLOTS, PAGE, READ_WRITE, PRIVATE_ANONYMOUS_NEW, none, 0)
            .ok()
            .filter(|at| *at as usize == CALL_SLOTS)
            .ok_or(StaysTrapped)?;
        let slots = CALL_SLOTS as *mut usize;
        (0..CALL_SITES_LEN).for_each(|place| slots.add(place).write(direct::stub(place)));
        let _ = sys!(Sysno::mprotect, CALL_SLOTS, PAGE, READ);
    }
    data().call_slots.store(1, Relaxed);
    Ok(())
}

/// Replaces five bytes of the program's code by one store.
fn write_code(begin: u64, code: [u8; CHANGED]) -> Result<(), Refusal> {
    const BLOCK: u64 = 16;
    const PAGE: u64 = 4096;
    const READ_EXECUTE: i32 = 5;
    const READ_WRITE_EXECUTE: i32 = 7;
    let is_shared = is_memory_shared();
    let within_block = begin % BLOCK + CHANGED as u64 <= BLOCK;
    if is_shared && !within_block {
        return Err(StaysTrapped);
    }
    let page = begin & !(PAGE - 1);
    let len = (begin + CHANGED as u64).next_multiple_of(PAGE) - page;
    // SAFETY: a private mapping of a file that may be read and executed: so says the monitor. It stays executable meanwhile.
    unsafe {
        sys!(Sysno::mprotect, page, len, READ_WRITE_EXECUTE).map_err(|_| StaysTrapped)?;
        failpoint(registry(), Failpoint::CodeWritable);
        match within_block {
            true => replace_in_block(begin, code),
            false => (begin as *mut [u8; CHANGED]).write_unaligned(code),
        }
        let _ = sys!(Sysno::mprotect, page, len, READ_EXECUTE);
    }
    match is_shared {
        true => make_threads_see(),
        false => register_for_threads(),
    }
    Ok(())
}

/// Whether another thread, or another process, runs in this memory. The kernel lets only a sole one leave it.
fn is_memory_shared() -> bool {
    const CLONE_VM: u64 = 0x100;
    // SAFETY: changes nothing for who is alone.
    unsafe { sys!(Sysno::unshare, CLONE_VM) != Ok(0) }
}

/// # Safety
/// The five bytes must lie within an aligned block of 16, which may be written.
unsafe fn replace_in_block(begin: u64, code: [u8; CHANGED]) {
    let (block, place) = ((begin & !15) as *mut u128, (begin & 15) as usize);
    // SAFETY: the caller's promise.
    unsafe {
        let before = block.read_volatile();
        let mut after = before.to_ne_bytes();
        after[place..place + CHANGED].copy_from_slice(&code);
        exchange_block(block, before, u128::from_ne_bytes(after));
    }
}

/// Stores `after` if the block still holds `before`, in one step.
///
/// # Safety
/// `block` must be aligned, and may be read and written. Every processor of this architecture that can run a current distribution
/// has the instruction.
unsafe fn exchange_block(block: *mut u128, before: u128, after: u128) {
    // SAFETY: the caller's promise. rbx is the compiler's own, so it is put aside.
    unsafe {
        core::arch::asm!(
            "xchg rbx, {low}",
            "lock cmpxchg16b [{block}]",
            "mov rbx, {low}",
            block = in(reg) block,
            low = inout(reg) after as u64 => _,
            in("rcx") (after >> 64) as u64,
            inout("rax") before as u64 => _,
            inout("rdx") (before >> 64) as u64 => _,
            options(nostack)
        );
    }
}

/// Makes every other thread of the process fetch its code anew before it goes on in the program.
fn make_threads_see() {
    const PRIVATE_EXPEDITED_SYNC_CORE: i32 = 1 << 5;
    register_for_threads();
    // SAFETY: numbers only.
    let _ = unsafe { sys!(Sysno::membarrier, PRIVATE_EXPEDITED_SYNC_CORE, 0) };
}

/// Registers the process for [`make_threads_see`]. Where other threads run, the first registration takes the kernel some 10 ms; a
/// process that is alone gets it at once, and keeps it.
fn register_for_threads() {
    const REGISTER_PRIVATE_EXPEDITED_SYNC_CORE: i32 = 1 << 6;
    // SAFETY: numbers only.
    let _ = unsafe { sys!(Sysno::membarrier, REGISTER_PRIVATE_EXPEDITED_SYNC_CORE, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_jump_that_replaces_a_site_ends_in_the_syscall_instruction() {
        for place in [0, 1, 31, 32, CALL_SITES_LEN - 1] {
            let [_, _, c, d] = slot(place).to_le_bytes();
            assert_eq!([c, d], [0x0f, 0x05], "the slot of place {place}");
        }
    }

    #[test]
    fn five_bytes_of_a_block_are_replaced_and_the_others_stay() {
        #[repr(align(16))]
        struct Block([u8; 32]);
        for place in 0..=11 {
            let mut block = Block([0x55; 32]);
            // SAFETY: within the first block.
            unsafe { replace_in_block(&raw mut block as u64 + place, [1, 2, 3, 4, 5]) };
            let at = place as usize;
            assert_eq!(block.0[at..at + 5], [1, 2, 3, 4, 5]);
            assert!(block.0[..at].iter().chain(&block.0[at + 5..]).all(|byte| *byte == 0x55));
        }
    }

    #[test]
    fn a_site_of_libc_has_the_code_of_its_shape() {
        assert_eq!(Shape::Number.code(Sysno::openat), [0xb8, 1, 1, 0, 0, 0x0f, 0x05]);
        assert_eq!(Shape::of(2), Some(Shape::AnyCall));
        assert_eq!(Shape::of(0), None);
    }
}
