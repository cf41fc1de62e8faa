//! Last step of a container's process: it comes onto the clock and executes its program. `libcontainer` calls this in the process
//! itself, after it has made all namespaces and mounts.

use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::Context;
use libcontainer::oci_spec::runtime::{Process, Spec};
use libcontainer::workload::{
    Executor, ExecutorError, ExecutorSetEnvsError, ExecutorValidationError,
};
use lorentz_inject::{limits, FilteredProcess, Profile, SelfRegistration};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{access, AccessFlags};

use crate::rights::Rights;

/// Default of PATH, for a bundle that gives none.
const USUAL_PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The last part of a process's preparation.
#[derive(Clone, Default)]
pub struct Workload {
    /// Registration at the monitor of the clock; none if the clock is the kernel's.
    pub entrance: Option<Rc<SelfRegistration>>,
    /// The capabilities that the program keeps, if the process has more.
    pub rights: Option<Rights>,
    /// The seccomp profile.
    pub profile: Option<Profile>,
    /// Whether the program gets those of the capabilities it asks for that it may have.
    pub narrows_capset: bool,
    /// Whether the process executes no program, and only keeps the container's namespaces.
    pub idle: bool,
}

impl Workload {
    /// Brings the process onto the clock, installs the seccomp profile, and drops capabilities. Once it is on the clock, it may
    /// only make system calls that our filter does not trap.
    fn prepare(&self) -> anyhow::Result<Option<FilteredProcess>> {
        const RIGHTS: &str = "giving up capabilities";
        if let Some(rights) = &self.rights {
            rights.bound().context(RIGHTS)?;
        }
        let entered = self.entrance.as_ref().map(|entrance| entrance.register()).transpose()?;
        match (&self.profile, &entered) {
            (Some(profile), Some(entered)) => entered.confine(profile)?,
            (Some(profile), None) => profile.install().context("installing the seccomp profile")?,
            (None, _) => {}
        }
        if let Some(rights) = &self.rights {
            rights.drop_others().context(RIGHTS)?;
        }
        // Behind the last capset of this process, which has no handler for it.
        if let (Some(entered), true) = (&entered, self.narrows_capset) {
            entered.narrow_capset()?;
        }
        Ok(entered)
    }
}

impl Executor for Workload {
    fn exec(&self, spec: &Spec) -> Result<(), ExecutorError> {
        if self.idle {
            idle();
        }
        let process = process(spec).ok_or(ExecutorError::InvalidArg)?;
        let program = find(process).map_err(ExecutorError::Other)?;
        let program = c_string(program.as_os_str())?;
        let words = process.args().iter().flatten().map(|word| c_string(OsStr::new(word)));
        let words = words.collect::<Result<Vec<_>, _>>()?;
        let variables = variables(process)?;
        let entered = self.prepare().map_err(|error| ExecutorError::Other(format!("{error:#}")))?;
        let error = match entered {
            Some(entered) => {
                entered.execute(&program, &words, &variables).err().map(|e| e.to_string())
            }
            None => {
                limits::restore();
                nix::unistd::execve(&program, &words, &variables).err().map(|e| e.to_string())
            }
        };
        Err(ExecutorError::Other(format!("exec {:?}: {}", program, error.unwrap_or_default())))
    }

    fn validate(&self, spec: &Spec) -> Result<(), ExecutorValidationError> {
        if self.idle {
            return Ok(());
        }
        let error_of = |why: String| ExecutorValidationError::ArgValidationError(why);
        let process =
            process(spec).ok_or_else(|| error_of("process.args: nothing to execute".into()))?;
        find(process).map(drop).map_err(error_of)
    }

    fn setup_envs(&self, envs: HashMap<String, String>) -> Result<(), ExecutorSetEnvsError> {
        for (key, _) in std::env::vars_os() {
            std::env::remove_var(key);
        }
        for (key, value) in envs.iter().filter(|(key, _)| !key.is_empty() && !key.contains('=')) {
            std::env::set_var(key, value);
        }
        Ok(())
    }
}

/// Keeps the container's namespaces as their first process: reaps orphans until it gets SIGTERM. It executes nothing, so a root
/// file system needs no program for this. It is on no clock.
fn idle() -> ! {
    // SAFETY: plain numbers. This process has one thread, and uses no descriptor from here on. No program in the container may
    // reach this runtime's file by /proc/PID/exe: a process that is not dumpable has no such link for them.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0);
    }
    let _ = nix::sys::prctl::set_name(c"idle");
    let mut awaited = SigSet::empty();
    awaited.add(Signal::SIGCHLD);
    awaited.add(Signal::SIGTERM);
    let _ = awaited.thread_block();
    loop {
        // SAFETY: no status is asked for.
        while unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } > 0 {}
        if awaited.wait().is_ok_and(|signal| signal == Signal::SIGTERM) {
            // SAFETY: ends this process, without running anything of the runtime's.
            unsafe { libc::_exit(0) }
        }
    }
}

fn process(spec: &Spec) -> Option<&Process> {
    spec.process()
        .as_ref()
        .filter(|process| process.args().as_ref().is_some_and(|args| !args.is_empty()))
}

/// Returns the program's variables in the bundle's order, then those added on the way (HOME, LISTEN_FDS).
fn variables(process: &Process) -> Result<Vec<CString>, ExecutorError> {
    let given: Vec<&String> = process.env().iter().flatten().collect();
    let is_given = |key: &OsStr| {
        given.iter().any(|entry| entry.split('=').next().map(OsStr::new) == Some(key))
    };
    let added = std::env::vars_os().filter(|(key, _)| !is_given(key)).map(|(mut key, value)| {
        key.push("=");
        key.push(value);
        key
    });
    // Under other runtimes, too, a user without a home in /etc/passwd gets this one.
    let homeless = !is_given(OsStr::new("HOME")) && std::env::var_os("HOME").is_none();
    let home = homeless.then(|| "HOME=/".into());
    let all = given.iter().map(|entry| entry.into()).chain(added).chain(home);
    all.map(|entry: std::ffi::OsString| c_string(&entry)).collect()
}

/// Returns the program's path. Searches PATH unless the name has a slash.
fn find(process: &Process) -> Result<PathBuf, String> {
    let name = process.args().iter().flatten().next().map(String::as_str).unwrap_or_default();
    let refused = |why: &str| format!("exec: {name:?}: {why}");
    let executable = |path: &Path| path.is_file() && access(path, AccessFlags::X_OK).is_ok();
    if name.contains('/') {
        let path = PathBuf::from(name);
        return match () {
            () if executable(&path) => Ok(path),
            () if path.is_dir() => Err(refused("is a directory: permission denied")),
            () if path.exists() => Err(refused("permission denied")),
            () => Err(refused("stat: no such file or directory")),
        };
    }
    let variables = process.env().as_deref().unwrap_or_default();
    let path = variables.iter().rev().find(|entry| entry.starts_with("PATH="));
    let path = path.map_or(USUAL_PATH, String::as_str).trim_start_matches("PATH=");
    let found = std::env::split_paths(path).map(|dir| dir.join(name)).find(|path| executable(path));
    found.filter(|_| !name.is_empty()).ok_or_else(|| refused("executable file not found in $PATH"))
}

fn c_string(text: &OsStr) -> Result<CString, ExecutorError> {
    CString::new(text.as_bytes()).map_err(|_| ExecutorError::Other("a NUL byte in a word".into()))
}
