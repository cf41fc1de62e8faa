//! The flags of `lorentz bandwidth`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use lorentz_bandwidth::{BitRate, Method, Timers};

const BANDWIDTH_HELP: &str = "\
RATE  500kbit, 300mbit, 2.5gbit, 10000000; from 1kbit to 1000gbit

The estimate is of the way from here to the server, at IP: what a new flow could have beside those that are there.
'low' and 'high' are the ends of the 95 % confidence interval; with slops, of the range in which it varied.";

/// `lorentz bandwidth`.
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

/// What `lorentz bandwidth` can do besides measuring.
#[derive(Subcommand, Debug)]
pub enum BandwidthVerb {
    /// Receive the probes of those who measure the way to here
    ///
    /// Control is over TCP, probes come over UDP to a port that the system chooses for each session. Ends when it is
    /// ended.
    Serve(Serve),
}

/// `lorentz bandwidth serve`.
#[derive(Args, Debug)]
pub struct Serve {
    /// Where to listen for control connections
    #[arg(long, value_name = "ADDR:PORT", default_value = "0.0.0.0:13979")]
    pub listen: SocketAddr,
    /// Only serve those who know the secret in this file
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

impl From<TimersName> for Timers {
    fn from(name: TimersName) -> Timers {
        match name {
            TimersName::System => Timers::System,
            TimersName::Precise => Timers::Precise,
        }
    }
}

/// `lorentz bandwidth HOST`.
#[derive(Args, Debug)]
pub struct Measure {
    /// Where 'lorentz bandwidth serve' runs; the port is 13979 where none is given
    #[arg(value_name = "HOST[:PORT]", required = true)]
    pub host: Option<String>,
    /// How to measure
    #[arg(long, value_enum, default_value = "trains", value_name = "METHOD")]
    pub method: MethodName,
    /// The highest rate to probe
    ///
    /// More is not found, and the first train is sent at it: not far above what the path can have.
    #[arg(long, value_name = "RATE", default_value = "1gbit")]
    pub rate_max: BitRate,
    /// What to pace and stamp the probes by
    #[arg(long, value_enum, default_value = "precise", value_name = "TIMERS")]
    pub timers: TimersName,
    /// Send under SCHED_FIFO, before all ordinary programs (needs CAP_SYS_NICE)
    #[arg(long)]
    pub fifo: bool,
    /// Length of the longest probe as an IP packet, 100 to 65535; default: what the first link takes, at most 9000
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(100..=65535))]
    pub packet: Option<u32>,
    /// The secret of the server is in this file
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Measure again and again, a line each, until it is ended
    #[arg(long)]
    pub watch: bool,
    /// Print JSON, an object for each estimate
    #[arg(long)]
    pub json: bool,
}
