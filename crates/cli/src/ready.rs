//! `--ready-fd`: a descriptor of the caller on which a command says that it is ready.

use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd, RawFd};
use std::str::FromStr;

use crate::wrong_input::WrongInput;

/// A number that names a descriptor which this process has inherited.
#[derive(Clone, Copy, Debug)]
pub struct ReadyFd(RawFd);

impl FromStr for ReadyFd {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<ReadyFd, &'static str> {
        let number = text.parse().ok().filter(|number| *number > 2);
        number.map(ReadyFd).ok_or("expected the number of an open file descriptor above 2")
    }
}

impl ReadyFd {
    /// Takes the descriptor over: no program inherits it from here on. Call this once, before this process opens any file.
    pub fn open(self) -> anyhow::Result<File> {
        // SAFETY: plain numbers.
        if unsafe { libc::fcntl(self.0, libc::F_SETFD, libc::FD_CLOEXEC) } == -1 {
            let error = io::Error::last_os_error();
            let what = format!("--ready-fd {}: {error}; expected an open file descriptor", self.0);
            return Err(WrongInput(what).into());
        }
        // SAFETY: the descriptor is open. The caller has given it to this process, where no other value owns it.
        Ok(unsafe { File::from_raw_fd(self.0) })
    }
}
