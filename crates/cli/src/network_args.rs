//! The flags of `lorentz up`, `down`, `inspect`, `link`, `capture` and `graph`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use lorentz_network::impair::{Impairments, Jitter, JitterOption, LossOption, Queue};
use lorentz_network::import::Format;
use lorentz_network::plan::Endpoint;
use lorentz_network::units::{BitRate, Bytes, Delay, Probability};
use lorentz_network::Setting;

/// The file that describes a network.
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

/// `lorentz import`.
#[derive(Args, Debug)]
pub struct Import {
    #[command(flatten)]
    pub source: Source,
    /// Write to this file [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Print JSON: the topology, and the elements left out
    #[arg(long)]
    pub json: bool,
}

/// `lorentz up`.
#[derive(Args, Debug)]
pub struct Up {
    #[command(flatten)]
    pub source: Source,
    /// Run the nodes in rounds, as 'rounds: true' in the file does
    #[arg(long)]
    pub rounds: bool,
    /// Check the file and create nothing
    #[arg(long)]
    pub check: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `lorentz down`.
#[derive(Args, Debug)]
pub struct Down {
    /// The network [default: the only one]
    #[arg(value_name = "NETWORK")]
    pub network: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `lorentz inspect`.
#[derive(Args, Debug)]
pub struct Inspect {
    /// The network [default: all]
    #[arg(value_name = "NETWORK")]
    pub network: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `lorentz link`.
#[derive(Subcommand, Debug)]
pub enum LinkVerb {
    /// Change a link for the frames that one end sends
    ///
    /// All given values change at once; the others stay. Delays are one way, in virtual time.
    #[command(alias = "change")]
    Set(Box<LinkSet>),
    /// Show the settings and counts of links
    #[command(aliases = ["list", "ls"])]
    Show(LinkShow),
}

/// `lorentz link set`.
#[derive(Args, Debug)]
pub struct LinkSet {
    /// The end of the link that sends the frames
    #[arg(value_name = "NODE:INTERFACE")]
    pub end: Endpoint,
    /// Change both directions
    #[arg(long)]
    pub both: bool,
    /// Transmission rate: 8bit to 1tbit such as 10mbit, or none
    #[arg(long, value_name = "RATE")]
    pub rate: Option<BitRate>,
    /// Propagation delay, one way: 0 to 1d such as 20ms
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    pub delay: Option<Delay>,
    /// Uniform variation of the delay; a topology file has other distributions
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    pub jitter: Option<Delay>,
    /// Share of frames lost: 0% to 100% such as 0.1%
    #[arg(long, value_name = "P%", allow_hyphen_values = true)]
    pub loss: Option<Probability>,
    /// Share of frames that arrive twice
    #[arg(long, value_name = "P%", allow_hyphen_values = true)]
    pub duplicate: Option<Probability>,
    /// Share of frames that skip the delay
    #[arg(long, value_name = "P%", allow_hyphen_values = true)]
    pub reorder: Option<Probability>,
    /// Share of frames in which one bit flips
    #[arg(long, value_name = "P%", allow_hyphen_values = true)]
    pub corrupt: Option<Probability>,
    /// Queue limit in frames, drop-tail: 1 to 1000000
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub queue_packets: Option<u32>,
    /// Queue limit in bytes, drop-tail: 64 to 4gb such as 64kb
    #[arg(long, value_name = "BYTES")]
    pub queue_bytes: Option<Bytes>,
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
    pub fn setting(&self) -> Setting {
        let queue =
            Queue { packets: self.queue_packets, bytes: self.queue_bytes, ..Queue::default() };
        let set = Impairments {
            rate: self.rate,
            delay: self.delay,
            jitter: self
                .jitter
                .map(|spread| JitterOption::Full(Jitter { spread, ..Jitter::default() })),
            loss: self.loss.map(LossOption::Independent),
            duplicate: self.duplicate,
            reorder: self.reorder,
            corrupt: self.corrupt,
            queue: (queue != Queue::default()).then_some(queue),
        };
        let is_up = (self.up || self.down).then_some(self.up);
        Setting { end: self.end.clone(), both: self.both, set, is_up }
    }
}

/// `lorentz link show`.
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

/// `lorentz capture`.
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

/// `lorentz graph`.
#[derive(Args, Debug)]
pub struct Graph {
    /// The network [default: the only one]
    #[arg(value_name = "NETWORK")]
    pub network: Option<String>,
    /// Write to this file [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    pub write: Option<PathBuf>,
}
