//! Images as root file systems. Podman has the images in its storage, mounts them, and reports their settings for programs.
//!
//! Nothing here fetches an image by itself: the user pulls it, or has [`pull`] do it. Podman counts the mounts of an image. A caller
//! that mounts one unmounts it, and records the mount before.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;
use serde::Deserialize;

/// Settings of an image for the programs in it (OCI image specification, image configuration, "config").
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct ImageConfig {
    /// Environment variables, `KEY=VALUE`.
    pub env: Option<Vec<String>>,
    /// The words before the arguments.
    pub entrypoint: Option<Vec<String>>,
    /// The arguments if no others are given.
    pub cmd: Option<Vec<String>>,
    /// The working directory; may be empty.
    pub working_dir: String,
    /// User and group, as [`user_ids`] reads them; may be empty.
    pub user: String,
}

impl ImageConfig {
    /// Returns the words of a program: the entry point with `args`, or with the image's own arguments if there are none. Empty if
    /// the image names no program.
    pub fn words(&self, args: &[String]) -> Vec<String> {
        let entrypoint = self.entrypoint.iter().flatten();
        let own = self.cmd.iter().flatten();
        match args {
            [] => entrypoint.chain(own).cloned().collect(),
            given => entrypoint.chain(given).cloned().collect(),
        }
    }

    /// Returns the working directory, if it is another than the root.
    pub fn directory(&self) -> Option<PathBuf> {
        let directory = PathBuf::from(&self.working_dir);
        (directory.is_absolute() && directory != Path::new("/")).then_some(directory)
    }

    /// Returns user and group, if the image names them.
    pub fn user(&self) -> Option<&str> {
        Some(self.user.as_str()).filter(|user| !user.is_empty())
    }
}

/// Whether podman has the image.
///
/// # Errors
///
/// If podman cannot be run.
pub fn exists(image: &str) -> anyhow::Result<bool> {
    let status = Command::new("podman")
        .args(["image", "exists", image])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .context("podman")?;
    Ok(status.success())
}

/// Has podman pull an image. Podman shows its progress on standard error.
///
/// # Errors
///
/// If podman cannot be run, or the image cannot be pulled.
pub fn pull(image: &str) -> anyhow::Result<()> {
    let name = full_name(image);
    let mut command = Command::new("podman");
    // podman prints the image's id on standard output.
    command.args(["pull", &name]).stdin(Stdio::null()).stdout(Stdio::null());
    let status = command.status().context("podman")?;
    anyhow::ensure!(status.success(), "podman pull {name}: {status}");
    Ok(())
}

/// Returns the name of an image with its registry. A name without one is docker's, as other programs mean it.
pub fn full_name(image: &str) -> String {
    match image.split_once('/') {
        Some((first, _)) if first.contains(['.', ':']) || first == "localhost" => image.to_string(),
        Some(_) => format!("docker.io/{image}"),
        None => format!("docker.io/library/{image}"),
    }
}

/// Mounts an image, with `input` as podman's standard input. Returns its root file system and its settings. [`unmount`] unmounts it.
///
/// # Errors
///
/// Podman's.
pub fn mount(image: &str, input: Stdio) -> anyhow::Result<(PathBuf, ImageConfig)> {
    let root = PathBuf::from(podman(&["image", "mount", image], input)?);
    anyhow::ensure!(root.is_dir(), "podman image mount {image}: no directory, {}", root.display());
    let config = ["image", "inspect", "--format", "{{json .Config}}", image];
    let config = podman(&config, Stdio::null())?;
    let config = serde_json::from_str(&config)
        .with_context(|| format!("podman image inspect {image}: {config}"))?;
    Ok((root, config))
}

/// Unmounts an image that [`mount`] has mounted.
pub fn unmount(image: &str) {
    // An error is no matter: the image was recorded and never mounted, or a user has unmounted it by force.
    let _ = podman(&["image", "unmount", image], Stdio::null());
}

/// Returns the numbers of `user`, which is NAME, UID, NAME:GROUP or UID:GID, by the files of the root file system `root`.
///
/// # Errors
///
/// If the root file system does not have the user or the group.
pub fn user_ids(root: &Path, user: &str) -> anyhow::Result<(u32, u32)> {
    let (name, group) = match user.split_once(':') {
        Some((name, group)) => (name, Some(group)),
        None => (user, None),
    };
    let entry = |file: &str, name: &str| {
        let text = fs::read_to_string(root.join("etc").join(file)).unwrap_or_default();
        let found = text.lines().map(|line| line.split(':').map(str::to_string).collect());
        let mut found = found.filter(|fields: &Vec<String>| fields.len() > 3);
        found.find(|fields| fields[0] == name || fields[2] == name)
    };
    let number = |fields: &Option<Vec<String>>, at: usize| fields.as_ref()?.get(at)?.parse().ok();
    let known = entry("passwd", name);
    let uid = name.parse().ok().or_else(|| number(&known, 2));
    let gid = match group {
        Some(group) => group.parse().ok().or_else(|| number(&entry("group", group), 2)),
        None => Some(number(&known, 3).unwrap_or(0)),
    };
    uid.zip(gid).with_context(|| format!("user {user}: its image has no such user or group"))
}

/// Returns the output of podman, without the line end.
fn podman(words: &[&str], input: Stdio) -> anyhow::Result<String> {
    let done = Command::new("podman").args(words).stdin(input).output().context("podman")?;
    if !done.status.success() {
        let errors = String::from_utf8_lossy(&done.stderr);
        let last = errors.lines().last().unwrap_or("not there").trim_start_matches("Error: ");
        anyhow::bail!("{last}");
    }
    Ok(String::from_utf8_lossy(&done.stdout).trim_end().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_a_registry_is_dockers() {
        let cases = [
            ("alpine:3", "docker.io/library/alpine:3"),
            ("kathara/base", "docker.io/kathara/base"),
            ("ghcr.io/a/b:1", "ghcr.io/a/b:1"),
            ("localhost/x:1", "localhost/x:1"),
            ("host:5000/x", "host:5000/x"),
        ];
        for (image, full) in cases {
            assert_eq!(full_name(image), full);
        }
    }

    #[test]
    fn an_images_words_are_its_entry_point_and_the_arguments() {
        let config: ImageConfig =
            serde_json::from_str(r#"{"Entrypoint": ["/start"], "Cmd": ["a", "b"]}"#).unwrap();
        assert_eq!(config.words(&[]), ["/start", "a", "b"]);
        assert_eq!(config.words(&["c".to_string()]), ["/start", "c"]);
        assert!(ImageConfig::default().words(&[]).is_empty());
    }
}
