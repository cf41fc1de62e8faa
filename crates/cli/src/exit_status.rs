//! The exit status of each error that reaches the command line.

use std::error::Error;

use lorentz_checkpoint::CheckpointRefused;
use lorentz_container::{launch_status, AttachRefused, LaunchError, StateError};
use lorentz_control::WrongOption;
use lorentz_experiment::Refused;
use lorentz_network::topology::TopologyError;
use lorentz_packets::PacketsError;
use lorentz_study::StudyError;

use crate::wrong_input::WrongInput;

/// Exit status for wrong input. Nothing was started or changed.
pub const WRONG_INPUT: i32 = 2;
/// Exit status for a failure on the way.
pub const FAILED: i32 = 1;
/// The same for `run` and `exec`, where 1 is as likely the program's own.
pub const LAUNCH_FAILED: i32 = 125;

/// An error with an exit status of its own.
trait ExitStatus: Error + 'static {
    /// Returns the exit status; `None` for a failure on the way. The default is that of wrong input.
    fn exit_status(&self) -> Option<i32> {
        Some(WRONG_INPUT)
    }
}

impl ExitStatus for WrongInput {}
impl ExitStatus for WrongOption {}
impl ExitStatus for AttachRefused {}
impl ExitStatus for lorentz_experiment::ExperimentRefusal {}
impl ExitStatus for lorentz_network::NetworkRefusal {}
impl ExitStatus for TopologyError {}

impl ExitStatus for CheckpointRefused {
    fn exit_status(&self) -> Option<i32> {
        (!self.is_of_host()).then_some(WRONG_INPUT)
    }
}

impl ExitStatus for StateError {
    fn exit_status(&self) -> Option<i32> {
        self.is_wrong_input().then_some(WRONG_INPUT)
    }
}

impl ExitStatus for LaunchError {
    fn exit_status(&self) -> Option<i32> {
        launch_status(self).map(i32::from)
    }
}

impl ExitStatus for Refused {
    fn exit_status(&self) -> Option<i32> {
        self.wrong_input.then_some(WRONG_INPUT)
    }
}

impl ExitStatus for PacketsError {
    fn exit_status(&self) -> Option<i32> {
        self.is_wrong_input().then_some(WRONG_INPUT)
    }
}

impl ExitStatus for StudyError {
    fn exit_status(&self) -> Option<i32> {
        self.is_wrong_input().then_some(WRONG_INPUT)
    }
}

/// Returns the exit status of `error`, if it is an `E`.
fn status_as<E: ExitStatus>(error: &(dyn Error + 'static)) -> Option<i32> {
    error.downcast_ref::<E>()?.exit_status()
}

/// Every type with an exit status of its own. An error in a chain has lost its type, so each type is tried.
const TYPES: [fn(&(dyn Error + 'static)) -> Option<i32>; 12] = [
    status_as::<WrongInput>,
    status_as::<WrongOption>,
    status_as::<AttachRefused>,
    status_as::<StateError>,
    status_as::<LaunchError>,
    status_as::<CheckpointRefused>,
    status_as::<lorentz_experiment::ExperimentRefusal>,
    status_as::<Refused>,
    status_as::<lorentz_network::NetworkRefusal>,
    status_as::<TopologyError>,
    status_as::<PacketsError>,
    status_as::<StudyError>,
];

/// Returns the exit status for `error`. Only a command that launches a program has statuses of its own for failures.
pub fn exit_status(error: &anyhow::Error, launches: bool) -> i32 {
    let of_cause = |cause| TYPES.iter().find_map(|status_as| status_as(cause));
    match error.chain().find_map(of_cause) {
        Some(WRONG_INPUT) => WRONG_INPUT,
        _ if !launches => FAILED,
        other => other.unwrap_or(LAUNCH_FAILED),
    }
}

#[cfg(test)]
mod tests {
    use lorentz_experiment::ExperimentRefusal;

    use super::*;

    #[test]
    fn statuses_tell_kinds_apart() {
        let wrong: anyhow::Error = StateError::Unknown("web".into()).into();
        assert_eq!(exit_status(&wrong, false), WRONG_INPUT);
        let launch: anyhow::Error = LaunchError::NotFound(c"x".into()).into();
        assert_eq!(exit_status(&launch, false), FAILED);
        assert_eq!(exit_status(&launch.context("on the way"), true), 127);
        assert_eq!(exit_status(&anyhow::anyhow!("other"), true), LAUNCH_FAILED);
        let file = std::io::Error::from_raw_os_error(libc::EIO);
        let file = StateError::File { path: "/x".into(), error: file };
        assert_eq!(exit_status(&file.into(), false), FAILED);
    }

    /// Both statuses of each kind of error: of a verb that launches a program, and of the others.
    #[test]
    fn each_kind_of_error_has_its_statuses() {
        let eio = || std::io::Error::from_raw_os_error(libc::EIO);
        let refused = |wrong_input| Refused { why: "no".into(), wrong_input };
        let place = TopologyError { file: "x".into(), line: 1, column: 1, what: "no".into() };
        let option = WrongOption::Both { first: "--at", second: "--offset" };
        let errors: Vec<(anyhow::Error, i32, i32)> = vec![
            (WrongInput("x".into()).into(), 2, 2),
            (option.into(), 2, 2),
            (AttachRefused::Gone(7).into(), 2, 2),
            (StateError::NameInUse("web".into()).into(), 2, 2),
            (StateError::NoProc.into(), 125, 1),
            (LaunchError::NotFound(c"x".into()).into(), 127, 1),
            (LaunchError::NotExecutable(c"x".into(), eio()).into(), 126, 1),
            (LaunchError::Refused("32-bit".into()).into(), 126, 1),
            (LaunchError::System("fork", eio()).into(), 125, 1),
            (ExperimentRefusal::Unknown("lab".into()).into(), 2, 2),
            (refused(true).into(), 2, 2),
            (refused(false).into(), 125, 1),
            (lorentz_network::NetworkRefusal::NotRoot.into(), 2, 2),
            (place.into(), 2, 2),
            (PacketsError::RingSize(1).into(), 2, 2),
            (PacketsError::Io(eio()).into(), 125, 1),
            (StudyError::Exists("x".into()).into(), 2, 2),
            (StudyError::Interrupted.into(), 125, 1),
            (lorentz_experiment::Ended("lab".into()).into(), 125, 1),
            (eio().into(), 125, 1),
        ];
        for (error, launching, other) in errors {
            assert_eq!(
                (exit_status(&error, true), exit_status(&error, false)),
                (launching, other),
                "{error}"
            );
            let error = error.context("on the way").context("twice");
            assert_eq!(
                (exit_status(&error, true), exit_status(&error, false)),
                (launching, other),
                "{error}"
            );
        }
    }
}
