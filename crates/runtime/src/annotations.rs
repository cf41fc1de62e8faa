//! Annotations (`lorentz.rate=10`) and environment variables (`LORENTZ_RATE=10`) that ask for a clock. They are for OCI runtimes
//! what the options are for `lorentz run`.

use std::collections::BTreeMap;

use lorentz_checkpoint::WallPolicy;
use lorentz_clock::{Rate, Span};
use lorentz_container::Newcomers;
use lorentz_control::{ClockOptions, WrongOption, CLOCK_OPTIONS};
use thiserror::Error;

/// Prefix of our annotations.
pub const PREFIX: &str = "lorentz.";
/// Prefix of our environment variables.
const VARIABLE_PREFIX: &str = "LORENTZ_";

/// An annotation or a variable that is refused.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum WrongAnnotation {
    /// There is no such annotation.
    #[error("annotation {key}: not known; expected one of {}", names())]
    Unknown {
        /// The annotation.
        key: String,
    },
    /// The value cannot be read.
    #[error("{key}={value}: {reason}")]
    Value {
        /// The annotation or variable.
        key: String,
        /// Its value.
        value: String,
        /// The reason.
        reason: String,
    },
    /// Two places give the same option.
    #[error("{first} and {second}: given more than once; expected once")]
    Twice {
        /// The one place.
        first: String,
        /// The other place.
        second: String,
    },
    /// Values that exclude each other.
    #[error("{0}")]
    Options(String),
}

/// The clock that a container asks for, and the name by which `lorentz` is to know the container.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Asked {
    /// The clock.
    pub clock: ClockOptions,
    /// The name, if the container is to have one beside its id.
    pub name: Option<String>,
    /// How the container receives programs that enter from outside.
    pub newcomers: Option<Newcomers>,
    /// The wall clock after a restore.
    pub restored_wall: Option<WallPolicy>,
    /// The rate after a restore, in place of the one at the checkpoint.
    pub restored_rate: Option<Rate>,
    /// The annotation or variable that gave each option.
    places: BTreeMap<&'static str, String>,
}

/// The annotation without its prefix that names the container.
const NAME: &str = "name";
/// The annotation without its prefix that says how the container receives programs that enter from outside.
const NEWCOMERS: &str = "newcomers";
/// Annotations without their prefix that a restore follows. All others are options of the clock.
const RESTORE_WALL: &str = "restore-wall";
const RESTORE_RATE: &str = "restore-rate";

/// Returns each annotation without its prefix.
fn keys() -> impl Iterator<Item = &'static str> {
    CLOCK_OPTIONS.iter().map(|option| option.name).chain([NAME, NEWCOMERS])
}

impl Asked {
    /// Reads the options in `annotations`, and in the `variables` of the program's environment. Annotations with another prefix are
    /// ignored. An unknown variable with our prefix is ignored too: it may be the program's own.
    ///
    /// # Errors
    ///
    /// An unknown annotation with our prefix; a value that cannot be read; an option that is given twice.
    pub fn read<'a>(
        annotations: impl IntoIterator<Item = (&'a str, &'a str)>,
        variables: impl IntoIterator<Item = &'a str>,
    ) -> Result<Asked, WrongAnnotation> {
        let mut asked = Asked::default();
        for (key, text) in annotations {
            let Some(short) = key.strip_prefix(PREFIX) else { continue };
            if matches!(short, RESTORE_WALL | RESTORE_RATE) {
                asked.take_for_restore(key, text)?;
                continue;
            }
            let Some(name) = keys().find(|name| *name == short) else {
                return Err(WrongAnnotation::Unknown { key: key.to_string() });
            };
            asked.take(name, key, text)?;
        }
        for variable in variables {
            let Some((key, text)) = variable.split_once('=') else { continue };
            let Some(short) = key.strip_prefix(VARIABLE_PREFIX) else { continue };
            if let Some(name) = keys().find(|name| variable_name(name) == short) {
                asked.take(name, key, text)?;
            }
        }
        Ok(asked)
    }

    fn take(&mut self, name: &'static str, key: &str, text: &str) -> Result<(), WrongAnnotation> {
        if let Some(first) = self.places.insert(name, key.to_string()) {
            return Err(WrongAnnotation::Twice { first, second: key.to_string() });
        }
        let read = match CLOCK_OPTIONS.iter().find(|option| option.name == name) {
            Some(option) => option.read(&mut self.clock, text),
            None if name == NEWCOMERS => {
                let read = text.parse().map_err(str::to_string);
                read.map(|newcomers| self.newcomers = Some(newcomers))
            }
            None => {
                self.name = Some(text.to_string());
                Ok(())
            }
        };
        read.map_err(|reason| WrongAnnotation::Value {
            key: key.to_string(),
            value: text.to_string(),
            reason,
        })
    }

    fn take_for_restore(&mut self, key: &str, text: &str) -> Result<(), WrongAnnotation> {
        let wrong = |reason: String| {
            let (key, value) = (key.to_string(), text.to_string());
            WrongAnnotation::Value { key, value, reason }
        };
        if key.ends_with(RESTORE_RATE) {
            self.restored_rate = Some(text.parse().map_err(|error| wrong(format!("{error}")))?);
            return Ok(());
        }
        self.restored_wall = Some(match text {
            "keep" => WallPolicy::Keep,
            "host" => WallPolicy::Host,
            _ => return Err(wrong("expected keep or host".to_string())),
        });
        Ok(())
    }

    /// Rewrites a refusal of these options so that it names the annotations or variables that were given, and not flags.
    pub fn refusal(&self, wrong: &WrongOption) -> WrongAnnotation {
        let mut text = wrong.to_string();
        // Longer names first, so that no name is replaced within another one.
        let mut places: Vec<_> = self.places.iter().collect();
        places.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        for (name, place) in places {
            text = text.replace(&format!("--{name}"), place);
        }
        WrongAnnotation::Options(text)
    }

    /// The annotations and variables that gave the options, for messages.
    pub fn places(&self) -> String {
        self.places.values().map(String::as_str).collect::<Vec<_>>().join(", ")
    }

    /// Whether no option was given.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

