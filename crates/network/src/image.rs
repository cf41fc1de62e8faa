//! Images as the root file systems of nodes. Podman has the images in its storage, mounts them, and reports their settings for
//! programs.
//!
//! This module fetches no image: the user pulls it. Podman counts the mounts of an image. Each network mounts an image once, and
//! unmounts it when the network goes down.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;
use serde::Deserialize;

use crate::directory::NetworkDir;
use crate::plan::{NetworkPlan, NodePlan};
use crate::NetworkRefusal;

/// Settings of an image for the programs in it (OCI image specification, image configuration, "config").
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Config {
    env: Option<Vec<String>>,
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    working_dir: String,
    user: String,
}

/// Checks that podman has the images of `plan`.
///
/// # Errors
///
/// The first node whose image podman does not have.
pub(crate) fn check_all(plan: &NetworkPlan) -> Result<(), NetworkRefusal> {
    let mut known = BTreeSet::new();
    for node in &plan.nodes {
        let Some(image) = node.image.as_ref().filter(|image| known.insert(*image)) else {
            continue;
        };
        podman(&["image", "exists", image]).map_err(|error| NetworkRefusal::NoImage {
            node: node.name.clone(),
            image: image.clone(),
            why: format!("{error:#}"),
        })?;
    }
    Ok(())
}

/// Mounts the images of `plan`. Returns the plan with the root file systems of the images. Wherever the topology gives no setting,
/// the image's is in the plan.
///
/// # Errors
///
/// Podman's. [`unmount_all`] unmounts the images that were mounted.
pub(crate) fn mount_all(directory: &NetworkDir, plan: &NetworkPlan) -> anyhow::Result<NetworkPlan> {
    let mut made = plan.clone();
    let images: BTreeSet<&String> =
        plan.nodes.iter().filter_map(|node| node.image.as_ref()).collect();
    for image in images {
        record(directory, image)?;
        let root = PathBuf::from(podman(&["image", "mount", image])?);
        anyhow::ensure!(
            root.is_dir(),
            "podman image mount {image}: no directory, {}",
            root.display()
        );
        let config = podman(&["image", "inspect", "--format", "{{json .Config}}", image])?;
        let config: Config = serde_json::from_str(&config)
            .with_context(|| format!("podman image inspect {image}: {config}"))?;
        let of_it = |node: &&mut NodePlan| node.image.as_ref() == Some(image);
        made.nodes.iter_mut().filter(of_it).for_each(|node| config.fill(node, &root));
    }
    Ok(made)
}

/// Unmounts the images that [`mount_all`] has mounted for the network at `directory`.
pub(crate) fn unmount_all(directory: &NetworkDir) {
    for image in fs::read_to_string(list_file(directory)).unwrap_or_default().lines() {
        // An error is no matter: the image was recorded and never mounted, or a user has unmounted it by force.
        let _ = podman(&["image", "unmount", image]);
    }
}

/// The file with the images that the network at `directory` has mounted, or was about to mount.
fn list_file(directory: &NetworkDir) -> PathBuf {
    directory.file("images")
}

fn record(directory: &NetworkDir, image: &str) -> anyhow::Result<()> {
    let recorded = fs::read_to_string(list_file(directory)).unwrap_or_default();
    Ok(fs::write(list_file(directory), format!("{recorded}{image}\n"))?)
}

impl Config {
    /// Gives `node` its root file system, and the settings that the topology does not give.
    fn fill(&self, node: &mut NodePlan, root: &Path) {
        node.rootfs = Some(root.to_path_buf());
        node.user = Some(self.user.clone()).filter(|user| !user.is_empty());
        node.folder = Some(PathBuf::from(&self.working_dir))
            .filter(|folder| folder.is_absolute() && folder != Path::new("/"));
        for (key, value) in self.env.iter().flatten().filter_map(|one| one.split_once('=')) {
            node.env.entry(key.to_string()).or_insert_with(|| value.to_string());
        }
        if node.command.is_none() {
            node.command = self.command();
        }
    }

    /// Returns the command of the image. `None` for a bare shell: it would end at once, because it has no terminal.
    fn command(&self) -> Option<Vec<String>> {
        const SHELLS: [&str; 5] = ["sh", "bash", "ash", "dash", "zsh"];
        let words: Vec<String> =
            [&self.entrypoint, &self.cmd].into_iter().flatten().flatten().cloned().collect();
        let is_shell = match &words[..] {
            [only] => SHELLS.contains(&only.rsplit('/').next().unwrap_or(only)),
            _ => false,
        };
        (!words.is_empty() && !is_shell).then_some(words)
    }
}

/// Returns the output of podman, without the line end.
fn podman(words: &[&str]) -> anyhow::Result<String> {
    let done =
        Command::new("podman").args(words).stdin(Stdio::null()).output().context("podman")?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        let last = said.lines().last().unwrap_or("not there").trim_start_matches("Error: ");
        anyhow::bail!("{last}");
    }
    Ok(String::from_utf8_lossy(&done.stdout).trim_end().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(json: &str) -> Config {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn what_an_image_runs() {
        let cases = [
            (r#"{}"#, None),
            (r#"{"Cmd": ["/bin/sh"]}"#, None),
            (r#"{"Cmd": ["sh", "-c", "serve"]}"#, Some("sh -c serve")),
            (r#"{"Entrypoint": ["/start"], "Cmd": ["bash"]}"#, Some("/start bash")),
            (
                r#"{"Entrypoint": null, "Cmd": ["nginx", "-g", "daemon off;"]}"#,
                Some("nginx -g daemon off;"),
            ),
        ];
        for (json, expected) in cases {
            assert_eq!(
                config(json).command().map(|words| words.join(" ")).as_deref(),
                expected,
                "{json}"
            );
        }
    }
}
