//! Root file system for the levels that have one of their own. It holds the measuring program and its libraries.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{json, Value};

/// Path of the measuring program inside.
pub const PROBE: &str = "/lorentz-probe";

/// A root file system in a folder.
pub struct RootFileSystem(PathBuf);

impl RootFileSystem {
    /// Makes a root file system at `path`, in place of the one that is there.
    ///
    /// # Errors
    ///
    /// A file could not be copied.
    pub fn make(path: &Path, probe: &Path) -> io::Result<RootFileSystem> {
        if path.exists() {
            fs::remove_dir_all(path)?;
        }
        // Mount points of the runtimes, and the folder where they look for users.
        for folder in ["proc", "dev", "sys", "tmp", "etc", "run", "var/tmp"] {
            fs::create_dir_all(path.join(folder))?;
        }
        let inside = |file: &str| path.join(file.trim_start_matches('/'));
        fs::copy(probe, inside(PROBE))?;
        for file in loaded_by(probe)? {
            let to = inside(&file);
            fs::create_dir_all(to.parent().unwrap_or(path))?;
            fs::copy(&file, to)?;
        }
        Ok(RootFileSystem(path.canonicalize()?))
    }

    /// Returns the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the command by which runc runs the measuring program here. The bundle is made in `folder`.
    ///
    /// # Errors
    ///
    /// `runc spec` cannot be run or fails, or the bundle could not be written.
    pub fn runc(&self, cpu: usize, folder: &Path) -> io::Result<Command> {
        let bundle = folder.join("bundle");
        fs::create_dir_all(&bundle)?;
        let file = bundle.join("config.json");
        if file.exists() {
            fs::remove_file(&file)?;
        }
        let made = Command::new("runc").args(["spec", "--bundle"]).arg(&bundle).output()?;
        if !made.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&made.stderr).into_owned()));
        }
        let mut spec: Value = serde_json::from_str(&fs::read_to_string(&file)?)?;
        spec["process"]["terminal"] = json!(false);
        spec["process"]["args"] = json!([PROBE, cpu.to_string()]);
        spec["root"] = json!({ "path": self.0, "readonly": true });
        fs::write(&file, spec.to_string())?;
        let id = format!("lorentz-study-{}", std::process::id());
        let mut command = Command::new("runc");
        command.arg("--root").arg(folder.join("runc"));
        command.args(["run", "--bundle"]).arg(&bundle).arg(id);
        Ok(command)
    }
}

/// Returns the interpreter and the libraries of a program, by `ldd`.
fn loaded_by(program: &Path) -> io::Result<Vec<String>> {
    let found = Command::new("ldd").arg(program).output()?;
    let text = String::from_utf8_lossy(&found.stdout);
    Ok(text.split_whitespace().filter(|word| word.starts_with('/')).map(str::to_string).collect())
}
