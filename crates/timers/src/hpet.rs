//! The HPET, mapped into the process. It is a counter in a chip of its own, and slow to read.
//!
//! IA-PC HPET Specification 1.0a, section 2.3: capabilities at 0x00, configuration at 0x10, main counter at 0xf0.

use crate::scale::Scale;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// The reason why the HPET cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HpetError {
    /// EACCES or EPERM.
    #[error("may not be opened: only root may, as a rule")]
    Access,
    /// ENOENT.
    #[error("is not there: this machine has none, or the kernel was built without CONFIG_HPET")]
    NoEntry,
    /// ENODEV, ENXIO, or a kernel without CONFIG_HPET_MMAP.
    #[error("cannot be mapped: the kernel was started or built without hpet_mmap")]
    NoDevice,
    /// EBUSY.
    #[error("is in use by another process")]
    Busy,
    /// EMFILE or ENFILE.
    #[error("cannot be opened: too many open files")]
    TooManyFiles,
    /// ENOMEM.
    #[error("cannot be mapped: out of memory")]
    NoMemory,
    /// EAGAIN.
    #[error("cannot be mapped now: it is locked")]
    Again,
    /// The main counter has 32 bits and would wrap around within minutes.
    #[error("has a counter of 32 bits only")]
    Counter32Bit,
    /// ENABLE_CNF is off.
    #[error("is stopped: its main counter does not run")]
    Stopped,
    /// The capabilities register has a period outside 0.1 ps to 100 ns; the value is in femtoseconds.
    #[error("tells an impossible period of {0} fs")]
    Period(u32),
    /// Any other error.
    #[error("cannot be used: {0}")]
    Other(io::Error),
}

impl From<io::Error> for HpetError {
    fn from(error: io::Error) -> HpetError {
        match error.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => HpetError::Access,
            Some(libc::ENODEV | libc::ENXIO | libc::ENOSYS) => HpetError::NoDevice,
            Some(libc::EBUSY) => HpetError::Busy,
            Some(libc::EMFILE | libc::ENFILE) => HpetError::TooManyFiles,
            Some(libc::ENOMEM) => HpetError::NoMemory,
            Some(libc::EAGAIN) => HpetError::Again,
            _ if error.kind() == ErrorKind::NotFound => HpetError::NoEntry,
            _ => HpetError::Other(error),
        }
    }
}

const REGISTERS_LEN: usize = 4096;
const CAPABILITIES: usize = 0x00;
const CONFIGURATION: usize = 0x10;
const MAIN_COUNTER: usize = 0xf0;
const COUNT_SIZE_CAP: u64 = 1 << 13;
const ENABLE_CNF: u64 = 1;

/// The mapped registers.
#[derive(Debug)]
pub struct Hpet {
    registers: NonNull<u8>,
    scale: Scale,
}

// SAFETY: the registers are only read, each by one atomic load.
unsafe impl Send for Hpet {}
// SAFETY: as above.
unsafe impl Sync for Hpet {}

impl Hpet {
    /// The kernel's device.
    pub const PATH: &'static str = "/dev/hpet";

