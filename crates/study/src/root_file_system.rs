//! Root file system for the levels that have one of their own. It holds the measuring program and its libraries.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::{json, Value};

use crate::last_words::last_words;

/// Path of the measuring program inside.
pub const PROBE: &str = "/lorentz-probe";

/// Name of docker's image of a root file system; its tag is the id of the process that made it.
const IMAGE: &str = "lorentz-study";

/// A root file system in a folder.
///
/// Docker's image of it, if there is one, goes with it.
pub struct RootFileSystem {
    path: PathBuf,
    image: OnceLock<String>,
}

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
        Ok(RootFileSystem { path: path.canonicalize()?, image: OnceLock::new() })
    }

    /// Returns the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns docker's name of an image of it. The first call makes the image, and removes those of studies that were killed.
    ///
    /// # Errors
    ///
    /// `docker` cannot be run or its daemon cannot be reached; docker's words.
    pub fn docker_image(&self) -> io::Result<&str> {
        if let Some(image) = self.image.get() {
            return Ok(image);
        }
        for left in images_of_the_dead()? {
            docker(&["image", "rm", "--force", &left])?;
        }
        let image = format!("{IMAGE}:{}", std::process::id());
        let mut tar = Command::new("tar")
            .arg("--directory")
            .arg(&self.path)
            .args(["--create", "."])
            .stdout(Stdio::piped())
            .spawn()?;
        let files = tar.stdout.take().expect("it is piped");
        let made = Command::new("docker").args(["import", "-", &image]).stdin(files).output();
        let packed = tar.wait()?;
        without_error(made?)?;
        if !packed.success() {
            // The image lacks files.
            docker(&["image", "rm", "--force", &image])?;
            return Err(io::Error::other(format!("tar: {packed}")));
        }
        Ok(self.image.get_or_init(|| image))
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
        spec["root"] = json!({ "path": self.path, "readonly": true });
        fs::write(&file, spec.to_string())?;
        let id = format!("lorentz-study-{}", std::process::id());
        let mut command = Command::new("runc");
        command.arg("--root").arg(folder.join("runc"));
        command.args(["run", "--bundle"]).arg(&bundle).arg(id);
        Ok(command)
    }
}

impl Drop for RootFileSystem {
    fn drop(&mut self) {
        if let Some(image) = self.image.get() {
            // The next study tries again.
            let _ = docker(&["image", "rm", "--force", image]);
        }
    }
}

/// Runs docker and returns its output, or its last words as an error.
fn docker(words: &[&str]) -> io::Result<String> {
    without_error(Command::new("docker").args(words).output()?)
}

fn without_error(done: Output) -> io::Result<String> {
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    Err(io::Error::other(last_words(&String::from_utf8_lossy(&done.stderr))))
}

/// Returns the images whose study has ended without removing them.
fn images_of_the_dead() -> io::Result<Vec<String>> {
    let found = docker(&["image", "ls", "--format", "{{.Repository}}:{{.Tag}}", IMAGE])?;
    let dead = |name: &&str| {
        let process = name.rsplit(':').next().and_then(|id| id.parse::<u32>().ok());
        process.is_some_and(|id| !Path::new("/proc").join(id.to_string()).exists())
    };
    Ok(found.lines().filter(dead).map(str::to_string).collect())
}

/// Returns the interpreter and the libraries of a program, by `ldd`.
fn loaded_by(program: &Path) -> io::Result<Vec<String>> {
    let found = Command::new("ldd").arg(program).output()?;
    let text = String::from_utf8_lossy(&found.stdout);
    Ok(text.split_whitespace().filter(|word| word.starts_with('/')).map(str::to_string).collect())
}
