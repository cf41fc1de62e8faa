//! The types that the page and the server exchange: one place, from which the TypeScript of the page (`web/src/lib/api`) and
//! the description of the interface (`docs/openapi.json`) are made by tests.
//!
//! Instants do not fit into a number of JavaScript, so they travel as decimal text ([`Nanos`]). Durations and counts are numbers.

mod actions;
mod edits;
mod files;
mod state;

pub use actions::*;
pub use edits::*;
pub use files::*;
pub use state::*;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An instant or a long virtual duration, in nanoseconds: decimal text in JSON.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[cfg_attr(
    test,
    derive(ts_rs::TS, schemars::JsonSchema),
    ts(type = "string"),
    schemars(with = "String")
)]
pub struct Nanos(pub i64);

impl Serialize for Nanos {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Nanos {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Nanos, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Nanos).map_err(serde::de::Error::custom)
    }
}

/// An error: one line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct Failure {
    /// The reason, and what is accepted.
    pub error: String,
}

/// The token of the address that `lorentz web` prints.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct SessionRequest {
    /// The token.
    pub token: String,
}

/// A session.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct Session {
    /// The header `X-Lorentz-Token` of each request that is not a GET.
    pub change_token: String,
}

/// The server.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct About {
    /// Its version.
    pub version: String,
    /// The directory whose files it shows.
    pub dir: String,
    /// Whether it refuses each request that changes something.
    pub read_only: bool,
    /// The user whose process it is.
    pub user: String,
    /// The host's name.
    pub host: String,
    /// Number of the host's processors.
    pub cpus: u32,
    /// Most terminals and captures at once.
    pub max_terminals: u32,
}

#[cfg(test)]
mod openapi;
#[cfg(test)]
mod tests;
