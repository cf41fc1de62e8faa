//! The shim's image as a file in memory, ready to be mapped into processes.

use crate::{Error, Result};
use lorentz_shim::layout::{IMAGE, IMAGE_LEN};
use nix::sys::memfd::{memfd_create, MFdFlags};
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;

static BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/image.elf"));

/// The image, and where it begins.
pub struct Image {
    /// The file; one for all processes of a monitor.
    pub file: OwnedFd,
    /// Bytes to map.
    pub len: u64,
    /// Address of the boot code.
    pub boot: u64,
}

impl Image {
    /// Puts the image into a file in memory, sealed against change.
    pub fn new() -> Result<Image> {
        const ENTRY: usize = 24;
        let entry = BYTES[ENTRY..ENTRY + 8].try_into().map(u64::from_le_bytes).unwrap_or(0);
        debug_assert!((IMAGE as u64..(IMAGE + IMAGE_LEN) as u64).contains(&entry));
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let mut file: File = memfd_create(c"lorentz", flags)
            .map_err(|e| Error::System("memfd_create for the shim", e.into()))?
            .into();
        file.write_all(BYTES).map_err(|e| Error::System("writing the shim", e))?;
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE | libc::F_SEAL_SEAL;
        let file: OwnedFd = file.into();
        use std::os::fd::AsRawFd;
        // SAFETY: our own descriptor.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) };
        Ok(Image { file, len: BYTES.len() as u64, boot: entry })
    }
}
