//! Arguments of `lorentz generate`.

use std::path::PathBuf;

use clap::Subcommand;

/// Files that packages make of the command line.
#[derive(Subcommand, Debug)]
pub enum GenerateVerb {
    /// Write the man pages into a directory: one for each verb, and lorentz.yaml(5)
    Man {
        /// The directory
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
    /// Print the function by which bash completes verbs, options and names
    CompleteBash,
    /// Print the function by which zsh completes verbs, options and names
    CompleteZsh,
    /// Print the function by which fish completes verbs, options and names
    CompleteFish,
}
