//! The flags of `lorentz latency`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use lorentz_clock::Span;

/// What can be done about latencies.
#[derive(Subcommand, Debug)]
pub enum Latency {
    /// Measure what the network stack of containers adds to each packet, and show it
    ///
    /// From the entry of the send call to the start of transmission on the outer device, and from reception there to
    /// the exit of the receive call. A table: live on a terminal, else once at the end. Needs root.
    Watch(Watch),
    /// Let containers read it themselves, at /run/lorentz/latency inside; shows nothing
    ///
    /// Reading gives one line a packet, '[sec.usec] (seq) egress|ingress: ns'. Needs root; who reads does not.
    Serve(Serve),
    /// Inside a container: the system's ping, with each time corrected
    ///
    /// By what the container's network stack added to the packet, as 'lorentz latency serve' outside measures it. All
    /// arguments are ping's.
    #[command(disable_help_flag = true)]
    Ping(Ping),
    /// Inside a container: any tool that prints times, with each corrected by a rule
    Run(Run),
    /// Go on measuring in a namespace that is watched
    On(Order),
    /// Stop measuring in it for now
    Off(Order),
    /// Count its packets from nothing
    Reset(Order),
}

/// What is measured, and where.
#[derive(Args, Debug)]
pub struct Measure {
    /// A container of lorentz, podman or docker, a name of 'ip netns', a process's number, or a path
    #[arg(value_name = "CONTAINER|NETNS", required = true)]
    pub targets: Vec<String>,
    /// Device at which the containers' stack ends; may be repeated [default: those of the default routes]
    #[arg(long, value_name = "DEV")]
    pub outer: Vec<String>,
    /// Bytes that records may take up until they are read: a power of two from 4096 to 1073741824
    #[arg(long, value_name = "BYTES", default_value_t = lorentz_packets::DEFAULT_RING)]
    #[arg(value_parser = parse_ring)]
    pub ring: u32,
    /// End after this time: a duration above 0
    #[arg(long = "for", value_name = "DUR", value_parser = parse_above_zero)]
    pub limit: Option<Span>,
    /// Have the stamps travel with the packets instead of tracing calls; from the container's device on
    ///
    /// SO_TIMESTAMP inside is then the arrival at the outer device, for every tool. Alters time stamps and hashes of
    /// packets on their way; TCP is not measured on its way out. Needs Linux 6.10.
    #[arg(long)]
    pub in_band: bool,
    /// Measure by the network card's own time stamps; refused where it has none
    #[arg(long, conflicts_with = "in_band")]
    pub hardware: bool,
}

/// `lorentz latency watch`.
#[derive(Args, Debug)]
pub struct Watch {
    /// What, and where.
    #[command(flatten)]
    pub measure: Measure,
    /// Let the containers read it themselves too, as 'lorentz latency serve' does
    #[arg(long)]
    pub serve: bool,
    /// Print each packet as one line of JSON; times in ns
    #[arg(long, group = "form")]
    pub json: bool,
    /// Print all packets together as JSON, at the end
    #[arg(long, group = "form")]
    pub summary: bool,
    /// Print how many needed up to 1, 2, 4 ... ns too
    #[arg(long, conflicts_with_all = ["json", "prometheus"])]
    pub histogram: bool,
    /// Print the text that Prometheus reads, at the end
    #[arg(long, group = "form")]
    pub prometheus: bool,
}

/// `lorentz latency ping`.
#[derive(Args, Debug)]
pub struct Ping {
    /// Arguments of ping
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<String>,
}

/// `lorentz latency run`.
#[derive(Args, Debug)]
pub struct Run {
    /// How the tool's output is read: ping, fping, traceroute, mtr, mtr-udp, scamper, hping3, or a file
    #[arg(long, value_name = "RULE")]
    pub rule: String,
    /// The tool and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    #[arg(allow_hyphen_values = true)]
    pub command: Vec<String>,
}

/// `lorentz latency serve`.
#[derive(Args, Debug)]
pub struct Serve {
    /// What, and where.
    #[command(flatten)]
    pub measure: Measure,
    /// Make the socket at this path outside, to be mounted into the container; for one namespace
    #[arg(long, value_name = "PATH")]
    pub at: Option<PathBuf>,
}

/// An order to whoever watches.
#[derive(Args, Debug)]
pub struct Order {
    /// As it was called for 'watch' or 'serve', or in another of its ways
    #[arg(value_name = "CONTAINER|NETNS")]
    pub target: String,
    /// Print what was known of its packets as JSON
    #[arg(long)]
    pub json: bool,
}

fn parse_ring(text: &str) -> Result<u32, &'static str> {
    let size = text.parse().ok().filter(|size| lorentz_packets::is_ring_size(*size));
    size.ok_or("expected a power of two from 4096 to 1073741824 bytes")
}

fn parse_above_zero(text: &str) -> Result<Span, String> {
    let span: Span = text.parse().map_err(|error| format!("{error}"))?;
    match span.0 {
        1.. => Ok(span),
        _ => Err("expected a duration above 0 such as 10s".into()),
    }
}
