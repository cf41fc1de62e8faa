//! Content of ours in the place of a file that the program has opened.

use crate::sys::{nr, sys};

const FCNTL: u32 = 72;
const DUP3: u32 = 292;
const PIPE2: u32 = 293;
const PWRITE: u32 = 18;
const GETRLIMIT: u32 = 97;

/// What the program reads instead.
pub enum StandIn {
    /// A file in memory, and how much has been written.
    File {
        /// The program's descriptor.
        fd: u32,
        /// The end.
        at: u64,
    },
    /// A pipe, for programs that may not write a file so long: RLIMIT_FSIZE counts files in memory as well, and the kernel would send
    /// SIGXFSZ. This is the end to write to.
    Pipe(u32),
}

impl StandIn {
    /// Puts an empty one in the place of `fd`, with its close-on-exec flag. None where the kernel refuses: then `fd` is as it was.
    pub fn of(fd: u32) -> Option<StandIn> {
        if may_write_files() {
            // SAFETY: a new descriptor.
            let file = unsafe { sys!(nr::MEMFD_CREATE, c"lorentz-proc".as_ptr(), 0u64) };
            return (file >= 0 && replace(fd, file)).then_some(StandIn::File { fd, at: 0 });
        }
        const NONBLOCK: u64 = 0o4000;
        let mut ends = [0u32; 2];
        // SAFETY: writes two new descriptors.
        if unsafe { sys!(PIPE2, ends.as_mut_ptr(), NONBLOCK) } != 0 {
            return None;
        }
        let [read, write] = ends;
        if replace(fd, read as isize) {
            const F_SETPIPE_SZ: u64 = 1031;
            const MOST: u64 = 1 << 20;
            // SAFETY: our own pipe. Where the kernel refuses, it has room for 64 KiB.
            unsafe { sys!(FCNTL, write, F_SETPIPE_SZ, MOST) };
            return Some(StandIn::Pipe(write));
        }
        // SAFETY: our own descriptor.
        unsafe { sys!(nr::CLOSE, write) };
        None
    }

    /// Appends `bytes`; false where not all have been written.
    pub fn put(&mut self, bytes: &[u8]) -> bool {
        // SAFETY: reads the bytes.
        let written = unsafe {
            match self {
                StandIn::File { fd, at } => sys!(PWRITE, *fd, bytes.as_ptr(), bytes.len(), *at),
                StandIn::Pipe(end) => sys!(nr::WRITE, *end, bytes.as_ptr(), bytes.len()),
            }
        };
        if let StandIn::File { at, .. } = self {
            *at += bytes.len() as u64;
        }
        written == bytes.len() as isize
    }

    /// Nothing more is written: the program reads from the start.
    pub fn end(self) {
        match self {
            // Written by position: its own is the start still.
            StandIn::File { .. } => {}
            // SAFETY: our own descriptor.
            StandIn::Pipe(write) => unsafe {
                sys!(nr::CLOSE, write);
            },
        }
    }
}

/// Whether RLIMIT_FSIZE leaves room for any file of /proc.
fn may_write_files() -> bool {
    const RLIMIT_FSIZE: u64 = 1;
    const ANY: u64 = 1 << 20;
    let mut limits = [u64::MAX; 2];
    // SAFETY: writes two words.
    unsafe { sys!(GETRLIMIT, RLIMIT_FSIZE, limits.as_mut_ptr()) };
    limits[0] >= ANY
}

/// Makes `fd` a name of `file`, with its close-on-exec flag as before, and closes `file`.
fn replace(fd: u32, file: isize) -> bool {
    const F_GETFD: u64 = 1;
    const FD_CLOEXEC: isize = 1;
    const O_CLOEXEC: u64 = 0o2000000;
    // SAFETY: a descriptor of our own, and the one just opened.
    unsafe {
        let flags = sys!(FCNTL, fd, F_GETFD);
        let done = sys!(DUP3, file, fd, if flags & FD_CLOEXEC != 0 { O_CLOEXEC } else { 0 });
        sys!(nr::CLOSE, file);
        done >= 0
    }
}
