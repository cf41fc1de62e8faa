//! Arguments of `lorentz generate`.

use std::path::PathBuf;

use clap::Subcommand;

/// Files that packages make of the command line.
#[derive(Subcommand, Debug)]
pub enum GenerateVerb {
    /// Write the man pages into a directory, one page for each verb
    Man {
        /// The directory
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
    /// Print the completions for bash
    CompleteBash,
    /// Print the completions for zsh
    CompleteZsh,
    /// Print the completions for fish
    CompleteFish,
}
