//! JSON as Tcl reads and writes it: strings may hold line breaks.

use std::borrow::Cow;

/// Escapes the line breaks in strings. The YAML parser would fold each into a space.
///
/// Lines keep their numbers: an escaped line break of YAML follows each `\n`. The first blank of the next line is escaped, because YAML
/// skips indentation there.
pub(super) fn escape_line_breaks(text: &str) -> Cow<'_, str> {
    let mut escaped = String::new();
    let (mut is_string, mut is_escape, mut is_line_start) = (false, false, false);
    let mut copied = 0;
    for (at, c) in text.char_indices() {
        if is_line_start && (c == ' ' || c == '\t') {
            escaped += &text[copied..at];
            escaped.push('\\');
            copied = at;
        }
        is_line_start = false;
        match c {
            '"' if !is_escape => is_string = !is_string,
            '\n' if is_string => {
                escaped += text[copied..at].trim_end_matches('\r');
                escaped += "\\n\\";
                copied = at;
                is_line_start = true;
            }
            _ => {}
        }
        is_escape = is_string && c == '\\' && !is_escape;
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    escaped += &text[copied..];
    Cow::Owned(escaped)
}

/// Removes the blanks with which all lines begin.
pub(super) fn dedent(text: &str) -> String {
    let blanks = |line: &str| line.len() - line.trim_start_matches([' ', '\t']).len();
    let filled = text.lines().filter(|line| !line.trim().is_empty());
    let least = filled.map(blanks).min().unwrap_or(0);
    let lines: Vec<&str> = text.lines().map(|line| line.get(least..).unwrap_or("")).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::{dedent, escape_line_breaks};

    fn parsed(text: &str) -> Vec<String> {
        serde_saphyr::from_str(&escape_line_breaks(text)).unwrap()
    }

    #[test]
    fn line_breaks_in_strings_are_kept() {
        assert_eq!(parsed("[\"a \n   b\n\n\tc\", \"d\\\"\n\"]"), ["a \n   b\n\n\tc", "d\"\n"]);
        assert_eq!(parsed("[\"a\r\n b\",\n\"c\"]"), ["a\n b", "c"]);
        assert_eq!(
            escape_line_breaks("[\"a\\n\"\n, \"\\\\\",\n 1]"),
            "[\"a\\n\"\n, \"\\\\\",\n 1]"
        );
        assert_eq!(escape_line_breaks("[\"a\nb\", 1]").lines().count(), 2);
    }

    #[test]
    fn common_indentation_goes() {
        assert_eq!(
            dedent("\n    router bgp 1\n     network x\n\n    !"),
            "\nrouter bgp 1\n network x\n\n!"
        );
        assert_eq!(dedent("a\n b"), "a\n b");
    }
}
