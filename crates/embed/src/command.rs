//! Calls of the `lorentz` command, for work that needs a process with one thread because it forks.

use std::env;
use std::ffi::{CStr, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{self, Stdio};

use crate::error::{Error, ErrorKind, Result};

/// The environment variable that names the command, if it is neither beside the library nor in PATH.
pub const COMMAND_VARIABLE: &str = "LORENTZ_COMMAND";

/// A call of the `lorentz` command.
pub struct LorentzCommand(process::Command);

impl LorentzCommand {
    /// Makes a call of `lorentz VERB`. The command is the one that [`COMMAND_VARIABLE`] names, else the one beside the library
    /// (or in `../bin`, or where a wheel puts it), else the one in PATH.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Failed`]: the command is in none of these places.
    pub fn new(verb: &str) -> Result<LorentzCommand> {
        let mut command = process::Command::new(command_path()?);
        command.arg(verb).stdin(Stdio::null());
        Ok(LorentzCommand(command))
    }

    /// Adds one argument.
    pub fn arg(mut self, word: impl AsRef<OsStr>) -> LorentzCommand {
        self.0.arg(word);
        self
    }

    /// Adds `flag` and its value, if there is a value.
    pub fn flag(self, flag: &str, value: Option<impl ToString>) -> LorentzCommand {
        match value {
            Some(value) => self.arg(flag).arg(value.to_string()),
            None => self,
        }
    }

    /// Adds `flag` if `wanted` is true.
    pub fn switch(self, flag: &str, wanted: bool) -> LorentzCommand {
        match wanted {
            true => self.arg(flag),
            false => self,
        }
    }

    /// Sets the standard input; without this call it is /dev/null.
    pub(crate) fn stdin(mut self, stdin: impl Into<Stdio>) -> LorentzCommand {
        self.0.stdin(stdin);
        self
    }

    /// Runs the command to its end, and returns its standard output.
    ///
    /// # Errors
    ///
    /// The command's own line. [`ErrorKind::WrongInput`] if it exits with status 2, else [`ErrorKind::Failed`].
    pub fn call(mut self) -> Result<String> {
        self.0.stdout(Stdio::piped()).stderr(Stdio::piped());
        let program = self.0.get_program().to_string_lossy().into_owned();
        let failed = |error: io::Error| Error::failed(format!("running {program}: {error}"));
        let mut child = self.0.spawn().map_err(failed)?;
        let (mut out, mut err) = (Vec::new(), Vec::new());
        // Both outputs are short, so neither pipe fills while this process reads the other.
        if let (Some(mut stdout), Some(mut stderr)) = (child.stdout.take(), child.stderr.take()) {
            io::Read::read_to_end(&mut stdout, &mut out).map_err(failed)?;
            io::Read::read_to_end(&mut stderr, &mut err).map_err(failed)?;
        }
        let printed = String::from_utf8_lossy(&err);
        let line = printed.trim().trim_start_matches("lorentz: ");
        let status = match child.wait() {
            Ok(status) => status.code(),
            // The program has waited for all its children, or ignores SIGCHLD. The command's output shows whether it failed.
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => {
                Some(i32::from(!line.is_empty()))
            }
            Err(error) => return Err(failed(error)),
        };
        match status {
            Some(0) => Ok(String::from_utf8_lossy(&out).into_owned()),
            Some(2) => Err(Error::new(ErrorKind::WrongInput, line)),
            _ if line.is_empty() => Err(Error::failed(format!("{program} failed without a word"))),
            _ => Err(Error::failed(line)),
        }
    }
}

/// Returns the path of the `lorentz` command.
///
/// # Errors
///
/// As [`LorentzCommand::new`].
pub fn command_path() -> Result<PathBuf> {
    if let Some(chosen) = env::var_os(COMMAND_VARIABLE).filter(|path| !path.is_empty()) {
        return Ok(chosen.into());
    }
    let beside = library().into_iter().flat_map(|library| {
        let folder = library.parent().unwrap_or(Path::new("/")).to_path_buf();
        // In a wheel, the library is in lib/pythonX.Y/site-packages/lorentz, and the command in bin.
        ["lorentz", "../bin/lorentz", "../../../../bin/lorentz"].map(|path| folder.join(path))
    });
    let path = env::var_os("PATH").unwrap_or_default();
    let in_path = env::split_paths(&path).map(|folder| folder.join("lorentz"));
    let found = beside.chain(in_path).find(|path| is_program(path));
    found.ok_or_else(|| {
        Error::failed(format!(
            "the lorentz command: not found; expected beside the library, in PATH, or named by {COMMAND_VARIABLE}"
        ))
    })
}

fn is_program(path: &Path) -> bool {
    path.is_file() && nix::unistd::access(path, nix::unistd::AccessFlags::X_OK).is_ok()
}

/// Returns the file from which this code was loaded.
fn library() -> Option<PathBuf> {
    let here: fn() -> Option<PathBuf> = library;
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr accepts any address. It fills `info` if its result is not 0; `info` was zeroed before.
    let info = unsafe {
        if libc::dladdr(here as *const libc::c_void, info.as_mut_ptr()) == 0 {
            return None;
        }
        info.assume_init()
    };
    if info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the string belongs to the loader and is a C string. It lasts as long as the library is loaded.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Path::new(OsStr::from_bytes(name.to_bytes())).canonicalize().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_this_code_is_known() {
        assert_eq!(library(), env::current_exe().unwrap().canonicalize().ok());
    }

    #[test]
    fn what_the_command_says_is_the_error() {
        let call = |words: &str| {
            let mut command = LorentzCommand(process::Command::new("sh"));
            command.0.args(["-c", words]);
            command.call()
        };
        assert_eq!(call("echo out").as_deref(), Ok("out\n"));
        let wrong = Error::new(ErrorKind::WrongInput, "no such thing");
        assert_eq!(call("echo lorentz: no such thing >&2; exit 2"), Err(wrong));
        assert_eq!(call("echo why >&2; exit 1"), Err(Error::failed("why")));
        assert_eq!(call("exit 1").unwrap_err().kind, ErrorKind::Failed);
    }
}
