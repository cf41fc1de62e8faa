//! Whether bytes of a program are a call site that may be rewritten: the monitor's answer to the shim
//! ([`lorentz_shim::call_sites`]).
//!
//! The monitor reads the program's memory. It finds the function that the site lies in by the table of functions that unwinders use
//! (`.eh_frame_hdr`), and decodes that function from its first instruction on. Code without such a table, such as what a JIT
//! compiler or Go has written, stays as it is.

use iced_x86::{Decoder, DecoderOptions, Instruction, OpKind};
use lorentz_shim::call_sites::{Shape, REWRITTEN, SITE_LEN};
use lorentz_shim::layout::{CallSite, CALL_SITES, CALL_SITES_LEN};
use lorentz_syscalls::Sysno;
use nix::sys::uio::{process_vm_readv, RemoteIoVec};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io::{self, IoSliceMut};
use std::mem::offset_of;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// The longest function that is decoded, bytes.
const MAX_FUNCTION: u64 = 1 << 16;
/// Length of a syscall instruction.
const SYSCALL_LEN: u64 = 2;

/// Returns the shape of the site of process `pid` that ends at `end`, at which the process has just made the call `number`. `None`
/// where the site must stay as it is.
pub(crate) fn shape(pid: u32, end: u64, number: Sysno) -> Option<Shape> {
    let begin = end.checked_sub(SITE_LEN as u64)?;
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    let mut code = [0; SITE_LEN];
    memory.read_exact_at(&mut code, begin).ok()?;
    let of_code = |shape: &Shape| shape.code(number) == code;
    let shape = [Shape::Number, Shape::AnyCall].into_iter().find(of_code)?;
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let object = LoadedObject::around(&maps, begin..end)?;
    let first = object.function(&memory, begin).ok().flatten()?;
    if end - first > MAX_FUNCTION {
        return None;
    }
    let mut function = vec![0; (end - first) as usize];
    memory.read_exact_at(&mut function, first).ok()?;
    is_replaceable(&function, first).then_some(shape)
}

/// Returns how many call sites of process `pid` are rewritten. `None` where the shim is not in the process, or its memory may not
/// be read. The process is not stopped for it.
pub fn rewritten_sites(pid: u32) -> Option<usize> {
    const SITE: usize = size_of::<CallSite>();
    let mut table = vec![0; CALL_SITES_LEN * SITE];
    let remote = RemoteIoVec { base: CALL_SITES, len: table.len() };
    let local = &mut [IoSliceMut::new(&mut table)];
    let copied = process_vm_readv(Pid::from_raw(pid as i32), local, &[remote]).ok()?;
    let is_rewritten = |site: &&[u8]| word(site, offset_of!(CallSite, state)) == REWRITTEN;
    (copied == table.len()).then(|| table.chunks_exact(SITE).filter(is_rewritten).count())
}

/// A mapping of a program: its addresses, and the place in the file.
#[derive(PartialEq)]
struct Mapping<'a> {
    start: u64,
    end: u64,
    permissions: &'a str,
    offset: u64,
    device_and_inode: (&'a str, u64),
}

impl<'a> Mapping<'a> {
    /// Reads a line of /proc/PID/maps.
    fn parse(line: &'a str) -> Option<Mapping<'a>> {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let permissions = words.next()?;
        let hex = |text| u64::from_str_radix(text, 16).ok();
        Some(Mapping {
            start: hex(start)?,
            end: hex(end)?,
            permissions,
            offset: hex(words.next()?)?,
            device_and_inode: (words.next()?, words.next()?.parse().ok()?),
        })
    }
}

impl Mapping<'_> {
    fn is_of_same_file(&self, other: &Mapping) -> bool {
        self.device_and_inode == other.device_and_inode && self.device_and_inode.1 != 0
    }
}

/// A program or a library, as the kernel or the dynamic loader has mapped it.
struct LoadedObject {
    /// Where its ELF header lies.
    start: u64,
    /// The mapping with the code. The kernel lists a page that was rewritten as a mapping of its own.
    code: Range<u64>,
}

impl LoadedObject {
    /// The object whose code, a private mapping that nobody may write to, holds `site`.
    fn around(maps: &str, site: Range<u64>) -> Option<LoadedObject> {
        let mappings: Vec<Mapping> = maps.lines().filter_map(Mapping::parse).collect();
        let of_site = mappings.iter().find(|m| m.start <= site.start && site.start < m.end)?;
        let is_code = |m: &Mapping| m.permissions == "r-xp" && of_site.is_of_same_file(m);
        let code = mappings.chunk_by(|a, b| is_code(a) && is_code(b) && a.end == b.start);
        let code = code.into_iter().find(|run| run.contains(of_site))?;
        let (first, last) = (code.first()?, code.last()?);
        let begins =
            |m: &&Mapping| m.offset == 0 && of_site.is_of_same_file(m) && m.start <= first.start;
        let start = mappings.iter().rfind(begins)?.start;
        (is_code(of_site) && site.end <= last.end)
            .then_some(LoadedObject { start, code: first.start..last.end })
    }

