//! Changes of a topology file that options of `lorentz up` ask for.

use std::io;
use std::path::Path;

use lorentz_emulator::units::Delay;

use super::{without_layer, Isolation, Link, NodeCommand, NodeKind, Spanned, TopologyFile};

impl TopologyFile {
    /// Removes all images: nodes run the programs of the host's files. A node waits where the command for its image is not there.
    pub fn ignore_images(&mut self) {
        for node in self.topology.nodes.values_mut().map(|node| &mut node.value) {
            let had_image = node.image.take().is_some();
            let words = match &node.command {
                _ if !had_image => continue,
                Some(NodeCommand::Words(words)) => words.clone(),
                Some(NodeCommand::Line(_)) => continue,
                None => std::mem::take(&mut node.args),
            };
            let joined = |words: &[String]| shlex::try_join(words.iter().map(String::as_str)).ok();
            let Some((program, line)) = joined(&words[..words.len().min(1)]).zip(joined(&words))
            else {
                continue;
            };
            if !program.is_empty() {
                let run = format!("command -v -- {program} >/dev/null && exec {line}");
                node.command = Some(NodeCommand::Line(format!("{run}; exec sleep infinity")));
            }
        }
    }

    /// Gives nodes without an image or root file system of their own the root file system `root`.
    pub fn give_rootfs(&mut self, root: &Path) {
        let nodes = self.topology.nodes.values_mut().map(|node| &mut node.value);
        let without = |node: &&mut super::Node| {
            node.kind == NodeKind::Process && node.image.is_none() && node.rootfs.is_none()
        };
        nodes.filter(without).for_each(|node| node.rootfs = Some(root.display().to_string()));
    }

    /// Makes its paths absolute, so that it can be read elsewhere. Those of mobility scripts are relative to the file, which is at `path`,
    /// all others to the working directory.
    ///
    /// # Errors
    ///
    /// If there is no working directory.
    pub fn make_paths_absolute(&mut self, path: &Path) -> io::Result<()> {
        let folder = std::path::absolute(path)?.parent().map(Path::to_path_buf).unwrap_or_default();
        for script in &mut self.mobility.scripts {
            script.value.file = folder.join(&script.value.file).display().to_string();
        }
        for node in self.topology.nodes.values_mut().map(|node| &mut node.value) {
            for path in [&mut node.rootfs, &mut node.files, &mut node.output].into_iter().flatten()
            {
                *path = std::path::absolute(&*path)?.display().to_string();
            }
        }
        Ok(())
    }

    /// Gives links without a delay the delay `delay`, as rounds need one. Links to a wlan need none. Returns how many there were.
    pub fn give_delays(&mut self, delay: Delay) -> usize {
        let nodes = &self.topology.nodes;
        let is_wlan = |end: &Spanned<String>| {
            let node = end.value.split(':').next().and_then(|name| nodes.get(name));
            node.is_some_and(|node| node.value.kind == NodeKind::Wlan)
        };
        let without = |link: &&mut Spanned<Link>| {
            link.value.delay.is_none() && !link.value.endpoints.iter().any(is_wlan)
        };
        let links = self.topology.links.iter_mut().filter(without);
        links.map(|link| link.value.delay = Some(delay)).count()
    }

    /// Gives all nodes the host's own files and processes, and those binds whose places the host has.
    pub fn put_on_host(&mut self) {
        self.isolation = Isolation::Host;
        for node in self.topology.nodes.values_mut().map(|node| &mut node.value) {
            node.isolation = None;
            node.files = None;
            for bind in &mut node.binds {
                bind.value = without_layer(&bind.value).0.to_string();
            }
            let place =
                |bind: &str| bind.split(':').nth(1).map(Path::new).is_some_and(Path::exists);
            node.binds.retain(|bind| place(&bind.value));
        }
    }
}
