//! The boot stub: a few instructions that the monitor writes into a process. They map the image and jump to its boot code.

use crate::host::HostInfo;
use crate::image::Image;
use lorentz_shim::boot::BootArgs;
use lorentz_shim::layout::IMAGE;
use std::arch::global_asm;

// The code is position independent and makes no system call that the filter traps. A BootArgs follows the code.
global_asm!(
    ".pushsection .rodata",
    ".balign 16",
    "lorentz_boot_stub:",
    "lea r12, [rip + 3f]",
    "mov eax, 9",
    "mov edi, {image}",
    "mov rsi, [r12]",
    "mov edx, 5",
    "mov r10d, 0x100002",
    "mov r8d, [r12 + 32]",
    "xor r9d, r9d",
    "syscall",
    "cmp rax, {image}",
    "jne 2f",
    "jmp [r12 + 8]",
    "2:",
    "mov eax, 1",
    "mov edi, 2",
    "lea rsi, [rip + 4f]",
    "mov edx, 92",
    "syscall",
    "mov eax, 231",
    "mov edi, 126",
    "syscall",
    "4:",
    ".ascii \"lorentz: cannot map the shim at 0x70000000: the address is taken, or 'ulimit -v' is too low\\n\"",
    ".balign 8",
    "3:",
    "lorentz_boot_stub_end:",
    ".popsection",
    image = const IMAGE,
);

extern "C" {
    static lorentz_boot_stub: u8;
    static lorentz_boot_stub_end: u8;
}

/// Returns the bytes to write into a process whose entry point is `entry`.
pub fn bytes(args: &BootArgs) -> Vec<u8> {
    let code = &raw const lorentz_boot_stub;
    let len = &raw const lorentz_boot_stub_end as usize - code as usize;
    // SAFETY: the code lies between the two labels of the assembly above.
    let mut bytes = unsafe { std::slice::from_raw_parts(code, len) }.to_vec();
    let args = args as *const BootArgs as *const u8;
    // SAFETY: BootArgs consists of plain numbers without padding.
    bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(args, size_of::<BootArgs>()) });
    bytes
}

/// Makes the arguments of the boot code. The process's entry point and descriptors are filled in later.
pub fn args(image: &Image, host: &HostInfo, tsc_hz: u64) -> BootArgs {
    BootArgs {
        image_len: image.len,
        boot: image.boot,
        vdso_len: host.vdso_len,
        // A program whose rdtsc faults cannot use the kernel's clock_gettime, because that executes rdtsc.
        clock_gettime: if tsc_hz == 0 { host.clock_gettime } else { 0 },
        clock_getres: host.clock_getres,
        getcpu: host.getcpu,
        getrandom: host.getrandom,
        tai: host.tai,
        tsc_hz,
        base_offsets: host.time_offsets,
        ..BootArgs::default()
    }
}
