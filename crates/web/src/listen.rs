//! Where the server listens: a TCP port, with or without TLS, or a unix socket. Each connection is bounded in number, and in how
//! long its headers may take.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::body::Body;
use axum::Router;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use nix::sys::stat::{umask, Mode};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{signal, SignalKind};
use tokio::sync::Semaphore;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::TlsAcceptor;
use tower_service::Service;

use crate::args::WebArgs;
use crate::wrong_input::WrongInput;

/// Most connections at once.
const MAX_CONNECTIONS: usize = 256;
/// Longest time for the headers of a request, and for the handshake of TLS.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a failure to accept a connection: there may be no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The other end of a connection, for the log.
#[derive(Clone, Debug)]
pub struct Peer(pub String);

/// Where the server listens.
pub struct Listener {
    kind: Kind,
    tls: Option<TlsAcceptor>,
}

enum Kind {
    Tcp(TcpListener, SocketAddr),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// Begins to listen.
    pub async fn bind(args: &WebArgs) -> anyhow::Result<Listener> {
        let tls = match (&args.tls_cert, &args.tls_key) {
            (Some(cert), Some(key)) => Some(acceptor(cert, key)?),
            _ => None,
        };
        let kind = match &args.socket {
            Some(path) => Kind::Unix(bind_socket(path)?, std::path::absolute(path)?),
            None => {
                let local = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
                let address = args.listen.unwrap_or(local);
                if !address.ip().is_loopback() && tls.is_none() && !args.insecure {
                    let what = format!(
                        "--listen {address}: others may read what passes; expected --tls-cert and --tls-key, or --insecure"
                    );
                    return Err(WrongInput(what).into());
                }
                let bound = TcpListener::bind(address).await;
                let listener = bound.with_context(|| format!("--listen {address}"))?;
                let address = listener.local_addr()?;
                Kind::Tcp(listener, address)
            }
        };
        Ok(Listener { kind, tls })
    }

    /// Its address; `None` of a unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.kind {
            Kind::Tcp(_, address) => Some(*address),
            Kind::Unix(..) => None,
        }
    }

    /// Prints where a browser finds the page. The token is in the fragment, which browsers send nowhere.
    pub fn tell(&self, token: &str) {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        match &self.kind {
            Kind::Tcp(_, address) => println!("{scheme}://{address}/#{token}"),
            Kind::Unix(_, path) => println!(
                "ssh -L 8080:{} {}  # then http://localhost:8080/#{token}",
                path.display(),
                nix::unistd::gethostname().unwrap_or_default().to_string_lossy(),
            ),
        }
    }

    /// Serves until a signal ends it.
    pub async fn serve(self, router: Router) -> anyhow::Result<()> {
        let mut ends = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()]
            .map(signal)
            .into_iter()
            .collect::<Result<Vec<_>, _>>()?;
        let [interrupt, terminate, hangup] = &mut ends[..] else { return Ok(()) };
        tokio::select! {
            () = self.accept(router) => {}
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
        if let Kind::Unix(_, path) = &self.kind {
            let _ = fs::remove_file(path);
        }
        Ok(())
    }

    async fn accept(&self, router: Router) {
        let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let Ok(place) = room.clone().acquire_owned().await else { return };
            let router = router.clone();
            match &self.kind {
                Kind::Tcp(listener, _) => {
                    let Ok((stream, peer)) = listener.accept().await else {
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                        continue;
                    };
                    // Changes are small, and each is to be seen at once.
                    let _ = stream.set_nodelay(true);
                    let peer = Peer(peer.to_string());
                    let tls = self.tls.clone();
                    tokio::spawn(async move {
                        let _place = place;
                        let Some(tls) = tls else { return converse(stream, peer, router).await };
                        let shaken = tokio::time::timeout(HEADER_TIMEOUT, tls.accept(stream)).await;
                        if let Ok(Ok(stream)) = shaken {
                            converse(stream, peer, router).await;
                        }
                    });
                }
                Kind::Unix(listener, _) => {
                    let Ok((stream, _)) = listener.accept().await else {
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                        continue;
                    };
                    let Some(peer) = allowed_peer(&stream) else { continue };
                    tokio::spawn(async move {
                        let _place = place;
                        converse(stream, peer, router).await;
                    });
                }
            }
        }
    }
}

/// Serves one connection to its end.
async fn converse<S>(stream: S, peer: Peer, router: Router)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer.clone());
        router.clone().call(request)
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    // The browser closes connections as it likes: an error is an end.
    let _ = builder.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
}

/// Returns the process at the other end of a unix socket if its user may use the server: this user, or root.
fn allowed_peer(stream: &tokio::net::UnixStream) -> Option<Peer> {
    let peer = stream.peer_cred().ok()?;
    let own = nix::unistd::geteuid().as_raw();
    let may = peer.uid() == own || peer.uid() == 0;
    may.then(|| Peer(format!("uid {} pid {}", peer.uid(), peer.pid().unwrap_or(0))))
}

/// Binds the socket at `path`, and takes the place of one at which nobody listens.
fn bind_socket(path: &Path) -> anyhow::Result<UnixListener> {
    let at = || format!("--socket {}", path.display());
    if let Ok(found) = fs::symlink_metadata(path) {
        let in_use = std::os::unix::net::UnixStream::connect(path).is_ok();
        if !found.file_type().is_socket() || in_use {
            let what = format!("{}: in use; expected a path where nothing is", at());
            return Err(WrongInput(what).into());
        }
        fs::remove_file(path).with_context(at)?;
    }
    // No moment with other permissions. Nothing else of this process makes files yet.
    let before = umask(Mode::from_bits_truncate(0o177));
    let bound = UnixListener::bind(path);
    umask(before);
    let listener = bound.with_context(at)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).with_context(at)?;
    Ok(listener)
}

fn acceptor(cert: &Path, key: &Path) -> anyhow::Result<TlsAcceptor> {
    let wrong = |flag: &str, path: &Path, expected: &str, why: String| {
        WrongInput(format!("{flag} {}: {why}; expected {expected}", path.display()))
    };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(cert)
        .and_then(Iterator::collect)
        .map_err(|error| wrong("--tls-cert", cert, "certificates in PEM", error.to_string()))?;
    let secret = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| wrong("--tls-key", key, "a key in PEM", error.to_string()))?;
    let config =
        ServerConfig::builder().with_no_client_auth().with_single_cert(chain, secret).map_err(
            |error| wrong("--tls-cert", cert, "a certificate of --tls-key", error.to_string()),
        )?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