    /// Maps the HPET at `path`.
    ///
    /// # Errors
    ///
    /// [`HpetError`] says why the HPET cannot be used.
    pub fn open(path: &Path) -> Result<Hpet, HpetError> {
        let file = File::open(path)?;
        // SAFETY: this is a new mapping, which no other code uses.
        let mapped = unsafe {
            let flags = (libc::PROT_READ, libc::MAP_SHARED);
            libc::mmap(std::ptr::null_mut(), REGISTERS_LEN, flags.0, flags.1, file.as_raw_fd(), 0)
        };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error().into());
        }
        let registers = NonNull::new(mapped.cast()).ok_or(HpetError::NoMemory)?;
        let mut hpet = Hpet { registers, scale: Scale::NANOS };
        hpet.scale = hpet.reported_scale()?;
        Ok(hpet)
    }

    fn reported_scale(&self) -> Result<Scale, HpetError> {
        let capabilities = self.register(CAPABILITIES);
        if capabilities & COUNT_SIZE_CAP == 0 {
            return Err(HpetError::Counter32Bit);
        }
        if self.register(CONFIGURATION) & ENABLE_CNF == 0 {
            return Err(HpetError::Stopped);
        }
        let femtoseconds = (capabilities >> 32) as u32;
        const MAX_PERIOD: u32 = 100_000_000;
        if femtoseconds == 0 || femtoseconds > MAX_PERIOD {
            return Err(HpetError::Period(femtoseconds));
        }
        Scale::from_ratio(femtoseconds.into(), 1_000_000).ok_or(HpetError::Period(femtoseconds))
    }

    fn register(&self, offset: usize) -> u64 {
        // SAFETY: the address is aligned, and lies within the page, which is mapped as long as `self` lives. The code
        // only loads.
        unsafe { self.registers.add(offset).cast::<AtomicU64>().as_ref() }.load(Ordering::Relaxed)
    }

    /// Reads the main counter.
    #[inline]
    pub fn ticks(&self) -> i64 {
        self.register(MAIN_COUNTER) as i64
    }

    /// Returns the length of a tick.
    pub fn scale(&self) -> Scale {
        self.scale
    }
}

impl Drop for Hpet {
    fn drop(&mut self) {
        // SAFETY: `open` made the mapping, and no reference into it is left.
        unsafe { libc::munmap(self.registers.as_ptr().cast(), REGISTERS_LEN) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    /// Makes a file that looks like an HPET of 14.318180 MHz.
    fn mock(capabilities: u64, configuration: u64) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(REGISTERS_LEN as u64).unwrap();
        let set = |offset: usize, value: u64| {
            file.as_file().write_all_at(&value.to_le_bytes(), offset as u64).unwrap();
        };
        set(CAPABILITIES, capabilities);
        set(CONFIGURATION, configuration);
        file
    }

    const PERIOD: u64 = 69_841_279 << 32;

    #[test]
    fn a_running_64_bit_hpet_is_read() {
        let file = mock(PERIOD | COUNT_SIZE_CAP, ENABLE_CNF);
        let hpet = Hpet::open(file.path()).unwrap();
        assert_eq!(hpet.scale().hertz(), 14_318_180);
        for ticks in [0u64, 14_318_180, 1 << 40] {
            file.as_file().write_all_at(&ticks.to_le_bytes(), MAIN_COUNTER as u64).unwrap();
            assert_eq!(hpet.ticks(), ticks as i64);
        }
        let second = hpet.scale().nanos(14_318_180);
        assert!((999_999_990..=1_000_000_010).contains(&second), "{second}");
    }

    #[test]
    fn a_refusal_has_its_reason() {
        let refused = |capabilities, configuration| {
            Hpet::open(mock(capabilities, configuration).path()).unwrap_err()
        };
        assert!(matches!(refused(PERIOD, ENABLE_CNF), HpetError::Counter32Bit));
        assert!(matches!(refused(PERIOD | COUNT_SIZE_CAP, 0), HpetError::Stopped));
        assert!(matches!(refused(COUNT_SIZE_CAP, ENABLE_CNF), HpetError::Period(0)));
        let absent = Hpet::open(Path::new("/nonexistent/hpet")).unwrap_err();
        assert!(matches!(absent, HpetError::NoEntry));
        let unmappable = Hpet::open(Path::new("/dev/null")).unwrap_err();
        assert!(matches!(unmappable, HpetError::NoDevice), "{unmappable:?}");
        for (errno, expected) in [
            (libc::EACCES, "may not be opened"),
            (libc::EBUSY, "in use"),
            (libc::EMFILE, "too many open files"),
            (libc::ENOMEM, "out of memory"),
            (libc::EAGAIN, "locked"),
            (libc::EIO, "cannot be used"),
        ] {
            let message = HpetError::from(io::Error::from_raw_os_error(errno)).to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
