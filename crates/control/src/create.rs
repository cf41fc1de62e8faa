//! Making a new clock.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use lorentz_clock::{file, SkipMode};

use crate::{Clock, ClockSettings, HostNow};

impl Clock {
    /// Makes a clock in a new file at `path`, [`file::LEN`] bytes long. If RLIMIT_FSIZE is lower, the kernel sends SIGXFSZ.
    ///
    /// # Errors
    ///
    /// If the file exists, or the file system refuses.
    pub fn create(path: &Path, settings: &ClockSettings) -> io::Result<Clock> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(path)?;
        file.set_len(file::LEN as u64)?;
        let clock = Clock::map(path, &file)?;
        let host = HostNow::read()?;
        let start = settings.segment(&host);
        clock.page().initialise(&start, settings.rate, settings.policy, host.wall_offset());
        if settings.skip != SkipMode::Off {
            clock.set_skipping(settings.skip, settings.read_cost)?;
        }
        if let Some(error) = settings.error {
            clock.begin_with_error(error)?;
        }
        Ok(clock)
    }
}
