//! The state directory of a user: a directory that is private to its owner.

use std::env;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use nix::unistd::{eaccess, AccessFlags};

use crate::StateError;

/// The environment variable that names another state directory.
pub const STATE_DIR_VARIABLE: &str = "LORENTZ_STATE_DIR";

/// Permission bits of a state directory: only its owner may look into it.
const PRIVATE: u32 = 0o700;
/// The directory in which any user may make directories.
const SHARED_TMP: &str = "/tmp";
/// Permission bits that let others write.
const OTHERS_WRITE: u32 = 0o022;

/// A state directory, which may not exist yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Root {
    /// Its path.
    pub path: PathBuf,
    /// Whether the user named it. Such a directory is never removed, and may be reached by the user's own links. Other directories
    /// go with the last container.
    pub chosen: bool,
    /// The directory above, if other users make directories there too.
    pub(super) shared: Option<Shared>,
}

impl Root {
    /// Returns the caller's state directory: the one that LORENTZ_STATE_DIR names; else the first usable one of /run/lorentz
    /// (root), $XDG_RUNTIME_DIR/lorentz and /tmp/lorentz-UID. The last has a suffix if another user has taken that name.
    pub(super) fn find() -> Result<Root, StateError> {
        let user = effective_user();
        if let Some(chosen) = env::var_os(STATE_DIR_VARIABLE).filter(|value| !value.is_empty()) {
            return Root::chosen(Path::new(&chosen));
        }
        let mut refusal = None;
        for path in candidates(user, env::var_os("XDG_RUNTIME_DIR")) {
            match usable(&path, user) {
                Ok(()) => return Ok(Root { path, chosen: false, shared: None }),
                Err(error) => refusal = Some(error),
            }
        }
        let shared = Shared { dir: PathBuf::from(SHARED_TMP), user };
        match shared.choose() {
            Ok(path) => Ok(Root { path, chosen: false, shared: Some(shared) }),
            Err(error) => Err(refusal.unwrap_or(error)),
        }
    }

    /// Returns the state directory at `path`, which the caller has named.
    pub(super) fn chosen(path: &Path) -> Result<Root, StateError> {
        let file = |error| StateError::File { path: path.to_path_buf(), error };
        let path = match fs::canonicalize(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::path::absolute(path).map_err(file)?
            }
            found => {
                let found = found.map_err(file)?;
                check(&found, &fs::metadata(&found).map_err(file)?, effective_user())?;
                found
            }
        };
        Ok(Root { path, chosen: true, shared: None })
    }

    /// Makes the directory if it does not exist, private to the caller, and checks that it belongs to the caller.
    pub(super) fn make(&self) -> Result<(), StateError> {
        let file = |error| StateError::File { path: self.path.clone(), error };
        loop {
            match DirBuilder::new().recursive(self.chosen).mode(PRIVATE).create(&self.path) {
                Ok(()) => self.give_way()?,
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(file(error))
                }
                Err(_) => (),
            }
            match fs::symlink_metadata(&self.path) {
                // The directory existed, and another command removed it with the last container.
                Err(error) if error.kind() == io::ErrorKind::NotFound => (),
                found => return check(&self.path, &found.map_err(file)?, effective_user()),
            }
        }
    }
}

impl Root {
    /// Race: another user's directory comes or goes between the looks of two commands, and each makes a different state directory.
    /// Therefore each looks for others after it has made its own. At least one of the two sees the other's, and gives way.
    fn give_way(&self) -> Result<(), StateError> {
        let Some(shared) = &self.shared else { return Ok(()) };
        match shared.own().into_iter().find(|own| *own != self.path) {
            None => Ok(()),
            Some(other) => {
                // It is empty. Other commands find the first of both, and fail here too.
                let _ = fs::remove_dir(&self.path);
                Err(untrusted(&other, "another command has just made it; try again"))
            }
        }
    }
}

/// A directory in which any user may make directories, and the user whose state directory is looked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Shared {
    dir: PathBuf,
    user: u32,
}

impl Shared {
    /// Returns the user's state directory: the one that exists, else `lorentz-UID`. If another user has taken that name, returns
    /// one with a suffix that nobody can foresee.
    fn choose(&self) -> Result<PathBuf, StateError> {
        if let Some(own) = self.own().into_iter().next() {
            return Ok(own);
        }
        let usual = self.dir.join(self.usual());
        let stranger = |path: &Path| owner(path).is_some_and(|owner| owner != self.user);
        let path = match stranger(&usual) {
            true => self.dir.join(format!("{}.{}", self.usual(), suffix())),
            false => usual,
        };
        usable(&path, self.user).map(|()| path)
    }

    fn usual(&self) -> String {
        format!("lorentz-{}", self.user)
    }

    /// Returns those of the user's state directories that exist and are safe, the usual one first. Another user can make none of
    /// them: nobody can give a directory away, and one that others may write to is left out.
    fn own(&self) -> Vec<PathBuf> {
        let (usual, others) = (self.usual(), format!("{}.", self.usual()));
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let named = entries.map(|entry| entry.file_name()).filter(|name| {
            name.to_str().is_some_and(|name| name == usual || name.starts_with(&others))
        });
        let mut own: Vec<PathBuf> = named
            .map(|name| self.dir.join(name))
            .filter(|path| {
                fs::symlink_metadata(path).is_ok_and(|m| check(path, &m, self.user).is_ok())
            })
            .collect();
        own.sort();
        own
    }
}

