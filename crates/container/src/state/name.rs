//! Names of containers.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use crate::StateError;

/// Container engines use ids of 64 digits.
const MAX_LEN: usize = 128;

const MANNERS: [&str; 32] = [
    "amber", "brisk", "calm", "clear", "deep", "eager", "early", "fair", "fleet", "gentle",
    "golden", "grand", "green", "keen", "kind", "late", "light", "lively", "mellow", "merry",
    "noble", "pale", "patient", "proud", "quick", "quiet", "rapid", "silver", "steady", "swift",
    "warm", "wise",
];

const ANIMALS: [&str; 32] = [
    "badger", "bear", "beaver", "bison", "crane", "deer", "dove", "eagle", "elk", "falcon",
    "finch", "fox", "gecko", "hare", "hawk", "heron", "ibis", "koala", "lark", "lion", "lynx",
    "marten", "moose", "newt", "otter", "owl", "panda", "raven", "robin", "seal", "swan", "wolf",
];

/// Whether a name is valid: a letter or digit, then up to 127 letters, digits, `.`, `_` and `-`. Such a name is one component of a
/// path, and has no special meaning in it.
pub fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric();
    name.len() <= MAX_LEN
        && name.starts_with(plain)
        && name.chars().all(|c| plain(c) || matches!(c, '.' | '_' | '-'))
}

/// Checks a name that `flag` gave.
pub(super) fn check(flag: &'static str, name: &str) -> Result<(), StateError> {
    match is_name(name) {
        true => Ok(()),
        false => Err(StateError::WrongName { flag, name: name.to_string() }),
    }
}

/// Makes up a name that people can tell apart, such as `quiet-lynx-4f2a`. Very likely no container has it.
pub(super) fn invent() -> String {
    let random = RandomState::new().build_hasher().finish();
    let manner = MANNERS[(random >> 16) as usize % MANNERS.len()];
    let animal = ANIMALS[(random >> 32) as usize % ANIMALS.len()];
    format!("{manner}-{animal}-{:04x}", random as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_plain_path_component() {
        let longest = "a".repeat(MAX_LEN);
        for good in ["web", "A", "0", "a.b_c-d", &longest] {
            assert!(check("--name", good).is_ok(), "{good}");
        }
        let long = "a".repeat(MAX_LEN + 1);
        for bad in ["", ".", "..", ".lock", "-x", "_x", "a/b", "a b", "ä", "a\n", "a\0", &long] {
            let error = check("--name", bad).unwrap_err().to_string();
            assert!(error.starts_with("--name \""), "{error}");
            assert!(error.contains("expected"), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn invented_names_are_names_and_differ() {
        let names: std::collections::BTreeSet<String> = (0..50).map(|_| invent()).collect();
        assert!(names.len() > 45);
        for name in names {
            check("--name", &name).unwrap();
        }
    }
}
