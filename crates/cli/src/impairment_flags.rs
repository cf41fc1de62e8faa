//! Flags for the impairments of links.

use clap::builder::TypedValueParser as _;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use lorentz_emulator::impair::{Flag, Impairments, FLAGS};

/// The flags for impairments, by the library's table.
#[derive(Debug)]
pub struct ImpairmentFlags(pub Impairments);

impl Args for ImpairmentFlags {
    fn augment_args(command: Command) -> Command {
        command.args(FLAGS.iter().map(arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        ImpairmentFlags::augment_args(command)
    }
}

impl FromArgMatches for ImpairmentFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<ImpairmentFlags, clap::Error> {
        let mut flags = ImpairmentFlags(Impairments::default());
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for flag in FLAGS {
            if let Some(text) = matches.get_one::<String>(flag.name) {
                // The flag's value parser has accepted the text.
                let _ = (flag.set)(&mut self.0, text);
            }
        }
        Ok(())
    }
}

fn arg(flag: &'static Flag) -> Arg {
    let check = |text: String| (flag.set)(&mut Impairments::default(), &text).map(|()| text);
    Arg::new(flag.name)
        .long(flag.name)
        .value_name(flag.value)
        .help(flag.help)
        .allow_hyphen_values(flag.may_begin_with_hyphen)
        .value_parser(clap::builder::StringValueParser::new().try_map(check))
}