    /// Returns the first address of the function that `address` lies in, by the object's table of functions.
    fn function(&self, memory: &File, address: u64) -> io::Result<Option<u64>> {
        let Some(table) = self.function_table(memory)? else { return Ok(None) };
        // Version 1; the pointer to .eh_frame relative to itself; a count of four bytes; pairs of four bytes each, relative to the
        // table.
        const USUAL_FORM: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
        const HEADER: u64 = 12;
        const PAIR: u64 = 8;
        let mut header = [0; HEADER as usize];
        memory.read_exact_at(&mut header, table)?;
        let count = word(&header, 8);
        if header[..4] != USUAL_FORM {
            return Ok(None);
        }
        // Pair by pair: a process that has just begun would get the whole table mapped, tens of pages, to be read once.
        let first = |i: u32| -> io::Result<u64> {
            let mut pair = [0; 4];
            memory.read_exact_at(&mut pair, table + HEADER + PAIR * u64::from(i))?;
            Ok(table.wrapping_add_signed(i32::from_le_bytes(pair).into()))
        };
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low + (high - low) / 2;
            match first(middle)? <= address {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        let found = low.checked_sub(1).map(first).transpose()?;
        Ok(found.filter(|first| self.code.contains(first)))
    }

    /// Returns where the table of functions lies, if the object has one.
    fn function_table(&self, memory: &File) -> io::Result<Option<u64>> {
        const HEADER: usize = 64;
        const PROGRAM_HEADER: usize = 56;
        const MAX_HEADERS: usize = 64;
        const PT_LOAD: u32 = 1;
        const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
        const PAGE: u64 = 4096;
        let mut header = [0; HEADER];
        memory.read_exact_at(&mut header, self.start)?;
        let count = usize::from(u16::from_le_bytes([header[56], header[57]]));
        if header[..4] != *b"\x7fELF" || count > MAX_HEADERS {
            return Ok(None);
        }
        let mut headers = vec![0; count * PROGRAM_HEADER];
        memory.read_exact_at(&mut headers, self.start + u64::from(word(&header, 32)))?;
        let address = |kind: u32| {
            let is_one = |header: &&[u8]| word(header, 0) == kind;
            let header = headers.chunks_exact(PROGRAM_HEADER).find(is_one)?;
            Some(u64::from(word(header, 16)) | u64::from(word(header, 20)) << 32)
        };
        let (Some(loaded), Some(table)) = (address(PT_LOAD), address(PT_GNU_EH_FRAME)) else {
            return Ok(None);
        };
        Ok(Some(self.start.wrapping_sub(loaded & !(PAGE - 1)).wrapping_add(table)))
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Whether the last two instructions of `function`, which begins at address `first`, are one of five bytes and a syscall
/// instruction, and no jump in it leads into the five bytes. A jump to the syscall instruction does no harm: it stays.
fn is_replaceable(function: &[u8], first: u64) -> bool {
    let end = first + function.len() as u64;
    let (site, syscall) = (end - SITE_LEN as u64, end - SYSCALL_LEN);
    let mut decoder = Decoder::with_ip(64, function, first, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut boundaries = (false, false);
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        let jumps = instruction.op_count() > 0 && instruction.op0_kind() == OpKind::NearBranch64;
        let target = instruction.near_branch64();
        if instruction.is_invalid() || (jumps && site < target && target < syscall) {
            return false;
        }
        boundaries.0 |= instruction.ip() == site && instruction.next_ip() == syscall;
        boundaries.1 |= instruction.ip() == syscall;
    }
    boundaries == (true, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: [u8; SITE_LEN] = [0xb8, 1, 1, 0, 0, 0x0f, 0x05];

    #[test]
    fn a_site_is_replaceable_where_its_instructions_begin() {
        let function = [&[0x41, 0x89, 0xc8][..], &OPEN].concat();
        assert!(is_replaceable(&function, 0x1000));
    }

    #[test]
    fn bytes_that_are_part_of_another_instruction_are_not() {
        // mov r8d, 257: the prefix makes it another register.
        assert!(!is_replaceable(&[&[0x41][..], &OPEN].concat(), 0x1000));
        // mov dword ptr [rsp - 0x48], 257.
        assert!(!is_replaceable(&[&[0xc7, 0x44, 0x24][..], &OPEN].concat(), 0x1000));
    }

    #[test]
    fn a_jump_into_the_five_bytes_keeps_the_site_as_it_is() {
        let with_jump = |by: u8| [&[0xeb, by][..], &OPEN].concat();
        assert!(is_replaceable(&with_jump(0), 0x1000));
        assert!(is_replaceable(&with_jump(5), 0x1000), "to the syscall instruction");
        for into in 1..5 {
            assert!(!is_replaceable(&with_jump(into), 0x1000), "{into} bytes into the site");
        }
    }

    /// Sites of this process's own libc, found by their bytes in its functions.
    #[test]
    fn the_functions_of_libc_have_sites_of_both_shapes() {
        for (function, number) in [
            (libc::syscall as *const () as u64, Sysno::getpid),
            (libc::fstatat as *const () as u64, Sysno::newfstatat),
        ] {
            // SAFETY: libc's code goes on for longer than this.
            let code = unsafe { std::slice::from_raw_parts(function as *const u8, 64) };
            let at = code.windows(2).position(|two| two == [0x0f, 0x05]).expect("a syscall");
            let end = function + at as u64 + SYSCALL_LEN;
            let found = shape(std::process::id(), end, number);
            assert!(found.is_some(), "no site at {end:#x}");
            assert_eq!(
                shape(std::process::id(), end, Sysno::new(7777)).is_some(),
                found == Some(Shape::AnyCall)
            );
        }
    }
}
