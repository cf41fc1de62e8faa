//! The flags of `lorentz run` for containers with a root file system of their own.

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use lorentz_container::{Bind, RootOptions};

// Options of a container with a root file system of its own.
#[derive(Args, Debug)]
#[command(next_help_heading = "Container")]
pub struct RootArgs {
    /// Run in new namespaces, with this directory as the root file system; needs root
    ///
    /// Writes go to a layer in memory that ends with the container; the directory does not change.
    #[arg(long, value_name = "DIR", conflicts_with = "bundle")]
    pub rootfs: Option<PathBuf>,
    /// Run the OCI bundle in this directory; COMMAND replaces the bundle's
    #[arg(long, value_name = "DIR")]
    pub bundle: Option<PathBuf>,
    /// With --rootfs: write to the directory itself
    #[arg(long, requires = "rootfs")]
    pub read_write: bool,
    /// With --rootfs: host name inside [default: the container's name]
    #[arg(long, value_name = "NAME", requires = "rootfs")]
    pub hostname: Option<String>,
    /// With --rootfs: set an environment variable; may be repeated
    #[arg(long, value_name = "KEY=VALUE", requires = "rootfs", value_parser = parse_variable)]
    pub env: Vec<String>,
    /// With --rootfs: the program's working directory [default: /]
    #[arg(long, value_name = "DIR", requires = "rootfs", value_parser = parse_directory)]
    pub workdir: Option<PathBuf>,
    /// With --rootfs: the program's user and group, by number [default: 0:0]
    #[arg(long, value_name = "UID[:GID]", requires = "rootfs", value_parser = parse_user)]
    pub user: Option<(u32, u32)>,
    /// With --rootfs: also a user namespace: root inside is an unprivileged user outside
    #[arg(long, requires = "rootfs")]
    pub user_namespace: bool,
    /// With --rootfs: an empty network of its own, or the host's [default: none]
    #[arg(long, value_name = "none|host", requires = "rootfs", hide_possible_values = true)]
    pub network: Option<NetworkArg>,
    /// With --rootfs: mount a file or directory of the host; may be repeated
    #[arg(long, value_name = "SOURCE:TARGET[:ro]", requires = "rootfs")]
    pub mount: Vec<Bind>,
    /// With --rootfs: memory limit: 64M, 2G
    #[arg(long, value_name = "BYTES", requires = "rootfs", value_parser = parse_bytes)]
    pub memory: Option<u64>,
    /// With --rootfs: processor limit: 0.5, 2
    #[arg(long, value_name = "N", requires = "rootfs", value_parser = parse_processors)]
    pub cpus: Option<u64>,
    /// With --rootfs: limit of processes and threads
    #[arg(long, value_name = "N", requires = "rootfs", value_parser = parse_processes)]
    pub pids: Option<u32>,
}

/// The container's network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum NetworkArg {
    /// One of its own
    None,
    /// The host's
    Host,
}

impl RootArgs {
    /// Converts to the library's type; `None` without --rootfs.
    pub fn options(&self) -> Option<RootOptions> {
        Some(RootOptions {
            root: self.rootfs.clone()?,
            read_write: self.read_write,
            terminal: is_interactive(),
            hostname: self.hostname.clone(),
            variables: self.env.clone(),
            directory: self.workdir.clone(),
            user: self.user.unwrap_or((0, 0)),
            user_namespace: self.user_namespace,
            host_network: self.network == Some(NetworkArg::Host),
            binds: self.mount.clone(),
            memory: self.memory,
            millicpus: self.cpus,
            processes: self.pids,
        })
    }
}

/// Whether standard input, output and error are all a terminal. Then the program gets a terminal of its own; otherwise the
/// streams pass through separately.
pub fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal() && io::stderr().is_terminal()
}

fn parse_variable(text: &str) -> Result<String, &'static str> {
    match text.split_once('=') {
        Some((key, _)) if !key.is_empty() => Ok(text.to_string()),
        _ => Err("expected KEY=VALUE"),
    }
}

fn parse_directory(text: &str) -> Result<PathBuf, &'static str> {
    text.starts_with('/').then(|| text.into()).ok_or("expected an absolute path")
}

fn parse_user(text: &str) -> Result<(u32, u32), &'static str> {
    const EXPECTED: &str = "expected UID or UID:GID, by number";
    let (user, group) = text.split_once(':').unwrap_or((text, "0"));
    Ok((user.parse().map_err(|_| EXPECTED)?, group.parse().map_err(|_| EXPECTED)?))
}

pub(crate) fn parse_bytes(text: &str) -> Result<u64, &'static str> {
    const EXPECTED: &str = "expected a number of bytes above 0 such as 64M or 2G";
    let units = [('K', 10), ('M', 20), ('G', 30), ('k', 10), ('m', 20), ('g', 30)];
    let unit = units.iter().find(|(unit, _)| text.ends_with(*unit));
    let (number, shift) = unit.map_or((text, 0), |(_, shift)| (&text[..text.len() - 1], *shift));
    let bytes = number.parse().ok().and_then(|number: u64| number.checked_mul(1 << shift));
    bytes.filter(|bytes| *bytes > 0).ok_or(EXPECTED)
}

/// Parses a number of processors, in thousandths.
fn parse_processors(text: &str) -> Result<u64, &'static str> {
    const EXPECTED: &str = "expected a number of processors from 0.01 to 4096 such as 0.5";
    let number: f64 = text.parse().map_err(|_| EXPECTED)?;
    (0.01..=4096.0).contains(&number).then(|| (number * 1000.0).round() as u64).ok_or(EXPECTED)
}

fn parse_processes(text: &str) -> Result<u32, &'static str> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or("expected a number of processes above 0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_as_people_write_them() {
        assert_eq!(parse_bytes("64M"), Ok(64 << 20));
        assert_eq!(parse_bytes("123"), Ok(123));
        assert_eq!(parse_processors("0.5"), Ok(500));
        assert_eq!(parse_user("7"), Ok((7, 0)));
        assert_eq!(parse_user("7:8"), Ok((7, 8)));
        for wrong in ["", "0", "M", "-1", "99999999999999G", "1T"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
        assert!(parse_processors("0").is_err() && parse_processors("nan").is_err());
        assert!(parse_user("root").is_err() && parse_user("1:").is_err());
    }
}
