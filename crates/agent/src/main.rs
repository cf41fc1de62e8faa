//! `lorentz-agent`: clocks that several hosts share. `lorentz cluster` starts it, and `kubectl lorentz` by its name `kubectl-lorentz`.
//!
//! All hosts follow one record in a store ([`record`], [`store`]): a line from real to virtual time, by International Atomic Time. A
//! change is published for an instant to come. The agent of each host ([`agent`]) puts the host's clock on the line ([`follower`]) from
//! that instant on, by the host's own clock ([`host_tai`]). [`verbs`] read and change records.
//!
//! Two clocks differ by at most the rate times the errors of their hosts' clocks. Where a clock is frozen they do not differ.

mod agent;
mod args;
mod follower;
mod host_tai;
mod metrics;
mod record;
mod store;
mod verbs;
mod wrong_input;

use std::future::Future;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;

use agent::{Agent, AgentOptions};
use args::{ClusterArgs, ClusterVerb, ServeArgs};
use host_tai::{HostTai, InjectedError};
use metrics::Metrics;
use record::Wanted;
use store::{Etcd, Kubernetes, Store};
use wrong_input::WrongInput;

/// Clocks that several hosts share
#[derive(Parser, Debug)]
#[command(name = "lorentz-agent", version)]
struct Cli {
    #[command(flatten)]
    args: ClusterArgs,
}

/// Exit status for wrong input, as of all commands.
const WRONG_INPUT: u8 = 2;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { WRONG_INPUT } else { 0 });
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(dispatch(&cli.args)));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lorentz-agent: {error:#}");
            let is_input = error.downcast_ref::<WrongInput>().is_some();
            ExitCode::from(if is_input { WRONG_INPUT } else { 1 })
        }
    }
}

/// The addresses of the store.
fn addresses(args: &ClusterArgs) -> Vec<String> {
    const DEFAULT: &str = "127.0.0.1:2379";
    if !args.etcd.is_empty() {
        return args.etcd.clone();
    }
    let told = std::env::var("LORENTZ_ETCD").unwrap_or_else(|_| DEFAULT.to_string());
    told.split(',').map(str::to_string).collect()
}

async fn dispatch(args: &ClusterArgs) -> anyhow::Result<()> {
    match (&args.verb, uses_kubernetes(args)) {
        (ClusterVerb::Manifest(args), _) => verbs::manifest(args),
        (ClusterVerb::Serve(args), true) => {
            let options = agent_options(args)?;
            let (host, name) = (options.host.clone(), options.host_name.clone());
            serve(args, options, || Kubernetes::connect(host.clone(), &name)).await
        }
        (ClusterVerb::Serve(serve_args), false) => {
            let etcd = addresses(args);
            serve(serve_args, agent_options(serve_args)?, || Etcd::connect(&etcd)).await
        }
        (verb, true) => {
            let host = HostTai::new(InjectedError::default(), None);
            call(&mut Kubernetes::connect(host, "").await?, verb).await
        }
        (verb, false) => call(&mut Etcd::connect(&addresses(args)).await?, verb).await,
    }
}

/// Whether the store is Kubernetes: `kubectl lorentz` starts the program `kubectl-lorentz`.
fn uses_kubernetes(args: &ClusterArgs) -> bool {
    let name = std::env::args_os().next().map(PathBuf::from);
    let is_plugin = name.is_some_and(|name| name.ends_with("kubectl-lorentz"));
    args.kubernetes || is_plugin && args.etcd.is_empty()
}

/// Carries out a verb that reads or changes the store.
async fn call(store: &mut impl Store, verb: &ClusterVerb) -> anyhow::Result<()> {
    match verb {
        // They need no connection, or one of their own.
        ClusterVerb::Serve(_) | ClusterVerb::Manifest(_) => Ok(()),
        ClusterVerb::Create(args) => verbs::create(store, args).await,
        ClusterVerb::Ls(args) => verbs::ls(store, args).await,
        ClusterVerb::Status(args) => verbs::status(store, args).await,
        ClusterVerb::Dilate(args) => verbs::dilate(store, args).await,
        ClusterVerb::Freeze(args) => verbs::change(store, args, Wanted::Freeze).await,
        ClusterVerb::Unfreeze(args) => verbs::change(store, args, Wanted::Unfreeze).await,
        ClusterVerb::Leap(args) => verbs::leap(store, args).await,
        ClusterVerb::Step(args) => verbs::step(store, args).await,
        ClusterVerb::Rm(args) => verbs::rm(store, args).await,
    }
}

/// Growth of an error by one part in a million, ns for each second.
const NANOS_PER_PPM: i64 = 1_000;

fn agent_options(args: &ServeArgs) -> anyhow::Result<AgentOptions> {
    let injected =
        InjectedError { offset: args.test_offset.clone(), drift: args.test_drift * NANOS_PER_PPM };
    Ok(AgentOptions {
        host_name: args.host.clone().map_or_else(host_name, Ok)?,
        host: HostTai::new(injected, args.error_bound),
        lease: args.lease,
        fence: args.fence,
    })
}

async fn serve<S: Store, F: Future<Output = anyhow::Result<S>>>(
    args: &ServeArgs,
    options: AgentOptions,
    connect: impl Fn() -> F,
) -> anyhow::Result<()> {
    let metrics = Metrics::default();
    if let Some(address) = &args.metrics {
        metrics::serve(address, metrics.clone()).await?;
    }
    let ready = || {
        // A program that waits for this line may have closed the pipe since.
        let _ = writeln!(std::io::stdout(), "lorentz-agent: keeps this host's clocks");
    };
    Agent::new(options, metrics)?.serve(connect, ready).await
}

fn host_name() -> anyhow::Result<String> {
    let name = nix::unistd::gethostname().context("the host's name")?;
    Ok(name.to_string_lossy().into_owned())
}
