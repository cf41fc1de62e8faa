//! The schedule of a topology file: changes at virtual instants, and random faults that become such changes.

use lorentz_emulator::impair::Impairments;
use lorentz_emulator::units::Delay;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_saphyr::Spanned;
use std::fmt;

/// Whether a value is the default, which is left out of the file.
pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Whether a link carries frames
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The link carries frames
    #[default]
    Up,
    /// The link carries no frames, and its interfaces have no carrier
    Down,
}

/// A change of a link, of a node's position, or of clocks, at a virtual instant
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ScheduledChange {
    /// Virtual time from the start of the network
    pub at: Delay,
    /// An end of the link, NODE:INTERFACE; the change is for frames that this end sends
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub link: Option<Spanned<String>>,
    /// The node that moves
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub node: Option<Spanned<String>>,
    /// Where the node goes: to the right, and down
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<[f64; 2]>,
    /// It walks there in a straight line, so many units of distance per virtual second [default: it is there at once]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<f64>,
    /// The nodes whose clocks change, only in rounds: a node, a list of nodes, or all
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Names>")]
    pub clock: Option<Spanned<Names>>,
    /// Their clocks step so far, as -90s
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub bump: Option<Spanned<String>>,
    /// The bump is a drift that takes so long
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub slew: Option<Spanned<String>>,
    /// Their clocks drift so much from then on, as +100ppm
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub drift: Option<Spanned<String>>,
    /// The drift ends after so long
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "for")]
    #[schemars(with = "Option<String>")]
    pub length: Option<Spanned<String>>,
    /// Their clocks step forth and back
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strobe: Option<Strobe>,
    /// Their machines are suspended for so long, as 2h: all clocks but CLOCK_MONOTONIC go on by it at once
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub suspend: Option<Spanned<String>>,
    /// The last second of their UTC day comes twice, or is left out
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leap_second: Option<LeapSecondFault>,
    /// Their clocks have no error any more
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(extend("default" = false))]
    pub reset: bool,
    /// Change both directions
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(extend("default" = false))]
    pub both: bool,
    /// Impairments that change; the rest stays
    #[serde(default, skip_serializing_if = "Impairments::is_empty")]
    pub set: Impairments,
    /// Up or down, always both directions
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
}

/// YAML on one line, as in a topology file: `{at: 1m, link: r1:eth0, state: down}`.
impl fmt::Display for ScheduledChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&flow(&serde_json::to_value(self).map_err(|_| fmt::Error)?))
    }
}

fn flow(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| format!("{key}: {}", flow(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        Value::Array(values) => {
            format!("[{}]", values.iter().map(flow).collect::<Vec<_>>().join(", "))
        }
        Value::String(text) if is_plain(text) => text.clone(),
        Value::String(text) => format!("'{}'", text.replace('\'', "''")),
        other => other.to_string(),
    }
}

/// Whether YAML reads these characters as text without quotes. A number is no text.
fn is_plain(text: &str) -> bool {
    let is_plain = |one: char| one.is_ascii_alphanumeric() || "+-._%/:".contains(one);
    let is_text = |one: char| one.is_ascii_alphabetic() || one == '%';
    let stands_free = !text.starts_with([':', '%']) && !text.ends_with(':');
    stands_free && text.chars().all(is_plain) && text.chars().any(is_text)
}

impl ScheduledChange {
    /// Leaves the clock of `node` out. Returns whether there is still something to change.
    pub(crate) fn keeps_clocks_without(&mut self, node: &str) -> bool {
        let Some(clock) = &mut self.clock else { return true };
        match &mut clock.value {
            Names::One(name) => name != node,
            Names::Several(names) => {
                names.retain(|name| name != node);
                !names.is_empty()
            }
        }
    }

    /// A change of nothing, at this instant.
    pub(crate) fn at(at: Delay) -> ScheduledChange {
        ScheduledChange {
            at,
            link: None,
            node: None,
            position: None,
            speed: None,
            clock: None,
            bump: None,
            slew: None,
            drift: None,
            length: None,
            strobe: None,
            suspend: None,
            leap_second: None,
            reset: false,
            both: false,
            set: Impairments::default(),
            state: None,
        }
    }
}

/// Random faults of clocks
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Faults {
    /// The faults, and how large they are
    pub like: FaultModel,
    /// Virtual time from one fault to the next, and from the start to the first
    pub every: Delay,
    /// The clocks that one fault changes; chance chooses them [default: minority]
    #[serde(default)]
    pub clocks: ChosenClocks,
    /// Virtual time from the start until the last fault [default: 1h]
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Delay>")]
    pub length: Option<Delay>,
    /// The same seed gives the same faults
    #[serde(default)]
    pub seed: u64,
}

/// Faults of clocks as a tool makes them
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FaultModel {
    /// Jepsen's: steps of 11 ms to 288 s, steps forth and back, and resets
    Jepsen,
}

/// The number of clocks that a fault changes
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ChosenClocks {
    /// One node's
    One,
    /// Those of less than half of the nodes
    #[default]
    Minority,
    /// Those of more than half of the nodes
    Majority,
    /// Those of all nodes
    All,
}

/// A name, or several
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Names {
    /// One.
    One(String),
    /// Several.
    Several(Vec<String>),
}

impl Names {
    pub(crate) fn all(&self) -> &[String] {
        match self {
            Names::One(name) => std::slice::from_ref(name),
            Names::Several(names) => names,
        }
    }
}

/// Steps of a clock forth and back
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Strobe {
    /// How far it steps, as 200ms
    #[schemars(with = "String")]
    pub by: Spanned<String>,
    /// Virtual time between two steps, as 10ms
    #[schemars(with = "String")]
    pub period: Spanned<String>,
    /// Virtual time after which it is over, as 5s
    #[serde(rename = "for")]
    #[schemars(with = "String")]
    pub length: Spanned<String>,
}

/// A leap second
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LeapSecondFault {
    /// The last second of the day comes twice
    Insert,
    /// The last second of the day is left out
    Delete,
    /// None is to come any more
    None,
}
