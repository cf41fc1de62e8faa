//! The flags of `lorentz up`, `down`, `inspect`, `link`, `capture` and `graph`.

use std::path::PathBuf;

use clap::builder::TypedValueParser as _;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, Subcommand};
use lorentz_network::impair::{Flag, Impairments, FLAGS};
use lorentz_network::import::Format;
use lorentz_network::plan::Endpoint;
use lorentz_network::LinkChange;

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

// `lorentz import`.
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

// `lorentz up`.
#[derive(Args, Debug)]
pub struct Up {
    #[command(flatten)]
    pub source: Source,
    /// Run the nodes in rounds, as 'rounds: true' in the file does
    #[arg(long)]
    pub rounds: bool,
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
    /// Check the file and create nothing
    #[arg(long)]
    pub check: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

// `lorentz down`.
#[derive(Args, Debug)]
pub struct Down {
    /// The network [default: the only one]
    #[arg(value_name = "NETWORK")]
    pub network: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

// `lorentz inspect`.
#[derive(Args, Debug)]
pub struct Inspect {
    /// The network [default: all]
    #[arg(value_name = "NETWORK")]
    pub network: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
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

/// The flags of `lorentz link set` for impairments, by the library's table.
#[derive(Debug)]
pub struct ImpairmentFlags(Impairments);

impl Args for ImpairmentFlags {
    fn augment_args(command: Command) -> Command {
        command.args(FLAGS.iter().map(arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        ImpairmentFlags::augment_args(command)
    }
}

impl FromArgMatches for ImpairmentFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<ImpairmentFlags, clap::Error> {
        let mut flags = ImpairmentFlags(Impairments::default());
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for flag in FLAGS {
            if let Some(text) = matches.get_one::<String>(flag.name) {
                // The flag's value parser has accepted the text.
                let _ = (flag.set)(&mut self.0, text);
            }
        }
        Ok(())
    }
}

fn arg(flag: &'static Flag) -> Arg {
    let check = |text: String| (flag.set)(&mut Impairments::default(), &text).map(|()| text);
    Arg::new(flag.name)
        .long(flag.name)
        .value_name(flag.value)
        .help(flag.help)
        .allow_hyphen_values(flag.may_begin_with_hyphen)
        .value_parser(clap::builder::StringValueParser::new().try_map(check))
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
    /// Write to this file [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    pub write: Option<PathBuf>,
}
