//! Conditions of each request, in this order:
//!
//! 1. **Host** is one of a fixed list. A page of another site whose name suddenly resolves to this host (DNS rebinding) fails
//!    here, also where it asks for the page itself or for a WebSocket: the browser sends its own name for this server.
//! 2. **Origin**, where the browser sends it, is this very server; a WebSocket must have it. **Sec-Fetch-Site**, where it is
//!    sent, says that no other site asks. Both are compared with the checked Host, never with an unchecked one.
//! 3. A **session** for all of the interface, by its cookie; for a change also the token in `X-Lorentz-Token`.
//! 4. The **type** of the body: JSON, and plain text for files. Forms of other sites can send neither without asking first, and
//!    this server answers no such question (CORS).
//! 5. `--read-only`.
//!
//! Each answer has headers that let the page load nothing from elsewhere, and no other page frame it.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{header, request::Parts, HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::app::App;
use crate::names::{cookie_name, Names};
use crate::reply::Refusal;
use crate::secrets::BrowserSession;

/// The header of a change.
pub const CHANGE_TOKEN: &str = "x-lorentz-token";
/// Where a browser gets its session.
pub const SESSION_PATH: &str = "/api/v1/session";
const INTERFACE: &str = "/api/";
/// POST requests that change nothing.
const HARMLESS: [&str; 4] = [SESSION_PATH, "/api/v1/check", "/api/v1/import", "/api/v1/do"];

/// Checks each request, and adds the headers of each answer.
pub async fn check(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let mut answer = match pass(&app, &parts) {
        Ok(session) => {
            if let Some(session) = session {
                parts.extensions.insert(session);
            }
            next.run(Request::from_parts(parts, body)).await
        }
        Err(refusal) => refusal.into_response(),
    };
    add_headers(answer.headers_mut());
    answer
}

fn pass(app: &App, parts: &Parts) -> Result<Option<BrowserSession>, Refusal> {
    let host = checked_host(&app.names, parts)?;
    check_origin(&app.names, host, parts)?;
    let path = parts.uri.path();
    let is_read = matches!(parts.method, Method::GET | Method::HEAD);
    if !is_read && !matches!(parts.method, Method::POST | Method::PUT) {
        let what = format!("{}: expected GET, POST or PUT", parts.method);
        return Err(Refusal(StatusCode::METHOD_NOT_ALLOWED, what));
    }
    if !path.starts_with(INTERFACE) {
        return Ok(None);
    }
    let is_begin = path == SESSION_PATH && parts.method == Method::POST;
    let session = if is_begin { None } else { Some(session_of(app, host, &parts.headers)?) };
    if !is_read {
        if let Some(session) = &session {
            let given = text(&parts.headers, CHANGE_TOKEN).unwrap_or_default();
            if !session.change.is(given) {
                let what = "X-Lorentz-Token: expected the token that the session began with";
                return Err(Refusal(StatusCode::FORBIDDEN, what.into()));
            }
        }
        check_type(parts)?;
        if app.read_only && !HARMLESS.contains(&path) {
            return Err(read_only());
        }
    }
    Ok(session)
}

/// The refusal of `--read-only`.
pub fn read_only() -> Refusal {
    Refusal(StatusCode::FORBIDDEN, "the server runs with --read-only".into())
}

/// Returns the name by which the client reached the server.
fn checked_host<'a>(names: &Names, parts: &'a Parts) -> Result<&'a str, Refusal> {
    let wrong = || {
        let what = "Host: not a name of this server; 'lorentz web --name HOST' adds one";
        Refusal(StatusCode::MISDIRECTED_REQUEST, what.into())
    };
    let mut all = parts.headers.get_all(header::HOST).iter();
    let host = all.next().and_then(|host| host.to_str().ok()).ok_or_else(wrong)?;
    let is_only = all.next().is_none();
    let also = parts.uri.authority().map(axum::http::uri::Authority::as_str);
    let is_known = is_only && names.has(host) && also.is_none_or(|also| also == host);
    is_known.then_some(host).ok_or_else(wrong)
}

fn check_origin(names: &Names, host: &str, parts: &Parts) -> Result<(), Refusal> {
    let refuse = |what: &str| Err(Refusal(StatusCode::FORBIDDEN, what.to_string()));
    let mut origins = parts.headers.get_all(header::ORIGIN).iter();
    match origins.next() {
        None if parts.headers.contains_key(header::UPGRADE) => {
            return refuse("Origin: expected with a WebSocket");
        }
        None => {}
        Some(origin) => {
            let own = names.origin(host);
            if origin.as_bytes() != own.as_bytes() || origins.next().is_some() {
                return refuse("Origin: another site asks; expected this server's own page");
            }
        }
    }
    match text(&parts.headers, "sec-fetch-site") {
        None | Some("same-origin" | "none") => Ok(()),
        Some(_) => refuse("Sec-Fetch-Site: another site asks; expected this server's own page"),
    }
}

/// Returns the session whose cookie a request to `host` has.
pub(crate) fn session_of(
    app: &App,
    host: &str,
    headers: &HeaderMap,
) -> Result<BrowserSession, Refusal> {
    let name = cookie_name(host, &app.names);
    let cookies = headers.get_all(header::COOKIE).iter();
    let pairs = cookies.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(';'));
    let value = pairs.filter_map(|pair| pair.trim().split_once('=')).find(|(key, _)| *key == name);
    let session = value.and_then(|(_, value)| app.sessions.find(value));
    session.ok_or_else(|| {
        let what = "no session: open the address with the token that 'lorentz web' prints";
        Refusal(StatusCode::UNAUTHORIZED, what.into())
    })
}

fn check_type(parts: &Parts) -> Result<(), Refusal> {
    let expected = if parts.method == Method::PUT { "text/plain" } else { "application/json" };
    let given = text(&parts.headers, header::CONTENT_TYPE.as_str()).unwrap_or_default();
    let kind = given.split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case(expected) {
        return Ok(());
    }
    let what = format!("Content-Type: expected {expected}");
    Err(Refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, what))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// The page may load its own files only, and talk to its own server only.
const POLICY: &str = "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; \
    connect-src 'self'; worker-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

fn add_headers(headers: &mut HeaderMap) {
    let always = [
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
    ];
    for (name, value) in always {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    // A report has a policy of its own, which is stricter but for its styles.
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(POLICY));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}
