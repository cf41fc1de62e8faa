//! The first code of the image that runs in a process: maps what the shim needs and gets out of the way.
//!
//! `inject` has written a few instructions over the program's entry page. They map the image and jump to
//! `lorentz_boot` with r12 pointing at [`BootArgs`]. From there everything happens in the process itself: no
//! second stop is needed, because the entry page, a private mapping of a file, is put right by dropping the copy.

use crate::layout::{
    clock, data, fork_data, registry, CLOCK, DATA, DATA_LEN, FORK_DATA, IMAGE, REGISTRY,
};
use crate::sys::{self, close, sig, sys, Errno, Fd, SigHow, SigSet, SysResult, Sysno, UserPtr};
use crate::{change_signal, handlers, signals, trap, trap_mask, tsc};
use core::arch::global_asm;
use core::sync::atomic::Ordering::Relaxed;
use lorentz_clock::{file, Registry};

/// Arguments of the boot code, from `inject`. Offsets are from the start of the kernel's vDSO, 0 for what it lacks.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct BootArgs {
    /// Length of the image.
    pub image_len: u64,
    /// Where the boot code lies.
    pub boot: u64,
    /// The program's entry point.
    pub entry: u64,
    /// The page that was written over, to be put right; 0 where `inject` does it.
    pub page: u64,
    /// Descriptor of the image's file.
    pub image_fd: u32,
    /// Descriptor of the clock's file, open for reading alone: the page cannot be made writable later.
    pub page_fd: u32,
    /// Descriptor of the clock's file, open for writing: for the registry.
    pub registry_fd: u32,
    /// The process id namespace that it is in: a [`lorentz_clock::PidNamespace`].
    pub space: u32,
    /// The kernel's vDSO where it cannot be read off the stack (a running program); else 0.
    pub vdso: u64,
    /// Length of the kernel's vDSO.
    pub vdso_len: u64,
    /// Offset of clock_gettime; 0 also where it would make a system call.
    pub clock_gettime: u64,
    /// Offset of clock_getres.
    pub clock_getres: u64,
    /// Offset of getcpu.
    pub getcpu: u64,
    /// Offset of getrandom.
    pub getrandom: u64,
    /// Seconds that TAI is ahead of UTC.
    pub tai: u64,
    /// TSC ticks per second where rdtsc is to be virtual; else 0.
    pub tsc_hz: u64,
    /// 1 where the clock-change signal is blocked for the exec alone ([`crate::filter::EXEC_CHANGE_SIGNAL_OPEN`]).
    pub change_signal_open: u64,
    /// By how many nanoseconds the CLOCK_MONOTONIC and CLOCK_BOOTTIME of its time namespace are ahead of the monitor's.
    pub time_offsets: [i64; 2],
    /// By how many the monitor's are ahead of the machine's.
    pub base_offsets: [i64; 2],
}

global_asm!(
    ".text",
    ".global lorentz_boot",
    ".type lorentz_boot, @function",
    "lorentz_boot:",
    ".cfi_startproc",
    ".cfi_undefined rip",
    "mov r13, rsp",
    "mov r14, [r12 + 16]",
    "mov r15, [r12 + 24]",
    "mov rdi, r12",
    "mov rsi, r13",
    "and rsp, -16",
    "call {main}",
    "mov rsp, r13",
    // A running program: the process that put us in is waiting, and restores everything.
    "test r15, r15",
    "jnz 2f",
    "int3",
    "2:",
    // A new program: registers as the kernel leaves them at its first instruction.
    "mov r11, r14",
    "xor eax, eax",
    "xor ebx, ebx",
    "xor ecx, ecx",
    "xor edx, edx",
    "xor esi, esi",
    "xor edi, edi",
    "xor ebp, ebp",
    "xor r8d, r8d",
    "xor r9d, r9d",
    "xor r10d, r10d",
    "xor r12d, r12d",
    "xor r13d, r13d",
    "xor r14d, r14d",
    "xor r15d, r15d",
    "jmp r11",
    ".cfi_endproc",
    ".size lorentz_boot, . - lorentz_boot",
    main = sym main,
);

/// # Safety
/// Called once per image of a process, by the assembly above, with `stack` the program's initial stack.
unsafe extern "C" fn main(args: *const BootArgs, stack: *mut u64) {
    // SAFETY: `inject` wrote it; copied, because dropping the page below takes it away.
    let args = unsafe { *args };
    map(&args);
    for fd in [args.image_fd, args.page_fd, args.registry_fd] {
        close(Fd::new(fd as i32));
    }
    if args.page != 0 {
        const MADV_DONTNEED: i32 = 4;
        // SAFETY: the page is a private mapping of a file that nobody has changed but `inject`.
        let _ = unsafe { sys!(Sysno::madvise, args.page, 4096, MADV_DONTNEED) };
    }
    let vdso = match args.vdso {
        // SAFETY: the initial stack of a new program, as the kernel lays it out.
        0 => unsafe { replace_vdso(stack) },
        vdso => vdso as usize,
    };
    remember(&args, vdso);
    install_handlers(args.change_signal_open != 0);
    if args.tsc_hz != 0 {
        tsc::trap();
    }
}

