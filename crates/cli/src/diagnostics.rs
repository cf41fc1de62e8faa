//! Errors, each as one line.

use std::error::Error as _;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use lorentz_container::nearest;

/// Returns `error` and its causes as one line.
pub fn line(error: &anyhow::Error) -> String {
    let text = one_line(&format!("{error:#}"));
    match text {
        text if text.contains("Too many open files") => {
            format!("{text}; 'ulimit -n' allows too few, 32 suffice")
        }
        text if text.starts_with("fork:") => format!("{text}; 'ulimit -u' allows no further one"),
        text => text,
    }
}

/// Describes a wrong command line in one line: the given words, and the accepted ones.
pub fn command_line(error: &clap::Error) -> String {
    let given = Context(error);
    let argument = given.text(ContextKind::InvalidArg);
    let flag = flag(&argument);
    let text = match error.kind() {
        ErrorKind::ValueValidation => {
            let why = error.source().map(ToString::to_string).unwrap_or_default();
            format!("{flag} {}: {why}", given.text(ContextKind::InvalidValue))
        }
        ErrorKind::InvalidValue => {
            let accepted = given.list(ContextKind::ValidValue).join(" or ");
            match given.text(ContextKind::InvalidValue) {
                missing if missing.is_empty() => {
                    format!("{flag}: its value is missing; expected {argument}")
                }
                value => format!("{flag} {value}: expected {accepted}"),
            }
        }
        ErrorKind::UnknownArgument => {
            let instead = match given.text(ContextKind::SuggestedArg) {
                none if none.is_empty() => String::new(),
                near => format!("did you mean {near}? "),
            };
            format!("{argument}: not accepted here; {instead}'--help' lists what is")
        }
        ErrorKind::InvalidSubcommand => {
            let command = given.text(ContextKind::InvalidSubcommand);
            let verbs = verbs(&given);
            let near = nearest(&command, verbs.split(", "));
            let instead = near.map(|near| format!("did you mean {near}? ")).unwrap_or_default();
            format!("{command}: no such command; {instead}expected one of {verbs}")
        }
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            format!("a command is missing; expected one of {}", verbs(&given))
        }
        ErrorKind::MissingRequiredArgument => {
            let missing = given.list(ContextKind::InvalidArg);
            let missing: Vec<String> = missing.iter().map(|argument| plain(argument)).collect();
            format!("expected {}; '--help' tells more", missing.join(" and "))
        }
        ErrorKind::ArgumentConflict => conflict(flag, &given.list(ContextKind::PriorArg)),
        ErrorKind::InvalidUtf8 => "an argument is not UTF-8; expected text".to_string(),
        _ => {
            let text = error.to_string();
            text.trim_start_matches("error: ").lines().next().unwrap_or_default().to_string()
        }
    };
    one_line(&text)
}

fn conflict(argument: &str, others: &[String]) -> String {
    match others {
        [other] if flag(other) != argument => {
            format!("{argument} and {} exclude each other: give one of them", flag(other))
        }
        _ => format!("{argument}: given more than once; expected once"),
    }
}

/// The details that clap keeps with an error.
struct Context<'a>(&'a clap::Error);

impl Context<'_> {
    fn list(&self, kind: ContextKind) -> Vec<String> {
        match self.0.get(kind) {
            Some(ContextValue::String(text)) => vec![text.clone()],
            Some(ContextValue::Strings(texts)) => texts.clone(),
            _ => Vec::new(),
        }
    }

    fn text(&self, kind: ContextKind) -> String {
        self.list(kind).join(", ")
    }
}

/// The `--rate` of `--rate <R>`, the `--skip-idle` of `--skip-idle[=<on|off>]`, the `PID` of `<PID>`.
fn flag(argument: &str) -> &str {
    let first = argument.split([' ', '=']).next().unwrap_or(argument);
    first.trim_matches(|c| matches!(c, '<' | '>' | '.' | '[' | ']'))
}

/// `<--by <DUR>|--to <TIME>>` as `--by DUR, or --to TIME`.
fn plain(argument: &str) -> String {
    let bare = argument.replace(['<', '>'], "").replace("...", "");
    bare.replace("|--", " or --")
}

