//! The word that somebody may have meant.

/// Returns the one of `words` that is most like `text`, if it is like enough that a slip of the keyboard explains the difference.
///
/// ```
/// use lorentz_container::nearest;
///
/// assert_eq!(nearest("tmie", ["time", "dilate"]), Some("time"));
/// assert_eq!(nearest("dance", ["time", "dilate"]), None);
/// ```
pub fn nearest<T: AsRef<str>>(text: &str, words: impl IntoIterator<Item = T>) -> Option<T> {
    /// By Jaro and Winkler, 1 for the same text.
    const MIN_LIKENESS: f64 = 0.8;
    let alike = words.into_iter().map(|word| (strsim::jaro_winkler(text, word.as_ref()), word));
    let near = alike.max_by(|one, other| one.0.total_cmp(&other.0))?;
    (near.0 >= MIN_LIKENESS).then_some(near.1)
}
