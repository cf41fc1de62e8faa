//! Mobility scripts of ns-2: who goes where, when and how fast. Generators such as BonnMotion, SUMO and ns-2's own setdest write them.
//!
//! ```text
//! $node_(0) set X_ 144.0
//! $node_(0) set Y_ 240.0
//! $ns_ at 1.00 "$node_(0) setdest 130.0 280.0 15.0"
//! ```
//!
//! A script is a program in Tcl. These three kinds of lines are read, the others are not: comments, variables, and what `$god_` is told
//! of the network. `Z_` is read and has no effect.

use lorentz_clock::{Span, NANOS_PER_SEC};
use lorentz_emulator::position::{Point, MAX_COORDINATE};

use crate::mobility::Movement;
use crate::topology::TopologyError;

/// Latest instant in a script, s. Below it a number of seconds is exact to some 100 ns as `f64`.
const MAX_SECONDS: f64 = 1e9;
/// Greatest speed, units of distance per second.
const MAX_SPEED: f64 = 1e9;

/// A movement of a node in a script.
#[derive(Clone, PartialEq, Debug)]
pub struct ScriptLine {
    /// The number of the node.
    pub node: u32,
    /// Virtual time since the script's begin.
    pub at: Span,
    /// The movement.
    pub movement: Movement,
    /// The line in the file, from 1.
    pub line: u64,
}

/// Parses the script `file` with the content `text`. Returns its movements, sorted by their instants.
///
/// # Errors
///
/// The first error, with line and column; also if the text has no movement.
pub fn parse(file: &str, text: &str) -> Result<Vec<ScriptLine>, TopologyError> {
    let error = |line: u64, column: usize, what: String| TopologyError {
        file: file.to_string(),
        line,
        column: column as u64,
        what,
    };
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let mut words = Words { line, rest: line };
        match read_line(&mut words) {
            Ok(Some((node, at, movement))) => {
                found.push(ScriptLine { node, at, movement, line: number });
            }
            Ok(None) => {}
            Err(ScriptError { column, what }) => return Err(error(number, column, what)),
        }
    }
    if found.is_empty() {
        let what = "no movement in it; expected an ns-2 mobility script, with lines such as \
                    $ns_ at 1.0 \"$node_(0) setdest 130.0 280.0 15.0\"";
        return Err(error(1, 1, what.into()));
    }
    found.sort_by_key(|one| one.at);
    Ok(found)
}

struct ScriptError {
    /// The column, from 1.
    column: usize,
    what: String,
}

/// The words of a line.
struct Words<'a> {
    line: &'a str,
    rest: &'a str,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> &'a str {
        let rest = self.rest.trim_start();
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let (word, rest) = rest.split_at(end);
        self.rest = rest;
        word
    }

    /// An error about `word`, the one that was read last.
    fn error<T>(&self, word: &str, what: impl std::fmt::Display) -> Result<T, ScriptError> {
        let before = self.line.len() - self.rest.len() - word.len();
        let column = self.line[..before].chars().count() + 1;
        Err(ScriptError { column, what: format!("{word:?}: expected {what}") })
    }

    /// Reads a number from `least` to `most`.
    fn number(&mut self, what: &str, least: f64, most: f64) -> Result<f64, ScriptError> {
        let word = self.next();
        // Speeds are the last word within quotes.
        let text = word.strip_suffix('"').unwrap_or(word);
        match text.parse::<f64>() {
            Ok(number) if (least..=most).contains(&number) => Ok(number),
            _ => self.error(word, format!("{what}, a number from {least} to {most}")),
        }
    }

    fn coordinate(&mut self) -> Result<f64, ScriptError> {
        self.number("a coordinate", -MAX_COORDINATE, MAX_COORDINATE)
    }

    /// Reads the end of the line.
    fn end(&mut self) -> Result<(), ScriptError> {
        match self.next() {
            "" | "\"" => Ok(()),
            word if word.starts_with([';', '#']) => Ok(()),
            word => self.error(word, "nothing behind the movement"),
        }
    }
}

/// Returns the number in `$node_(NUMBER)`. `None` if `word` is no node.
fn node_of(words: &Words, word: &str) -> Result<Option<u32>, ScriptError> {
    let Some(number) = word.strip_prefix("$node_(") else { return Ok(None) };
    let number = number.strip_suffix(')').and_then(|number| number.parse().ok());
    match number {
        Some(number) => Ok(Some(number)),
        None => words.error(word, "the number of a node such as $node_(0)"),
    }
}

type Read = Result<Option<(u32, Span, Movement)>, ScriptError>;

