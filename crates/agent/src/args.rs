//! The command line of `lorentz-agent` and of `lorentz cluster`, which starts it.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};
use lorentz_clock::{Rate, Span};
use lorentz_control::Date;

// `lorentz cluster`.
#[derive(Args, Debug)]
pub struct ClusterArgs {
    /// The store that all hosts share, etcd; several addresses are separated by commas [default: LORENTZ_ETCD, else 127.0.0.1:2379]
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', global = true)]
    pub etcd: Vec<String>,
    /// The store is the Kubernetes cluster that kubectl would use, in place of etcd; 'kubectl lorentz' means it
    #[arg(long, global = true, conflicts_with = "etcd")]
    pub kubernetes: bool,
    /// The verb.
    #[command(subcommand)]
    pub verb: ClusterVerb,
}

// The verbs of `lorentz cluster`.
#[derive(Subcommand, Debug)]
#[allow(missing_docs, reason = "a doc comment would replace the text of the verb `cluster`")]
pub enum ClusterVerb {
    /// Keep this host's clocks on the lines of the store, until SIGTERM
    ///
    /// One on each host. Programs come onto a clock by 'lorentz run --clock cluster/NAME'. Without the store the clocks go on by the
    /// lines that they have.
    Serve(ServeArgs),
    /// Make a clock
    Create(CreateArgs),
    /// List the clocks
    #[command(visible_alias = "get", alias = "list")]
    Ls(ListArgs),
    /// Show a clock and how the hosts' clocks stand to it
    #[command(alias = "describe")]
    Status(StatusArgs),
    /// Change a clock's rate on all hosts
    #[command(group = ArgGroup::new("speed").required(true))]
    Dilate(DilateArgs),
    /// Stop a clock on all hosts, at the same nanosecond of virtual time
    ///
    /// Clocks stand; programs run on, and wait.
    #[command(alias = "pause")]
    Freeze(ChangeArgs),
    /// Let a frozen clock run again on all hosts
    #[command(alias = "resume")]
    Unfreeze(ChangeArgs),
    /// Move all clocks of all hosts forward
    Leap(MoveArgs),
    /// Move the wall clock of all hosts, forward or back
    Step(MoveArgs),
    /// Remove a clock from the store
    ///
    /// Programs on it go on by the line in force.
    #[command(alias = "delete")]
    Rm(RmArgs),
    /// Print the Kubernetes manifest: custom resources, rights, and an agent for each node
    ///
    /// 'lorentz cluster manifest | kubectl apply -f -'.
    Manifest(ManifestArgs),
}

// `lorentz cluster manifest`.
#[derive(Args, Debug)]
pub struct ManifestArgs {
    /// The image of the agents
    #[arg(long, value_name = "IMAGE", default_value = "localhost/lorentz")]
    pub image: String,
    /// Print the custom resources alone
    #[arg(long)]
    pub crds: bool,
}

// `lorentz cluster serve`.
#[derive(Args, Debug)]
pub struct ServeArgs {
    /// The name of this host in the store [default: the host's name]
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// A host that the store has not heard of for so long counts as lost, 1s to 1h
    #[arg(long, value_name = "DUR", default_value = "5s", value_parser = parse_lease)]
    pub lease: Span,
    /// Stop this host's clocks when the store has not answered for the time of the lease
    #[arg(long)]
    pub fence: bool,
    /// Bound of the error of this host's clock [default: adjtimex(2)'s maxerror, which an NTP daemon keeps]
    #[arg(long, value_name = "DUR", value_parser = parse_bound)]
    pub error_bound: Option<Span>,
    /// Answer Prometheus here: '/metrics', and '/healthz'
    #[arg(long, value_name = "HOST:PORT")]
    pub metrics: Option<String>,
    /// For tests: a file with an error of this host's clock, ns, which is read at each look
    #[arg(long, value_name = "FILE", hide = true)]
    pub test_offset: Option<PathBuf>,
    /// For tests: a drift of this host's clock, ppm
    #[arg(long, value_name = "PPM", allow_hyphen_values = true, default_value_t = 0, hide = true)]
    pub test_drift: i64,
}

// `lorentz cluster create`.
#[derive(Args, Debug)]
pub struct CreateArgs {
    /// The clock's name: as a container's
    #[arg(value_name = "NAME", value_parser = parse_name)]
    pub name: String,
    /// Start the wall clock at this time [default: the host's]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub at: Option<Date>,
    /// Virtual seconds per real second
    #[arg(long, value_name = "R", default_value = "1", allow_hyphen_values = true)]
    pub rate: Rate,
}

// `lorentz cluster ls`.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// This clock alone
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

// `lorentz cluster status`.
#[derive(Args, Debug)]
pub struct StatusArgs {
    /// The clock
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

// `lorentz cluster rm`.
#[derive(Args, Debug)]
pub struct RmArgs {
    /// The clock
    #[arg(value_name = "NAME")]
    pub name: String,
}

// A change of a clock.
#[derive(Args, Debug)]
pub struct ChangeArgs {
    /// The clock
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Time from this command to the change, in which all hosts hear of it, 0 to 1d
    #[arg(long, value_name = "DUR", default_value = "1s", value_parser = parse_lead)]
    pub lead: Span,
    /// Print the change as JSON
    #[arg(long)]
    pub json: bool,
}

// `lorentz cluster dilate`.
#[derive(Args, Debug)]
pub struct DilateArgs {
    /// The change.
    #[command(flatten)]
    pub change: ChangeArgs,
    /// Virtual seconds per real second: 2, 0.1, 1/10, 60x, +200ppm
    #[arg(long, value_name = "R", group = "speed", allow_hyphen_values = true)]
    pub rate: Option<Rate>,
    /// Time dilation factor, the inverse of a rate
    #[arg(long, value_name = "N", group = "speed", allow_hyphen_values = true)]
    #[arg(value_parser = Rate::parse_tdf)]
    pub tdf: Option<Rate>,
}

// `lorentz cluster leap`, `lorentz cluster step`.
#[derive(Args, Debug)]
pub struct MoveArgs {
    /// The change.
    #[command(flatten)]
    pub change: ChangeArgs,
    /// Move by this duration; 'leap': 0 or more
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    pub by: Span,
}

fn parse_lease(text: &str) -> Result<Span, String> {
    parse_span(text, Span::from_secs(1), Span::from_secs(3_600), "1s to 1h")
}

fn parse_lead(text: &str) -> Result<Span, String> {
    parse_span(text, Span::ZERO, Span::from_secs(86_400), "0 to 1d")
}

fn parse_bound(text: &str) -> Result<Span, String> {
    parse_span(text, Span::ZERO, Span::from_secs(86_400), "0 to 1d")
}

fn parse_span(text: &str, least: Span, most: Span, accepted: &str) -> Result<Span, String> {
    let span = text.parse::<Span>().ok().filter(|span| (least..=most).contains(span));
    span.ok_or_else(|| format!("expected a duration from {accepted}"))
}

/// Accepts a name that a container could have behind `cluster.`.
fn parse_name(text: &str) -> Result<String, &'static str> {
    const MAX_LEN: usize = 120;
    let is_good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let is_name = (1..=MAX_LEN).contains(&text.len()) && text.chars().all(is_good);
    is_name.then(|| text.to_string()).ok_or("expected 1 to 120 letters, digits, '.', '_' and '-'")
}
