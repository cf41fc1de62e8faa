//! Commands of containerlab, which runs their words without a shell.

use std::borrow::Cow;

use crate::import::draft::words;

/// Shells that wait at the terminal which containerlab gives a container. Nodes have none.
const SHELLS: [&str; 6] = ["sh", "bash", "ash", "/bin/sh", "/bin/bash", "/bin/ash"];

/// Returns the command of a container, which waits where it is a bare shell.
pub(super) fn waiting(command: &str) -> &str {
    match SHELLS.contains(&command.trim()) {
        true => "sleep infinity",
        false => command,
    }
}

/// Returns the words of a command that starts a container.
pub(super) fn arguments(command: &str) -> Vec<String> {
    let mut words = words(command);
    if let Some(first) = words.first_mut() {
        *first = shell_of(first).into();
    }
    words
}

/// Returns a line of `exec` for a shell, which hands the program the words that containerlab hands it: a dollar sign between double
/// quotes, for example, is the program's. A line with operators of a shell is for the shell as it stands.
pub(super) fn shell_line(command: &str) -> String {
    let command = command.trim_end();
    let (first, rest) = command.split_once(' ').unwrap_or((command, ""));
    let command = match shell_of(first) {
        same if same == first => Cow::Borrowed(command),
        shell => Cow::Owned(format!("{shell} {rest}")),
    };
    let found = Special::of(&command);
    if found.operators || !found.expansions {
        return command.into_owned();
    }
    let words = shlex::split(&command).unwrap_or_default();
    let line = shlex::try_join(words.iter().map(String::as_str)).ok();
    line.filter(|line| !line.is_empty()).unwrap_or_else(|| command.into_owned())
}

/// Images with BusyBox know its shell by both names.
fn shell_of(program: &str) -> &str {
    match program {
        "ash" => "sh",
        "/bin/ash" => "/bin/sh",
        other => other,
    }
}

/// Characters of a command that are a shell's.
#[derive(Default)]
struct Special {
    /// Outside of quotes: pipes, lists, redirections, lines.
    operators: bool,
    /// Outside of quotes, or between double ones: characters that a shell replaces.
    expansions: bool,
}

impl Special {
    fn of(command: &str) -> Special {
        let mut found = Special::default();
        let mut quote = None;
        let mut characters = command.chars();
        while let Some(character) = characters.next() {
            match (quote, character) {
                (None | Some('"'), '\\') => drop(characters.next()),
                (None, '"' | '\'') => quote = Some(character),
                (Some(open), _) if open == character => quote = None,
                (None | Some('"'), '$' | '`') => found.expansions = true,
                (None, '*' | '?' | '[' | '{' | '~') => found.expansions = true,
                (None, '|' | '&' | ';' | '<' | '>' | '(' | ')' | '\n') => found.operators = true,
                _ => {}
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollar_signs_are_for_the_program() {
        assert_eq!(
            shell_line("sh -c \"for i in 1 2; do echo $i; done\""),
            "sh -c 'for i in 1 2; do echo $i; done'"
        );
        assert_eq!(shell_line("echo $(date) *.txt"), "echo $(date) *.txt");
        assert_eq!(shell_line("echo $NOT *.txt"), "echo '$NOT' '*.txt'");
    }

    #[test]
    fn other_lines_stay_as_they_are() {
        for line in [
            "ip address add 10.0.0.1/24 dev eth1",
            "sh -c 'echo \"$HOME\" > /tmp/home'",
            "printf \"a\\$b\"",
            "echo $HOME > /tmp/home",
            "cat <<EOF\n$HOME\nEOF",
            "echo \"$open",
        ] {
            assert_eq!(shell_line(line), line);
        }
    }

    #[test]
    fn a_bare_shell_waits() {
        assert_eq!(waiting("bash"), "sleep infinity");
        assert_eq!(waiting("bash script.sh"), "bash script.sh");
    }

    #[test]
    fn the_shell_of_busybox_has_a_common_name() {
        assert_eq!(shell_line("ash -c 'sleep 1'"), "sh -c 'sleep 1'");
        assert_eq!(arguments("/bin/ash -c \"sleep 1\""), ["/bin/sh", "-c", "sleep 1"]);
        assert_eq!(shell_line("ashes"), "ashes");
    }
}
