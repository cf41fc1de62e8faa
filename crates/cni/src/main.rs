//! `lorentz-cni`: a plugin for the end of a CNI chain (the specification's versions 0.3.1 to 1.0.0).
//!
//! The plugins before it make the container's network. This plugin changes nothing about the network. It starts `lorentz latency
//! serve` for the container's network namespace. The server's socket is `FOLDER/CONTAINERID/latency` on the host; the container has
//! to get it as a mount. A peer must be in that namespace. The server ends with the namespace.
//!
//! ```json
//! { "type": "lorentz-cni", "outer": "eth0", "inBand": false, "folder": "/run/lorentz-latency" }
//! ```

use std::env;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use lorentz_packets::{send_order, Namespace, WatchOrder};
use serde::Deserialize;
use serde_json::{json, Value};

const VERSIONS: [&str; 4] = ["0.3.1", "0.4.0", "1.0.0", "1.1.0"];
const FOLDER: &str = "/run/lorentz-latency";
const SERVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Error codes: a wrong environment and a wrong configuration, as the specification numbers them, and our own.
const WRONG_ENVIRONMENT: u32 = 4;
const WRONG_CONFIGURATION: u32 = 7;
const NOT_SERVED: u32 = 100;

/// The fields of the network configuration that this plugin uses.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Configuration {
    cni_version: String,
    prev_result: Option<Value>,
    outer: Option<String>,
    #[serde(default)]
    in_band: bool,
    folder: Option<PathBuf>,
}

/// An error, with the specification's number for it.
struct CniError {
    code: u32,
    message: String,
}

fn cni_error<T>(code: u32, message: impl std::fmt::Display) -> Result<T, CniError> {
    Err(CniError { code, message: message.to_string() })
}

fn main() -> ExitCode {
    let mut text = String::new();
    let read = io::stdin().read_to_string(&mut text);
    match read.map_err(|error| CniError { code: WRONG_CONFIGURATION, message: error.to_string() }) {
        Ok(_) => finish(dispatch(&text)),
        Err(error) => finish(Err(error)),
    }
}

fn finish(result: Result<Option<Value>, CniError>) -> ExitCode {
    match result {
        Ok(values) => {
            values.iter().for_each(|value| println!("{value}"));
            ExitCode::SUCCESS
        }
        Err(CniError { code, message }) => {
            println!("{}", json!({ "cniVersion": VERSIONS[2], "code": code, "msg": message }));
            ExitCode::FAILURE
        }
    }
}

/// Carries out CNI_COMMAND. Returns the result to print.
fn dispatch(text: &str) -> Result<Option<Value>, CniError> {
    let verb = variable("CNI_COMMAND")?;
    if verb == "VERSION" {
        let versions = json!({ "cniVersion": VERSIONS[2], "supportedVersions": VERSIONS });
        return Ok(Some(versions));
    }
    let configuration: Configuration = match serde_json::from_str(text) {
        Ok(configuration) => configuration,
        Err(error) => return cni_error(WRONG_CONFIGURATION, error),
    };
    if !VERSIONS.contains(&configuration.cni_version.as_str()) {
        let expected = VERSIONS.join(", ");
        let given = &configuration.cni_version;
        return cni_error(1, format!("cniVersion {given}: expected one of {expected}"));
    }
    match verb.as_str() {
        "ADD" => add(configuration).map(Some),
        "CHECK" => check().map(|()| None),
        // The server ends with the namespace.
        "DEL" => Ok(None),
        other => cni_error(
            WRONG_ENVIRONMENT,
            format!("CNI_COMMAND {other}: expected ADD, CHECK, DEL or VERSION"),
        ),
    }
}

fn variable(name: &str) -> Result<String, CniError> {
    match env::var(name) {
        Ok(value) if !value.is_empty() => Ok(value),
        _ => cni_error(WRONG_ENVIRONMENT, format!("{name} is not set")),
    }
}

/// Starts the server. Returns the result of the previous plugins unchanged.
fn add(configuration: Configuration) -> Result<Value, CniError> {
    let Some(result) = configuration.prev_result.clone() else {
        return cni_error(
            WRONG_CONFIGURATION,
            "prevResult is missing: expected to stand at the end of a chain",
        );
    };
    let (path, container) = (variable("CNI_NETNS")?, variable("CNI_CONTAINERID")?);
    // The characters that the specification allows: the id becomes part of a path.
    let ordinary = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    if !container.starts_with(|c: char| c.is_ascii_alphanumeric())
        || !container.chars().all(ordinary)
    {
        return cni_error(
            WRONG_ENVIRONMENT,
            format!("CNI_CONTAINERID {container}: expected letters, digits, '_', '.', '-'"),
        );
    }
    let namespace = namespace(&path)?;
    let folder = configuration.folder.clone().unwrap_or_else(|| FOLDER.into());
    let socket = folder.join(container).join("latency");
    let mut server = Command::new(lorentz());
    server.args(["latency", "serve", &path, "--at"]).arg(socket);
    if let Some(outer) = &configuration.outer {
        server.args(["--outer", outer]);
    }
    if configuration.in_band {
        server.arg("--in-band");
    }
    // The server outlives this process: it gets a process group of its own, and no standard streams but a pipe for errors.
    server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
    match server.spawn() {
        Ok(child) => wait_for(child, &namespace).map(|()| result),
        Err(error) => cni_error(NOT_SERVED, format!("{}: {error}", lorentz().display())),
    }
}

fn namespace(path: &str) -> Result<Namespace, CniError> {
    Namespace::find(path)
        .or_else(|error| cni_error(WRONG_ENVIRONMENT, format!("CNI_NETNS {error}")))
}

/// Returns the `lorentz` command beside this plugin, or else the one in PATH.
fn lorentz() -> PathBuf {
    let beside = env::current_exe().ok().map(|own| own.with_file_name("lorentz"));
    beside.filter(|path| path.exists()).unwrap_or_else(|| "lorentz".into())
}

/// Waits until the server answers, at most 10 s.
fn wait_for(mut server: Child, namespace: &Namespace) -> Result<(), CniError> {
    let begun = Instant::now();
    while begun.elapsed() < SERVE_TIMEOUT {
        if send_order(WatchOrder::Show, namespace).is_ok() {
            return Ok(());
        }
        if server.try_wait().ok().flatten().is_some() {
            let mut words = String::new();
            let _ = server.stderr.take().map(|mut stderr| stderr.read_to_string(&mut words));
            return cni_error(NOT_SERVED, words.trim());
        }
        sleep(Duration::from_millis(20));
    }
    let _ = server.kill();
    cni_error(NOT_SERVED, "lorentz latency serve does not answer")
}

fn check() -> Result<(), CniError> {
    let namespace = namespace(&variable("CNI_NETNS")?)?;
    match send_order(WatchOrder::Show, &namespace) {
        Ok(_) => Ok(()),
        Err(error) => cni_error(NOT_SERVED, error),
    }
}

#[cfg(test)]
mod tests {
    use super::Configuration;

    #[test]
    fn fuzz_configuration() {
        let seed = r#"{"cniVersion":"1.0.0","name":"web","type":"lorentz-cni","outer":"eth0","inBand":false,"prevResult":{}}"#;
        let words = ["\"folder\":", "\"cniVersion\":", "true"];
        lorentz_fuzz::fuzz_json("cni-configuration", &[seed], &words, |bytes| {
            serde_json::from_slice::<Configuration>(bytes).is_ok()
        });
    }
}
