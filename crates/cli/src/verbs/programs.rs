//! `web`, `cluster`: verbs that are programs of their own, so that `lorentz` has no server and no async runtime in it.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::Context;
use lorentz_container::limits;

/// Words of the command line before those of the program: `lorentz web`.
const OWN_WORDS: usize = 2;

/// `lorentz web`.
pub fn web() -> anyhow::Result<i32> {
    become_program("lorentz-web")
}

/// `lorentz cluster`.
pub fn cluster() -> anyhow::Result<i32> {
    become_program("lorentz-agent")
}

/// Becomes the program beside this one, which parses the same words once more.
fn become_program(name: &str) -> anyhow::Result<i32> {
    let lorentz = env::current_exe().context("this program's own file")?;
    let program = lorentz.with_file_name(name);
    if !program.exists() {
        anyhow::bail!(
            "{}: it is not there: `make web` builds it, beside lorentz",
            program.display()
        );
    }
    // Limits that this command has raised are not for the programs that the other one starts.
    limits::restore();
    let error = Command::new(&program).args(env::args_os().skip(OWN_WORDS)).exec();
    Err(error).context(program.display().to_string())
}
