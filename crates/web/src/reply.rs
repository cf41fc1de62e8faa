//! Answers: JSON, and errors of one line.

use axum::body::Body;
use axum::http::{header, HeaderValue, Response, StatusCode};
use axum::response::IntoResponse;
use serde::de::DeserializeOwned;
use serde::Serialize;

use crate::types::Failure;

/// Longest body of a request.
pub const MAX_BODY: usize = 1 << 20;
/// Longest wait for a body.
const BODY_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(20);

/// The answer to a request that is refused, or that fails.
#[derive(Debug)]
pub struct Refusal(pub StatusCode, pub String);

/// An answer.
pub type Answer = Result<Response<Body>, Refusal>;

impl Refusal {
    /// The request has a wrong value; `what` names it and what is accepted.
    pub fn wrong(what: impl Into<String>) -> Refusal {
        Refusal(StatusCode::BAD_REQUEST, what.into())
    }

    /// There is no such thing.
    pub fn unknown(what: impl Into<String>) -> Refusal {
        Refusal(StatusCode::NOT_FOUND, what.into())
    }

    /// There are too many of the kind already.
    pub fn too_many(what: impl Into<String>) -> Refusal {
        Refusal(StatusCode::TOO_MANY_REQUESTS, what.into())
    }

    /// The server or the system fails.
    pub fn failed(error: impl std::fmt::Display) -> Refusal {
        Refusal(StatusCode::INTERNAL_SERVER_ERROR, one_line(&format!("{error:#}")))
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response<Body> {
        let Refusal(status, error) = self;
        let mut answer = json_body(&Failure { error });
        *answer.status_mut() = status;
        answer
    }
}

/// Answers with `value` as JSON.
pub fn json(value: &impl Serialize) -> Answer {
    Ok(json_body(value))
}

fn json_body(value: &impl Serialize) -> Response<Body> {
    // The types of the interface have no maps with keys that are no text.
    let text = serde_json::to_vec(value).unwrap_or_default();
    with_type(text, "application/json")
}

/// Answers with `body`, of type `kind`.
pub fn with_type(body: impl Into<Body>, kind: &'static str) -> Response<Body> {
    let mut answer = Response::new(body.into());
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

/// Reads a body of at most [`MAX_BODY`] bytes.
pub async fn bytes_of(body: Body) -> Result<Vec<u8>, Refusal> {
    let read = tokio::time::timeout(BODY_TIMEOUT, axum::body::to_bytes(body, MAX_BODY)).await;
    match read {
        Err(_) => Err(Refusal(StatusCode::REQUEST_TIMEOUT, "the body did not come in time".into())),
        Ok(Err(_)) => {
            let what = format!("body: expected at most {MAX_BODY} bytes");
            Err(Refusal(StatusCode::PAYLOAD_TOO_LARGE, what))
        }
        Ok(Ok(bytes)) => Ok(bytes.into()),
    }
}

/// Reads a body of JSON. [`crate::guard`] has checked that it is sent as such.
pub async fn json_of<T: DeserializeOwned>(body: Body) -> Result<T, Refusal> {
    let bytes = bytes_of(body).await?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Refusal::wrong(one_line(&format!("body: {error}"))))
}

/// Puts `text` into one line.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
