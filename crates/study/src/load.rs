//! Loads: other work of the machine while a study measures timers.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::named::{named, Named};
use crate::StudyError;

/// A load of *Impact of Modern Virtualization Methods on Timing Precision*, section 2.2.3.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// No load: the machine as it is.
    Idle,
    /// 100 threads of square roots.
    Cpu,
    /// A stream over loopback, and a file written and synced.
    Io,
}

named!(Load, "load", { Idle = "idle", Cpu = "cpu", Io = "io" });

/// Time until a load has its full weight.
const SETTLE_TIME: Duration = Duration::from_millis(500);

/// A running load. Dropping it ends the load.
pub struct RunningLoad(Option<Child>);

impl RunningLoad {
    /// Puts the machine under `load`. The load writes its files in `folder`.
    ///
    /// # Errors
    ///
    /// The program that makes the load cannot be started.
    pub fn start(load: Load, probe: &Path, folder: &Path) -> Result<RunningLoad, StudyError> {
        if load == Load::Idle {
            return Ok(RunningLoad(None));
        }
        let mut command = Command::new(probe);
        command.arg("load").arg(load.name()).arg(folder);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        let child = child.map_err(|error| StudyError::at(probe, error))?;
        std::thread::sleep(SETTLE_TIME);
        Ok(RunningLoad(Some(child)))
    }
}

impl Drop for RunningLoad {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
