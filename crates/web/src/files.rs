//! Topology files of the server's directory: listed, read and written.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Path as UrlPath, State};
use axum::http::{header, HeaderMap, HeaderValue, StatusCode};
use lorentz_network::check;
use lorentz_network::import::Format;
use serde_json::json;

use crate::app::App;
use crate::listen::Peer;
use crate::log;
use crate::reply::{self, Answer, Refusal, MAX_BODY};
use crate::root::{version, Root};
use crate::types::{FileEntry, FileKind, Nanos, Written};

/// Folders below folders, as far as files are listed.
const MAX_DEPTH: usize = 4;
/// Most entries that a listing looks at.
const MAX_ENTRIES: usize = 5_000;
/// Most files in a listing.
const MAX_LISTED: usize = 1_000;

/// `GET /api/v1/files`.
pub async fn list(State(app): State<Arc<App>>) -> Answer {
    let running = lorentz_network::Network::list(&app.state).unwrap_or_default();
    let files = tokio::task::spawn_blocking(move || {
        let mut walk = Walk { root: &app.root, running: &running, seen: 0, found: Vec::new() };
        walk.folder("", 0);
        walk.found.sort_by(|one, other| one.path.cmp(&other.path));
        walk.found
    });
    reply::json(&files.await.map_err(Refusal::failed)?)
}

struct Walk<'a> {
    root: &'a Root,
    running: &'a [String],
    seen: usize,
    found: Vec<FileEntry>,
}

impl Walk<'_> {
    /// Adds the files of a folder, whose path ends with `/` or is empty. Links to folders are not followed.
    fn folder(&mut self, path: &str, depth: usize) {
        let Ok(entries) = fs::read_dir(self.root.by_descriptor(path)) else { return };
        for entry in entries.filter_map(Result::ok) {
            self.seen += 1;
            if self.seen > MAX_ENTRIES || self.found.len() >= MAX_LISTED {
                return;
            }
            let (Ok(name), Ok(kind)) = (entry.file_name().into_string(), entry.file_type()) else {
                continue;
            };
            let path = format!("{path}{name}");
            if self.root.full(&path).is_err() {
                continue;
            }
            if kind.is_dir() {
                if depth < MAX_DEPTH && !["node_modules", "target"].contains(&name.as_str()) {
                    self.folder(&format!("{path}/"), depth + 1);
                }
            } else if let Some(entry) = self.entry(path, &name) {
                self.found.push(entry);
            }
        }
    }

    fn entry(&self, path: String, name: &str) -> Option<FileEntry> {
        let is_yaml = name.ends_with(".yaml") || name.ends_with(".yml");
        let format = Format::of(Path::new(name));
        if !is_yaml && format == Format::Lorentz {
            return None;
        }
        let about = self.root.open(&path).ok()?.metadata().ok().filter(fs::Metadata::is_file)?;
        let topology = (format == Format::Lorentz && about.len() <= MAX_BODY as u64)
            .then(|| self.root.read(&path).ok())
            .flatten()
            .filter(|text| text.lines().any(|line| line.starts_with("topology:")));
        let (kind, network) = match &topology {
            _ if format != Format::Lorentz => (FileKind::Scenario, None),
            Some(text) => (FileKind::Topology, name_in(&path, text)),
            None => (FileKind::Other, None),
        };
        let modified = about.mtime().saturating_mul(1_000_000_000) + about.mtime_nsec();
        Some(FileEntry {
            path,
            kind,
            running: network.as_ref().is_some_and(|name| self.running.contains(name)),
            name: network,
            bytes: about.len(),
            modified_ns: Nanos(modified),
        })
    }
}

/// Returns the name of the network of a topology file; if it has errors, the name on its line `name:`.
fn name_in(path: &str, text: &str) -> Option<String> {
    if let Ok(plan) = check::plan_from_text(path, text) {
        return Some(plan.name);
    }
    let line = text.lines().find_map(|line| line.strip_prefix("name:"))?.trim();
    let name = line.trim_matches(|c| c == '"' || c == '\'');
    lorentz_container::is_name(name).then(|| name.to_string())
}

/// `GET /api/v1/files/PATH`.
pub async fn read(State(app): State<Arc<App>>, UrlPath(path): UrlPath<String>) -> Answer {
    let text = app.root.read(&path)?;
    let etag = HeaderValue::from_str(&version(text.as_bytes())).map_err(Refusal::failed)?;
    let mut answer = reply::with_type(text, "text/plain; charset=utf-8");
    answer.headers_mut().insert(header::ETAG, etag);
    Ok(answer)
}

/// `PUT /api/v1/files/PATH`.
pub async fn write(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    UrlPath(path): UrlPath<String>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let text = reply::bytes_of(body).await?;
    if std::str::from_utf8(&text).is_err() {
        return Err(Refusal::wrong("body: expected a text in UTF-8"));
    }
    let given = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let expected = match (given(header::IF_MATCH), given(header::IF_NONE_MATCH)) {
        (Some(version), None) => Some(version),
        (None, Some("*")) => None,
        _ => {
            let what =
                "If-Match: expected the version that was read, or If-None-Match: * for a new file";
            return Err(Refusal(StatusCode::PRECONDITION_REQUIRED, what.into()));
        }
    };
    let etag = app.root.write(&path, &text, expected)?;
    log::action("write", &peer.0, json!({ "path": path, "bytes": text.len() }));
    reply::json(&Written { etag })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_broken_file_is_that_on_its_line() {
        assert_eq!(name_in("a", "name: 'lab'\ntopology: [").as_deref(), Some("lab"));
        assert_eq!(name_in("a", "name: a b\ntopology: ["), None);
    }
}
