//! The pipe `changes` beside a clock: it wakes the clock's monitors when a controller is done.
//!
//! A controller holds the pipe open for writing while it has the clock's lock. The kernel closes the pipe when the controller is
//! done or dies, and so wakes each monitor, which has the pipe open for reading. Containers that share a clock share the pipe.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

/// The pipe's name.
const NAME: &str = "changes";

/// The path of the pipe of the clock at `clock`.
fn beside(clock: &Path) -> PathBuf {
    clock.with_file_name(NAME)
}

/// Makes the pipe beside a new clock.
///
/// # Errors
///
/// If the pipe exists, or the file system refuses.
pub fn make(clock: &Path) -> io::Result<()> {
    Ok(mkfifo(&beside(clock), Mode::from_bits_truncate(0o600))?)
}

/// Gives a second name of a clock the same pipe.
///
/// # Errors
///
/// If the file system refuses.
pub fn share(owner: &Path, clock: &Path) -> io::Result<()> {
    match std::fs::hard_link(beside(owner), beside(clock)) {
        // A clock made by an older version of Lorentz has no pipe.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        linked => linked,
    }
}

/// Whether the clock at `clock` has its pipe.
pub fn exists(clock: &Path) -> bool {
    beside(clock).exists()
}

/// Opens the pipe for a controller, for as long as it changes the clock. `None` if no monitor listens.
pub(crate) fn hold(clock: &Path) -> Option<File> {
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(libc::O_NONBLOCK).open(beside(clock)).ok()
}

/// Opens the pipe for a monitor. It hangs up when the next controller closes its end.
///
/// # Errors
///
/// If there is no pipe.
pub fn listen(clock: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(beside(clock))
}
