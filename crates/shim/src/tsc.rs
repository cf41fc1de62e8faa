//! rdtsc in virtual time (`--trap-tsc`): the processor faults on it, and the handler answers.

use crate::clocks;
use crate::gate;
use crate::layout::data;
use crate::spinning;
use crate::sys::{
    self, reg, sig, sys, SaFlags, SigSet, Sigaction, Siginfo, Sysno, Ucontext, HANDLER_FLAGS,
};
use core::sync::atomic::Ordering::Relaxed;
use lorentz_clock::NANOS_PER_SEC;

/// Makes rdtsc fault in this thread and those that come from it.
pub fn trap() {
    const PR_SET_TSC: i32 = 26;
    const PR_TSC_SIGSEGV: i32 = 2;
    let own = Sigaction {
        handler: on_sigsegv as *const () as usize,
        flags: HANDLER_FLAGS.with(SaFlags::SA_NODEFER),
        restorer: gate::restorer(),
        mask: SigSet::EMPTY,
    };
    data().sigsegv.store(&sys::set_action(sig::SIGSEGV, &own));
    // SAFETY: concerns this thread's use of rdtsc only.
    let _ = unsafe { sys!(Sysno::prctl, PR_SET_TSC, PR_TSC_SIGSEGV) };
}

/// The SIGSEGV handler: answers rdtsc and rdtscp, leaves everything else to the program.
///
/// # Safety
/// Called by the kernel as a signal handler.
unsafe extern "C" fn on_sigsegv(_signal: i32, info: *mut Siginfo, context: *mut Ucontext) {
    const SI_KERNEL: i32 = 0x80;
    // SAFETY: the kernel's arguments; a general protection fault (SI_KERNEL) happened at a readable instruction.
    unsafe {
        let regs = &mut (*context).regs;
        if (*info).code == SI_KERNEL {
            if let Some(len) = tsc_instruction(regs[reg::RIP]) {
                spinning::count_read();
                let ticks = virtual_tsc();
                regs[reg::RAX] = ticks & 0xffff_ffff;
                regs[reg::RDX] = ticks >> 32;
                if len == 3 {
                    regs[reg::RCX] = 0;
                }
                regs[reg::RIP] += len;
                return;
            }
        }
        crate::signals::forward(sig::SIGSEGV, info, context);
    }
}

/// The length of the instruction at `ip`, if it is rdtsc (2) or rdtscp (3).
///
/// # Safety
/// The processor must have just tried to execute it.
unsafe fn tsc_instruction(ip: u64) -> Option<u64> {
    let at = ip as *const u8;
    // SAFETY: byte by byte, so that nothing behind the instruction is touched.
    unsafe {
        match (*at, *at.add(1)) {
            (0x0f, 0x31) => Some(2),
            (0x0f, 0x01) if *at.add(2) == 0xf9 => Some(3),
            _ => None,
        }
    }
}

/// Virtual time in ticks of the host's TSC.
fn virtual_tsc() -> u64 {
    let virt = clocks::snapshot().now().0.max(0) as u128;
    (virt * data().tsc_hz.load(Relaxed) as u128 / NANOS_PER_SEC as u128) as u64
}
