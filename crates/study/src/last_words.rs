//! The reason that a program has given for its failure.

/// Returns the last line of a program's standard error that says something.
pub(crate) fn last_words(stderr: &str) -> String {
    let last = stderr.lines().map(str::trim).rfind(|line| !line.is_empty());
    last.unwrap_or("it ended without a word").to_string()
}
