//! The flags of `lorentz latency`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use lorentz_clock::Span;

// Verbs of `lorentz latency`.
#[derive(Subcommand, Debug)]
#[command(defer = true)]
pub enum Latency {
    /// Measure and show the delay that containers' network stacks add to each packet
    ///
    /// Egress: from the entry of the send call to the start of transmission on the outer device. Ingress: from reception
    /// there to the exit of the receive call. Shows a table: live on a terminal, else once at the end. Needs root.
    Watch(Watch),
    /// Let containers read their own latencies, at /run/lorentz/latency inside
    ///
    /// A reader gets one line for each packet, '[sec.usec] (seq) egress|ingress: ns'. The server needs root, a reader does
    /// not.
    Serve(Serve),
    /// Run the system's ping inside a container, with each time corrected
    ///
    /// Subtracts the delay that the container's network stack added to the packet, as 'lorentz latency serve' outside
    /// measures it. All arguments are ping's.
    #[command(disable_help_flag = true)]
    Ping(Ping),
    /// Run a tool inside a container, with each printed time corrected by a rule
    Run(LatencyRunArgs),
    /// Resume measuring in a watched namespace
    On(OrderArgs),
    /// Pause measuring in a watched namespace
    Off(OrderArgs),
    /// Reset the counts of a watched namespace
    Reset(OrderArgs),
}

// The measured namespaces and devices.
#[derive(Args, Debug)]
pub struct Measure {
    /// A container of lorentz, podman, docker or LXC, a name of 'ip netns', a process id, or a path
    #[arg(value_name = "CONTAINER|NETNS", required = true)]
    pub targets: Vec<String>,
    /// Outer device, where the containers' stack ends; may be repeated [default: those of the default routes]
    #[arg(long, value_name = "DEV")]
    pub outer: Vec<String>,
    /// Bytes for records that wait to be read: a power of two from 4096 to 1073741824
    #[arg(long, value_name = "BYTES", default_value_t = lorentz_packets::DEFAULT_RING)]
    #[arg(value_parser = parse_ring)]
    pub ring: u32,
    /// End after this duration, above 0
    #[arg(long = "for", value_name = "DUR", value_parser = parse_above_zero)]
    pub limit: Option<Span>,
    /// Carry timestamps in the packets, from the container's device on, instead of tracing system calls
    ///
    /// SO_TIMESTAMP inside is then the arrival at the outer device, for every tool. Alters timestamps and hashes of packets
    /// on their way. Does not measure TCP's egress. Needs Linux 6.10.
    #[arg(long)]
    pub in_band: bool,
    /// Measure by the network card's own timestamps: refused, because reading them is not implemented
    #[arg(long, conflicts_with = "in_band", hide = true)]
    pub hardware: bool,
}

// `lorentz latency watch`.
#[derive(Args, Debug)]
pub struct Watch {
    /// The measured namespaces and devices.
    #[command(flatten)]
    pub measure: Measure,
    /// Let the containers read their own latencies too, as 'lorentz latency serve' does
    #[arg(long)]
    pub serve: bool,
    /// Print each packet as one line of JSON; times in ns
    #[arg(long, group = "form")]
    pub json: bool,
    /// Print a summary of all packets as JSON, at the end
    #[arg(long, group = "form")]
    pub summary: bool,
    /// Add a histogram: packets that took up to 1, 2, 4 ... ns
    #[arg(long, conflicts_with_all = ["json", "prometheus"])]
    pub histogram: bool,
    /// Print a summary in Prometheus's text format, at the end
    #[arg(long, group = "form")]
    pub prometheus: bool,
}

// `lorentz latency ping`.
#[derive(Args, Debug)]
pub struct Ping {
    /// Arguments of ping
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<String>,
}

// `lorentz latency run`.
#[derive(Args, Debug)]
pub struct LatencyRunArgs {
    /// Rule for the tool's output: ping, fping, traceroute, traceroute-icmp, traceroute-tcp, mtr, mtr-udp, scamper, scamper-trace, scamper-json, hping3, or a file
    #[arg(long, value_name = "RULE")]
    pub rule: String,
    /// The tool and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    #[arg(allow_hyphen_values = true)]
    pub command: Vec<String>,
}

// `lorentz latency serve`.
#[derive(Args, Debug)]
pub struct Serve {
    /// The measured namespaces and devices.
    #[command(flatten)]
    pub measure: Measure,
    /// Create the socket at this path of the host, to mount it into the container; for one namespace
    #[arg(long, value_name = "PATH")]
    pub at: Option<PathBuf>,
    /// Create two files beside the socket: latency.log, from which 'cat' drains the lines, and latency.json
    ///
    /// latency.log keeps the newest lines, up to 1 MiB, until a program reads them. latency.json has the statistics, anew each
    /// second.
    #[arg(long, conflicts_with = "at")]
    pub files: bool,
    /// Begin paused: a container that wants to be measured writes 'on' to its socket
    #[arg(long)]
    pub paused: bool,
}

// `lorentz latency on`, `off` and `reset`.
#[derive(Args, Debug)]
pub struct OrderArgs {
    /// The watched namespace, by any of its names
    #[arg(value_name = "CONTAINER|NETNS")]
    pub target: String,
    /// Print the counts so far as JSON
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
