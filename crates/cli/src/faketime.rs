//! `lorentz-faketime`: libfaketime's command line, carried out by `lorentz run`.
//!
//! `lorentz-faketime` is a link to `lorentz`. Its words become those of `lorentz run`; docs/faketime.md compares the two.

use std::env;
use std::ffi::OsString;
use std::path::Path;

use lorentz_clock::{Rate, Span, WallTime};
use lorentz_control::{Date, HostNow};

/// The name by which `lorentz` is called to take libfaketime's command line.
const NAME: &str = "lorentz-faketime";

const USAGE: &str = "\
Usage: lorentz-faketime [-f] TIMESTAMP PROGRAM [ARGUMENT...]
       FAKETIME=SPECIFICATION lorentz-faketime PROGRAM [ARGUMENT...]

Runs the program in virtual time ('lorentz run'), with libfaketime's command line.

TIMESTAMP      as 'date --date' takes it: 'last friday 5 pm', '2008-12-24 08:15:42'
SPECIFICATION  and TIMESTAMP with -f: '+2d', '-1,5h', '@2008-12-24 08:15:42', each with ' x10' (ten times as fast) or
               ' i2,0' (each look at the clock costs 2 s); '2008-12-24 08:15:42' stands still

  -f                   TIMESTAMP is a SPECIFICATION
  -m                   accepted; threads always have the time
  --exclude-monotonic  accepted where the clock keeps the host's speed: monotonic clocks then show the host's time anyway
  --date-prog PROGRAM  accepted; no program is called to read dates
  --dry-run            print how the clock would start, and start nothing
  -h, --help           this text
";

