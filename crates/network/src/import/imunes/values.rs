//! Values of IMUNES' settings.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_saphyr::Spanned;

/// Settings by key. All of them are noted as left out, unless the reader takes them.
pub(super) type Settings = BTreeMap<String, Spanned<Value>>;

/// A scalar as it was written.
pub(super) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

/// The items of a list, which may be JSON's or one of Tcl: words between spaces.
pub(super) fn list(value: &Value) -> Vec<String> {
    match value.as_array() {
        Some(items) => items.iter().map(text).collect(),
        None => text(value).split_whitespace().map(str::to_string).collect(),
    }
}

/// Whether a setting is on.
pub(super) fn is_on(value: Option<&Spanned<Value>>) -> bool {
    value.is_some_and(|one| ["1", "true", "enabled", "on"].contains(&text(&one.value).as_str()))
}
