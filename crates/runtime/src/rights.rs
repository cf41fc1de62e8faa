//! Capabilities of a program. Installing our filter needs CAP_SYS_ADMIN, which bundles seldom grant. So the process has two
//! capabilities more than its program gets, until the filter is there.

use std::str::FromStr;

use anyhow::Context;
use caps::{CapSet, Capability, CapsHashSet};
use serde_json::{json, Value};

/// The capabilities needed to install a filter, and to give up capabilities afterwards.
const NEEDED: [Capability; 2] = [Capability::CAP_SYS_ADMIN, Capability::CAP_SETPCAP];
/// The sets that must contain them.
const WIDENED: [&str; 3] = ["bounding", "effective", "permitted"];

/// The capabilities that a program begins with, if they are fewer than its process has.
#[derive(Clone, Debug, Default)]
pub struct Rights {
    beyond_bounding: Vec<Capability>,
    effective: CapsHashSet,
    permitted: CapsHashSet,
}

impl Rights {
    /// Adds the capabilities for installing a filter to `process`, a config.json's object. Returns those that the program itself
    /// gets; none if there is nothing to take back.
    ///
    /// # Errors
    ///
    /// An error if the capabilities are not lists of names.
    pub fn widen(process: &mut Value) -> anyhow::Result<Option<Rights>> {
        let bound = process.get("noNewPrivileges").and_then(Value::as_bool) == Some(true);
        let Some(sets) = process.get_mut("capabilities").filter(|sets| sets.is_object()) else {
            return Ok(None);
        };
        if bound {
            return Ok(None);
        }
        let rights = Rights {
            beyond_bounding: {
                let bounding = read(sets, "bounding")?;
                NEEDED.into_iter().filter(|one| !bounding.contains(one)).collect()
            },
            effective: read(sets, "effective")?,
            permitted: read(sets, "permitted")?,
        };
        for set in WIDENED {
            let mut all = read(sets, set)?;
            all.extend(NEEDED);
            sets[set] = all.iter().map(|one| json!(one.to_string())).collect();
        }
        Ok(Some(rights))
    }

    /// Drops the capabilities that can be dropped before the filter is there.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn bound(&self) -> Result<(), caps::errors::CapsError> {
        self.beyond_bounding.iter().try_for_each(|one| caps::drop(None, CapSet::Bounding, *one))
    }

    /// Drops the other capabilities.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn drop_others(&self) -> Result<(), caps::errors::CapsError> {
        caps::set(None, CapSet::Effective, &self.effective)?;
        caps::set(None, CapSet::Permitted, &self.permitted)
    }
}

fn read(sets: &Value, set: &str) -> anyhow::Result<CapsHashSet> {
    let Some(names) = sets.get(set).filter(|names| !names.is_null()) else {
        return Ok(CapsHashSet::new());
    };
    let names = names.as_array().with_context(|| format!("process.capabilities.{set}: no list"))?;
    let named = |name: &Value| {
        let name = name.as_str().unwrap_or_default();
        Capability::from_str(name).ok().with_context(|| {
            format!("process.capabilities.{set}: {name:?}: expected a name such as CAP_KILL")
        })
    };
    names.iter().map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(process: &Value, set: &str) -> Vec<String> {
        let names = process["capabilities"][set].as_array().unwrap();
        let mut names: Vec<String> =
            names.iter().map(|name| name.as_str().unwrap().to_string()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_added_is_remembered() {
        let mut process = json!({"capabilities": {
            "bounding": ["CAP_KILL", "CAP_SETPCAP"], "permitted": ["CAP_KILL"], "ambient": [],
        }});
        let rights = Rights::widen(&mut process).unwrap().unwrap();
        assert_eq!(set(&process, "bounding"), ["CAP_KILL", "CAP_SETPCAP", "CAP_SYS_ADMIN"]);
        assert_eq!(set(&process, "effective"), ["CAP_SETPCAP", "CAP_SYS_ADMIN"]);
        assert_eq!(set(&process, "permitted"), ["CAP_KILL", "CAP_SETPCAP", "CAP_SYS_ADMIN"]);
        assert_eq!(process["capabilities"]["ambient"], json!([]));
        assert_eq!(rights.beyond_bounding, [Capability::CAP_SYS_ADMIN]);
        assert!(rights.effective.is_empty());
        assert_eq!(rights.permitted, [Capability::CAP_KILL].into());
    }

    #[test]
    fn what_needs_no_capability_is_left_alone() {
        for mut process in [
            json!({"args": ["sh"]}),
            json!({"noNewPrivileges": true, "capabilities": {"bounding": ["CAP_KILL"]}}),
        ] {
            let before = process.clone();
            assert!(Rights::widen(&mut process).unwrap().is_none());
            assert_eq!(process, before);
        }
    }

    #[test]
    fn an_unknown_name_is_refused() {
        let mut process = json!({"capabilities": {"bounding": ["CAP_FLY"]}});
        let error = Rights::widen(&mut process).unwrap_err().to_string();
        assert!(
            error.starts_with("process.capabilities.bounding: \"CAP_FLY\": expected"),
            "{error}"
        );
    }
}
