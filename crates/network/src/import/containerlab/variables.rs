//! Variables in containerlab's topologies: the environment's, and those of a lab and its nodes.

use std::path::{Path, PathBuf};

/// A variable in a text.
struct Variable<'a> {
    name: &'a str,
    /// The operator between the braces; empty for none.
    operator: &'a str,
    /// The text behind the operator.
    word: &'a str,
    /// Length of the whole, from the dollar sign, bytes.
    length: usize,
}

const OPERATORS: [&str; 6] = [":-", ":=", ":+", "-", "=", "+"];

impl Variable<'_> {
    /// Parses the variable at the beginning of `text`, if there is one.
    fn parse(text: &str) -> Option<Variable<'_>> {
        let inner = text.strip_prefix('$')?;
        let Some(braced) = inner.strip_prefix('{') else {
            let name = name_in(inner)?;
            return Some(Variable { name, operator: "", word: "", length: 1 + name.len() });
        };
        let (braced, _) = braced.split_once('}')?;
        let name = name_in(braced)?;
        let rest = &braced[name.len()..];
        let operator = OPERATORS.into_iter().find(|one| rest.starts_with(one)).unwrap_or("");
        let word = &rest[operator.len()..];
        let length = braced.len() + "${}".len();
        (word.is_empty() || !operator.is_empty()).then_some(Variable {
            name,
            operator,
            word,
            length,
        })
    }

    /// `None` if the variable stays as it is written.
    fn value(&self, value_of: &impl Fn(&str) -> Option<String>) -> Option<String> {
        let value = value_of(self.name);
        let word = || Some(expand(self.word, value_of));
        let is_empty = value.as_ref().is_none_or(String::is_empty);
        match self.operator {
            "" => value,
            "+" | ":+" if value.is_some() => word(),
            "+" | ":+" => Some(String::new()),
            ":-" | ":=" if is_empty => word(),
            _ => value.or_else(word),
        }
    }
}

/// Returns the name at the beginning of `text`.
fn name_in(text: &str) -> Option<&str> {
    let is_in = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let name = &text[..text.find(|c| !is_in(c)).unwrap_or(text.len())];
    name.starts_with(|c: char| !c.is_ascii_digit()).then_some(name)
}

/// Replaces variables of the environment, as containerlab does before it reads a topology: `$NAME` and `${NAME}`, which stay if
/// they are not set; `${NAME:=TEXT}` and `${NAME:-TEXT}`, the text if it is not set or empty, without a colon if it is not set;
/// `${NAME+TEXT}`, the text if it is set. Two dollar signs are one.
pub(super) fn expand(text: &str, value_of: &impl Fn(&str) -> Option<String>) -> String {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        expanded += &rest[..at];
        rest = &rest[at..];
        let found = Variable::parse(rest);
        let value = found.as_ref().and_then(|found| found.value(value_of));
        let length = match (found, value) {
            (Some(found), Some(value)) => {
                expanded += &value;
                found.length
            }
            _ => {
                expanded.push('$');
                if rest.starts_with("$$") {
                    2
                } else {
                    1
                }
            }
        };
        rest = &rest[length..];
    }
    expanded + rest
}

/// The place of a lab's files, and the node whose settings are read.
pub(super) struct Place<'a> {
    /// The directory of the topology.
    pub folder: &'a Path,
    pub lab: &'a str,
    pub node: &'a str,
}

impl Place<'_> {
    /// Replaces containerlab's own variables.
    pub fn expand(&self, text: &str) -> String {
        let lab = format!("clab-{}", self.lab);
        let dir = self.folder.join(&lab);
        text.replace("__clabNodeName__", self.node)
            .replace("__clabNodeDir__", &dir.join(self.node).display().to_string())
            .replace("__clabLabName__", &lab)
            .replace("__clabDir__", &dir.display().to_string())
    }

    /// Returns the file that a setting names: relative to the topology, or to the user's home behind a tilde.
    pub fn path(&self, text: &str) -> PathBuf {
        let text = self.expand(text);
        match (text.strip_prefix("~/"), std::env::var_os("HOME")) {
            (Some(rest), Some(home)) => Path::new(&home).join(rest),
            _ => self.folder.join(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &str) -> String {
        expand(text, &|name| match name {
            "BAR" => Some("bar".into()),
            "EMPTY" => Some(String::new()),
            _ => None,
        })
    }

    #[test]
    fn variables_that_are_set_are_replaced() {
        assert_eq!(expanded("$BAR, ${BAR}baz, $BAR$BAR"), "bar, barbaz, barbar");
        assert_eq!(expanded("[$EMPTY]"), "[]");
    }

    #[test]
    fn what_is_not_set_stays() {
        for text in ["$NOT ${NOT} $1 ${1} $ $", "${open", "${a%%:*}", "$(date) ${#list}"] {
            assert_eq!(expanded(text), text);
        }
    }

    #[test]
    fn texts_stand_in_for_what_is_not_set() {
        assert_eq!(
            expanded("${NOT:=a_b} ${NOT:-$BAR} ${NOT=c} ${NOT-http://d:1}"),
            "a_b bar c http://d:1"
        );
        assert_eq!(expanded("${EMPTY:=a}${EMPTY:-b}[${EMPTY=c}${EMPTY-d}]"), "ab[]");
        assert_eq!(expanded("${BAR:=a} ${BAR+set} ${EMPTY:+set}[${NOT+set}]"), "bar set set[]");
    }

    #[test]
    fn two_dollar_signs_are_one() {
        assert_eq!(expanded("echo $$BAR $${BAR} $$$BAR $$"), "echo $BAR ${BAR} $bar $");
    }

    #[test]
    fn a_lab_and_its_nodes_have_names_and_directories() {
        let place = Place { folder: Path::new("/labs"), lab: "two", node: "r1" };
        assert_eq!(place.expand("__clabNodeName__ of __clabLabName__"), "r1 of clab-two");
        assert_eq!(place.path("__clabNodeDir__/conf"), Path::new("/labs/clab-two/r1/conf"));
        assert_eq!(place.path("__clabDir__/all"), Path::new("/labs/clab-two/all"));
        assert_eq!(place.path("/etc/hosts"), Path::new("/etc/hosts"));
    }
}