fn read_line(words: &mut Words) -> Read {
    let first = words.next();
    if let Some(node) = node_of(words, first)? {
        let movement = read_movement(words)?;
        return Ok(movement.map(|movement| (node, Span::ZERO, movement)));
    }
    if !["$ns_", "$ns"].contains(&first) {
        return Ok(None);
    }
    match words.next() {
        "at" => {}
        word => return words.error(word, "at, as in $ns_ at 1.0 \"$node_(0) setdest 1 2 3\""),
    }
    let seconds = words.number("an instant in seconds", 0.0, MAX_SECONDS)?;
    let at = Span((seconds * NANOS_PER_SEC as f64).round() as i64);
    let word = words.next();
    let unquoted = word.strip_prefix('"').unwrap_or(word);
    match node_of(words, unquoted)? {
        Some(node) => Ok(read_movement(words)?.map(|movement| (node, at, movement))),
        None => Ok(None),
    }
}

/// Reads a movement behind a node. `None` if it has no effect.
fn read_movement(words: &mut Words) -> Result<Option<Movement>, ScriptError> {
    let movement = match words.next() {
        "set" => match words.next() {
            "X_" => Some(Movement::JumpX(words.coordinate()?)),
            "Y_" => Some(Movement::JumpY(words.coordinate()?)),
            "Z_" => words.coordinate().map(|_| None)?,
            word => return words.error(word, "X_, Y_ or Z_"),
        },
        "setdest" => {
            let to = Point { x: words.coordinate()?, y: words.coordinate()? };
            let speed = words.number("a speed", 0.0, MAX_SPEED)?;
            // CORE moves the node at once then.
            Some(if speed == 0.0 { Movement::Jump(to) } else { Movement::Walk { to, speed } })
        }
        // Such as `random-motion 0` and `label`.
        _ => return Ok(None),
    };
    words.end()?;
    Ok(movement)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_read() {
        let text = "\
# nodes: 2, max time: 35.0
set opt(nn) 2
$node_(2) set X_ 144.0
$node_(2) set Y_ 240
$node_(2) set Z_ 0.00
$god_ set-dist 1 2 3
$ns_ at 1.50 \"$node_(2) setdest 130.0 280.0 15.0\"
$ns_ at 9 \"$god_ set-dist 0 1 2\"
$ns at 0.25 \"$node_(0) set X_ -5e1\"
$ns_ at 2\t\"$node_(0)  setdest 1 2 0.0\" ;# pause
$node_(0) random-motion 0
";
        let found = parse("walk.ns2", text).unwrap();
        let seen: Vec<(u32, i64, u64)> =
            found.iter().map(|one| (one.node, one.at.0 / 1_000_000, one.line)).collect();
        assert_eq!(seen, [(2, 0, 3), (2, 0, 4), (0, 250, 9), (2, 1_500, 7), (0, 2_000, 10)]);
        assert_eq!(found[0].movement, Movement::JumpX(144.0));
        assert_eq!(found[1].movement, Movement::JumpY(240.0));
        assert_eq!(found[2].movement, Movement::JumpX(-50.0));
        let to = Point { x: 130.0, y: 280.0 };
        assert_eq!(found[3].movement, Movement::Walk { to, speed: 15.0 });
        assert_eq!(found[4].movement, Movement::Jump(Point { x: 1.0, y: 2.0 }));
    }

    #[test]
    fn what_is_wrong_is_pointed_at() {
        let cases = [
            ("", (1, 1), "no movement"),
            ("\u{7f}ELF\n", (1, 1), "no movement"),
            ("# x\n$node_(x) set X_ 1\n", (2, 1), "number of a node"),
            ("$node_(0) set Q_ 1\n", (1, 15), "X_, Y_ or Z_"),
            ("$node_(0) set X_ far\n", (1, 18), "a coordinate"),
            ("$node_(0) set X_\n", (1, 17), "a coordinate"),
            ("$node_(0) set X_ nan\n", (1, 18), "a coordinate"),
            ("$node_(0) set X_ 1 2\n", (1, 20), "nothing behind"),
            ("$ns_ on 1.0 \"x\"\n", (1, 6), "expected at"),
            ("$ns_ at soon \"x\"\n", (1, 9), "an instant"),
            ("$ns_ at -1 \"x\"\n", (1, 9), "from 0 to"),
            ("$ns_ at 1 \"$node_(0 setdest 1 2 3\"\n", (1, 12), "number of a node"),
            ("$ns_ at 1 \"$node_(0) setdest 1 2\"\n", (1, 34), "a speed"),
            ("$ns_ at 1 \"$node_(0) setdest 1 2 -3\"\n", (1, 34), "a speed"),
        ];
        for (text, place, words) in cases {
            let wrong = parse("walk.ns2", text).unwrap_err();
            assert_eq!((wrong.line, wrong.column), place, "{text}{wrong}");
            assert!(wrong.what.contains(words) && !wrong.what.contains('\n'), "{wrong}");
            assert_eq!(wrong.file, "walk.ns2");
        }
    }
}