/// The suffix, the same for all state directories of this process.
fn suffix() -> &'static str {
    static SUFFIX: OnceLock<String> = OnceLock::new();
    SUFFIX.get_or_init(super::name::invent)
}

fn candidates(user: u32, runtime: Option<OsString>) -> Vec<PathBuf> {
    let mut candidates = Vec::new();
    if user == 0 {
        candidates.push(PathBuf::from("/run/lorentz"));
    }
    // After `su` the variable still names the directory of the other user.
    let runtime = runtime.map(PathBuf::from).filter(|path| path.is_absolute());
    let own = |path: &PathBuf| fs::metadata(path).is_ok_and(|found| found.uid() == user);
    if let Some(path) = runtime.filter(own) {
        candidates.push(path.join("lorentz"));
    }
    candidates
}

fn owner(path: &Path) -> Option<u32> {
    fs::symlink_metadata(path).ok().map(|metadata| metadata.uid())
}

/// Checks that `path` is a directory of `user`'s to which nobody else can write, or that it can be made. Others may be able to
/// write to the directory above it, so this follows no link.
fn usable(path: &Path, user: u32) -> Result<(), StateError> {
    let file = |error| StateError::File { path: path.to_path_buf(), error };
    match fs::symlink_metadata(path) {
        Ok(metadata) => check(path, &metadata, user),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let above = path.parent().unwrap_or(path);
            let writable = AccessFlags::W_OK | AccessFlags::X_OK;
            eaccess(above, writable).map_err(|errno| file(errno.into()))
        }
        Err(error) => Err(file(error)),
    }
}

fn check(path: &Path, metadata: &Metadata, user: u32) -> Result<(), StateError> {
    if !metadata.is_dir() {
        return Err(untrusted(path, "not a directory"));
    }
    if metadata.uid() != user {
        return Err(untrusted(path, &format!("belongs to user {}", metadata.uid())));
    }
    if metadata.mode() & OTHERS_WRITE != 0 {
        return Err(untrusted(path, "others may write to it"));
    }
    Ok(())
}

fn untrusted(path: &Path, reason: &str) -> StateError {
    StateError::Untrusted { path: path.to_path_buf(), reason: reason.to_string() }
}

pub(crate) fn effective_user() -> u32 {
    nix::unistd::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn it_is_made_private_and_only_when_needed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        usable(&path, effective_user()).unwrap();
        let root = Root { path: path.clone(), chosen: false, shared: None };
        assert!(!path.exists());
        root.make().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        root.make().unwrap();
        usable(&path, effective_user()).unwrap();
        let deep = Root::chosen(&dir.path().join("a/b/c")).unwrap();
        deep.make().unwrap();
        assert!(deep.path.is_dir());
    }

    #[test]
    fn what_others_could_have_laid_out_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let user = effective_user();
        let own = dir.path().join("own");
        fs::create_dir(&own).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&own, &link).unwrap();
        assert!(usable(&link, user).unwrap_err().to_string().contains("not a directory"));
        assert!(Root { path: link.clone(), chosen: false, shared: None }.make().is_err());
        assert_eq!(Root::chosen(&link).unwrap().path, fs::canonicalize(&own).unwrap());
        set_mode(&own, 0o777);
        assert!(usable(&own, user).unwrap_err().to_string().contains("others may write"));
        assert!(Root::chosen(&link).unwrap_err().is_wrong_input());
        set_mode(&own, 0o755);
        assert!(usable(&own, user).is_ok());
        assert!(usable(&own, user + 1).unwrap_err().to_string().contains("belongs to user"));
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(usable(&file, user).is_err());
        assert!(Root::chosen(&file).is_err());
        assert!(usable(&dir.path().join("no/such"), user).is_err());
    }

    #[test]
    fn candidates_follow_the_user() {
        let (dir, user) = (tempfile::tempdir().unwrap(), effective_user());
        let runtime = || Some(dir.path().as_os_str().to_os_string());
        let none: [PathBuf; 0] = [];
        assert_eq!(candidates(0, None), [PathBuf::from("/run/lorentz")]);
        assert_eq!(candidates(user + 1, runtime()), none);
        assert!(candidates(user, runtime()).contains(&dir.path().join("lorentz")));
        assert_eq!(candidates(7, Some("relative".into())), none);
    }

    #[test]
    fn a_stranger_in_the_usual_place_is_no_obstacle() {
        let dir = tempfile::tempdir().unwrap();
        let user = effective_user();
        // The test's user makes the links, so for user + 1 they are another user's.
        let shared = Shared { dir: dir.path().to_path_buf(), user: user + 1 };
        let usual = dir.path().join(shared.usual());
        fs::create_dir(&usual).unwrap();
        let chosen = shared.choose().unwrap();
        assert_ne!(chosen, usual);
        assert_eq!(shared.choose().unwrap(), chosen);
        let mine = Shared { dir: dir.path().to_path_buf(), user };
        let own = dir.path().join(mine.usual());
        assert_eq!(mine.choose().unwrap(), own);
        let suffixed = dir.path().join(format!("{}.x", mine.usual()));
        DirBuilder::new().mode(0o700).create(&suffixed).unwrap();
        assert_eq!(mine.choose().unwrap(), suffixed, "the one that is there");
        let root = Root { path: own.clone(), chosen: false, shared: Some(mine.clone()) };
        assert!(root.make().unwrap_err().to_string().contains("try again"));
        assert!(!own.exists());
        fs::set_permissions(&suffixed, fs::Permissions::from_mode(0o777)).unwrap();
        root.make().unwrap();
        assert_eq!(mine.choose().unwrap(), own);
    }
}
