//! The flags of `lorentz run` for containers with a root file system of their own.

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use lorentz_container::{Bind, Newcomers, RootOptions, RootSource};

// Options of a container with a root file system of its own.
#[derive(Args, Debug)]
#[command(next_help_heading = "Container")]
pub struct RootArgs {
    /// Run in new namespaces, with this directory as the root file system; needs root
    ///
    /// Writes go to a layer in memory that ends with the container; the directory does not change.
    #[arg(long, value_name = "DIR", group = "own_root", conflicts_with = "bundle")]
    pub rootfs: Option<PathBuf>,
    /// Run in new namespaces, with this image of podman's as the root file system; needs root
    ///
    /// COMMAND replaces the image's own arguments. Variables, user and directory are the image's unless options give them. Writes
    /// go to a layer in memory that ends with the container; the image does not change.
    #[arg(long, value_name = "IMAGE", group = "own_root", conflicts_with = "bundle")]
    pub image: Option<String>,
    /// With --image: have podman pull the image if it does not have it
    #[arg(long, requires = "image")]
    pub pull: bool,
    /// Run the OCI bundle in this directory; COMMAND replaces the bundle's
    #[arg(long, value_name = "DIR")]
    pub bundle: Option<PathBuf>,
    /// Programs that enter from outside (nsenter): bring them onto the clock, end them, or leave them [default: attach]
    ///
    /// Where the kernel lets nobody watch (root's BPF programs), they stay in the host's time.
    #[arg(long, value_name = "attach|refuse|ignore", value_parser = str::parse::<Newcomers>)]
    pub newcomers: Option<Newcomers>,
    /// With --rootfs: write to the directory itself
    #[arg(long, requires = "rootfs", conflicts_with = "image")]
    pub read_write: bool,
    /// With --rootfs or --image: host name inside [default: the container's name]
    #[arg(long, value_name = "NAME", requires = "own_root")]
    pub hostname: Option<String>,
    /// With --rootfs or --image: set an environment variable; may be repeated
    #[arg(long, value_name = "KEY=VALUE", requires = "own_root", value_parser = parse_variable)]
    pub env: Vec<String>,
    /// With --rootfs or --image: the program's working directory [default: the image's, or /]
    #[arg(long, value_name = "DIR", requires = "own_root", value_parser = parse_directory)]
    pub workdir: Option<PathBuf>,
    /// With --rootfs or --image: the program's user and group, by number [default: the image's, or 0:0]
    #[arg(long, value_name = "UID[:GID]", requires = "own_root", value_parser = parse_user)]
    pub user: Option<(u32, u32)>,
    /// With --rootfs or --image: also a user namespace: root inside is an unprivileged user outside
    #[arg(long, requires = "own_root")]
    pub user_namespace: bool,
    /// With --rootfs or --image: an empty network of its own, or the host's [default: none]
    #[arg(long, value_name = "none|host", requires = "own_root", hide_possible_values = true)]
    pub network: Option<NetworkArg>,
    /// With --rootfs or --image: mount a file or directory of the host; may be repeated
    #[arg(long, value_name = "SOURCE:TARGET[:ro]", requires = "own_root")]
    pub mount: Vec<Bind>,
    /// With --rootfs or --image: memory limit: 64M, 2G
    #[arg(long, value_name = "BYTES", requires = "own_root", value_parser = parse_bytes)]
    pub memory: Option<u64>,
    /// With --rootfs or --image: processor limit: 0.5, 2
    #[arg(long, value_name = "N", requires = "own_root", value_parser = parse_processors)]
    pub cpus: Option<u64>,
    /// With --rootfs or --image: limit of processes and threads
    #[arg(long, value_name = "N", requires = "own_root", value_parser = parse_processes)]
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
    /// Whether the container has a root file system of its own.
    pub fn is_given(&self) -> bool {
        self.rootfs.is_some() || self.image.is_some() || self.bundle.is_some()
    }

    /// Converts to the library's type; `None` without --rootfs and --image.
    pub fn options(&self) -> Option<RootOptions> {
        let root = match (&self.rootfs, &self.image) {
            (Some(directory), _) => RootSource::Directory(directory.clone()),
            (None, Some(name)) => RootSource::Image { name: name.clone(), pull: self.pull },
            (None, None) => return None,
        };
        Some(RootOptions {
            root,
            read_write: self.read_write,
            terminal: is_interactive(),
            hostname: self.hostname.clone(),
            variables: self.env.clone(),
            directory: self.workdir.clone(),
            user: self.user,
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
