//! `generate`: man pages and completions, from the definition of the command line.

mod topology_page;

use std::fs;
use std::path::Path;

use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_mangen::Man;

use crate::args::Cli;
use crate::complete;
use crate::generate_args::GenerateVerb;
use crate::print::out;

/// Carries out the verb.
pub fn dispatch(verb: &GenerateVerb) -> anyhow::Result<i32> {
    match verb {
        GenerateVerb::Man { dir } => man_pages(dir)?,
        GenerateVerb::CompleteBash => completions("bash")?,
        GenerateVerb::CompleteZsh => completions("zsh")?,
        GenerateVerb::CompleteFish => completions("fish")?,
    }
    Ok(0)
}

/// Writes `lorentz.1`, `lorentz-run.1`, `lorentz-link-add.1` and so on, and `lorentz.yaml.5`.
fn man_pages(dir: &Path) -> anyhow::Result<()> {
    let mut command = without_help_verbs(Cli::command());
    command.build();
    let topology = topology_page::page().context("lorentz.yaml.5")?;
    man_page(&command, None, dir)
        .and_then(|()| fs::write(dir.join("lorentz.yaml.5"), topology))
        .with_context(|| dir.display().to_string())
}

/// Writes the page of `command`, and those of its verbs that `--help` lists.
fn man_page(command: &Command, parent: Option<&str>, dir: &Path) -> std::io::Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_string();
    let man = Man::new(command.clone())
        .title(name.to_uppercase())
        .source(format!("Lorentz {}", env!("CARGO_PKG_VERSION")))
        .manual("Lorentz")
        // Pages are the same in each build.
        .date("");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let mut text = String::from_utf8_lossy(&page).into_owned();
    text += &notes(command, parent);
    fs::write(dir.join(format!("{name}.1")), text)?;
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        man_page(verb, Some(&name), dir)?;
    }
    Ok(())
}

/// Returns the sections after the verbs: the text that `--help` ends with, as it is laid out there, and related pages.
fn notes(command: &Command, parent: Option<&str>) -> String {
    let mut text = String::new();
    if let Some(help) = command.get_after_long_help().or(command.get_after_help()) {
        text += ".SH NOTES\n.nf\n";
        for line in help.to_string().lines() {
            // A line that begins with a dot or an apostrophe would be a request.
            let escaped = line.replace('\\', "\\e").replace('-', "\\-");
            text += &format!("\\&{escaped}\n");
        }
        text += ".fi\n";
    }
    match parent {
        Some(parent) => {
            text + &format!(".SH \"SEE ALSO\"\n\\fB{}\\fR(1)\n", parent.replace('-', "\\-"))
        }
        None => text,
    }
}

/// Prints the function by which a shell completes command lines.
fn completions(shell: &str) -> anyhow::Result<()> {
    out(&complete::registration(shell).context("completions")?)?;
    Ok(())
}

/// Removes the verb `help`, of which clap gives one to each verb that has verbs: `--help` does the same.
fn without_help_verbs(command: Command) -> Command {
    let verbs: Vec<String> = command.get_subcommands().map(|verb| verb.get_name().into()).collect();
    verbs
        .into_iter()
        .fold(command, |command, verb| command.mut_subcommand(verb, without_help_verbs))
        .disable_help_subcommand(true)
}
