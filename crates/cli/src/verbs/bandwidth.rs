//! `bandwidth`: what a new flow to another host could have.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::time::Instant;

use anyhow::Context;
use indicatif::ProgressBar;
use lorentz_bandwidth::wire::{Token, PORT};
use lorentz_bandwidth::{
    measure, BitRate, Bound, Client, Estimate, EstimateProgress, Options, Server,
};
use serde_json::{json, Value};

use crate::bandwidth_args::{Bandwidth, BandwidthVerb, Measure, Serve};
use crate::print;
use crate::wrong_input::WrongInput;

pub fn bandwidth(args: &Bandwidth) -> anyhow::Result<i32> {
    match &args.serve {
        Some(BandwidthVerb::Serve(args)) => serve(args),
        None => estimate(&args.measure),
    }
}

fn serve(args: &Serve) -> anyhow::Result<i32> {
    let token = token(args.token_file.as_deref())?;
    let server = Server::bind(args.listen, token).with_context(|| args.listen.to_string())?;
    let address = server.address()?;
    let as_json = args.json;
    if as_json {
        print::out_json_line(&json!({ "listening": address }))?;
    } else {
        print::out(&format!("listening on {address}\n"))?;
    }
    server.serve(move |peer, words| {
        // A reader that is gone ends the reports, not the server.
        let _ = if as_json {
            print::out_json_line(&json!({ "session": peer, "end": words }))
        } else {
            print::out(&format!("session of {peer}: {words}\n"))
        };
    })?;
    Ok(0)
}

/// The secret, from a file that holds nothing else.
fn token(file: Option<&Path>) -> anyhow::Result<Option<Token>> {
    let Some(file) = file else { return Ok(None) };
    let error_of = |why: String| WrongInput(format!("--token-file {}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| {
        error_of(format!("{error}; expected a file that can be read, with a secret in it"))
    })?;
    let empty = || error_of("it is empty; expected a secret in it".to_string());
    Ok(Some(Token::new(&text).ok_or_else(empty)?))
}

fn resolve(host: &str) -> anyhow::Result<SocketAddr> {
    if let Ok(address) = host.parse::<SocketAddr>() {
        return Ok(address);
    }
    if let Ok(address) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok((address, PORT).into());
    }
    let error_of = |why: &str| WrongInput(format!("HOST {host}: {why}"));
    let (name, port) = match host.rsplit_once(':') {
        None => (host, PORT),
        Some((name, port)) => {
            let port = port.parse().map_err(|_| error_of("expected a port from 1 to 65535"))?;
            (name, port)
        }
    };
    let mut found = (name, port).to_socket_addrs().with_context(|| host.to_string())?;
    Ok(found.next().ok_or_else(|| error_of("has no address"))?)
}

fn estimate(args: &Measure) -> anyhow::Result<i32> {
    let host = args.host.as_deref().unwrap_or_default();
    let address = resolve(host)?;
    let options = Options {
        token: token(args.token_file.as_deref())?,
        rate_max: args.rate_max,
        timers: args.timers.into(),
        fifo: args.fifo,
        most_bytes: args.packet,
    };
    let mut client = Client::connect(address, &options).with_context(|| address.to_string())?;
    loop {
        let start = Instant::now();
        // It draws on standard error, and only where that is a terminal.
        let bar = ProgressBar::new_spinner();
        let mut show = |progress: EstimateProgress| bar.set_message(progress_text(&progress));
        let found = measure(&mut client, args.method.into(), &mut show);
        bar.finish_and_clear();
        let found = found.with_context(|| address.to_string())?;
        let seconds = start.elapsed().as_secs_f64();
        if args.json {
            print::out_json_line(&in_json(&found, host, &options, seconds)?)?;
        } else {
            print::out(&in_words(&found, host, seconds))?;
        }
        if !args.watch {
            return Ok(i32::from(found.finding.bound == Bound::Unknown));
        }
    }
}

fn progress_text(progress: &EstimateProgress) -> String {
    let rate = |bits: f64| BitRate::from_f64(bits).to_string();
    let (low, high) = progress.range;
    let (at, low, high) = (rate(progress.rate), rate(low), rate(high));
    format!("stream {} at {at}; between {low} and {high}", progress.streams + 1)
}

fn in_json(found: &Estimate, host: &str, options: &Options, seconds: f64) -> anyhow::Result<Value> {
    let mut value = serde_json::to_value(found)?;
    value["host"] = json!(host);
    value["timers"] = serde_json::to_value(options.timers)?;
    value["rate_max"] = json!(options.rate_max);
    value["seconds"] = json!(seconds);
    Ok(value)
}

fn in_words(found: &Estimate, host: &str, seconds: f64) -> String {
    let finding = &found.finding;
    let is = match finding.bound {
        Bound::Value => format!("{} ({} to {})", finding.available, finding.low, finding.high),
        Bound::AtLeast => format!("at least {}: no more could be probed", finding.available),
        Bound::AtMost => format!("at most {}", finding.available),
        Bound::Unknown => "unknown: the streams contradict each other, or too few arrived".into(),
    };
    let mut text = format!(
        "{host}: {is}; {}, {} streams, {} packets in {seconds:.1} s\n",
        found.method, found.streams, found.packets
    );
    for caution in &found.cautions {
        let count = match caution {
            lorentz_bandwidth::Caution::Loss => format!(" ({})", found.lost),
            lorentz_bandwidth::Caution::Reordering => format!(" ({})", found.reordered),
            lorentz_bandwidth::Caution::RateNotReachable => {
                format!(" (at most {} were sent)", found.rate_reached)
            }
            _ => String::new(),
        };
        text += &format!("  note: {caution}{count}\n");
    }
    text
}
