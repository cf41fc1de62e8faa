//! Annotations (`lorentz.rate=10`) and environment variables (`LORENTZ_RATE=10`) that ask for a clock. They are for OCI runtimes
//! what the options are for `lorentz run`.

use std::collections::BTreeMap;
use std::str::FromStr;

use lorentz_clock::{Rate, SkipMode, Span};
use thiserror::Error;

use crate::options::parse_read_cost;
use crate::{ClockOptions, WrongOption};

/// Prefix of our annotations.
const PREFIX: &str = "lorentz.";
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
    /// The annotation or variable that gave each option.
    places: BTreeMap<&'static str, String>,
}

/// Reads one value into the options.
type Read = fn(&mut Asked, &str) -> Result<(), String>;

/// Each annotation without its prefix, and the function that reads it.
const ALL: [(&str, Read); 14] = [
    ("at", |asked, text| value(text, &mut asked.clock.at)),
    ("offset", |asked, text| value(text, &mut asked.clock.offset)),
    ("rate", |asked, text| value(text, &mut asked.clock.rate)),
    ("tdf", |asked, text| put(Rate::parse_tdf(text), &mut asked.clock.tdf)),
    ("monotonic", |asked, text| value(text, &mut asked.clock.monotonic)),
    ("boottime", |asked, text| value(text, &mut asked.clock.boottime)),
    ("frozen", |asked, text| flag(text, &mut asked.clock.frozen)),
    ("skip-idle", |asked, text| put(skip_mode(text), &mut asked.clock.skip_idle)),
    ("read-cost", |asked, text| put(parse_read_cost(text), &mut asked.clock.read_cost)),
    ("cpu-clocks", |asked, text| put(is_real(text), &mut asked.clock.real_cpu_clocks)),
    ("file-times", |asked, text| put(is_real(text), &mut asked.clock.real_file_times)),
    ("trap-tsc", |asked, text| flag(text, &mut asked.clock.trap_tsc)),
    ("clock", |asked, text| value(text, &mut asked.clock.clock)),
    ("name", |asked, text| value(text, &mut asked.name)),
];

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
            let entry = ALL.iter().find(|(name, _)| *name == short);
            let Some(entry) = entry else {
                return Err(WrongAnnotation::Unknown { key: key.to_string() });
            };
            asked.take(entry, key, text)?;
        }
        for variable in variables {
            let Some((key, text)) = variable.split_once('=') else { continue };
            let Some(short) = key.strip_prefix(VARIABLE_PREFIX) else { continue };
            if let Some(entry) = ALL.iter().find(|(name, _)| variable_name(name) == short) {
                asked.take(entry, key, text)?;
            }
        }
        Ok(asked)
    }

    fn take(
        &mut self,
        (name, read): &(&'static str, Read),
        key: &str,
        text: &str,
    ) -> Result<(), WrongAnnotation> {
        if let Some(first) = self.places.insert(name, key.to_string()) {
            return Err(WrongAnnotation::Twice { first, second: key.to_string() });
        }
        read(self, text).map_err(|reason| WrongAnnotation::Value {
            key: key.to_string(),
            value: text.to_string(),
            reason,
        })
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
    let names: Vec<String> = ALL.iter().map(|(name, _)| format!("{PREFIX}{name}")).collect();
    names.join(", ")
}

/// The variable's name without its prefix: `SKIP_IDLE` for `skip-idle`.
fn variable_name(name: &str) -> String {
    name.to_ascii_uppercase().replace('-', "_")
}

fn value<T: FromStr<Err: ToString>>(text: &str, place: &mut Option<T>) -> Result<(), String> {
    put(text.parse(), place)
}

fn put<T, E: ToString>(read: Result<T, E>, place: &mut Option<T>) -> Result<(), String> {
    *place = Some(read.map_err(|error| error.to_string())?);
    Ok(())
}

fn flag(text: &str, place: &mut bool) -> Result<(), String> {
    *place = match text {
        "true" | "1" => true,
        "false" | "0" => false,
        _ => return Err("expected true or false".to_string()),
    };
    Ok(())
}

fn skip_mode(text: &str) -> Result<SkipMode, &'static str> {
    match text {
        "on" | "true" | "1" => Ok(SkipMode::On),
        "off" | "false" | "0" => Ok(SkipMode::Off),
        "force" => Ok(SkipMode::Force),
        _ => Err("expected on, off or force"),
    }
}

/// Parses `real` (true) or `virtual` (false).
fn is_real(text: &str) -> Result<bool, &'static str> {
    match text {
        "real" => Ok(true),
        "virtual" => Ok(false),
        _ => Err("expected virtual or real"),
    }
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
    use super::*;
    use crate::HostNow;

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
                ("lorentz.cpu-clocks", "real"),
                ("lorentz.trap-tsc", "1"),
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
            trap_tsc: true,
            clock: None,
            in_experiment: false,
        };
        assert_eq!(asked.clock, expected);
        assert!(read(&[], &["HOME=/"]).unwrap().is_empty());
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
        let names = ALL.iter().map(|(name, _)| {
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
    fn offsets_of_the_bundle_count_once() {
        let mut asked = read(&[("lorentz.boottime", "1s")], &[]).unwrap();
        merge_offset(&mut asked.clock.monotonic, "monotonic", Span(5)).unwrap();
        assert_eq!(asked.clock.monotonic, Some(Span(5)));
        let twice = merge_offset(&mut asked.clock.boottime, "boottime", Span(5)).unwrap_err();
        assert!(twice.to_string().starts_with("lorentz.boottime and linux.timeOffsets.boottime"));
    }
}
