//! The words of command lines of `lorentz`: names and values are checked before they become one.

use lorentz_container::is_name;
use lorentz_emulator::impair::{Impairments, FLAGS};

use crate::reply::Refusal;
use crate::types::LinkImpairments;

/// Words of a command line, without `lorentz`.
pub type Words = Vec<String>;

/// Returns the words.
pub fn words(all: &[&str]) -> Words {
    all.iter().map(ToString::to_string).collect()
}

/// Writes a command line as a person would type it.
pub fn shown(words: &[String]) -> String {
    let quoted = words.iter().map(|word| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=%+@,".contains(c);
        match !word.is_empty() && word.chars().all(is_plain) {
            true => word.clone(),
            false => format!("'{}'", word.replace('\'', "'\\''")),
        }
    });
    std::iter::once("lorentz".to_string()).chain(quoted).collect::<Vec<_>>().join(" ")
}

/// Checks a name of a container, network or node.
pub fn container(name: &str) -> Result<String, Refusal> {
    named("name", name)
}

/// Checks a name of an experiment.
pub fn experiment(name: &str) -> Result<String, Refusal> {
    named("experiment", name)
}

fn named(key: &str, name: &str) -> Result<String, Refusal> {
    let expected = "expected letters, digits, '.', '_' and '-', the first a letter or digit";
    is_name(name)
        .then(|| name.to_string())
        .ok_or_else(|| Refusal::wrong(format!("{key}: {expected}")))
}

/// Returns the flags of impairments, each value checked.
pub fn impairments(set: &LinkImpairments) -> Result<Words, Refusal> {
    let given = [
        ("rate", &set.rate),
        ("delay", &set.delay),
        ("jitter", &set.jitter),
        ("loss", &set.loss),
        ("duplicate", &set.duplicate),
        ("reorder", &set.reorder),
        ("corrupt", &set.corrupt),
        ("queue-packets", &set.queue_packets),
        ("queue-bytes", &set.queue_bytes),
    ];
    let mut all = Words::new();
    for (name, value) in given {
        let Some(value) = value else { continue };
        let flag = FLAGS.iter().find(|flag| flag.name == name);
        let accepted = flag.map(|flag| (flag.set)(&mut Impairments::default(), value));
        match accepted {
            Some(Ok(())) => all.extend([format!("--{name}"), value.clone()]),
            Some(Err(error)) => return Err(Refusal::wrong(format!("{name}: {error}"))),
            None => return Err(Refusal::failed(format!("{name}: lorentz has no such flag"))),
        }
    }
    Ok(all)
}
