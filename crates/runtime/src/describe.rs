//! The verbs `features`, which prints the runtime's capabilities, and `spec`, which writes a config.json to begin with.

use std::fs;
use std::path::PathBuf;

use anyhow::{bail, Context};
use libcontainer::oci_spec::runtime::{Spec, VERSION};
use serde_json::json;

/// The verb `features`.
pub fn features() -> anyhow::Result<i32> {
    let capabilities: Vec<String> = caps::all().iter().map(ToString::to_string).collect();
    let features = json!({
        "ociVersionMin": "1.0.0",
        "ociVersionMax": VERSION,
        "hooks": [
            "prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop",
        ],
        "linux": {
            "namespaces": ["cgroup", "ipc", "mount", "network", "pid", "time", "user", "uts"],
            "capabilities": capabilities,
            "cgroup": { "v1": true, "v2": true, "systemd": true },
            "apparmor": { "enabled": true },
        },
        "annotations": {
            "io.lorentz.version": env!("CARGO_PKG_VERSION"),
            "io.lorentz.annotations": "lorentz.",
            // By this an engine knows that there is `checkpoint`.
            "org.opencontainers.runc.checkpoint.enabled": "true",
        },
    });
    println!("{}", serde_json::to_string_pretty(&features)?);
    Ok(0)
}

/// The verb `spec`.
pub fn spec(args: &liboci_cli::Spec) -> anyhow::Result<i32> {
    let path = args.bundle.clone().unwrap_or_else(|| PathBuf::from(".")).join("config.json");
    if path.exists() {
        bail!("{}: is there already; expected a directory without one", path.display());
    }
    let spec = if args.rootless {
        Spec::rootless(nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw())
    } else {
        Spec::default()
    };
    let text = serde_json::to_string_pretty(&spec)?;
    fs::write(&path, text).with_context(|| format!("{}", path.display()))?;
    Ok(0)
}