fn names() -> String {
    let all = keys().chain([RESTORE_WALL, RESTORE_RATE]);
    all.map(|name| format!("{PREFIX}{name}")).collect::<Vec<_>>().join(", ")
}

/// The variable's name without its prefix: `SKIP_IDLE` for `skip-idle`.
fn variable_name(name: &str) -> String {
    name.to_ascii_uppercase().replace('-', "_")
}

/// Takes over a duration that a bundle gives by `timeOffsets`, as the offset of a clock in a new container.
///
/// # Errors
///
/// If an annotation gives the same offset.
pub fn merge_offset(
    place: &mut Option<Span>,
    annotation: &str,
    offset: Span,
) -> Result<(), WrongAnnotation> {
    match place.replace(offset) {
        None => Ok(()),
        Some(_) => Err(WrongAnnotation::Twice {
            first: format!("{PREFIX}{annotation}"),
            second: format!("linux.timeOffsets.{annotation}"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use lorentz_clock::{Rate, SkipMode};

    use super::*;
    use lorentz_control::HostNow;

    fn read(annotations: &[(&str, &str)], variables: &[&str]) -> Result<Asked, WrongAnnotation> {
        Asked::read(annotations.iter().copied(), variables.iter().copied())
    }

    fn refusal(annotations: &[(&str, &str)], variables: &[&str]) -> String {
        read(annotations, variables).unwrap_err().to_string()
    }

    #[test]
    fn each_is_the_option_of_that_name() {
        let asked = read(
            &[
                ("lorentz.at", "@5"),
                ("lorentz.tdf", "4"),
                ("lorentz.monotonic", "3s"),
                ("lorentz.boottime", "+1d"),
                ("lorentz.frozen", "true"),
                ("lorentz.skip-idle", "force"),
                ("lorentz.read-cost", "10us"),
                ("lorentz.may-set-clock", "true"),
                ("lorentz.cpu-clocks", "real"),
                ("lorentz.trap-tsc", "1"),
                ("lorentz.no-rewrite", "true"),
                ("io.podman.annotations.x", "y"),
            ],
            &["LORENTZ_OFFSET=-1h30m", "LORENTZ_RATE=60x", "LORENTZ_FILE_TIMES=virtual", "PATH=/"],
        )
        .unwrap();
        let expected = ClockOptions {
            at: Some("@5".parse().unwrap()),
            offset: Some("-1h30m".parse().unwrap()),
            rate: Some("60".parse().unwrap()),
            tdf: Some(Rate::parse_tdf("4").unwrap()),
            monotonic: Some(Span::from_secs(3)),
            boottime: Some(Span::from_secs(86_400)),
            frozen: true,
            skip_idle: Some(SkipMode::Force),
            read_cost: Some(Span(10_000)),
            real_cpu_clocks: Some(true),
            real_file_times: Some(false),
            may_set_clock: true,
            trap_tsc: true,
            no_rewrite: true,
            ..ClockOptions::default()
        };
        assert_eq!(asked.clock, expected);
        let without_tdf = ClockOptions { tdf: None, ..expected };
        let annotations = without_tdf.annotations();
        let pairs = annotations.iter().map(|annotation| annotation.split_once('=').unwrap());
        assert_eq!(Asked::read(pairs, []).unwrap().clock, without_tdf);
        let with_tdf = ClockOptions { tdf: Rate::new(1, 4), ..ClockOptions::default() };
        assert_eq!(with_tdf.annotations(), ["lorentz.rate=0.25"]);
        assert!(read(&[], &["HOME=/"]).unwrap().is_empty());
    }

    #[test]
    fn each_option_of_the_table_is_an_annotation_and_a_variable() {
        for option in CLOCK_OPTIONS {
            let mut expected = ClockOptions::default();
            option.read(&mut expected, option.example()).unwrap();
            let key = format!("{PREFIX}{}", option.name);
            assert_eq!(read(&[(&key, option.example())], &[]).unwrap().clock, expected);
            let name = variable_name(option.name);
            let variable = format!("{VARIABLE_PREFIX}{name}={}", option.example());
            assert_eq!(read(&[], &[&variable]).unwrap().clock, expected);
        }
    }

    /// The page's table is the stored list: engines' configurations depend on these names.
    #[test]
    fn annotations_and_variables_are_those_of_the_page() {
        const PAGE: &str = include_str!("../../../docs/containers.md");
        let mut rows =
            PAGE.lines().skip_while(|line| *line != "| annotation | variable | option |");
        let rows = rows.by_ref().skip(2).take_while(|line| line.starts_with('|'));
        let documented: Vec<String> = rows
            .map(|row| {
                row.split('`')
                    .filter(|part| !part.contains('|'))
                    .take(3)
                    .collect::<Vec<_>>()
                    .join(" ")
            })
            .collect();
        let names = keys().map(|name| {
            format!("{PREFIX}{name} {VARIABLE_PREFIX}{} --{name}", variable_name(name))
        });
        assert_eq!(documented, names.collect::<Vec<_>>());
    }

    #[test]
    fn what_is_wrong_is_named_where_it_was_given() {
        let unknown = refusal(&[("lorentz.rte", "2")], &[]);
        assert!(
            unknown.starts_with("annotation lorentz.rte: not known; expected one of lorentz.at")
        );
        assert!(refusal(&[("lorentz.rate", "fast")], &[])
            .starts_with("lorentz.rate=fast: expected a rate"));
        assert!(
            refusal(&[], &["LORENTZ_FROZEN=ja"]).starts_with("LORENTZ_FROZEN=ja: expected true")
        );
        assert_eq!(
            refusal(&[("lorentz.rate", "2")], &["LORENTZ_RATE=2"]),
            "lorentz.rate and LORENTZ_RATE: given more than once; expected once"
        );
        assert!(refusal(&[], &["LORENTZ_AT=@1", "LORENTZ_AT=@2"]).contains("more than once"));
        assert!(read(&[], &["LORENTZ_SERVICE_HOST=10.0.0.1"]).unwrap().is_empty());
    }

    #[test]
    fn refusals_speak_of_annotations() {
        let asked = read(&[("lorentz.rate", "2")], &["LORENTZ_TDF=2"]).unwrap();
        let wrong = asked.clock.which(&HostNow::default()).unwrap_err();
        assert_eq!(
            asked.refusal(&wrong).to_string(),
            "lorentz.rate and LORENTZ_TDF exclude each other: give one of them"
        );
    }

    #[test]
    fn every_other_option_excludes_the_clock_of_another() {
        for option in CLOCK_OPTIONS.iter().filter(|option| option.name != "clock") {
            let key = format!("{PREFIX}{}", option.name);
            let asked = read(&[("lorentz.clock", "web"), (&key, option.example())], &[]).unwrap();
            let wrong = asked.clock.which(&HostNow::default()).unwrap_err();
            assert_eq!(
                asked.refusal(&wrong).to_string(),
                format!("lorentz.clock and {key} exclude each other: give one of them")
            );
        }
    }

    #[test]
    fn offsets_of_the_bundle_count_once() {
        let mut asked = read(&[("lorentz.boottime", "1s")], &[]).unwrap();
        merge_offset(&mut asked.clock.monotonic, "monotonic", Span(5)).unwrap();
        assert_eq!(asked.clock.monotonic, Some(Span(5)));
        let twice = merge_offset(&mut asked.clock.boottime, "boottime", Span(5)).unwrap_err();
        assert!(twice.to_string().starts_with("lorentz.boottime and linux.timeOffsets.boottime"));
    }
}
