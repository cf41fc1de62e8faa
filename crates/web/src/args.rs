//! The command line of `lorentz-web` and of `lorentz web`, which starts it.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

// `lorentz web`.
#[derive(Args, Debug)]
pub struct WebArgs {
    /// The directory whose topology files the page shows, checks and edits
    #[arg(value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Listen at this address [default: 127.0.0.1 and a free port]
    ///
    /// An address that other hosts reach needs --tls-cert and --tls-key, or --insecure. The token is needed in any case.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// Listen at a unix socket, mode 0600, for processes of this user and root
    ///
    /// From another host: ssh -L 8080:PATH HOST, and a browser at http://localhost:8080.
    #[arg(long, value_name = "PATH", conflicts_with = "listen")]
    pub socket: Option<PathBuf>,
    /// A further name under which browsers reach the server: HOST or HOST:PORT; may be repeated
    #[arg(long = "name", value_name = "HOST[:PORT]", value_parser = host_name)]
    pub names: Vec<String>,
    /// Serve by TLS, with this chain of certificates (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key", conflicts_with = "socket")]
    pub tls_cert: Option<PathBuf>,
    /// The key of the first certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Listen without TLS where others may read what passes
    #[arg(long, conflicts_with_all = ["tls_cert", "socket"])]
    pub insecure: bool,
    /// Refuse everything that changes something, and terminals
    #[arg(long)]
    pub read_only: bool,
    /// Take the token from this file of mode 0600, for a service [default: a new one at each start]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Serve /metrics for Prometheus to those who have the bearer token in this file of mode 0600
    #[arg(long, value_name = "FILE")]
    pub metrics_token_file: Option<PathBuf>,
}

/// Accepts a name as it stands in the header Host.
fn host_name(text: &str) -> Result<String, &'static str> {
    let good = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    let is_name = !text.is_empty() && text.len() <= 255 && text.chars().all(good);
    is_name
        .then(|| text.to_ascii_lowercase())
        .ok_or("expected HOST or HOST:PORT such as lab.example.org:8443")
}
