//! Terminals by WebSocket: a shell in a container, by `lorentz exec`.
//!
//! Binary messages are the bytes of the terminal, both ways. Text from the page is a new size; the last text to the page is the exit
//! status. The page takes what a program writes for untrusted text; this server looks at none of it. A page that reads slowly
//! slows its program down, as a slow terminal does.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Extension, Query, State};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use lorentz_container::is_name;
use nix::sys::signal::{killpg, Signal};
use nix::unistd::Pid;
use serde::Deserialize;
use serde_json::json;
use tokio::process::{Child, Command};

use crate::app::App;
use crate::guard;
use crate::listen::Peer;
use crate::log;
use crate::pty::Terminal;
use crate::reply::{Answer, Refusal};
use crate::types::{TerminalEnd, TerminalSize};

/// Greatest size of a terminal.
const MAX_SIDE: u16 = 1_000;
/// Longest message of a page: what a person pastes.
const MAX_MESSAGE: usize = 1 << 20;
/// Bytes read at once.
const BUFFER_LEN: usize = 32 * 1024;
/// Time for a shell to end when its terminal closes.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// Starts the first of these shells that the container has: the one of the person who started the server, bash, sh. The words are
/// fixed; nothing of a request is in them.
const SHELL: [&str; 3] = [
    "sh",
    "-c",
    "for shell in \"$SHELL\" bash; do command -v \"$shell\" >/dev/null 2>&1 && exec \"$shell\"; done; exec sh",
];

/// The query of a terminal.
#[derive(Deserialize)]
pub struct TerminalQuery {
    container: String,
    #[serde(default = "columns")]
    columns: u16,
    #[serde(default = "rows")]
    rows: u16,
}

fn columns() -> u16 {
    80
}

fn rows() -> u16 {
    24
}

/// `GET /api/v1/terminal`, as a WebSocket.
pub async fn terminal(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    Query(query): Query<TerminalQuery>,
    upgrade: WebSocketUpgrade,
) -> Answer {
    if app.read_only {
        return Err(guard::read_only());
    }
    let name = query.container;
    if !is_name(&name) || app.state.container(&name).is_err() {
        return Err(Refusal::unknown("container: no such container"));
    }
    let [columns, rows] = [query.columns, query.rows].map(|side| side.clamp(1, MAX_SIDE));
    let place = app.terminals.clone().try_acquire_owned();
    let place = place.map_err(|_| {
        Refusal::too_many("terminal: expected at most 16 terminals and captures at once")
    })?;
    let mut command = Command::new(&app.lorentz);
    command.arg("exec").arg(&name).args(SHELL).env("TERM", "xterm-256color").kill_on_drop(true);
    let started = Terminal::start(&mut command, columns, rows);
    let (terminal, child) = started.map_err(Refusal::failed)?;
    log::action("terminal", &peer.0, json!({ "container": name }));
    Ok(upgrade.max_message_size(MAX_MESSAGE).on_upgrade(move |socket| async move {
        let _place = place;
        let status = converse(terminal, child, socket).await;
        log::action("terminal closed", &peer.0, json!({ "container": name, "status": status }));
    }))
}

/// Carries bytes both ways until one side ends. Returns the shell's exit status.
async fn converse(terminal: Terminal, mut child: Child, socket: WebSocket) -> i32 {
    let (mut to_page, mut from_page) = socket.split();
    tokio::select! {
        () = show(&terminal, &mut to_page) => {}
        () = type_in(&terminal, &mut from_page) => {}
    }
    // Its end of the terminal hangs up, and with it all programs in the terminal.
    drop(terminal);
    let status = match tokio::time::timeout(END_TIMEOUT, child.wait()).await {
        Ok(status) => status.ok().and_then(|status| status.code()).unwrap_or(128),
        Err(_) => {
            end(&child);
            child.wait().await.ok().and_then(|status| status.code()).unwrap_or(128)
        }
    };
    let text = serde_json::to_string(&TerminalEnd { exit: status }).unwrap_or_default();
    // The page may have left.
    let _ = to_page.send(Message::Text(text.into())).await;
    let _ = to_page.close().await;
    status
}

/// Ends a shell that does not care about the end of its terminal.
fn end(child: &Child) {
    if let Some(pid) = child.id() {
        let _ = killpg(Pid::from_raw(pid as i32), Signal::SIGKILL);
    }
}

async fn show(terminal: &Terminal, page: &mut SplitSink<WebSocket, Message>) {
    let mut buffer = vec![0; BUFFER_LEN];
    while let Ok(size @ 1..) = terminal.read(&mut buffer).await {
        let message = Message::Binary(buffer[..size].to_vec().into());
        if page.send(message).await.is_err() {
            return;
        }
    }
}

async fn type_in(terminal: &Terminal, page: &mut SplitStream<WebSocket>) {
    while let Some(Ok(message)) = page.next().await {
        let done = match message {
            Message::Binary(bytes) => terminal.write(&bytes).await,
            Message::Text(text) => match serde_json::from_str::<TerminalSize>(&text) {
                Ok(TerminalSize { columns, rows }) => {
                    terminal.resize(columns.clamp(1, MAX_SIDE), rows.clamp(1, MAX_SIDE))
                }
                // A message of another kind means nothing.
                Err(_) => Ok(()),
            },
            Message::Close(_) => return,
            Message::Ping(_) | Message::Pong(_) => Ok(()),
        };
        if done.is_err() {
            return;
        }
    }
}
