//! A read of the clock after the pages that it needs were flushed from all caches: the patch set's second benchmark.

use std::arch::x86_64::{_mm_clflush, _mm_mfence};
use std::fs;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};

use lorentz_study::protocol::{Nanos, Sample};

use crate::{calls, stopwatch};

const LINE: usize = 64;
const PAGE: usize = 4096;
/// What such pages are called in /proc/self/maps: the kernel's, and those of libfaketime.
const NAMES: [&str; 3] = ["[vdso]", "[vvar", "faketime"];
/// Where the shim and its clock page are, as its linker script has it.
const OURS: Range<usize> = 0x7000_0000..0x7100_0000;
/// No clock read goes further into a mapping; the registry of waiters, which is behind the clock page, is long.
const MOST_PAGES: usize = 64;

/// `count` reads, each a sample.
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

/// The addresses of the pages that a read of the clock can touch, and that are there.
fn pages() -> io::Result<Vec<usize>> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    let mut pages = Vec::new();
    let (reader, writer) = nix::unistd::pipe()?;
    for line in maps.lines() {
        let Some((range, rest)) = line.split_once(' ') else { continue };
        let Some(range) = parse(range) else { continue };
        let is_named = NAMES.iter().any(|name| rest.contains(name));
        if rest.starts_with('r') && (is_named || OURS.contains(&range.start)) {
            let there = range
                .step_by(PAGE)
                .take(MOST_PAGES)
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

/// Whether a page can be read: some of the kernel's own have nothing behind them. The kernel is asked to read it.
fn is_there(page: usize, reader: &OwnedFd, writer: &OwnedFd) -> bool {
    // SAFETY: where the address cannot be read, the call says so.
    let written = unsafe { libc::write(writer.as_raw_fd(), page as *const libc::c_void, 1) };
    written == 1 && nix::unistd::read(reader, &mut [0]) == Ok(1)
}

fn flush(pages: &[usize]) {
    for page in pages {
        for line in (*page..*page + PAGE).step_by(LINE) {
            // SAFETY: the page can be read, and flushing changes nothing in it.
            unsafe { _mm_clflush(line as *const u8) };
        }
    }
    // SAFETY: it is there on every x86-64 processor.
    unsafe { _mm_mfence() };
}
