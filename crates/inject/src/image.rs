//! The shim's image in a memfd, from which processes map it.

use crate::{limits, Error, Result};
use lorentz_shim::layout::{IMAGE, IMAGE_LEN};
use nix::sys::memfd::{memfd_create, MFdFlags};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

static BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/image.elf"));

/// The image, and the address of its boot code.
pub struct Image {
    /// The memfd. All processes of a monitor use the same one.
    pub file: OwnedFd,
    /// Length to map, bytes.
    pub len: u64,
    /// Address of the boot code.
    pub boot: u64,
}

impl Image {
    /// Writes the image into a memfd and seals it against changes.
    pub fn new() -> Result<Image> {
        const ENTRY: usize = 24;
        let entry = BYTES[ENTRY..ENTRY + 8].try_into().map(u64::from_le_bytes).unwrap_or(0);
        debug_assert!((IMAGE as u64..(IMAGE + IMAGE_LEN) as u64).contains(&entry));
        const WRITING: &str = "the shim";
        limits::check_file_size(BYTES.len() as u64).map_err(|e| Error::System(WRITING, e))?;
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let mut file: File = memfd_create(c"lorentz", flags)
            .map_err(|e| Error::System("memfd_create for the shim", e.into()))?
            .into();
        file.write_all(BYTES).map_err(|e| Error::System(WRITING, e))?;
        let seals =
            libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE | libc::F_SEAL_SEAL;
        let file: OwnedFd = file.into();
        use std::os::fd::AsRawFd;
        // SAFETY: the descriptor belongs to this process.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) };
        Ok(Image { file, len: BYTES.len() as u64, boot: entry })
    }
}

/// Address of the flags in the header of the image that a process has mapped.
pub const FLAGS: u64 = IMAGE as u64 + 48;
/// The flag of an image that knows the signal of an adoption. For an older one it would be a signal of the program's own, which may
/// end the program.
pub const CAN_BE_ADOPTED: u8 = 1;

/// The shim of a process, as far as its checkpoint depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shim {
    /// Checksum, of 24 bits, of the source text on which processes with the image and the programs outside must agree: the clock's
    /// file, the shim's data, the requests to the monitor. This build can supervise a process with the image of another one that has
    /// the same layout.
    pub layout: u32,
    /// Address behind the call of the first gate of `lorentz_shim::gate`. A thread that the kernel has interrupted there has the
    /// call's result in RAX, and in R13 the address of the mark.
    pub gate_done: Option<u64>,
}

impl Shim {
    /// The one of this build.
    pub fn own() -> Shim {
        Shim::in_image(BYTES)
    }

    fn in_image(image: &[u8]) -> Shim {
        let at = (FLAGS - IMAGE as u64) as usize;
        let flags = image.get(at..at + 4).and_then(|flags| flags.try_into().ok());
        Shim { layout: flags.map_or(0, u32::from_le_bytes) >> 8, gate_done: gate_done(image) }
    }

    /// The one of process `pid`, which may be of another build. The process must have one.
    ///
    /// # Errors
    ///
    /// The process has ended, or may not be read.
    pub fn of(pid: u32) -> io::Result<Shim> {
        let memory = File::open(format!("/proc/{pid}/mem"))?;
        let mut bytes = vec![0; IMAGE_LEN];
        let len = memory.read_at(&mut bytes, IMAGE as u64)?;
        Ok(Shim::in_image(&bytes[..len]))
    }
}

fn gate_done(image: &[u8]) -> Option<u64> {
    // syscall; mov r12, rax; mov rax, [r13]
    const CODE: [u8; 9] = [0x0f, 0x05, 0x49, 0x89, 0xc4, 0x49, 0x8b, 0x45, 0x00];
    const SYSCALL_LEN: usize = 2;
    let at = image.windows(CODE.len()).position(|code| code == CODE)?;
    Some((IMAGE + at + SYSCALL_LEN) as u64)
}

/// Returns a checksum of the image, which tells builds of the shim apart. The build script computes it.
pub fn build_id() -> u32 {
    env!("LORENTZ_SHIM_CHECKSUM").parse().expect("the build script writes a number")
}

/// Returns the name and address of each function that the image has in place of the kernel's vDSO's. They come from its dynamic
/// table, which libc reads too: the image has no sections.
pub fn functions() -> Vec<(&'static str, u64)> {
    const DT_HASH: u64 = 4;
    const DT_STRTAB: u64 = 5;
    const DT_SYMTAB: u64 = 6;
    const SYMBOL_LEN: usize = 24;
    const PT_DYNAMIC: u64 = 2;
    const PROGRAM_HEADERS: usize = 64;
    const PROGRAM_HEADER: usize = 56;
    let mut headers = (0..).map(|i| PROGRAM_HEADERS + PROGRAM_HEADER * i);
    let dynamic = headers.find(|at| word(*at) as u32 as u64 == PT_DYNAMIC).unwrap_or(0);
    let dynamic = word(dynamic + 8) as usize;
    let entry = |tag: u64| {
        let place = (0..).map(|i| dynamic + 16 * i).find(|at| word(*at) == tag);
        place.map_or(0, |at| word(at + 8) as usize)
    };
    let (hash, strings, symbols) = (entry(DT_HASH), entry(DT_STRTAB), entry(DT_SYMTAB));
    let count = word(hash) >> 32;
    (1..count as usize)
        .map(|i| symbols + SYMBOL_LEN * i)
        .map(|at| {
            let name = &BYTES[strings + word(at) as u32 as usize..];
            let end = name.iter().position(|byte| *byte == 0).unwrap_or(0);
            (std::str::from_utf8(&name[..end]).unwrap_or(""), IMAGE as u64 + word(at + 8))
        })
        .collect()
}

fn word(at: usize) -> u64 {
    BYTES[at..at + 8].try_into().map(u64::from_le_bytes).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_the_image_can_be_adopted() {
        assert_eq!(BYTES[(FLAGS - IMAGE as u64) as usize] & CAN_BE_ADOPTED, CAN_BE_ADOPTED);
    }

    #[test]
    fn the_gate_is_in_the_image_once() {
        let at = Shim::own().gate_done.expect("the gate") as usize - IMAGE;
        assert_eq!(BYTES[at - 2..at], [0x0f, 0x05]);
        let again = BYTES[at..].windows(5).filter(|code| *code == [0x49, 0x89, 0xc4, 0x49, 0x8b]);
        assert_eq!(again.count(), 1);
    }

    #[test]
    fn an_image_names_its_layout() {
        assert_ne!(Shim::own().layout, 0);
        let other = Shim::in_image(&[&[0; 48][..], &[1, 3, 2, 1], &[0; 100]].concat());
        assert_eq!(other, Shim { layout: 0x01_02_03, gate_done: None });
        assert_eq!(Shim::in_image(&[]), Shim { layout: 0, gate_done: None });
    }

    #[test]
    fn the_image_has_the_functions_of_a_vdso() {
        let functions = functions();
        for name in ["__vdso_clock_gettime", "__vdso_gettimeofday", "__vdso_time", "__vdso_getcpu"]
        {
            let (_, address) = functions.iter().find(|(own, _)| *own == name).expect(name);
            assert!((IMAGE as u64..(IMAGE + BYTES.len()) as u64).contains(address));
        }
    }
}
