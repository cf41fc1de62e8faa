//! Scenarios of other emulators, read as topology files: CORE's XML, the `.imn` of CORE 4 and of IMUNES (lists of Tcl, or JSON),
//! containerlab's YAML, Kathara's `lab.conf`.
//!
//! Each reader makes a [`topology::TopologyFile`]. Its names and values keep their places in the original, so that errors point there. A
//! reader reports every element that it does not understand or that Lorentz does not have ([`LeftOut`]): nothing is dropped
//! silently.

mod containerlab;
mod core;
mod draft;
mod imn;
mod imunes;
mod json_text;
mod kathara;
mod netem;
mod services;
mod tcl;
mod wlan;

use std::path::{Path, PathBuf};
use std::str::FromStr;

pub use draft::LeftOut;
use draft::{Draft, Position, Read, LAB_CONF};

use crate::check;
use crate::topology::{self, NodeKind, TopologyFile};

/// The format of a file, named after its program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// A topology file of Lorentz.
    Lorentz,
    /// A scenario of CORE, in XML.
    Core,
    /// A topology of IMUNES or CORE 4.
    Imn,
    /// A topology of containerlab.
    Containerlab,
    /// A network scenario of Kathara.
    Kathara,
}

impl Format {
    const NAMES: [(&'static str, Format); 5] = [
        ("lorentz", Format::Lorentz),
        ("core", Format::Core),
        ("imn", Format::Imn),
        ("containerlab", Format::Containerlab),
        ("kathara", Format::Kathara),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Format::NAMES.iter().find(|(_, one)| *one == self).map_or("", |(name, _)| name)
    }

    /// Returns the format of a file by its name.
    pub fn of(path: &Path) -> Format {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let ends = |ending: &str| name.ends_with(ending);
        match () {
            () if ends(".xml") => Format::Core,
            () if ends(".imn") => Format::Imn,
            () if [".clab.yml", ".clab.yaml", ".clab.gotmpl"].into_iter().any(ends) => {
                Format::Containerlab
            }
            () if name == LAB_CONF => Format::Kathara,
            () => Format::Lorentz,
        }
    }
}

impl FromStr for Format {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Format, &'static str> {
        let found = Format::NAMES.iter().find(|(name, _)| *name == text);
        found
            .map(|(_, format)| *format)
            .ok_or("expected lorentz, core, imn, containerlab or kathara")
    }
}

/// An imported file.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The name of the file that [`Self::topology`] is from, as in messages.
    pub name: String,
    /// The network.
    pub topology: TopologyFile,
    /// Elements that are not in it.
    pub left_out: Vec<LeftOut>,
    /// The file's format.
    pub format: Format,
}

/// Reads the file at `path`, or a directory with a `lab.conf`. `format` is for files whose name does not show it.
///
/// # Errors
///
/// If the file cannot be read; or the error in it, as [`crate::topology::TopologyError`].
pub fn read(path: &Path, format: Option<Format>) -> anyhow::Result<Imported> {
    let path: PathBuf = if path.is_dir() { path.join(LAB_CONF) } else { path.into() };
    let text = topology::text_of(&path)?;
    if format.is_none() && path.extension().is_some_and(|ending| ending == "py") {
        let at = Position { line: 1, column: 1 };
        let what = "a program in Python: Network.from_mininet_program of the Python package reads programs for Mininet";
        return Ok(Draft::new(&path).error(at, what)?);
    }
    let format = format.unwrap_or_else(|| Format::of(&path));
    Ok(read_text(&path, format, &text)?)
}

/// Reads `text` as the file at `path`.
pub(crate) fn read_text(path: &Path, format: Format, text: &str) -> Read<Imported> {
    let mut draft = Draft::new(path);
    let mut topology = match format {
        Format::Lorentz => topology::parse(&draft.name, text)?,
        Format::Core => core::read(&mut draft, text).map(|()| draft.file)?,
        // IMUNES writes JSON since 2024.
        Format::Imn if text.trim_start().starts_with('{') => {
            imunes::read(&mut draft, text).map(|()| draft.file)?
        }
        Format::Imn => imn::read(&mut draft, text).map(|()| draft.file)?,
        Format::Containerlab => containerlab::read(&mut draft, text).map(|()| draft.file)?,
        Format::Kathara => kathara::read(&mut draft, text, path).map(|()| draft.file)?,
    };
    if format != Format::Lorentz {
        break_loops(&mut topology);
        netem::take(&mut topology);
    }
    let mut left_out = draft.left_out;
    left_out.sort_by_key(|one| (one.line, one.column));
    Ok(Imported { name: draft.name, topology, left_out, format })
}

/// Gives all switches a spanning tree if some of them form a loop, which other emulators accept.
fn break_loops(file: &mut TopologyFile) {
    let of = |node: &topology::Node| node.kind != NodeKind::Process && !node.stp;
    let nodes = &mut file.topology.nodes;
    let without = nodes.iter().filter(|(_, node)| of(&node.value));
    let names: Vec<&str> = without.map(|(name, _)| name.as_str()).collect();
    let ends = file.topology.links.iter().map(|link| {
        let node = |side: usize| {
            let end = link.value.endpoints.get(side);
            end.and_then(|end| end.value.split(':').next()).unwrap_or_default()
        };
        [node(0), node(1)]
    });
    if check::link_of_loop(&names, ends).is_none() {
        return;
    }
    for node in nodes.values_mut().filter(|node| node.value.kind == NodeKind::Switch) {
        node.value.stp = true;
    }
}
