//! The flags of `lorentz link add` and `rm`, of `lorentz node`, and of `lorentz schedule`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use lorentz_emulator::units::Delay;
use lorentz_network::plan::Endpoint;
use lorentz_network::topology::{
    Isolation, Link, Location, Node, NodeCommand, NodeKind, ScheduledChange, Spanned, State,
};
use lorentz_network::{parse_change, NewNode};

use crate::impairment_flags::ImpairmentFlags;

/// A value for each end of a link.
#[derive(Clone, Debug)]
pub struct Pair([Option<String>; 2]);

impl Pair {
    fn values(&self) -> Vec<Option<Spanned<String>>> {
        self.0.iter().map(|value| value.clone().map(here)).collect()
    }
}

fn pair(text: &str) -> Result<Pair, String> {
    let (one, other) = text.split_once(',').ok_or("expected one for each end, A,B; - for none")?;
    Ok(Pair([one, other].map(|value| (value != "-").then(|| value.to_string()))))
}

// `lorentz link add`.
#[derive(Args, Debug)]
pub struct LinkAdd {
    /// One end: a new interface of a node, or port of a switch
    #[arg(value_name = "NODE:INTERFACE")]
    pub end: Endpoint,
    /// The other end
    #[arg(value_name = "NODE:INTERFACE")]
    pub other: Endpoint,
    /// IPv4 addresses of the ends with their prefix lengths, as 10.0.0.1/24,10.0.0.2/24; - for none
    #[arg(long, value_name = "A,B", value_parser = pair, allow_hyphen_values = true)]
    pub ipv4: Option<Pair>,
    /// IPv6 addresses of the ends, as fd00::1/64,fd00::2/64; - for none
    #[arg(long, value_name = "A,B", value_parser = pair, allow_hyphen_values = true)]
    pub ipv6: Option<Pair>,
    /// Hardware addresses of the ends, as 02:00:00:00:00:01,-; - for a generated one
    #[arg(long, value_name = "A,B", value_parser = pair, allow_hyphen_values = true)]
    pub mac: Option<Pair>,
    /// MTU of its interfaces [default: 1500]
    #[arg(long, value_name = "N")]
    pub mtu: Option<u32>,
    #[command(flatten)]
    pub set: ImpairmentFlags,
    /// Leave the link down
    #[arg(long)]
    pub down: bool,
    /// The network, if there are several
    #[arg(long, value_name = "NETWORK")]
    pub network: Option<String>,
    /// Print the link as JSON
    #[arg(long)]
    pub json: bool,
}

impl LinkAdd {
    /// Converts to the library's type.
    pub fn link(&self) -> Link {
        let values = |pair: &Option<Pair>| pair.as_ref().map(Pair::values).unwrap_or_default();
        let mut link = Link {
            ipv4: values(&self.ipv4),
            ipv6: values(&self.ipv6),
            mac: values(&self.mac),
            mtu: self.mtu.map(here),
            state: if self.down { State::Down } else { State::Up },
            ..between(&self.end, &self.other)
        };
        link.set_impairments(&self.set.0);
        link
    }
}

