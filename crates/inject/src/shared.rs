//! A clock's file, mapped.

use lorentz_clock::{file, ClockPage, Registry};
use nix::sys::mman::{mmap, munmap, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;

/// The page and the registry, as everybody on the clock sees them.
pub struct SharedClock(NonNull<c_void>);

impl SharedClock {
    /// Maps `clock`, a whole clock's file that is open for reading and writing.
    pub fn map(clock: &impl AsFd) -> io::Result<SharedClock> {
        let len = NonZeroUsize::new(file::LEN).ok_or_else(|| io::Error::other("no registry"))?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping of the clock's file, which is as long as that.
        let memory = unsafe { mmap(None, len, access, MapFlags::MAP_SHARED, clock, 0) }?;
        Ok(SharedClock(memory))
    }

    /// The clock.
    pub fn page(&self) -> &ClockPage {
        // SAFETY: mapped as long as `self` lives; all of it is atomics.
        unsafe { self.0.cast().as_ref() }
    }

    /// Who is on it.
    pub fn registry(&self) -> &Registry {
        // SAFETY: as above; the file is as long as both.
        unsafe { self.0.byte_add(file::REGISTRY_OFFSET).cast().as_ref() }
    }
}

impl Drop for SharedClock {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and nothing borrowed from it outlives `self`.
        let _ = unsafe { munmap(self.0, file::LEN) };
    }
}
