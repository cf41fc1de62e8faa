//! Facts about the host that the shim needs: the functions of the kernel's vDSO, and the rates and offsets of its clocks.

use crate::namespace;
use object::{Object, ObjectSymbol};
use std::fs;
use std::io::Read;

/// The kernel's vDSO, which is the same in every 64-bit process of this boot. Offsets are from its start, in bytes; 0 means
/// that it has no such function.
#[derive(Clone, Copy, Default, Debug)]
pub struct HostInfo {
    /// Length of the vDSO, bytes.
    pub vdso_len: u64,
    /// Offset of clock_gettime, if it works without a system call.
    pub clock_gettime: u64,
    /// Offset of clock_getres.
    pub clock_getres: u64,
    /// Offset of getcpu.
    pub getcpu: u64,
    /// Offset of getrandom.
    pub getrandom: u64,
    /// TAI minus UTC, s.
    pub tai: u64,
    /// CLOCK_MONOTONIC and CLOCK_BOOTTIME of this time namespace minus those of the machine, ns.
    pub time_offsets: [i64; 2],
}

impl HostInfo {
    /// Reads this process's own vDSO.
    pub fn read() -> HostInfo {
        let time_offsets = namespace::time_offsets("self").unwrap_or_default();
        let mut host = HostInfo { tai: tai_offset(), time_offsets, ..HostInfo::default() };
        if let Some(vdso) = own_vdso() {
            host.vdso_len = vdso.len() as u64;
            if let Ok(file) = object::File::parse(vdso) {
                for symbol in file.dynamic_symbols() {
                    let place = match symbol.name() {
                        Ok("__vdso_clock_gettime") if clock_needs_no_call() => {
                            &mut host.clock_gettime
                        }
                        Ok("__vdso_clock_getres") => &mut host.clock_getres,
                        Ok("__vdso_getcpu") => &mut host.getcpu,
                        Ok("__vdso_getrandom") => &mut host.getrandom,
                        _ => continue,
                    };
                    *place = symbol.address();
                }
            }
        }
        host
    }
}

/// Returns the mapping named `[vdso]` of this process.
fn own_vdso() -> Option<&'static [u8]> {
    // With room at the start the kernel prints the mappings once; read_to_string alone begins with 32 bytes.
    let mut maps = String::with_capacity(16 * 1024);
    fs::File::open("/proc/self/maps").ok()?.read_to_string(&mut maps).ok()?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    // SAFETY: the range is mapped and readable, and nobody unmaps it.
    Some(unsafe { std::slice::from_raw_parts(start as *const u8, end - start) })
}

/// Whether the kernel's vDSO can read the clock source by itself, without a system call.
fn clock_needs_no_call() -> bool {
    let source =
        fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    match source {
        Ok(source) => matches!(
            source.trim(),
            "tsc" | "kvm-clock" | "hyperv_clocksource_tsc_page" | "arch_sys_counter"
        ),
        Err(_) => false,
    }
}

fn tai_offset() -> u64 {
    // SAFETY: all zeroes is a valid timex that changes nothing. adjtimex fills it.
    unsafe {
        let mut timex: libc::timex = std::mem::zeroed();
        if libc::adjtimex(&mut timex) < 0 {
            0
        } else {
            timex.tai.max(0) as u64
        }
    }
}

/// Returns the TSC ticks per second, measured against CLOCK_MONOTONIC for 20 ms.
pub fn tsc_hz() -> u64 {
    use std::time::{Duration, Instant};
    // SAFETY: every x86-64 has rdtsc.
    let ticks = || unsafe { core::arch::x86_64::_rdtsc() };
    let (begun, first) = (Instant::now(), ticks());
    std::thread::sleep(Duration::from_millis(20));
    let (elapsed, last) = (begun.elapsed(), ticks());
    ((last - first) as u128 * 1_000_000_000 / elapsed.as_nanos().max(1)) as u64
}
