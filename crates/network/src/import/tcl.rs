//! Lists of Tcl, in which `.imn` files are written.

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
    let mut chars = list.text.char_indices().peekable();
    let mut at = list.at;
    let step = |at: &mut Position, c: char| match c {
        '\n' => *at = Position { line: at.line + 1, column: 1 },
        _ => at.column += 1,
    };
    while let Some((from, c)) = chars.next() {
        let begin = at;
        step(&mut at, c);
        if c.is_whitespace() {
            continue;
        }
        let closing = match c {
            '{' => Some('}'),
            '"' => Some('"'),
            '}' => return draft.error(begin, "}: closes nothing"),
            _ => None,
        };
        let mut depth = 1;
        let mut end = list.text.len();
        loop {
            let Some((next, c)) = chars.peek().copied() else {
                if closing.is_some() {
                    return draft.error(begin, format!("{c}: is not closed"));
                }
                break;
            };
            if closing.is_none() && c.is_whitespace() {
                end = next;
                break;
            }
            chars.next();
            step(&mut at, c);
            // A brace behind a backslash is a character like any other.
            if let ('\\', Some((_, escaped))) = (c, chars.peek().copied()) {
                chars.next();
                step(&mut at, escaped);
                continue;
            }
            match closing {
                Some(closing) if c == closing => depth -= 1,
                Some('}') if c == '{' => depth += 1,
                _ => continue,
            }
            if depth == 0 {
                end = next;
                break;
            }
        }
        found.push(match closing {
            Some(_) => Word {
                text: &list.text[from + 1..end],
                at: Position { column: begin.column + 1, ..begin },
                is_braced: c == '{',
            },
            None => Word { text: &list.text[from..end], at: begin, is_braced: false },
        });
    }
    Ok(found)
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
