//! CRIU, which checkpoints and restores processes: where it is, and its version.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::unistd::{access, AccessFlags};

/// The environment variable that names the binary.
pub const CRIU_VARIABLE: &str = "LORENTZ_CRIU";
/// How to get one.
pub const HOW_TO_GET: &str =
    "CRIU 4.1 or later, 4.2 on Linux 6.16 or later: apt-get install criu on Debian 13, scripts/criu on Debian 12; LORENTZ_CRIU names another binary";
/// The first version that runs on Linux 6.13 and later.
const FIRST: (u32, u32) = (4, 1);

/// A CRIU of a version that works.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Criu {
    /// Its binary.
    pub path: PathBuf,
    /// Its version, as `criu --version` says.
    pub version: String,
}

/// Checks whether the kernel marks the memory that processes write (soft-dirty pages), without which CRIU cannot save it while they
/// run.
///
/// # Errors
///
/// One line says that it does not.
pub fn check_memory_tracking() -> Result<(), String> {
    const PAGE_LEN: u64 = 4096;
    const ENTRY_LEN: u64 = 8;
    const SOFT_DIRTY: u64 = 1 << 55;
    let written = Box::new(1_u64);
    let page = &raw const *written as u64 / PAGE_LEN;
    let mut entry = [0; ENTRY_LEN as usize];
    let pagemap = File::open("/proc/self/pagemap");
    let read = pagemap.and_then(|pagemap| pagemap.read_exact_at(&mut entry, page * ENTRY_LEN));
    read.map_err(|error| format!("/proc/self/pagemap: {error}"))?;
    match u64::from_ne_bytes(entry) & SOFT_DIRTY {
        0 => Err("the kernel does not mark the memory that programs write".into()),
        _ => Ok(()),
    }
}

/// Finds CRIU, and asks it for its version.
///
/// # Errors
///
/// One line says what was found instead.
pub fn find() -> Result<Criu, String> {
    let path = locate()?;
    let shown = path.display();
    let output = Command::new(&path).arg("--version").stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{shown}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = parse_version(&text).ok_or(format!("{shown} does not say its version"))?;
    check_version(&path, version)?;
    Ok(Criu { version: version.to_string(), path })
}

/// Checks whether `version` of the CRIU at `path` works.
///
/// # Errors
///
/// One line says that it does not.
pub fn check_version(path: &Path, version: &str) -> Result<(), String> {
    match numbers(version) >= FIRST {
        true => Ok(()),
        false => Err(format!("{} is CRIU {version}, too old", path.display())),
    }
}

/// Finds CRIU's binary: that in [`CRIU_VARIABLE`], or `criu` in PATH or where Debian puts it.
///
/// # Errors
///
/// There is none.
pub fn locate() -> Result<PathBuf, String> {
    const DEBIAN: &str = "/usr/sbin";
    if let Some(named) = std::env::var_os(CRIU_VARIABLE) {
        return Ok(named.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain([PathBuf::from(DEBIAN)]);
    let is_program = |path: &PathBuf| is_file(path) && access(path, AccessFlags::X_OK).is_ok();
    dirs.map(|dir| dir.join("criu")).find(is_program).ok_or("there is no criu".into())
}

fn is_file(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.is_file())
}

fn parse_version(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("Version:")).map(str::trim)
}

fn numbers(version: &str) -> (u32, u32) {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_compared_as_numbers() {
        assert_eq!(parse_version("Version: 4.1.1\n"), Some("4.1.1"));
        assert_eq!(parse_version("criu\n"), None);
        for (version, works) in
            [("3.17.1", false), ("4.0", false), ("4.1", true), ("4.10.2", true), ("5", true)]
        {
            assert_eq!(numbers(version) >= FIRST, works, "{version}");
        }
    }
}
