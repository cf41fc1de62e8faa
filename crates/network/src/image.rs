//! Images as the root file systems of nodes. A network fetches no image by itself: the user pulls it, or has [`pull_missing`] do it.
//! Each network mounts an image once, and unmounts it when the network goes down.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use lorentz_container::image::{self, ImageConfig};

use crate::directory::NetworkDir;
use crate::plan::{NetworkPlan, NodePlan};
use crate::NetworkRefusal;

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
    let names = missing.keys().map(|image| image::full_name(image));
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
    missing(plan)?.keys().try_for_each(|image| image::pull(image))
}

/// Returns the images of `plan` that podman does not have, each with its nodes.
fn missing(plan: &NetworkPlan) -> Result<BTreeMap<&str, Vec<&str>>, NetworkRefusal> {
    let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut known: BTreeMap<&str, bool> = BTreeMap::new();
    for node in &plan.nodes {
        let Some(image) = node.image.as_deref() else { continue };
        let is_there = match known.get(image) {
            Some(is_there) => *is_there,
            None => image::exists(image).map_err(|error| NetworkRefusal::NoImage {
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

/// Returns the numbers of the user and the group that run the programs of `node`, by the files of its root file system.
///
/// # Errors
///
/// If the root file system does not have the user or the group.
pub(crate) fn user_ids(node: &NodePlan) -> anyhow::Result<(u32, u32)> {
    let (Some(user), Some(root)) = (&node.user, &node.rootfs) else { return Ok((0, 0)) };
    image::user_ids(root, user)
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
        let (root, config) = image::mount(image, input)?;
        let of_it = |node: &&mut NodePlan| node.image.as_ref() == Some(image);
        made.nodes.iter_mut().filter(of_it).for_each(|node| fill(node, &root, &config));
    }
    Ok(made)
}

/// Unmounts the images that [`mount_all`] has mounted for the network at `directory`.
pub(crate) fn unmount_all(directory: &NetworkDir) {
    for image in fs::read_to_string(list_file(directory)).unwrap_or_default().lines() {
        image::unmount(image);
    }
}

/// The file with the images that the network at `directory` has mounted, or was about to mount.
fn list_file(directory: &NetworkDir) -> PathBuf {
    directory.file("images")
}

/// Notes that the network is about to mount `image`. One write appends it: a kill loses none of those before.
fn record(directory: &NetworkDir, image: &str) -> anyhow::Result<()> {
    let mut list = OpenOptions::new().append(true).create(true).open(list_file(directory))?;
    Ok(list.write_all(format!("{image}\n").as_bytes())?)
}

/// Gives `node` its root file system, and the settings that the topology does not give.
fn fill(node: &mut NodePlan, root: &Path, config: &ImageConfig) {
    node.rootfs = Some(root.to_path_buf());
    node.user = node.user.take().or(config.user().map(str::to_string));
    node.folder = config.directory();
    for (key, value) in config.env.iter().flatten().filter_map(|one| one.split_once('=')) {
        node.env.entry(key.to_string()).or_insert_with(|| value.to_string());
    }
    if node.command.is_none() {
        node.command = match node.args.is_empty() {
            true => command_of(config),
            false => Some(config.words(&node.args)),
        };
    }
}

/// Returns the command of an image. `None` for a bare shell: it would end at once, because it has no terminal.
fn command_of(config: &ImageConfig) -> Option<Vec<String>> {
    const SHELLS: [&str; 5] = ["sh", "bash", "ash", "dash", "zsh"];
    let words = config.words(&[]);
    let is_shell = match &words[..] {
        [only] => SHELLS.contains(&only.rsplit('/').next().unwrap_or(only)),
        _ => false,
    };
    (!words.is_empty() && !is_shell).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(json: &str) -> ImageConfig {
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
                command_of(&config(json)).map(|words| words.join(" ")).as_deref(),
                expected,
                "{json}"
            );
        }
    }
}
