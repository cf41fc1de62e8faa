//! Lists of Tcl, in which `.imn` files are written.

use std::iter::Peekable;
use std::str::CharIndices;

use super::draft::{Draft, Position, Read};

/// A word and its place; without the braces, if it had any.
#[derive(Clone, Debug)]
pub struct Word<'a> {
    /// Its characters.
    pub text: &'a str,
    /// The place of its first character.
    pub at: Position,
    /// Whether braces stood around it.
    pub is_braced: bool,
}

/// Parses the words of a list that begins at `at`.
pub fn words<'a>(draft: &Draft, list: &Word<'a>) -> Read<Vec<Word<'a>>> {
    let mut found = Vec::new();
    let mut scanner = Scanner { chars: list.text.char_indices().peekable(), at: list.at };
    loop {
        let begin = scanner.at;
        let Some((from, c)) = scanner.take() else { return Ok(found) };
        if c.is_whitespace() {
            continue;
        }
        let closing = match c {
            '{' => '}',
            '"' => '"',
            '}' => return draft.error(begin, "}: closes nothing"),
            _ => {
                let end = scanner.pass_bare().unwrap_or(list.text.len());
                found.push(Word { text: &list.text[from..end], at: begin, is_braced: false });
                continue;
            }
        };
        let Some(end) = scanner.pass_closing(closing) else {
            return draft.error(begin, format!("{c}: is not closed"));
        };
        let at = Position { column: begin.column + 1, ..begin };
        found.push(Word { text: &list.text[from + 1..end], at, is_braced: c == '{' });
    }
}

/// The characters of a list that are still to come, and where the next one stands.
struct Scanner<'a> {
    chars: Peekable<CharIndices<'a>>,
    at: Position,
}

impl Scanner<'_> {
    fn take(&mut self) -> Option<(usize, char)> {
        let (index, c) = self.chars.next()?;
        match c {
            '\n' => self.at = Position { line: self.at.line + 1, column: 1 },
            _ => self.at.column += 1,
        }
        Some((index, c))
    }

    /// As [`Scanner::take`]. A character behind a backslash stands for itself, and is taken too.
    fn take_unescaped(&mut self) -> Option<(usize, char)> {
        let (index, c) = self.take()?;
        if c == '\\' {
            self.take();
        }
        Some((index, c))
    }

    /// Passes the rest of a word without braces. Returns its end; `None` for that of the list.
    fn pass_bare(&mut self) -> Option<usize> {
        loop {
            match *self.chars.peek()? {
                (end, c) if c.is_whitespace() => return Some(end),
                _ => self.take_unescaped(),
            };
        }
    }

    /// Passes all up to the character that closes the word, whose place it returns; `None` if there is none.
    fn pass_closing(&mut self, closing: char) -> Option<usize> {
        let mut depth = 1;
        loop {
            let (index, c) = self.take_unescaped()?;
            if c == closing {
                depth -= 1;
            } else if closing == '}' && c == '{' {
                depth += 1;
            }
            if depth == 0 {
                return Some(index);
            }
        }
    }
}

/// Parses the keys and values of a list.
pub fn pairs<'a>(draft: &Draft, list: &Word<'a>) -> Read<Vec<(Word<'a>, Word<'a>)>> {
    let mut all = words(draft, list)?.into_iter();
    let mut found = Vec::new();
    while let Some(key) = all.next() {
        let Some(value) = all.next() else {
            return draft.error(key.at, format!("{}: expected a value behind it", key.text));
        };
        found.push((key, value));
    }
    Ok(found)
}

/// The value of `key` in what [`pairs`] returned.
pub fn value_of<'a, 'b>(settings: &'b [(Word<'a>, Word<'a>)], key: &str) -> Option<&'b Word<'a>> {
    settings.iter().find(|(one, _)| one.text == key).map(|(_, value)| value)
}

/// Returns the first words of a long text.
pub fn short(text: &str) -> String {
    let line = text.split_whitespace().take(6).collect::<Vec<_>>().join(" ");
    if line.len() < text.trim().len() {
        format!("{line} ...")
    } else {
        line
    }
}
