//! A mapped file of a clock.

use lorentz_clock::{file, ClockPage, Registry};
use nix::sys::mman::{mmap, munmap, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;

/// The page and the registry, mapped shared.
pub struct SharedClock(NonNull<c_void>);

impl SharedClock {
    /// Maps `clock`, a complete file of a clock that is open for reading and writing.
    pub fn map(clock: &impl AsFd) -> io::Result<SharedClock> {
        let len = NonZeroUsize::new(file::LEN).ok_or_else(|| io::Error::other("no registry"))?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: this is a new mapping of the clock's file, which has that length.
        let memory = unsafe { mmap(None, len, access, MapFlags::MAP_SHARED, clock, 0) }?;
        Ok(SharedClock(memory))
    }

    /// Returns the clock page.
    pub fn page(&self) -> &ClockPage {
        // SAFETY: the memory is mapped as long as `self` lives, and consists only of atomics.
        unsafe { self.0.cast().as_ref() }
    }

    /// Returns the registry.
    pub fn registry(&self) -> &Registry {
        // SAFETY: as above; the file contains both.
        unsafe { self.0.byte_add(file::REGISTRY_OFFSET).cast().as_ref() }
    }
}

impl Drop for SharedClock {
    fn drop(&mut self) {
        // SAFETY: `map` made the mapping, and no reference to it outlives `self`.
        let _ = unsafe { munmap(self.0, file::LEN) };
    }
}
