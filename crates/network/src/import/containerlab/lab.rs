//! The shape of a topology of containerlab.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use serde_saphyr::Spanned;

/// Settings by key. All of them are noted as left out, unless the reader takes them.
pub(super) type Settings = BTreeMap<String, Spanned<Value>>;

#[derive(Deserialize)]
pub(super) struct Lab {
    pub name: Spanned<String>,
    pub topology: Topology,
    pub mgmt: Option<Spanned<Value>>,
    pub prefix: Option<Spanned<Value>>,
    #[serde(flatten)]
    pub others: Settings,
}

#[derive(Deserialize)]
pub(super) struct Topology {
    #[serde(default)]
    pub defaults: Settings,
    #[serde(default)]
    pub kinds: BTreeMap<String, Settings>,
    #[serde(default)]
    pub groups: BTreeMap<String, Settings>,
    pub nodes: BTreeMap<String, Option<Spanned<Settings>>>,
    #[serde(default)]
    pub links: Vec<Spanned<Settings>>,
    #[serde(flatten)]
    pub others: Settings,
}

/// A scalar as it was written.
pub(super) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}
