//! The server: its start, the paths, and sessions.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::{header, HeaderMap, HeaderValue, StatusCode};
use axum::routing::{get, post};
use axum::Router;
use lorentz_container::StateDir;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::app::{App, MAX_STREAMS, MAX_TERMINALS, MAX_WORK};
use crate::args::WebArgs;
use crate::listen::{Listener, Peer};
use crate::live::Live;
use crate::names::{cookie_name, Names};
use crate::reply::{self, Answer, Refusal};
use crate::root::Root;
use crate::secrets::{BrowserSession, Secret, Sessions};
use crate::types::{About, Session, SessionRequest};
use crate::{
    actions, capture, check, edits, files, guard, log, metrics, output, page, report, stream,
    terminal, waits,
};

/// Serves until a signal ends it.
///
/// # Errors
///
/// If the settings are wrong, or the address cannot be had.
pub async fn serve(args: &WebArgs) -> anyhow::Result<()> {
    let token = match &args.token_file {
        Some(path) => Secret::from_file("--token-file", path)?,
        None => Secret::new().context("making a token")?,
    };
    let metrics_token = args.metrics_token_file.as_deref();
    let metrics_token =
        metrics_token.map(|path| Secret::from_file("--metrics-token-file", path)).transpose()?;
    let root = Root::at(&args.dir)?;
    let state = StateDir::open()?;
    let lorentz = lorentz_beside()?;
    let listener = Listener::bind(args).await?;
    let address = listener.address();
    let app = Arc::new(App {
        names: Names::new(address, &args.names, args.tls_cert.is_some()),
        read_only: args.read_only,
        root,
        lorentz,
        live: Live::start(state.clone())?,
        state,
        sessions: Sessions::default(),
        streams: Arc::new(Semaphore::new(MAX_STREAMS)),
        terminals: Arc::new(Semaphore::new(MAX_TERMINALS)),
        work: Arc::new(Semaphore::new(MAX_WORK)),
        token,
        metrics_token,
    });
    listener.tell(app.token.text());
    listener.serve(router(app)).await
}

/// Finds the command that does what a person asks for: it is installed beside this program.
fn lorentz_beside() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("this program's own file")?;
    let lorentz = own.with_file_name("lorentz");
    anyhow::ensure!(
        lorentz.exists(),
        "{}: it is not there; it is installed beside lorentz-web",
        lorentz.display()
    );
    Ok(lorentz)
}

fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/api/v1/session", post(begin_session).get(show_session))
        .route("/api/v1/about", get(about))
        .route("/api/v1/state", get(stream::state))
        .route("/api/v1/live", get(stream::stream))
        .route("/api/v1/do", post(actions::act))
        .route("/api/v1/files", get(files::list))
        .route("/api/v1/files/{*path}", get(files::read).put(files::write))
        .route("/api/v1/check", post(check::check))
        .route("/api/v1/import", post(check::import))
        .route("/api/v1/schema", get(check::schema))
        .route("/api/v1/openapi.json", get(check::interface))
        .route("/api/v1/containers/{name}/waits", get(waits::waits))
        .route("/api/v1/networks/{name}/nodes/{node}/output", get(output::output))
        .route("/api/v1/networks/{name}/topology", get(edits::topology))
        .route("/api/v1/history", get(stream::history))
        .route("/api/v1/report", get(report::report))
        .route("/api/v1/terminal", get(terminal::terminal))
        .route("/api/v1/capture", get(capture::capture))
        .route("/metrics", get(metrics::metrics))
        .fallback(page::file)
        .layer(axum::middleware::from_fn_with_state(app.clone(), guard::check))
        .with_state(app)
}

async fn begin_session(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let request: SessionRequest = reply::json_of(body).await?;
    if !app.token.is(&request.token) {
        log::action("session refused", &peer.0, json!({}));
        let what = "token: expected the one of the address that 'lorentz web' printed";
        return Err(Refusal(StatusCode::UNAUTHORIZED, what.into()));
    }
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    // A second tab of a browser has the first one's session: one cookie serves both.
    let session = match guard::session_of(&app, host, &headers) {
        Ok(session) => session,
        Err(_) => {
            log::action("session", &peer.0, json!({}));
            app.sessions.begin().map_err(Refusal::failed)?
        }
    };
    let secure = if app.names.is_tls() { "; Secure" } else { "" };
    let cookie = format!(
        "{}={}; Path=/; HttpOnly; SameSite=Strict{secure}",
        cookie_name(host, &app.names),
        session.cookie.text()
    );
    let mut answer = reply::json(&Session { change_token: session.change.text().to_string() })?;
    let cookie = HeaderValue::from_str(&cookie).map_err(Refusal::failed)?;
    answer.headers_mut().insert(header::SET_COOKIE, cookie);
    Ok(answer)
}

/// For a second tab, which has the cookie and not the token. No other origin can read the answer.
async fn show_session(Extension(session): Extension<BrowserSession>) -> Answer {
    reply::json(&Session { change_token: session.change.text().to_string() })
}

async fn about(State(app): State<Arc<App>>) -> Answer {
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten();
    let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    reply::json(&About {
        version: env!("CARGO_PKG_VERSION").to_string(),
        dir: app.root.path().display().to_string(),
        read_only: app.read_only,
        user: user.map_or_else(|| nix::unistd::geteuid().to_string(), |user| user.name),
        host: host.unwrap_or_default(),
        cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
        max_terminals: MAX_TERMINALS as u32,
    })
}
