//! The processor's time stamp counter: reading it, and its properties according to CPUID.
//!
//! Intel SDM volume 3, 19.17 (time-stamp counter), AMD APM volume 2, 13.2.4; CPUID leaves by their manuals.

use std::arch::x86_64::{__cpuid, __cpuid_count, _mm_lfence, _rdtsc, CpuidResult};

/// Reads the counter after all loads that stand before. A time that another thread has passed to this one is therefore
/// never later.
#[inline(always)]
pub fn ordered() -> i64 {
    // SAFETY: every x86-64 processor has both instructions. The choice of the source has checked whether rdtsc traps.
    unsafe {
        _mm_lfence();
        _rdtsc() as i64
    }
}

/// Reads the counter, which the processor may reorder with the instructions around it.
#[inline(always)]
pub fn unordered() -> i64 {
    // SAFETY: as above.
    unsafe { _rdtsc() as i64 }
}

fn leaf(number: u32) -> Option<CpuidResult> {
    let last = __cpuid(number & 0xffff_0000).eax;
    (last >= number).then(|| __cpuid_count(number, 0))
}

/// Whether the processor has `rdtscp`.
pub fn is_rdtscp_supported() -> bool {
    leaf(0x8000_0001).is_some_and(|found| found.edx & 1 << 27 != 0)
}

/// Whether the counter runs at one rate in all states of the processor, sleep too (CPUID 0x80000007, EDX bit 8).
pub fn is_invariant_tsc() -> bool {
    leaf(0x8000_0007).is_some_and(|found| found.edx & 1 << 8 != 0)
}

/// Whether the counter runs at one rate while the processor works. That is so for an invariant TSC, and for older families known
/// for it.
pub fn is_constant_tsc() -> bool {
    is_invariant_tsc() || is_of_constant_family(&vendor(), __cpuid(1).eax)
}

/// Intel family 15 from model 3 and family 6 from model 14 on; Centaur family 6 from model 15 on.
fn is_of_constant_family(vendor: &str, signature: u32) -> bool {
    let (base_family, base_model) = (signature >> 8 & 0xf, signature >> 4 & 0xf);
    let family =
        if base_family == 15 { base_family + (signature >> 20 & 0xff) } else { base_family };
    let model = base_model | (signature >> 16 & 0xf) << 4;
    match (vendor, family) {
        ("GenuineIntel", 15) => model >= 3,
        ("GenuineIntel", 6) => model >= 14,
        ("CentaurHauls", 6) => model >= 15,
        _ => false,
    }
}

fn vendor() -> String {
    let found = __cpuid(0);
    text(&[found.ebx, found.edx, found.ecx])
}

/// Returns the name by which the processor calls itself; empty if it has none.
pub fn brand_string() -> String {
    let leaves = (0x8000_0002..=0x8000_0004).filter_map(leaf);
    let words: Vec<u32> = leaves.flat_map(|r| [r.eax, r.ebx, r.ecx, r.edx]).collect();
    text(&words)
}

fn text(words: &[u32]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    String::from_utf8_lossy(&bytes).trim_matches(['\0', ' ']).to_string()
}

/// Returns the counter's hertz, if the processor or the hypervisor states it.
pub fn reported_hertz() -> Option<u64> {
    by_crystal(leaf(0x15)).or_else(by_hypervisor)
}

/// CPUID 0x15: the crystal's hertz times a ratio. If the crystal's hertz is not stated, the result is `None` and the
/// caller measures: leaf 0x16 has only the base frequency, in whole MHz, which is too coarse.
fn by_crystal(ratio: Option<CpuidResult>) -> Option<u64> {
    let CpuidResult { eax: denominator, ebx: numerator, ecx: crystal, .. } = ratio?;
    if denominator == 0 || numerator == 0 || crystal == 0 {
        return None;
    }
    Some(u64::from(crystal) * u64::from(numerator) / u64::from(denominator))
}

/// The hypervisors' common leaf 0x40000010: kilohertz in EAX.
fn by_hypervisor() -> Option<u64> {
    const HYPERVISOR: u32 = 1 << 31;
    if __cpuid(1).ecx & HYPERVISOR == 0 {
        return None;
    }
    let kilohertz = leaf(0x4000_0010)?.eax;
    (kilohertz != 0).then_some(u64::from(kilohertz) * 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constant_families() {
        // Nehalem (06_1a), Pentium M (06_0d), Prescott (0f_03), Northwood (0f_02), Zen 4.
        assert!(is_of_constant_family("GenuineIntel", 0x0001_06a5));
        assert!(!is_of_constant_family("GenuineIntel", 0x0000_06d8));
        assert!(is_of_constant_family("GenuineIntel", 0x0000_0f34));
        assert!(!is_of_constant_family("GenuineIntel", 0x0000_0f29));
        assert!(is_of_constant_family("CentaurHauls", 0x0000_06f8));
        assert!(!is_of_constant_family("AuthenticAMD", 0x00a1_0f11));
    }

    #[test]
    fn the_crystal_tells_where_all_three_numbers_are_there() {
        let hertz = |eax, ebx, ecx| by_crystal(Some(CpuidResult { eax, ebx, ecx, edx: 0 }));
        assert_eq!(hertz(2, 216, 24_000_000), Some(2_592_000_000));
        assert_eq!(hertz(2, 216, 0), None);
        assert_eq!(hertz(0, 216, 24_000_000), None);
    }

    #[test]
    fn the_counter_goes_on() {
        let first = ordered();
        assert!(ordered() > first && unordered() > first);
    }
}
