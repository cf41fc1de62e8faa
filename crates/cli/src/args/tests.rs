//! The command line, as people type it.

use lorentz_clock::WallTime;
use lorentz_control::{ClockOptions, OptionValue, CLOCK_OPTIONS};

use super::*;

#[test]
fn the_definition_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn help_shows_each_verb_once_in_a_group() {
    let command = Cli::command();
    let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, verbs)| *verbs).copied().collect();
    let offered = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    let mut verbs: Vec<&str> = offered.map(clap::Command::get_name).collect();
    verbs.retain(|verb| *verb != "failpoints");
    grouped.sort_unstable();
    verbs.sort_unstable();
    assert_eq!(grouped, verbs);
    let help = Cli::parse_words(vec!["lorentz".into(), "--help".into()]).unwrap_err();
    let help = help.to_string();
    for line in help.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    for part in ["Containers:\n  run ", "\nClock:\n  dilate ", "\n  -h, --help", "\nTIME  "] {
        assert!(help.contains(part), "{part:?} in {help}");
    }
}

/// A flag that is refused on every machine is no offer.
#[test]
fn help_offers_no_hardware_timestamps() {
    for verb in ["watch", "serve"] {
        let help =
            Cli::parse_words(["lorentz", "latency", verb, "--help"].map(OsString::from).into());
        let help = help.unwrap_err().to_string();
        assert!(help.contains("--in-band") && !help.contains("--hardware"), "{help}");
    }
}

#[test]
fn the_page_of_the_command_agrees_on_verbs_and_aliases() {
    const PAGE: &str = include_str!("../../../../docs/cli.md");
    // Built, because the arguments of a verb are deferred and must leave its text alone.
    let mut command = Cli::command();
    command.build();
    let aliases = PAGE.split_once("\n## Aliases\n").unwrap().1.split_once("\n## ").unwrap().0;
    for (_, verbs) in GROUPS {
        for verb in *verbs {
            let verb = command.find_subcommand(verb).unwrap();
            let row =
                PAGE.lines().find(|line| line.starts_with(&format!("| [`{}`]", verb.get_name())));
            let about = verb.get_about().unwrap().to_string();
            assert!(
                row.is_some_and(|row| row.ends_with(&format!(" | {about} |"))),
                "{about}: {row:?}"
            );
            for alias in verb.get_all_aliases() {
                let row = aliases.lines().find(|line| line.contains(&format!("`{alias}`")));
                let name = format!("| `{}` |", verb.get_name());
                assert!(row.is_some_and(|row| row.contains(&name)), "{alias}: {row:?}");
            }
        }
    }
}

/// One line for each flag and argument of `command` and its subcommands. Options of a clock have their help too.
fn interface(path: &str, command: &clap::Command, lines: &mut Vec<String>) {
    for arg in command.get_arguments() {
        let mut line = format!("{path} {arg}");
        if arg.get_help_heading() == Some("Clock") {
            let texts = [arg.get_help(), arg.get_long_help()];
            let texts = texts.into_iter().flatten().map(|text| text.to_string().replace('\n', "/"));
            line += &format!(" | {}", texts.collect::<Vec<_>>().join(" | "));
        }
        lines.push(line);
    }
    let is_ours = |verb: &&clap::Command| !matches!(verb.get_name(), "failpoints" | "help");
    for verb in command.get_subcommands().filter(is_ours) {
        lines.push(format!("{path} {}", verb.get_name()));
        interface(&format!("{path} {}", verb.get_name()), verb, lines);
    }
}

/// Scripts of users depend on these names. `LORENTZ_WRITE_INTERFACE=1` writes the list anew.
#[test]
fn verbs_and_flags_are_those_of_the_stored_list() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/args/interface.txt");
    let mut lines = Vec::new();
    let mut command = Cli::command();
    command.build();
    interface("lorentz", &command, &mut lines);
    let current = lines.join("\n") + "\n";
    if std::env::var_os("LORENTZ_WRITE_INTERFACE").is_some() {
        std::fs::write(path, &current).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), current);
}

fn run(words: &str) -> RunArgs {
    match Cli::parse_words(words.split(' ').map(OsString::from).collect()).unwrap().verb {
        Verb::Run(run) => *run,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_follows_the_command_is_the_commands() {
    let run = run("lorentz run --rate 10 --name web date --rate 3 -u -- x");
    assert_eq!(run.command, ["date", "--rate", "3", "-u", "--", "x"]);
    assert_eq!((run.clock.options.rate, run.name.as_deref()), (Rate::new(10, 1), Some("web")));
}

#[test]
fn two_dashes_may_stand_before_the_command() {
    let run = run("lorentz run --offset -1h30m -- -odd --name x");
    assert_eq!(run.command, ["-odd", "--name", "x"]);
    assert_eq!(run.clock.options.offset, Some(Span::from_secs(-5_400)));
}

#[test]
fn each_option_of_the_table_is_a_flag() {
    for option in CLOCK_OPTIONS {
        let required = option.requires.map(|name| format!("--{name}"));
        let value = match option.value {
            OptionValue::Switch => String::new(),
            _ => format!("={}", option.example()),
        };
        let words = format!("{}{value} {}", option.flag, required.unwrap_or_default());
        let run = run(&format!("lorentz run {} -- true", words.trim()));
        let mut expected = ClockOptions::default();
        option.read(&mut expected, option.example()).unwrap();
        assert_eq!(option.show(&run.clock.options), option.show(&expected), "{words}");
    }
}

#[test]
fn every_clock_option_arrives() {
    let run = run(
        "lorentz run --at @5 --offset 1 --rate 2 --tdf 4 --monotonic 3 --boottime -4 --frozen \
         --skip-idle=force --read-cost 1us --may-set-clock --cpu-clocks real --file-times virtual --trap-tsc \
         --no-rewrite --clock web true",
    );
    let expected = ClockOptions {
        at: Some(WallTime { secs: 5, nanos: 0 }),
        offset: Some(Span::from_secs(1)),
        rate: Rate::new(2, 1),
        tdf: Rate::new(1, 4),
        monotonic: Some(Span::from_secs(3)),
        boottime: Some(Span::from_secs(-4)),
        frozen: true,
        skip_idle: Some(SkipMode::Force),
        read_cost: Some(Span(1_000)),
        real_cpu_clocks: Some(true),
        real_file_times: Some(false),
        may_set_clock: true,
        trap_tsc: true,
        no_rewrite: true,
        clock: Some("web".to_string()),
        ..ClockOptions::default()
    };
    assert_eq!(run.clock.options, expected);
    let without_tdf = ClockOptions { tdf: None, ..expected };
    let words = without_tdf.flags().join(" ");
    assert_eq!(self::run(&format!("lorentz run {words} true")).clock.options, without_tdf);
}
