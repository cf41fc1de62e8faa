//! The items of docs/limits.md that `lorentz doctor` prints, read from the page itself.

use std::sync::LazyLock;

/// The page, as it was at the build.
const PAGE: &str = include_str!("../../../../docs/limits.md");

/// Titles of the sections whose items `lorentz doctor` prints, in this order.
const SECTIONS: [&str; 4] =
    ["Refused programs", "Faces of time that stay real", "Where changes do not reach", "Signals"];

/// A face of time that is not virtual, or a kind of program that cannot be run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limit {
    /// The face, or the kind of program: an item's label.
    pub what: String,
    /// The behaviour instead: the item's first sentence.
    pub instead: String,
}

/// The items of [`SECTIONS`].
pub static LIMITS: LazyLock<Vec<Limit>> = LazyLock::new(|| {
    let items = SECTIONS.iter().flat_map(|title| items(section(PAGE, title)));
    items.filter_map(|item| limit(&item)).collect()
});

/// Returns the lines below the heading `title`, up to the next heading of its level; empty if there is none.
fn section<'a>(page: &'a str, title: &str) -> &'a str {
    let below = page.split_once(&format!("\n## {title}\n")).map_or("", |(_, below)| below);
    below.split_once("\n## ").map_or(below, |(section, _)| section)
}

/// Returns the list items and the table rows of a section, each as one line. Nested list items are left out.
fn items(section: &str) -> Vec<String> {
    let mut items: Vec<String> = Vec::new();
    let mut is_open = false;
    for line in section.lines() {
        if line.starts_with("- ") || line.starts_with("| ") {
            items.push(line.to_string());
            is_open = line.starts_with("- ");
        } else if !line.starts_with("  ") || line.trim_start().starts_with("- ") {
            is_open = false;
        } else if let Some(item) = items.last_mut().filter(|_| is_open) {
            item.push(' ');
            item.push_str(line.trim_start());
        }
    }
    // The header of a table is no item.
    items.retain(|item| item != "| what | what happens |");
    items
}

/// Parses `- **LABEL**: SENTENCE. ...` or `| LABEL | SENTENCE |`.
fn limit(item: &str) -> Option<Limit> {
    let (what, instead) = match item.strip_prefix("| ") {
        Some(row) => row.strip_suffix(" |")?.split_once(" | ")?,
        None => {
            let (label, text) = item.strip_prefix("- **")?.split_once("**: ")?;
            (label, text.split_once(". ").map_or(text, |(first, _)| first))
        }
    };
    Some(Limit { what: plain(what), instead: plain(instead.trim_end_matches('.')) })
}

/// Removes Markdown's backticks and the targets of links.
fn plain(text: &str) -> String {
    let mut text = text.replace('`', "");
    while let Some((before, rest)) = text.split_once("](") {
        let Some((label, (_, after))) = before.rsplit_once('[').zip(rest.split_once(')')) else {
            break;
        };
        text = format!("{}{}{after}", label.0, label.1);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_of_the_sections_has_a_label_and_a_sentence() {
        for title in SECTIONS {
            let items = items(section(PAGE, title));
            assert!(!items.is_empty(), "{title}: no such section in docs/limits.md");
            for item in items {
                let limit = limit(&item);
                let limit = limit
                    .unwrap_or_else(|| panic!("{title}: expected '- **LABEL**: SENTENCE': {item}"));
                for (text, most) in [(&limit.what, 60), (&limit.instead, 140)] {
                    assert!(!text.is_empty(), "{title}: {item}");
                    assert!(!text.contains(['*', '|', '[', '`']), "{title}: {text}");
                    assert!(text.chars().count() <= most, "{title}: at most {most}: {text}");
                }
            }
        }
    }

    #[test]
    fn a_section_is_read_by_items() {
        const PAGE: &str = "# Page\n\n## One\n\n- **A b**: first\n  half. More.\n  - Nested.\n- no label\n\n\
                            ## Two\n\n| what | what happens |\n|---|---|\n| `c` ([d](e)) | f |\n\n## Three\n";
        let limits =
            |title| items(section(PAGE, title)).iter().map(|item| limit(item)).collect::<Vec<_>>();
        let expected =
            |what: &str, instead: &str| Some(Limit { what: what.into(), instead: instead.into() });
        assert_eq!(limits("One"), [expected("A b", "first half"), None]);
        assert_eq!(limits("Two"), [expected("c (d)", "f")]);
        assert_eq!(limits("Four"), []);
    }
}
