//! The server's directory: no file outside it can be read or written, whatever links lie in it.
//!
//! The kernel itself opens each path beneath the open directory (openat2, RESOLVE_BENEATH), so a change of a link overtakes no
//! check. Hidden files are left alone.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use axum::http::StatusCode;
use nix::errno::Errno;
use nix::fcntl::{openat2, renameat, OFlag, OpenHow, ResolveFlag};
use nix::sys::stat::Mode;
use nix::unistd::{unlinkat, UnlinkatFlags};

use crate::reply::{Refusal, MAX_BODY};
use crate::wrong_input::WrongInput;

/// The directory.
pub struct Root {
    fd: OwnedFd,
    path: PathBuf,
    /// One write at a time, so that nobody writes between the look at a file's version and its change.
    writing: Mutex<()>,
}

impl Root {
    /// Opens the directory at `path`.
    pub fn at(path: &Path) -> anyhow::Result<Root> {
        let wrong = |error: io::Error| {
            WrongInput(format!("{}: {error}; expected a directory", path.display()))
        };
        let full = fs::canonicalize(path).map_err(wrong)?;
        if !full.is_dir() {
            return Err(wrong(io::Error::from(io::ErrorKind::NotADirectory)).into());
        }
        let fd = File::open(&full).map_err(wrong)?.into();
        Ok(Root { fd, path: full, writing: Mutex::new(()) })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the whole path of the file `name` below the directory, which need not exist.
    pub fn full(&self, name: &str) -> Result<PathBuf, Refusal> {
        check_name(name).map(|()| self.path.join(name))
    }

    /// Reads the file `name` below the directory: text of at most [`MAX_BODY`] bytes.
    pub fn read(&self, name: &str) -> Result<String, Refusal> {
        let bytes = self.bytes_of(name)?;
        String::from_utf8(bytes)
            .map_err(|_| Refusal::wrong(format!("{name}: expected a text in UTF-8")))
    }

    /// Opens the file `name` below the directory.
    pub fn open(&self, name: &str) -> Result<File, Refusal> {
        check_name(name)?;
        let file = self.open_beneath(name, OFlag::O_RDONLY | OFlag::O_NONBLOCK, Mode::empty());
        file.map(File::from).map_err(|error| refusal(name, error))
    }

    /// Returns the path of a folder below the directory by the directory's descriptor.
    pub fn by_descriptor(&self, folder: &str) -> PathBuf {
        format!("/proc/self/fd/{}/{folder}", self.fd.as_raw_fd()).into()
    }

    fn bytes_of(&self, name: &str) -> Result<Vec<u8>, Refusal> {
        let file = self.open(name)?;
        let is_file = file.metadata().is_ok_and(|file| file.is_file());
        if !is_file {
            return Err(Refusal::wrong(format!("{name}: expected a file")));
        }
        let mut bytes = Vec::new();
        file.take(MAX_BODY as u64 + 1).read_to_end(&mut bytes).map_err(Refusal::failed)?;
        match bytes.len() > MAX_BODY {
            true => Err(Refusal::wrong(format!("{name}: expected at most {MAX_BODY} bytes"))),
            false => Ok(bytes),
        }
    }

    fn open_beneath(&self, name: &str, flags: OFlag, mode: Mode) -> nix::Result<OwnedFd> {
        let how = OpenHow::new()
            .flags(flags | OFlag::O_CLOEXEC)
            .mode(mode)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        openat2(&self.fd, name, how)
    }

    /// Writes the file `name` as a whole. `expected` is the version that it must have, or `None` if it must not exist.
    pub fn write(
        &self,
        name: &str,
        text: &[u8],
        expected: Option<&str>,
    ) -> Result<String, Refusal> {
        check_name(name)?;
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let now = match self.bytes_of(name) {
            Ok(bytes) => Some(version(&bytes)),
            Err(Refusal(StatusCode::NOT_FOUND, _)) => None,
            Err(refusal) => return Err(refusal),
        };
        if now.as_deref() != expected {
            let what = match now {
                Some(_) => format!("{name}: has changed meanwhile, or exists already"),
                None => format!("{name}: does not exist any more"),
            };
            return Err(Refusal(StatusCode::PRECONDITION_FAILED, what));
        }
        let (folder, file) = name.rsplit_once('/').unwrap_or((".", name));
        let folder = self.open_beneath(folder, OFlag::O_DIRECTORY | OFlag::O_PATH, Mode::empty());
        let folder = folder.map_err(|error| refusal(name, error))?;
        replace(&folder, file, text)
            .map_err(|error| Refusal::failed(format!("{name}: {error}")))?;
        Ok(version(text))
    }
}

/// Puts a file with `text` in the place of `name` in `folder`: readers see the old text or the new one.
fn replace(folder: &OwnedFd, name: &str, text: &[u8]) -> io::Result<()> {
    let draft = format!(".{name}.lorentz-web");
    let flags =
        OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_TRUNC | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mode = Mode::from_bits_truncate(0o644);
    let written = nix::fcntl::openat(folder, draft.as_str(), flags, mode)
        .map_err(io::Error::from)
        .and_then(|fd| {
            let mut file = File::from(fd);
            file.write_all(text)?;
            file.sync_all()?;
            Ok(renameat(folder, draft.as_str(), folder, name)?)
        });
    if written.is_err() {
        let _ = unlinkat(folder, draft.as_str(), UnlinkatFlags::NoRemoveDir);
    }
    written
}

/// Checks that `name` is a path below a directory, without hidden parts.
fn check_name(name: &str) -> Result<(), Refusal> {
    let good = |part: &str| !part.is_empty() && !part.starts_with('.') && part.len() <= 255;
    let is_good = name.len() <= 1_000
        && name.split('/').all(good)
        && !name.contains(|c: char| c.is_control());
    is_good.then_some(()).ok_or_else(|| {
        Refusal::wrong("path: expected one below the server's directory, without hidden files")
    })
}

fn refusal(name: &str, error: Errno) -> Refusal {
    match error {
        Errno::ENOENT | Errno::ENOTDIR => Refusal::unknown(format!("{name}: no such file")),
        Errno::EXDEV => {
            Refusal(StatusCode::FORBIDDEN, format!("{name}: leads out of the server's directory"))
        }
        Errno::EACCES | Errno::EPERM | Errno::ELOOP => {
            Refusal(StatusCode::FORBIDDEN, format!("{name}: {}", error.desc()))
        }
        _ => Refusal::failed(format!("{name}: {}", error.desc())),
    }
}

/// The version of a text: FNV-1a, 128 bits. It tells changes apart, and keeps nobody out.
pub fn version(text: &[u8]) -> String {
    const OFFSET: u128 = 0x6c62272e07bb014262b821756295c58d;
    const PRIME: u128 = 0x0000000001000000000000000000013b;
    let step = |hash: u128, byte: &u8| (hash ^ u128::from(*byte)).wrapping_mul(PRIME);
    format!("\"{:032x}\"", text.iter().fold(OFFSET, step))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn root() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("in/below")).unwrap();
        fs::write(dir.path().join("outside.yaml"), "secret").unwrap();
        fs::write(dir.path().join("in/below/lab.yaml"), "name: lab").unwrap();
        let root = Root::at(&dir.path().join("in")).unwrap();
        (dir, root)
    }

    #[test]
    fn only_files_below_the_directory_are_read() {
        let (dir, root) = root();
        symlink("../outside.yaml", dir.path().join("in/out.yaml")).unwrap();
        symlink(dir.path().join("outside.yaml"), dir.path().join("in/absolute.yaml")).unwrap();
        symlink("..", dir.path().join("in/up")).unwrap();
        symlink("below/lab.yaml", dir.path().join("in/inside.yaml")).unwrap();
        assert_eq!(root.read("below/lab.yaml").unwrap(), "name: lab");
        assert_eq!(root.read("inside.yaml").unwrap(), "name: lab");
        for out in ["out.yaml", "absolute.yaml", "up/outside.yaml"] {
            assert_eq!(root.read(out).unwrap_err().0, StatusCode::FORBIDDEN, "{out}");
        }
        for wrong in [
            "../outside.yaml",
            "/etc/passwd",
            "below/../../outside.yaml",
            "",
            ".hidden",
            "a//b",
            "below",
        ] {
            assert_eq!(root.read(wrong).unwrap_err().0, StatusCode::BAD_REQUEST, "{wrong}");
        }
        assert_eq!(root.read("none.yaml").unwrap_err().0, StatusCode::NOT_FOUND);
    }

    #[test]
    fn a_write_replaces_the_version_that_was_read() {
        let (dir, root) = root();
        let first = root.write("new.yaml", b"one", None).unwrap();
        let again = root.write("new.yaml", b"two", None).unwrap_err();
        assert_eq!(again.0, StatusCode::PRECONDITION_FAILED);
        let second = root.write("new.yaml", b"two", Some(&first)).unwrap();
        assert_ne!(first, second);
        assert_eq!(
            root.write("new.yaml", b"three", Some(&first)).unwrap_err().0,
            StatusCode::PRECONDITION_FAILED
        );
        assert_eq!(root.read("new.yaml").unwrap(), "two");
        let names: Vec<_> = fs::read_dir(dir.path().join("in"))
            .unwrap()
            .map(|one| one.unwrap().file_name())
            .collect();
        assert_eq!(names.len(), 2, "no draft is left: {names:?}");
    }

    #[test]
    fn a_write_through_a_link_stays_below() {
        let (dir, root) = root();
        symlink("..", dir.path().join("in/up")).unwrap();
        assert_eq!(root.write("up/new.yaml", b"x", None).unwrap_err().0, StatusCode::FORBIDDEN);
        assert!(!dir.path().join("new.yaml").exists());
    }
}
