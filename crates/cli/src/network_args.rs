//! The flags of `lorentz up`, `down`, `inspect`, `link`, `capture` and `graph`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use lorentz_clock::Rate;
use lorentz_emulator::units::Delay;
use lorentz_experiment::ComputeTime;
use lorentz_network::export::ExportFormat;
use lorentz_network::import::Format;
use lorentz_network::plan::Endpoint;
use lorentz_network::topology::{Location, NodeKind, Spanned, TopologyFile};
use lorentz_network::LinkChange;

use crate::edit_args::{LinkAdd, LinkRm};
use crate::impairment_flags::ImpairmentFlags;
use crate::wrong_input::WrongInput;

// The file that describes a network.
#[derive(Args, Debug)]
pub struct Source {
    /// The topology file, as docs/networks.md describes it; or a scenario of CORE, IMUNES, containerlab or Kathara
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Its format: lorentz, core, imn, containerlab or kathara [default: by its name]
    ///
    /// By name: core is NAME.xml, imn NAME.imn, containerlab NAME.clab.yml or NAME.clab.yaml, kathara lab.conf or a
    /// directory with one. Every other file is a topology file.
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<Format>,
}

// The time of a network, beside what its file says.
#[derive(Args, Debug)]
pub struct NetworkTime {
    /// Real seconds per virtual second of the network: 10, 0.5, 1/3 [default: as the file says, or 1]
    #[arg(long, value_name = "N", value_parser = tdf, allow_hyphen_values = true)]
    pub tdf: Option<String>,
    /// Real seconds of a processor per virtual second of one node, in rounds; may be given for several nodes
    #[arg(long, value_name = "NODE=N", value_parser = node_tdf)]
    pub node_tdf: Vec<(String, String)>,
    /// Run the nodes in rounds, as 'rounds: true' in the file does; links without a delay get one of 1ms
    #[arg(long)]
    pub rounds: bool,
    /// In rounds: 'none' has clocks stand while programs compute, so that results repeat [default: as the file says, or real]
    #[arg(long, value_name = "real|none")]
    pub compute: Option<ComputeTime>,
}

/// Delay that `--rounds` gives to links without one: a round is as long as the shortest delay.
const ROUND_DELAY: Delay = Delay::of_millis(1);

impl NetworkTime {
    /// Writes what is given into the network `file`. Returns what else that changes, in words.
    pub fn apply(&self, file: &mut TopologyFile) -> Result<Option<String>, WrongInput> {
        file.rounds |= self.rounds;
        let here = |text: &String| Spanned::new(text.clone(), Location::UNKNOWN, Location::UNKNOWN);
        if let Some(compute) = self.compute {
            if compute == ComputeTime::None && !file.rounds {
                let what =
                    "--compute none: expected --rounds, without which clocks run by themselves";
                return Err(WrongInput(what.to_string()));
            }
            file.compute = Some(here(&compute.to_string()));
        }
        if let Some(tdf) = &self.tdf {
            (file.tdf, file.rate) = (Some(here(tdf)), None);
        }
        for (name, tdf) in &self.node_tdf {
            if !file.rounds {
                let what = format!("--node-tdf {name}={tdf}: expected --rounds, without which all nodes are on one clock");
                return Err(WrongInput(what));
            }
            let known: Vec<String> = file.topology.nodes.keys().take(10).cloned().collect();
            let Some(node) = file.topology.nodes.get_mut(name) else {
                let what = format!(
                    "--node-tdf {name}={tdf}: no node {name:?}; expected one of {}",
                    known.join(", ")
                );
                return Err(WrongInput(what));
            };
            if node.value.kind != NodeKind::Process {
                let what = format!("--node-tdf {name}={tdf}: a switch, hub or wlan runs nothing; expected a node that does");
                return Err(WrongInput(what));
            }
            (node.value.tdf, node.value.rate) = (Some(here(tdf)), None);
        }
        // A file with `rounds: true` gives its delays itself.
        let given = if self.rounds { file.give_delays(ROUND_DELAY) } else { 0 };
        let note = format!("--rounds: links without a delay have {ROUND_DELAY}, one way: {given}");
        Ok((given > 0).then_some(note))
    }
}

fn tdf(text: &str) -> Result<String, String> {
    Rate::parse_tdf(text).map(|_| text.to_string()).map_err(|error| error.to_string())
}

fn node_tdf(text: &str) -> Result<(String, String), String> {
    let (node, number) = text.split_once('=').ok_or("expected NODE=N such as r1=2")?;
    Ok((node.to_string(), tdf(number)?))
}

// `lorentz import`.
#[derive(Args, Debug)]
pub struct Import {
    #[command(flatten)]
    pub source: Source,
    /// Its time.
    #[command(flatten)]
    pub time: NetworkTime,
    /// Write to this file [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Print JSON: the topology, and the elements left out
    #[arg(long)]
    pub json: bool,
}

// `lorentz export`.
#[derive(Args, Debug)]
pub struct Export {
    /// The topology file, or a scenario of CORE, IMUNES, containerlab or Kathara
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The format to write: core, containerlab or mininet
    #[arg(long, value_name = "FORMAT")]
    pub format: ExportFormat,
    /// The format of FILE, as for 'lorentz up --format' [default: by its name]
    #[arg(long, value_name = "FORMAT")]
    pub from: Option<Format>,
    /// Write to this file [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    pub write: Option<PathBuf>,
}

