//! Control of a running watcher (go on, stop, reset, show) through an abstract socket, which ends with its process.

use std::fs;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};

use crate::error::PacketsError;
use crate::namespace::Namespace;

const SOCKET_PREFIX: &str = "lorentz-latency/";
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Length limit of an order, bytes.
const MAX_REQUEST_LEN: u64 = 4096;

/// An order to a watcher, about one namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WatchOrder {
    /// Continue watching the namespace.
    On,
    /// Stop for now.
    Off,
    /// Reset the statistics.
    Reset,
    /// Answer with the statistics.
    Show,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct ControlRequest {
    pub order: WatchOrder,
    pub cookie: u64,
}

/// Listens for orders to this process.
pub(crate) fn listen() -> io::Result<UnixListener> {
    let name = format!("{SOCKET_PREFIX}{}", std::process::id());
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Takes one order and answers with the result of `obey`. Ignores orders from users other than root and the user of this process.
pub(crate) fn serve(
    listener: &UnixListener,
    obey: impl FnOnce(&ControlRequest) -> Option<serde_json::Value>,
) -> io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    let uid = getsockopt(&stream, PeerCredentials)?.uid();
    if uid != 0 && uid != geteuid().as_raw() {
        return Ok(());
    }
    let mut bytes = Vec::new();
    Read::by_ref(&mut stream).take(MAX_REQUEST_LEN).read_to_end(&mut bytes)?;
    let answer = serde_json::from_slice(&bytes).ok().and_then(|request| obey(&request));
    stream.write_all(serde_json::to_string(&answer)?.as_bytes())
}

/// Sends `order` about `namespace` to all its watchers. Returns the answer of each.
///
/// # Errors
///
/// [`PacketsError::NotWatched`] if no process watches the namespace.
pub fn send_order(
    order: WatchOrder,
    namespace: &Namespace,
) -> Result<Vec<serde_json::Value>, PacketsError> {
    let request =
        serde_json::to_vec(&ControlRequest { order, cookie: namespace.cookie }).unwrap_or_default();
    let ask = |name: String| -> io::Result<serde_json::Value> {
        let mut stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        stream.write_all(&request)?;
        stream.shutdown(Shutdown::Write)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(serde_json::from_str(&answer)?)
    };
    // A watcher that ends meanwhile watches nothing.
    let answers = watchers()?.into_iter().filter_map(|name| ask(name).ok());
    let answers: Vec<_> = answers.filter(|answer| !answer.is_null()).collect();
    if answers.is_empty() {
        return Err(PacketsError::NotWatched(namespace.name.clone()));
    }
    Ok(answers)
}

/// Lists the names of all watchers' sockets in this network namespace.
fn watchers() -> io::Result<Vec<String>> {
    let sockets = fs::read_to_string("/proc/self/net/unix")?;
    let names =
        sockets.lines().filter_map(|line| line.split_whitespace().last()?.strip_prefix('@'));
    let mut names: Vec<String> =
        names.filter(|name| name.starts_with(SOCKET_PREFIX)).map(String::from).collect();
    names.sort();
    // A connection has the name of its listener too.
    names.dedup();
    Ok(names)
}
