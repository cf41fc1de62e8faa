//! The flags for a container's clock, made from the table of clock options.

use clap::builder::PossibleValuesParser;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use lorentz_control::{ClockOption, ClockOptions, OptionValue, CLOCK_OPTIONS};

/// Options of a container's clock.
#[derive(Clone, Debug)]
pub struct ClockArgs {
    /// The options as given.
    pub options: ClockOptions,
}

impl Args for ClockArgs {
    fn augment_args(command: Command) -> Command {
        command.args(CLOCK_OPTIONS.iter().map(flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        ClockArgs::augment_args(command)
    }
}

impl FromArgMatches for ClockArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<ClockArgs, clap::Error> {
        let mut args = ClockArgs { options: ClockOptions::default() };
        args.update_from_arg_matches(matches)?;
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for option in CLOCK_OPTIONS {
            let text = match option.value {
                OptionValue::Switch => matches.get_flag(option.name).then_some("true"),
                _ => matches.get_one::<String>(option.name).map(String::as_str),
            };
            if let Some(text) = text {
                option
                    .read(&mut self.options, text)
                    .map_err(|reason| clap::Error::raw(ErrorKind::ValueValidation, reason))?;
            }
        }
        Ok(())
    }
}

/// Returns the flag of one option. Its id is the option's name.
fn flag(option: &'static ClockOption) -> Arg {
    let flag = Arg::new(option.name).long(option.name).help(option.help).help_heading("Clock");
    let flag = match option.details {
        "" => flag,
        details => flag.long_help(format!("{}\n\n{details}", option.help)),
    };
    let flag = match option.requires {
        Some(other) => flag.requires(other),
        None => flag,
    };
    let read = move |text: &str| {
        option.read(&mut ClockOptions::default(), text).map(|()| text.to_string())
    };
    match option.value {
        OptionValue::Switch => flag.action(ArgAction::SetTrue),
        OptionValue::Quantity(shown) => {
            flag.value_name(shown).allow_hyphen_values(true).value_parser(read)
        }
        OptionValue::Name(shown) => flag.value_name(shown).value_parser(read),
        OptionValue::Word { shown, accepted, implied } => {
            let words = PossibleValuesParser::new(accepted.iter().copied());
            let flag = flag.value_name(shown).value_parser(words).hide_possible_values(true);
            match implied {
                Some(word) => flag.num_args(0..=1).require_equals(true).default_missing_value(word),
                None => flag,
            }
        }
    }
}
