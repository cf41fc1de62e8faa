//! The flags of `lorentz bandwidth`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use lorentz_bandwidth::{BitRate, Method, PacingTimers};

const BANDWIDTH_HELP: &str = "\
RATE  500kbit, 300mbit, 2.5gbit, 10000000; from 1kbit to 1000gbit

The estimate is the rate that a new flow could have beside the existing flows, from here to the
server, at IP. 'low' and 'high' are the ends of the 95 % confidence interval; with slops, of the
range in which the rate varied.";

// `lorentz bandwidth`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = BANDWIDTH_HELP)]
pub struct Bandwidth {
    /// The other end.
    #[command(subcommand)]
    pub serve: Option<BandwidthVerb>,
    /// This end.
    #[command(flatten)]
    pub measure: Measure,
}

// Verbs of `lorentz bandwidth`.
#[derive(Subcommand, Debug)]
#[command(defer = true)]
pub enum BandwidthVerb {
    /// Receive the probes of hosts that measure the path to here
    ///
    /// Control is over TCP. Probes come over UDP, to a port that the system chooses for each session. Runs until a signal
    /// ends it.
    Serve(Serve),
}

// `lorentz bandwidth serve`.
#[derive(Args, Debug)]
pub struct Serve {
    /// Address for control connections
    #[arg(long, value_name = "ADDR:PORT", default_value = "0.0.0.0:13979")]
    pub listen: SocketAddr,
    /// Serve only clients that know the secret in this file
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The method, as a value of a flag.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum MethodName {
    /// Self-loading periodic streams, as pathload
    Slops,
    /// Probe trains, fitted by a line
    Trains,
    /// Calibrated rate probing, as Yaz
    Yaz,
}

impl From<MethodName> for Method {
    fn from(name: MethodName) -> Method {
        match name {
            MethodName::Slops => Method::Slops,
            MethodName::Trains => Method::Trains,
            MethodName::Yaz => Method::Yaz,
        }
    }
}

/// The timers, as a value of a flag.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum TimersName {
    /// gettimeofday and usleep
    System,
    /// The processor's counter, and a sleep that spins its last stretch
    Precise,
}

impl From<TimersName> for PacingTimers {
    fn from(name: TimersName) -> PacingTimers {
        match name {
            TimersName::System => PacingTimers::System,
            TimersName::Precise => PacingTimers::Precise,
        }
    }
}

// `lorentz bandwidth HOST`.
#[derive(Args, Debug)]
pub struct Measure {
    /// The host of 'lorentz bandwidth serve' [default port: 13979]
    #[arg(value_name = "HOST[:PORT]", required = true)]
    pub host: Option<String>,
    /// The method
    #[arg(long, value_enum, default_value = "trains", value_name = "METHOD")]
    pub method: MethodName,
    /// The highest rate to probe
    ///
    /// The estimate cannot exceed it, and the first train has this rate. Choose it not far above the capacity of the path.
    #[arg(long, value_name = "RATE", default_value = "1gbit")]
    pub rate_max: BitRate,
    /// The timers that pace and timestamp the probes
    #[arg(long, value_enum, default_value = "precise", value_name = "TIMERS")]
    pub timers: TimersName,
    /// Send under SCHED_FIFO, ahead of all ordinary programs (needs CAP_SYS_NICE)
    #[arg(long)]
    pub fifo: bool,
    /// Length of the longest probe as an IP packet, 100 to 65535 [default: the first link's MTU, at most 9000]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(100..=65535))]
    pub packet: Option<u32>,
    /// File with the server's secret
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Measure until interrupted, one line for each estimate
    #[arg(long)]
    pub watch: bool,
    /// Print JSON, an object for each estimate
    #[arg(long)]
    pub json: bool,
}