// `lorentz link rm`.
#[derive(Args, Debug)]
pub struct LinkRm {
    /// An end of the link
    #[arg(value_name = "NODE:INTERFACE")]
    pub end: Endpoint,
    /// The network, if there are several
    #[arg(long, value_name = "NETWORK")]
    pub network: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

// `lorentz schedule`.
#[derive(Subcommand, Debug)]
#[command(defer = true)]
pub enum ScheduleVerb {
    /// Show the changes to come of a network that runs
    #[command(aliases = ["list", "ls"])]
    Show(ScheduleOf),
    /// Have further changes of links and clocks come
    ///
    /// A CHANGE is written as in the 'schedule' of a topology file: "{at: 60s, link: 'r1:eth0', state: down}".
    Add(ScheduleAdd),
    /// Have changes not come
    #[command(alias = "remove")]
    Rm(ScheduleRm),
    /// Have a change come at another instant
    #[command(alias = "mv")]
    Move(Box<ScheduleMove>),
    /// Have the changes of a file come instead of those that are to come
    ///
    /// Movements of nodes stay as they are.
    Set(ScheduleSet),
    /// Forget the changes of links and clocks that are to come
    Clear(ScheduleOf),
}

// `lorentz schedule show` and `clear`.
#[derive(Args, Debug)]
pub struct ScheduleOf {
    /// The network, if there are several
    #[arg(long, value_name = "NETWORK")]
    pub network: Option<String>,
    /// Print the changes to come as JSON
    #[arg(long)]
    pub json: bool,
}

// `lorentz schedule add`.
#[derive(Args, Debug)]
pub struct ScheduleAdd {
    /// The changes, as "{at: 60s, clock: n1, bump: +30s}"
    #[arg(value_name = "CHANGE", required = true, value_parser = parse_change)]
    pub changes: Vec<ScheduledChange>,
    /// Count their instants from now on, not from the start of the network
    #[arg(long)]
    pub from_now: bool,
    #[command(flatten)]
    pub of: ScheduleOf,
}

// `lorentz schedule rm`.
#[derive(Args, Debug)]
pub struct ScheduleRm {
    /// The changes, as 'lorentz schedule show' prints them
    #[arg(value_name = "CHANGE", required = true, value_parser = parse_change)]
    pub changes: Vec<ScheduledChange>,
    #[command(flatten)]
    pub of: ScheduleOf,
}

// `lorentz schedule move`.
#[derive(Args, Debug)]
pub struct ScheduleMove {
    /// The change, as 'lorentz schedule show' prints it
    #[arg(value_name = "CHANGE", value_parser = parse_change)]
    pub change: ScheduledChange,
    /// Virtual time from the start of the network
    #[arg(value_name = "DUR")]
    pub at: Delay,
    #[command(flatten)]
    pub of: ScheduleOf,
}

// `lorentz schedule set`.
#[derive(Args, Debug)]
pub struct ScheduleSet {
    /// A file with a 'schedule', as a topology file has it
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Count its instants from now on, not from the start of the network
    #[arg(long)]
    pub from_now: bool,
    #[command(flatten)]
    pub of: ScheduleOf,
}

// `lorentz node`.
#[derive(Subcommand, Debug)]
#[command(defer = true)]
pub enum NodeVerb {
    /// Add a node to a network that runs
    ///
    /// Its interfaces are there before its program begins.
    Add(Box<NodeAdd>),
    /// Remove a node from a network that runs, with its links
    #[command(alias = "remove")]
    Rm(NodeRm),
}

// `lorentz node add`.
#[derive(Args, Debug)]
pub struct NodeAdd {
    /// Its name
    #[arg(value_name = "NODE")]
    pub name: String,
    /// Its kind [default: process, which runs programs]
    #[arg(long, value_name = "process|switch|hub", value_enum)]
    pub kind: Option<AddedKind>,
    /// A switch only: it takes part in a spanning tree, so that its links may form loops
    #[arg(long)]
    pub stp: bool,
    /// A link of its own: its interface, the other end, and its address, as eth0=s:4,10.0.0.9/24; may be given again
    #[arg(long, value_name = "INTERFACE=NODE:INTERFACE[,ADDRESS]", value_parser = own_link)]
    pub link: Vec<OwnLink>,
    #[command(flatten)]
    pub set: ImpairmentFlags,
    /// Image in podman's storage, used as its root file system
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// Make it a container of its own, whose writes go with it
    #[arg(long)]
    pub private: bool,
    /// Environment variable; may be given again
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    pub env: Vec<(String, String)>,
    /// Setting of its network namespace, as net.ipv4.ip_forward=1; may be given again
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    pub sysctl: Vec<(String, String)>,
    /// Line for its shell, run when its links are there; may be given again
    #[arg(long, value_name = "LINE", allow_hyphen_values = true)]
    pub exec: Vec<String>,
    /// The network, if there are several
    #[arg(long, value_name = "NETWORK")]
    pub network: Option<String>,
    /// Print the node as JSON
    #[arg(long)]
    pub json: bool,
    /// The program and its arguments [default: the image's command; else only what exec starts]
    #[arg(trailing_var_arg = true, value_name = "COMMAND", help_heading = "Arguments")]
    pub command: Vec<String>,
}

/// Kind of a node that is added.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum AddedKind {
    /// It runs programs.
    Process,
    /// A learning switch.
    Switch,
    /// A hub.
    Hub,
}

/// A link of a node that is added.
#[derive(Clone, Debug)]
pub struct OwnLink {
    interface: String,
    other: Endpoint,
    address: Option<String>,
}

fn own_link(text: &str) -> Result<OwnLink, String> {
    let expected =
        "expected INTERFACE=NODE:INTERFACE such as eth0=s:4, with an address eth0=s:4,10.0.0.9/24";
    let (interface, rest) = text.split_once('=').ok_or(expected)?;
    let (other, address) = match rest.split_once(',') {
        Some((other, address)) => (other, Some(address.to_string())),
        None => (rest, None),
    };
    let other = other.parse().map_err(|_| expected)?;
    Ok(OwnLink { interface: interface.to_string(), other, address })
}

fn setting(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok((key.to_string(), value.to_string()))
}

impl NodeAdd {
    /// Converts to the library's type.
    pub fn new_node(&self) -> NewNode {
        let kind = match self.kind {
            None | Some(AddedKind::Process) => NodeKind::Process,
            Some(AddedKind::Switch) => NodeKind::Switch,
            Some(AddedKind::Hub) => NodeKind::Hub,
        };
        let node = Node {
            kind,
            stp: self.stp,
            isolation: self.private.then_some(Isolation::Private),
            command: (!self.command.is_empty()).then(|| NodeCommand::Words(self.command.clone())),
            image: self.image.clone().map(here),
            env: self.env.iter().cloned().collect(),
            sysctls: self
                .sysctl
                .iter()
                .map(|(key, value)| (key.clone(), here(value.clone())))
                .collect(),
            exec: self.exec.iter().cloned().map(here).collect(),
            ..Node::default()
        };
        let links = self.link.iter().map(|one| self.link_of(one)).collect();
        NewNode { name: self.name.clone(), node, links }
    }

    fn link_of(&self, own: &OwnLink) -> Link {
        let end = Endpoint { node: self.name.clone(), interface: own.interface.clone() };
        let mut link = between(&end, &own.other);
        if let Some(address) = &own.address {
            let is_v4 = !address.contains(':');
            let addresses = vec![Some(here(address.clone())), None];
            *(if is_v4 { &mut link.ipv4 } else { &mut link.ipv6 }) = addresses;
        }
        link.set_impairments(&self.set.0);
        link
    }
}

// `lorentz node rm`.
#[derive(Args, Debug)]
pub struct NodeRm {
    /// The node
    #[arg(value_name = "NODE")]
    pub name: String,
    /// The network, if there are several
    #[arg(long, value_name = "NETWORK")]
    pub network: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// A link between two ends, with nothing else.
fn between(one: &Endpoint, other: &Endpoint) -> Link {
    Link { endpoints: [one, other].map(|end| here(end.to_string())).into(), ..Link::default() }
}

fn here<T>(value: T) -> Spanned<T> {
    Spanned::new(value, Location::UNKNOWN, Location::UNKNOWN)
}
