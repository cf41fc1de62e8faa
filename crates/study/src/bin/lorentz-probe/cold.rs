//! Measures clock reads with cold caches, as the patch set's gettime_perf_cold does.

use std::arch::x86_64::{_mm_clflush, _mm_mfence};
use std::fs;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};

use lorentz_study::protocol::{Nanos, Sample};

use crate::{calls, stopwatch};

const CACHE_LINE_LEN: usize = 64;
const PAGE_LEN: usize = 4096;
/// Names in /proc/self/maps of the kernel's pages for clock reads, and of libfaketime's pages.
const MAPPING_NAMES: [&str; 3] = ["[vdso]", "[vvar", "faketime"];
/// Addresses of the shim and its clock page, as in the shim's linker script.
const SHIM_ADDRESSES: Range<usize> = 0x7000_0000..0x7100_0000;
/// Pages to flush of each mapping. No clock read goes further; the registry behind the clock page is long.
const MAX_PAGES: usize = 64;

/// Measures `count` reads, each a sample. All their pages are flushed before each read.
pub fn reads(count: u64) -> io::Result<Vec<Sample>> {
    let pages = pages()?;
    let one = |_| {
        flush(&pages);
        let elapsed = stopwatch::time(|| {
            calls::vdso(libc::CLOCK_MONOTONIC);
        });
        Sample { calls: 1, elapsed, asked: Nanos(0) }
    };
    (0..10).map(one).for_each(drop);
    Ok((0..count).map(one).collect())
}

/// Returns the addresses of the readable pages that a clock read can touch.
fn pages() -> io::Result<Vec<usize>> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    let mut pages = Vec::new();
    let (reader, writer) = nix::unistd::pipe()?;
    for line in maps.lines() {
        let Some((range, rest)) = line.split_once(' ') else { continue };
        let Some(range) = parse(range) else { continue };
        let is_named = MAPPING_NAMES.iter().any(|name| rest.contains(name));
        if rest.starts_with('r') && (is_named || SHIM_ADDRESSES.contains(&range.start)) {
            let there = range
                .step_by(PAGE_LEN)
                .take(MAX_PAGES)
                .filter(|page| is_there(*page, &reader, &writer));
            pages.extend(there);
        }
    }
    Ok(pages)
}

fn parse(range: &str) -> Option<Range<usize>> {
    let (start, end) = range.split_once('-')?;
    Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}

/// Returns whether a page can be read: some of the kernel's pages have no memory. write(2) reads the page for us and
/// fails with EFAULT.
fn is_there(page: usize, reader: &OwnedFd, writer: &OwnedFd) -> bool {
    // SAFETY: the kernel reads the address. It returns EFAULT if it cannot.
    let written = unsafe { libc::write(writer.as_raw_fd(), page as *const libc::c_void, 1) };
    written == 1 && nix::unistd::read(reader, &mut [0]) == Ok(1)
}

fn flush(pages: &[usize]) {
    for page in pages {
        for line in (*page..*page + PAGE_LEN).step_by(CACHE_LINE_LEN) {
            // SAFETY: `is_there` has read the page, and a flush does not change it.
            unsafe { _mm_clflush(line as *const u8) };
        }
    }
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { _mm_mfence() };
}