/// The words of a command line of libfaketime.
#[derive(Debug, PartialEq, Eq)]
pub enum Words {
    /// The same for `lorentz`.
    Run(Vec<OsString>),
    /// A text to print.
    Usage(&'static str),
}

/// Whether `lorentz` is called by libfaketime's name for it.
pub fn is_meant(words: &[OsString]) -> bool {
    words.first().is_some_and(|word| Path::new(word).file_name().is_some_and(|name| name == NAME))
}

/// Returns the command line of `lorentz` for one of libfaketime.
///
/// # Errors
///
/// One line that names the word, and what is accepted.
pub fn translate(words: &[OsString]) -> Result<Words, String> {
    let specification = of_variables()?;
    let host = HostNow::read().map_err(|error| format!("the host's clocks: {error}"))?;
    translate_at(words, specification, host.wall)
}

/// A start and a pace in libfaketime's own format.
struct Specification {
    text: String,
    /// Whether its date is a number of seconds since 1970.
    in_seconds: bool,
}

/// The specification of FAKETIME or of FAKETIME_TIMESTAMP_FILE. FAKETIME_FMT is the format of its date.
fn of_variables() -> Result<Option<Specification>, String> {
    let Some(text) = env::var("FAKETIME").ok().or_else(file_of_a_specification) else {
        return Ok(None);
    };
    let in_seconds = match env::var("FAKETIME_FMT").as_deref() {
        Ok("%s") => true,
        Err(_) | Ok("%Y-%m-%d %T") => false,
        Ok(other) => {
            return Err(format!("FAKETIME_FMT={other}: not accepted; expected %s or '%Y-%m-%d %T'"))
        }
    };
    Ok(Some(Specification { text, in_seconds }))
}

/// The first line of the file that FAKETIME_TIMESTAMP_FILE names.
fn file_of_a_specification() -> Option<String> {
    let text = std::fs::read_to_string(env::var_os("FAKETIME_TIMESTAMP_FILE")?).ok()?;
    text.lines().find(|line| !line.trim().is_empty()).map(str::to_string)
}

fn translate_at(
    words: &[OsString],
    specification: Option<Specification>,
    now: WallTime,
) -> Result<Words, String> {
    let mut rest = words.iter().skip(1);
    let (mut advanced, mut real_monotonic, mut dry_run) = (false, false, false);
    let first = loop {
        let word = rest.next();
        match word.and_then(|word| word.to_str()) {
            Some("-f") => advanced = true,
            Some("-m") => {}
            Some("--exclude-monotonic") => real_monotonic = true,
            Some("--dry-run") => dry_run = true,
            Some("--date-prog") => drop(rest.next()),
            Some("-h" | "--help") => return Ok(Words::Usage(USAGE)),
            Some("-v" | "--version") => {
                return Ok(Words::Usage(concat!(
                    "lorentz-faketime ",
                    env!("CARGO_PKG_VERSION"),
                    "\n"
                )))
            }
            Some("-p") => return Err("-p: not accepted; a program has its own process id".into()),
            // libfaketime takes a timestamp that begins with a dash after -f alone.
            Some(flag) if flag.starts_with("--") || (flag.starts_with('-') && !advanced) => {
                return Err(format!("{flag}: not accepted here; '--help' lists what is"))
            }
            _ => break word,
        }
    };
    let Some(first) = first else { return Ok(Words::Usage(USAGE)) };
    let (mut flags, program) = match specification {
        Some(specification) => (read_specification(&specification, now)?, Some(first)),
        None => {
            let text = first.to_str().ok_or("TIMESTAMP: expected text")?;
            let flags = match advanced {
                true => {
                    let text = text.to_string();
                    read_specification(&Specification { text, in_seconds: false }, now)?
                }
                false => vec![format!("--at={}", read_date(text, now)?)],
            };
            (flags, rest.next())
        }
    };
    let program = program.ok_or("expected a PROGRAM; '--help' tells more")?;
    if real_monotonic && flags.iter().any(|flag| flag.starts_with("--rate")) {
        return Err("--exclude-monotonic: not accepted with a speed; all clocks of a program run at one rate".into());
    }
    if dry_run {
        flags.push("--dry-run".to_string());
    }
    let flags = flags.into_iter().map(OsString::from);
    let head = ["lorentz".into(), "run".into()].into_iter().chain(flags).chain(["--".into()]);
    Ok(Words::Run(head.chain([program.clone()]).chain(rest.cloned()).collect()))
}

fn read_date(text: &str, now: WallTime) -> Result<WallTime, String> {
    Date::in_words(text, now).map_err(|error| format!("{text}: {error}"))
}

/// Reads libfaketime's own format, after its manual page: a point or an offset, and a speed or a cost of each look.
fn read_specification(specification: &Specification, now: WallTime) -> Result<Vec<String>, String> {
    let Specification { text, in_seconds } = specification;
    let read_date = |text: &str| match (*in_seconds, text.parse()) {
        (true, Ok(secs)) => Ok(WallTime { secs, nanos: 0 }),
        (true, Err(_)) => {
            Err(format!("{text}: expected seconds since 1970, for FAKETIME_FMT is %s"))
        }
        (false, _) => read_date(text, now),
    };
    let (start, pace) = match text.trim().rsplit_once([' ', '\t']) {
        Some((start, pace)) if pace.starts_with(['x', 'i']) => (start.trim(), Some(pace)),
        _ => (text.trim(), None),
    };
    let mut flags = Vec::new();
    let stands = match start.strip_prefix('@') {
        Some(date) => {
            flags.push(format!("--at={}", read_date(date)?));
            false
        }
        None if start.starts_with(['+', '-']) => {
            let offset = decimal(start).parse::<Span>();
            let offset = offset.map_err(|error| format!("{start}: {error}"))?;
            flags.push(format!("--offset={offset:+}"));
            false
        }
        None if start.starts_with('%') => {
            return Err(format!(
                "{start}: not accepted; expected a date or an offset, not the time of a file"
            ))
        }
        None => {
            flags.push(format!("--at={}", read_date(start)?));
            true
        }
    };
    match pace.map(|pace| pace.split_at(1)) {
        Some(("x", rate)) => {
            let read = decimal(rate).parse::<Rate>();
            let rate = read.map_err(|error| format!("x{rate}: {error}"))?;
            flags.push(format!("--rate={rate}"));
        }
        Some((_, cost)) => {
            let read = decimal(cost).parse::<Span>();
            let cost = read.map_err(|error| format!("i{cost}: {error}"))?;
            flags.extend(["--skip-idle".to_string(), format!("--read-cost={cost}")]);
        }
        // Sleeps end at once, and the clock shows that they were slept.
        None if stands => {
            flags.extend(["--rate=1/1000000".to_string(), "--skip-idle=force".to_string()])
        }
        None => {}
    }
    Ok(flags)
}

/// libfaketime takes the decimal point of the locale.
fn decimal(text: &str) -> String {
    text.replace(',', ".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &[&str]) -> Vec<OsString> {
        text.iter().map(OsString::from).collect()
    }

    fn run(line: &[&str], specification: Option<&str>) -> Result<String, String> {
        let all: Vec<&str> = ["lorentz-faketime"].into_iter().chain(line.iter().copied()).collect();
        let now = "2030-01-05T12:00:00Z".parse().expect("a time");
        let specification =
            specification.map(|text| Specification { text: text.to_string(), in_seconds: false });
        match translate_at(&words(&all), specification, now)? {
            Words::Run(words) => Ok(words
                .iter()
                .map(|word| word.to_str().expect("text"))
                .collect::<Vec<_>>()
                .join(" ")),
            Words::Usage(text) => Ok(text.lines().next().unwrap_or_default().to_string()),
        }
    }

    /// A command line of libfaketime, FAKETIME, and the command line of `lorentz`.
    const LINES: &[(&[&str], Option<&str>, &str)] = &[
        (
            &["2008-12-24 08:15:42 UTC", "date"],
            None,
            "lorentz run --at=2008-12-24T08:15:42Z -- date",
        ),
        (
            &["-m", "2 days ago", "sh", "-c", "-x"],
            None,
            "lorentz run --at=2030-01-03T12:00:00Z -- sh -c -x",
        ),
        (&["-f", "+2,5y x10,0", "bash"], None, "lorentz run --offset=+912d12h --rate=10 -- bash"),
        (&["-f", "-15d", "date"], None, "lorentz run --offset=-15d -- date"),
        (&["-f", "+0 x0.5", "date"], None, "lorentz run --offset=+0s --rate=0.5 -- date"),
        (
            &["-f", "@2008-12-24 08:15:42 UTC x2", "date"],
            None,
            "lorentz run --at=2008-12-24T08:15:42Z --rate=2 -- date",
        ),
        (
            &["-f", "2008-12-24 08:15:42 UTC", "date"],
            None,
            "lorentz run --at=2008-12-24T08:15:42Z --rate=1/1000000 --skip-idle=force -- date",
        ),
        (
            &["-f", "+1d i0,5", "date"],
            None,
            "lorentz run --offset=+1d --skip-idle --read-cost=500ms -- date",
        ),
        (&["date", "-u"], Some("+1h"), "lorentz run --offset=+1h -- date -u"),
        (
            &["--dry-run", "2008-12-24 UTC", "date"],
            None,
            "lorentz run --at=2008-12-24T00:00:00Z --dry-run -- date",
        ),
        (
            &["--exclude-monotonic", "@5", "date"],
            None,
            "lorentz run --at=1970-01-01T00:00:05Z -- date",
        ),
        (&[], None, "Usage: lorentz-faketime [-f] TIMESTAMP PROGRAM [ARGUMENT...]"),
    ];

    #[test]
    fn each_form_has_its_command_line() {
        for (line, specification, expected) in LINES {
            assert_eq!(run(line, *specification).as_deref(), Ok(*expected), "{line:?}");
        }
    }

    #[test]
    fn forms_that_cannot_be_are_refused_in_one_line() {
        for (line, expected) in [
            (&["soon", "date"][..], "soon: expected a time such as"),
            (&["@5"], "expected a PROGRAM; "),
            (&["-p", "7", "@5", "date"], "-p: not accepted"),
            (&["-q", "@5", "date"], "-q: not accepted here; "),
            (&["-f", "%", "date"], "%: not accepted; expected a date"),
            (&["-f", "+1parsec", "date"], "+1parsec: unknown unit; "),
            (&["-f", "+1d x0", "date"], "x0: must be above 0; "),
            (
                &["-f", "--exclude-monotonic", "+1d x2", "date"],
                "--exclude-monotonic: not accepted with a speed",
            ),
        ] {
            let error = run(line, None).expect_err("a refusal");
            assert!(error.starts_with(expected), "{line:?}: {error}");
        }
    }
}