/// Returns the commands, or the subcommands of the command that lacks one.
fn verbs(given: &Context) -> String {
    use clap::CommandFactory;
    let mut commands = crate::args::Cli::command();
    commands.build();
    // The error shows the usage, or the help with the usage in it.
    let usage = given.0.to_string();
    let is_meant = |command: &&clap::Command| {
        command.has_subcommands() && usage.contains(&format!("lorentz {} ", command.get_name()))
    };
    let command = commands.get_subcommands().find(is_meant).unwrap_or(&commands);
    let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
    let names = shown.map(clap::Command::get_name);
    // Once built, a command has clap's own verb `help` too.
    names.filter(|name| *name != "help").collect::<Vec<_>>().join(", ")
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::Parser;

    /// Wrong command lines and what is said about them.
    const REFUSALS: &[(&str, &str)] = &[
        ("run --rate 0 true", "--rate 0: must be above 0; expected a rate from 1/1000000"),
        ("run --rate -2 true", "--rate -2: must be above 0; expected a rate"),
        ("run --rate 1000001 true", "--rate 1000001: must be at most 1000000; expected"),
        ("run --rate fast true", "--rate fast: expected a rate"),
        ("run --rate 1e3 true", "--rate 1e3: expected a rate"),
        ("run --tdf 0 true", "--tdf 0: must be above 0; expected a TDF"),
        (
            "run --offset 10parsec true",
            "--offset 10parsec: unknown unit; expected a duration such as",
        ),
        ("run --offset --rate true", "--offset --rate: expected a duration"),
        ("run --at 2023-02-30 true", "--at 2023-02-30: no such day; expected a time such as"),
        ("run --at tomorow true", "--at tomorow: expected a time such as"),
        ("run --monotonic 1x true", "--monotonic 1x: unknown unit; expected a duration"),
        ("run --cpu-clocks mine true", "--cpu-clocks mine: expected virtual or real"),
        ("run --rate", "--rate: its value is missing; expected --rate <R>"),
        ("run --rte 2 true", "--rte: not accepted here; did you mean --rate? '--help' lists"),
        ("run -x true", "-x: not accepted here; '--help' lists what is"),
        ("run", "expected COMMAND; '--help' tells more"),
        ("run --rate 2 --rate 3 true", "--rate: given more than once; expected once"),
        ("exec web", "expected COMMAND; '--help' tells more"),
        ("attach x", "PID|ENGINE:NAME x: expected the number of a running process"),
        ("attach 0", "PID|ENGINE:NAME 0: expected the number of a running process"),
        ("attach -- -5", "PID|ENGINE:NAME -5: expected the number of a running process"),
        ("attach", "expected PID|ENGINE:NAME; '--help' tells more"),
        ("dilate web", "expected --rate R or --tdf N; '--help' tells more"),
        ("dilate web --rate 1 --tdf 2", "--rate and --tdf exclude each other: give one of them"),
        ("dilate", "expected --rate R or --tdf N and NAME|PID; '--help' tells more"),
        ("leap web", "expected --by DUR or --to TIME or --like NAME|PID; '--help' tells more"),
        ("leap web --by soon", "--by soon: expected a duration"),
        ("step web --by 1s --to @5", "--by and --to exclude each other: give one of them"),
        ("time", "expected NAME|PID; '--help' tells more"),
        ("ps web", "web: not accepted here; '--help' lists what is"),
        ("dance", "dance: no such command; expected one of run, attach, detach, exec"),
        ("dilat", "dilat: no such command; did you mean dilate? expected one of run, attach"),
        ("", "a command is missing; expected one of run, attach"),
        ("experiment dance", "dance: no such command; expected one of create, add, populate"),
        ("experiment", "a command is missing; expected one of create, add"),
        ("experiment create x --most many", "--most many: expected a number from 1 to 1000000"),
        ("experiment progress x -1", "TIMELINE -1: expected a number from 0 to 4294967295"),
        ("link dance", "dance: no such command; expected one of set, add, rm, show"),
        ("latency dance", "dance: no such command; expected one of watch, serve"),
        ("study dance", "dance: no such command; expected one of clocks, hot, cold, timers"),
        ("study", "a command is missing; expected one of clocks, hot, cold, timers"),
        ("study hot -o x --records 0", "--records 0: 0 is not in 1..=100000"),
        ("study hot -o x --levels x", "--levels x: no such level; expected one of before, base"),
        ("run --experiment x --skip-idle -- true", "--experiment and --skip-idle exclude each"),
    ];

    #[test]
    fn each_wrong_command_line_is_one_line_that_names_it() {
        for (words, expected) in REFUSALS {
            let words = ["lorentz"].into_iter().chain(words.split_ascii_whitespace());
            let error = Cli::try_parse_from(words.clone()).unwrap_err();
            let line = command_line(&error);
            let words: Vec<&str> = words.collect();
            assert!(line.starts_with(expected), "{words:?}\n  {line}\n  {expected}");
            assert!(!line.contains('\n'));
        }
    }
}
