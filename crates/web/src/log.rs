//! A log of what people do: one line of JSON each, on standard error.

use std::io::Write;

use lorentz_control::HostNow;
use serde_json::{json, Value};

/// Writes a line: who did what. `details` is an object.
pub fn action(what: &str, peer: &str, details: Value) {
    let wall = HostNow::read().unwrap_or_default().wall;
    let mut line = json!({ "time": wall.to_string(), "what": what, "peer": peer });
    if let (Some(line), Value::Object(details)) = (line.as_object_mut(), details) {
        line.extend(details);
    }
    // A log that nobody reads any more stops nothing.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