fn map(args: &BootArgs) {
    const READ: i32 = 1;
    const READ_WRITE: i32 = 3;
    const SHARED: i32 = 0x10_0001;
    const PRIVATE_ANONYMOUS: i32 = 0x10_0022;
    const MADV_RANDOM: i32 = 1;
    const MADV_WIPEONFORK: i32 = 18;
    const PAGE: usize = 4096;
    let (page_fd, registry_fd, none) = (args.page_fd, args.registry_fd, Fd::NONE);
    let (len, offset) = (size_of::<Registry>(), file::REGISTRY_OFFSET);
    // SAFETY: MAP_FIXED_NOREPLACE (0x100000) maps over nothing.
    unsafe {
        must_be(sys!(Sysno::mmap, DATA, DATA_LEN, READ_WRITE, PRIVATE_ANONYMOUS, none, 0), DATA);
        let _ = sys!(Sysno::madvise, FORK_DATA, PAGE, MADV_WIPEONFORK);
        must_be(sys!(Sysno::mmap, CLOCK, PAGE, READ, SHARED, page_fd, 0), CLOCK);
        let registry = sys!(Sysno::mmap, REGISTRY, len, READ_WRITE, SHARED, registry_fd, offset);
        must_be(registry, REGISTRY);
        // No read-ahead: where the file is on a disk, the first wait would fill the page cache with 2 MB of zeros.
        let _ = sys!(Sysno::madvise, REGISTRY, len, MADV_RANDOM);
    }
}

fn must_be(got: SysResult, wanted: usize) {
    const TAKEN: &str =
        "lorentz: cannot map the clock: the addresses from 0x70000000 on are taken\n";
    const NO_MEMORY: &str =
        "lorentz: cannot map the clock: it needs 3 MiB of address space, and 'ulimit -v' allows less\n";
    match got {
        Ok(address) if address as usize == wanted => {}
        Err(Errno::ENOMEM) => sys::die(NO_MEMORY, 126),
        _ => sys::die(TAKEN, 126),
    }
}

/// Points AT_SYSINFO_EHDR at the image; returns what it said before, 0 where there was none.
///
/// # Safety
/// `stack` must be a new program's initial stack.
unsafe fn replace_vdso(stack: *mut u64) -> usize {
    const AT_SYSINFO_EHDR: u64 = 33;
    const AT_NULL: u64 = 0;
    // SAFETY: argc, argv, null, environment, null, then pairs up to AT_NULL.
    unsafe {
        let mut at = stack.add(1 + *stack as usize + 1);
        while *at != 0 {
            at = at.add(1);
        }
        at = at.add(1);
        while *at != AT_NULL {
            if *at == AT_SYSINFO_EHDR {
                let vdso = *at.add(1);
                *at.add(1) = IMAGE as u64;
                return vdso as usize;
            }
            at = at.add(2);
        }
    }
    0
}

fn remember(args: &BootArgs, vdso: usize) {
    let data = data();
    data.tai.store(args.tai, Relaxed);
    data.tsc_hz.store(args.tsc_hz, Relaxed);
    data.old_stamps_end.store(clock().old_stamps_end(), Relaxed);
    data.space.store(args.space, Relaxed);
    data.host_call.store(sys::host_call as *const () as usize, Relaxed);
    for i in 0..2 {
        data.time_offsets[i].store(args.time_offsets[i], Relaxed);
        data.base_offsets[i].store(args.base_offsets[i], Relaxed);
    }
    if vdso == 0 {
        return;
    }
    data.vdso.store(vdso, Relaxed);
    data.vdso_end.store(vdso + args.vdso_len as usize, Relaxed);
    let function = |offset: u64| if offset == 0 { 0 } else { vdso + offset as usize };
    data.host_gettime.store(function(args.clock_gettime), Relaxed);
    if args.time_offsets == [0; 2] {
        data.clock_gettime.store(function(args.clock_gettime), Relaxed);
    }
    data.clock_getres.store(function(args.clock_getres), Relaxed);
    data.getcpu.store(function(args.getcpu), Relaxed);
    data.getrandom.store(function(args.getrandom), Relaxed);
}

fn install_handlers(change_signal_open: bool) {
    trap_mask::init();
    handlers::register(
        trap::on_sigsys as *const () as usize,
        change_signal::on_change_signal as *const () as usize,
    );
    let (sigsys, change) = handlers::install();
    data().sigsys.store(&sigsys);
    data().change_signal.store(&change);
    let mut before = SigSet::EMPTY;
    // SAFETY: reads and writes a mask.
    let _ = unsafe {
        let (ours, before) = (UserPtr::to(&sig::OURS), &raw mut before);
        sys!(Sysno::rt_sigprocmask, SigHow::SIG_UNBLOCK, ours, before, SigSet::LEN)
    };
    let not_blocked =
        if change_signal_open { SigSet::of(sig::CLOCK_CHANGE) } else { SigSet::EMPTY };
    signals::believe_blocked(before.without(not_blocked));
    fork_data().process.store(sys::getpid(), Relaxed);
    registry().task_counters.count_program();
}
