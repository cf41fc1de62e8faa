//! Options of a new container's clock, as a program gives them.

use lorentz_control::{ClockOptions, CLOCK_OPTIONS};

use crate::error::{Error, Result};

/// Returns the flags of the `lorentz` command for clock options, each given by its name and its value as text. A switch has the
/// value `true` or `false`.
///
/// ```
/// let given = [("tdf".to_string(), "10".to_string()), ("trap-tsc".to_string(), "true".to_string())];
/// assert_eq!(lorentz_embed::clock_flags(&given)?, ["--rate=0.1", "--trap-tsc"]);
/// # Ok::<(), lorentz_embed::Error>(())
/// ```
///
/// # Errors
///
/// A name that is not in the table of clock options, or a value that the option does not accept.
pub fn clock_flags(given: &[(String, String)]) -> Result<Vec<String>> {
    let mut options = ClockOptions::default();
    for (name, value) in given {
        let Some(option) = CLOCK_OPTIONS.iter().find(|option| option.name == *name) else {
            let names: Vec<&str> = CLOCK_OPTIONS.iter().map(|option| option.name).collect();
            let names = names.join(", ");
            return Err(Error::wrong_input(format!(
                "{name}: no clock option; expected one of {names}"
            )));
        };
        option
            .read(&mut options, value)
            .map_err(|reason| Error::wrong_input(format!("{name} {value}: {reason}")))?;
    }
    Ok(options.flags())
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use lorentz_control::{ClockOption, OptionValue};

    use super::*;

    /// The type of a keyword of the Python package.
    fn hint(option: &ClockOption) -> String {
        match option.value {
            OptionValue::Switch => "bool".to_string(),
            OptionValue::Quantity("TIME") => "HostTime".to_string(),
            OptionValue::Quantity("DUR") => "Duration".to_string(),
            OptionValue::Quantity("ERROR") | OptionValue::Name(_) => "str".to_string(),
            OptionValue::Quantity(_) => "Ratio".to_string(),
            OptionValue::Word { accepted, .. } => format!("Literal{accepted:?}"),
        }
    }

    /// A class of `python/lorentz/clock_options.py`.
    fn class(
        name: &str,
        docs: &str,
        options: impl Iterator<Item = &'static ClockOption>,
    ) -> String {
        let mut text =
            format!("\n\nclass {name}(TypedDict, total=False):\n    \"\"\"{docs}\"\"\"\n\n");
        for option in options {
            let keyword = option.name.replace('-', "_");
            writeln!(text, "    #: {}\n    {keyword}: {}", option.help, hint(option)).unwrap();
        }
        text
    }

    /// `LORENTZ_WRITE_KEYWORDS=1` writes the keywords anew.
    #[test]
    fn keywords_of_the_python_package_are_those_of_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../python/lorentz/clock_options.py");
        let mut text = "\"\"\"Keywords for options of a clock.\n\n\
            A test of the crate lorentz-embed writes this file from the table of clock options:\n\
            LORENTZ_WRITE_KEYWORDS=1 cargo test -p lorentz-embed\n\"\"\"\n\n\
            from __future__ import annotations\n\n\
            from typing import Literal, TypedDict\n\n\
            from lorentz.times import Duration, HostTime, Ratio\n"
            .to_string();
        let all = CLOCK_OPTIONS.iter();
        text += &class("ClockOptions", "Options of a container's clock.", all.clone());
        let of_networks = all.filter(|option| option.topology_key.is_some());
        text +=
            &class("NetworkClockOptions", "Options of a network's or a node's clock.", of_networks);
        if std::env::var_os("LORENTZ_WRITE_KEYWORDS").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap(), text);
    }

    #[test]
    fn what_the_table_does_not_accept_is_refused() {
        let refusal = |name: &str, value: &str| {
            clock_flags(&[(name.to_string(), value.to_string())]).unwrap_err().text
        };
        assert!(refusal("rte", "1").starts_with("rte: no clock option; expected one of at, offset"));
        assert!(
            refusal("cpu-clocks", "mine").starts_with("cpu-clocks mine: expected virtual or real")
        );
        assert_eq!(clock_flags(&[]).unwrap(), Vec::<String>::new());
    }
}
