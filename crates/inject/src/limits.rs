//! Resource limits. A `lorentz` command needs more than the limits of the program that it starts may allow. The command raises
//! its own limits, and a program begins with the limits that the command was started with.

use nix::sys::resource::{getrlimit, setrlimit, Resource, RLIM_INFINITY};
use std::io;
use std::sync::OnceLock;

/// Number of descriptors that a monitor needs for itself.
const DESCRIPTORS: u64 = 1024;

/// Address space of a monitor, bytes: its code, the clock's file, and what it allocates.
const ADDRESS_SPACE: u64 = 20_000 * 1024;

/// The limits that a command raises for itself, and the values that suffice.
const WANTED: [(Resource, u64); 5] = [
    (Resource::RLIMIT_FSIZE, RLIM_INFINITY),
    (Resource::RLIMIT_AS, RLIM_INFINITY),
    (Resource::RLIMIT_DATA, RLIM_INFINITY),
    (Resource::RLIMIT_CPU, RLIM_INFINITY),
    (Resource::RLIMIT_NOFILE, DESCRIPTORS),
];

/// A soft and a hard limit.
type SoftAndHard = (u64, u64);

/// A limit that this process has raised.
struct RaisedLimit {
    resource: Resource,
    before: SoftAndHard,
    now: SoftAndHard,
}

static RAISED: OnceLock<Vec<RaisedLimit>> = OnceLock::new();

/// Raises this process's limits as far as the kernel permits: without CAP_SYS_RESOURCE, up to the hard limits. A second call
/// does nothing.
pub fn raise() {
    RAISED.get_or_init(|| {
        WANTED.iter().filter_map(|&(what, wanted)| raise_one(what, wanted)).collect()
    });
}

fn raise_one(resource: Resource, wanted: u64) -> Option<RaisedLimit> {
    let before = getrlimit(resource).ok().filter(|(soft, _)| *soft < wanted)?;
    let (_, hard) = before;
    let candidates = [(wanted, hard.max(wanted)), (wanted.min(hard), hard)];
    let now =
        candidates.into_iter().find(|(soft, hard)| setrlimit(resource, *soft, *hard).is_ok())?;
    Some(RaisedLimit { resource, before, now })
}

/// Restores the limits that [`raise`] found, except those that were changed since. A child calls this before it executes a
/// program. It makes no system call that the filter traps.
pub fn restore() {
    for RaisedLimit { resource, before, now } in RAISED.get().into_iter().flatten() {
        if getrlimit(*resource).is_ok_and(|found| found == *now) {
            // A process needs no rights to lower a limit.
            let _ = setrlimit(*resource, before.0, before.1);
        }
    }
}

/// Returns the number of descriptors that a program may have, if [`raise`] has raised it.
pub(crate) fn descriptors_before() -> Option<i32> {
    let raised = RAISED.get()?.iter().find(|one| one.resource == Resource::RLIMIT_NOFILE)?;
    i32::try_from(raised.before.0).ok()
}

/// Checks that this process may write a file of `len` bytes. Otherwise the kernel would send it SIGXFSZ, which ends it.
///
/// # Errors
///
/// An error of kind `FileTooLarge`: RLIMIT_FSIZE is lower.
pub fn check_file_size(len: u64) -> io::Result<()> {
    match getrlimit(Resource::RLIMIT_FSIZE)? {
        (soft, _) if soft < len => Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("needs a file of {len} bytes, and 'ulimit -f' allows {soft}; raise that limit, or run as root"),
        )),
        _ => Ok(()),
    }
}

/// Checks that this process may map what a monitor needs. Otherwise an allocation would fail somewhere, and end it.
///
/// # Errors
///
/// An error of kind `OutOfMemory`: RLIMIT_AS is lower.
pub fn check_address_space() -> io::Result<()> {
    match getrlimit(Resource::RLIMIT_AS)? {
        (soft, _) if soft < ADDRESS_SPACE => Err(io::Error::new(
            io::ErrorKind::OutOfMemory,
            format!(
                "needs {} kB of address space, and 'ulimit -v' allows {}; raise that limit, or run as root",
                ADDRESS_SPACE / 1024,
                soft / 1024
            ),
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::wait::{waitpid, WaitStatus};
    use nix::unistd::{fork, ForkResult};

    /// Runs `work` in a child process, since limits belong to a process. Returns the result by the child's exit status.
    fn in_child(work: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child calls only functions that need no lock of another thread, and then exits.
        match unsafe { fork() }.unwrap() {
            // SAFETY: as above.
            ForkResult::Child => unsafe { libc::_exit(work().into()) },
            ForkResult::Parent { child } => {
                matches!(waitpid(child, None), Ok(WaitStatus::Exited(_, 1)))
            }
        }
    }

    #[test]
    fn what_was_raised_is_given_back() {
        let limit = || getrlimit(Resource::RLIMIT_NOFILE).unwrap_or_default();
        assert!(in_child(|| {
            let (_, hard) = limit();
            let _ = setrlimit(Resource::RLIMIT_NOFILE, 64, hard);
            raise();
            let raised = limit() == (DESCRIPTORS.min(hard), hard.max(DESCRIPTORS.min(hard)));
            restore();
            raised && limit() == (64, hard) && descriptors_before() == Some(64)
        }));
    }

    #[test]
    fn what_was_set_since_stays() {
        assert!(in_child(|| {
            let _ = setrlimit(Resource::RLIMIT_NOFILE, 64, 2048);
            raise();
            let _ = setrlimit(Resource::RLIMIT_NOFILE, 100, 200);
            restore();
            getrlimit(Resource::RLIMIT_NOFILE) == Ok((100, 200))
        }));
    }

    #[test]
    fn a_file_that_is_too_large_is_an_error() {
        assert!(in_child(|| {
            let _ = setrlimit(Resource::RLIMIT_FSIZE, 512, RLIM_INFINITY);
            let refused = check_file_size(513).err().map(|error| error.kind());
            check_file_size(512).is_ok() && refused == Some(io::ErrorKind::FileTooLarge)
        }));
    }

    #[test]
    fn too_little_address_space_is_an_error() {
        assert!(in_child(|| {
            let check = |limit| {
                let _ = setrlimit(Resource::RLIMIT_AS, limit, RLIM_INFINITY);
                check_address_space().err().map(|error| error.kind())
            };
            check(ADDRESS_SPACE).is_none()
                && check(ADDRESS_SPACE - 1) == Some(io::ErrorKind::OutOfMemory)
        }));
    }
}