// `lorentz up`.
#[derive(Args, Debug)]
pub struct Up {
    #[command(flatten)]
    pub source: Source,
    /// Its time.
    #[command(flatten)]
    pub time: NetworkTime,
    /// Fail, and leave nothing, if a line of exec fails [default for topology files]
    #[arg(long, conflicts_with = "keep_going")]
    pub strict: bool,
    /// Go on if a line of exec fails, and tell which [default for scenarios of other emulators]
    #[arg(long)]
    pub keep_going: bool,
    /// Give all nodes the host's own files and processes; what they write stays
    ///
    /// Nodes of other emulators' scenarios have private layers above the files otherwise, as has 'isolation: private'.
    #[arg(long)]
    pub on_host: bool,
    /// Size of a private node's layer: 256M, 2G [default: 64M]
    #[arg(long, value_name = "BYTES", value_parser = crate::root_args::parse_bytes)]
    pub layer_size: Option<u64>,
    /// Have podman pull the images that it does not have
    #[arg(long, conflicts_with = "ignore_images")]
    pub pull: bool,
    /// Run all nodes on the programs of the host's files, and not on those of their images
    #[arg(long)]
    pub ignore_images: bool,
    /// Give nodes without an image or root file system this directory as root file system; their writes go into layers above
    #[arg(long, value_name = "DIR")]
    pub rootfs: Option<PathBuf>,
    /// Check the file and create nothing
    #[arg(long)]
    pub check: bool,
    /// Have the network of the file's name, which runs, go over to the file: nodes and links come and go
    #[arg(long, conflicts_with = "check")]
    pub update: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

// `lorentz down`.
#[derive(Args, Debug)]
pub struct Down {
    /// The networks, by their names or their files [default: the only one]
    #[arg(value_name = "NETWORK")]
    pub networks: Vec<String>,
    /// All networks
    #[arg(long, conflicts_with = "networks")]
    pub all: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

// `lorentz inspect`.
#[derive(Args, Debug)]
pub struct Inspect {
    /// The network, by its name or its file [default: all]
    #[arg(value_name = "NETWORK")]
    pub network: Option<String>,
    /// Print JSON
    #[arg(long, conflicts_with = "yaml")]
    pub json: bool,
    /// Print the topology file of the network as it runs, with what has come, gone and changed since 'lorentz up'
    #[arg(long)]
    pub yaml: bool,
}

// `lorentz link`.
#[derive(Subcommand, Debug)]
#[command(defer = true)]
pub enum LinkVerb {
    /// Change a link for the frames that one end sends
    ///
    /// All given values change at once; the others stay. Delays are one way, in virtual time.
    #[command(alias = "change")]
    Set(Box<LinkSet>),
    /// Add a link to a network that runs
    ///
    /// Its interfaces appear in the nodes. Other links, programs and connections notice nothing.
    Add(Box<LinkAdd>),
    /// Remove a link from a network that runs, with its interfaces
    #[command(alias = "remove")]
    Rm(LinkRm),
    /// Show the settings and counts of links
    #[command(aliases = ["list", "ls"])]
    Show(LinkShow),
}

// `lorentz link set`.
#[derive(Args, Debug)]
pub struct LinkSet {
    /// The end of the link that sends the frames
    #[arg(value_name = "NODE:INTERFACE")]
    pub end: Endpoint,
    /// Change both directions
    #[arg(long)]
    pub both: bool,
    #[command(flatten)]
    pub set: ImpairmentFlags,
    /// Set the link up
    #[arg(long, conflicts_with = "down")]
    pub up: bool,
    /// Set the link down, both ways; frames on their way are lost
    #[arg(long)]
    pub down: bool,
    /// The network, if there are several
    #[arg(long, value_name = "NETWORK")]
    pub network: Option<String>,
    /// Print the link as JSON
    #[arg(long)]
    pub json: bool,
}

impl LinkSet {
    /// Converts to the library's type.
    pub fn setting(&self) -> LinkChange {
        let is_up = (self.up || self.down).then_some(self.up);
        LinkChange { end: self.end.clone(), both: self.both, set: self.set.0.clone(), is_up }
    }
}

// `lorentz link show`.
#[derive(Args, Debug)]
pub struct LinkShow {
    /// An end of the link [default: all links]
    #[arg(value_name = "NODE:INTERFACE")]
    pub end: Option<Endpoint>,
    /// The network, if there are several
    #[arg(long, value_name = "NETWORK")]
    pub network: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

// `lorentz capture`.
#[derive(Args, Debug)]
pub struct Capture {
    /// The interface of a node
    #[arg(value_name = "NODE:INTERFACE")]
    pub end: Endpoint,
    /// Write to this file [default: standard output, which must not be a terminal]
    #[arg(long, short, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// The network, if there are several
    #[arg(long, value_name = "NETWORK")]
    pub network: Option<String>,
}

// `lorentz graph`.
#[derive(Args, Debug)]
pub struct Graph {
    /// The network [default: the only one]
    #[arg(value_name = "NETWORK")]
    pub network: Option<String>,
    /// Draw the network of this topology file or scenario, without creating it
    #[arg(long, value_name = "FILE", conflicts_with = "network")]
    pub file: Option<PathBuf>,
    /// With --file: its format, as for 'lorentz up' [default: by its name]
    #[arg(long, value_name = "FORMAT", requires = "file")]
    pub format: Option<Format>,
    /// Write to this file [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    pub write: Option<PathBuf>,
}
