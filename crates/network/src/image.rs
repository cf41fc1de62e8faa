//! Images as the root file systems of nodes. Podman has the images in its storage, mounts them, and reports their settings for
//! programs.
//!
//! A network fetches no image by itself: the user pulls it, or has [`pull_missing`] do it. Podman counts the mounts of an image. Each network mounts an image once, and
//! unmounts it when the network goes down.

use std::collections::{BTreeMap, BTreeSet};
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
/// All images that podman does not have, with the command that gets them; or podman cannot be run.
pub(crate) fn check_all(plan: &NetworkPlan) -> Result<(), NetworkRefusal> {
    let missing = missing(plan)?;
    if missing.is_empty() {
        return Ok(());
    }
    let shown = missing.iter().map(|(image, nodes)| format!("{image} ({})", nodes.join(", ")));
    let names = missing.keys().map(|image| full_name(image));
    Err(NetworkRefusal::MissingImages {
        missing: shown.collect::<Vec<_>>().join(", "),
        names: names.collect::<Vec<_>>().join(" "),
    })
}

/// Has podman pull the images of `plan` that it does not have. Podman shows its progress on standard error.
///
/// # Errors
///
/// If podman cannot be run, or an image cannot be pulled.
pub fn pull_missing(plan: &NetworkPlan) -> anyhow::Result<()> {
    for image in missing(plan)?.keys() {
        let mut command = Command::new("podman");
        // podman prints the image's id on standard output.
        command.args(["pull", &full_name(image)]).stdin(Stdio::null()).stdout(Stdio::null());
        let status = command.status().context("podman")?;
        anyhow::ensure!(status.success(), "podman pull {}: {status}", full_name(image));
    }
    Ok(())
}

/// Returns the images of `plan` that podman does not have, each with its nodes.
fn missing(plan: &NetworkPlan) -> Result<BTreeMap<&str, Vec<&str>>, NetworkRefusal> {
    let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut known: BTreeMap<&str, bool> = BTreeMap::new();
    for node in &plan.nodes {
        let Some(image) = node.image.as_deref() else { continue };
        let is_there = match known.get(image) {
            Some(is_there) => *is_there,
            None => exists(image).map_err(|error| NetworkRefusal::NoImage {
                node: node.name.clone(),
                image: image.to_string(),
                why: format!("{error:#}"),
            })?,
        };
        known.insert(image, is_there);
        if !is_there {
            found.entry(image).or_default().push(&node.name);
        }
    }
    Ok(found)
}

/// Whether podman has the image.
fn exists(image: &str) -> anyhow::Result<bool> {
    let status = Command::new("podman")
        .args(["image", "exists", image])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .context("podman")?;
    Ok(status.success())
}

/// Returns the name of an image with its registry. Other emulators mean docker's where a name has none.
fn full_name(image: &str) -> String {
    match image.split_once('/') {
        Some((first, _)) if first.contains(['.', ':']) || first == "localhost" => image.to_string(),
        Some(_) => format!("docker.io/{image}"),
        None => format!("docker.io/library/{image}"),
    }
}

/// Returns the numbers of the user and the group that run the programs of `node`, by the files of its root file system.
///
/// # Errors
///
/// If the root file system does not have the user or the group.
pub(crate) fn user_ids(node: &NodePlan) -> anyhow::Result<(u32, u32)> {
    let (Some(user), Some(root)) = (&node.user, &node.rootfs) else { return Ok((0, 0)) };
    let (name, group) = match user.split_once(':') {
        Some((name, group)) => (name, Some(group)),
        None => (user.as_str(), None),
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
        // If this process is killed, podman goes on. It has the lock as its input, so that `down` waits for it.
        let making = directory.begin_making()?;
        let input = Stdio::from(making.try_clone()?);
        let root = PathBuf::from(podman(&["image", "mount", image], input)?);
        anyhow::ensure!(
            root.is_dir(),
            "podman image mount {image}: no directory, {}",
            root.display()
        );
        let config = ["image", "inspect", "--format", "{{json .Config}}", image];
        let config = podman(&config, Stdio::null())?;
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
        let _ = podman(&["image", "unmount", image], Stdio::null());
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
        let own = Some(self.user.clone()).filter(|user| !user.is_empty());
        node.user = node.user.take().or(own);
        node.folder = Some(PathBuf::from(&self.working_dir))
            .filter(|folder| folder.is_absolute() && folder != Path::new("/"));
        for (key, value) in self.env.iter().flatten().filter_map(|one| one.split_once('=')) {
            node.env.entry(key.to_string()).or_insert_with(|| value.to_string());
        }
        if node.command.is_none() {
            node.command = match node.args.is_empty() {
                true => self.command(),
                false => {
                    let words = self.entrypoint.iter().flatten().chain(&node.args);
                    Some(words.cloned().collect())
                }
            };
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

    fn config(json: &str) -> Config {
        serde_json::from_str(json).unwrap()
    }

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
