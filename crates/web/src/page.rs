//! The page: its files are inside this program, and nothing is loaded from elsewhere.

use std::collections::HashMap;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

use axum::body::{Body, Bytes};
use axum::http::{header, HeaderMap, HeaderValue, Method, Response, StatusCode, Uri};
use flate2::write::GzEncoder;
use flate2::Compression;
use rust_embed::RustEmbed;

use crate::reply;

/// The files that `npm run build` in web/ makes. They may be missing: the server then says so in its place.
#[derive(RustEmbed)]
#[folder = "../../web/dist"]
#[allow_missing = true]
struct Files;

const NO_PAGE: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Lorentz</title>\
    <h1>This lorentz-web was built without its page</h1>\
    <p>Its interface works. The page needs Node 20.19 or newer: <code>make web</code> builds it, and lorentz-web with it.</p>";
/// Files whose names change with their content.
const HASHED: &str = "assets/";
/// Files shorter than this are sent as they are.
const MIN_COMPRESSED: usize = 1_024;

/// Answers with a file of the page. Addresses without a file are views, which the page shows by itself.
pub async fn file(method: Method, uri: Uri, headers: HeaderMap) -> Response<Body> {
    if method != Method::GET && method != Method::HEAD {
        return not_found();
    }
    let path = uri.path().trim_start_matches('/');
    let is_view = !path.contains('.') && !path.starts_with("api/");
    let name = if is_view { "index.html" } else { path };
    let Some(file) = Files::get(name) else {
        return if is_view {
            reply::with_type(NO_PAGE, "text/html; charset=utf-8")
        } else {
            not_found()
        };
    };
    let kind = kind_of(name);
    let takes_gzip = headers
        .get(header::ACCEPT_ENCODING)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.split(',').any(|word| word.trim().starts_with("gzip")));
    let is_text = !kind.starts_with("image/") && !kind.starts_with("font/");
    let is_compressed = takes_gzip && is_text && file.data.len() >= MIN_COMPRESSED;
    let body = match is_compressed {
        true => compressed(name, &file.data),
        false => Bytes::from(file.data.into_owned()),
    };
    let mut answer = reply::with_type(body, kind);
    let cache =
        if name.starts_with(HASHED) { "public, max-age=31536000, immutable" } else { "no-cache" };
    let head = answer.headers_mut();
    head.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
    head.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if is_compressed {
        head.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    answer
}

fn not_found() -> Response<Body> {
    let mut answer = reply::with_type("no such file\n", "text/plain; charset=utf-8");
    *answer.status_mut() = StatusCode::NOT_FOUND;
    answer
}

/// Compresses a file once.
fn compressed(name: &str, data: &[u8]) -> Bytes {
    static DONE: Mutex<Option<HashMap<String, Bytes>>> = Mutex::new(None);
    let mut done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
    let done = done.get_or_insert_default();
    if let Some(bytes) = done.get(name) {
        return bytes.clone();
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    // Writing to memory cannot fail.
    let _ = encoder.write_all(data);
    let bytes = Bytes::from(encoder.finish().unwrap_or_default());
    done.insert(name.to_string(), bytes.clone());
    bytes
}

fn kind_of(name: &str) -> &'static str {
    match name.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" | "map" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "webmanifest" => "application/manifest+json",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}
