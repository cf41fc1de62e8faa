//! `web`: a program of its own serves the page, so that this one has no server in it.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::Context;
use lorentz_container::limits;

const SERVER: &str = "lorentz-web";
/// The words of the command line before those of the verb: `lorentz web`.
const OWN_WORDS: usize = 2;

/// Becomes the server, which parses the same words once more.
pub fn web() -> anyhow::Result<i32> {
    let lorentz = env::current_exe().context("this program's own file")?;
    let server = lorentz.with_file_name(SERVER);
    if !server.exists() {
        anyhow::bail!(
            "{}: it is not there: `make web` builds it, beside lorentz",
            server.display()
        );
    }
    // Limits that this command has raised are not for the programs that the server starts.
    limits::restore();
    let error = Command::new(&server).args(env::args_os().skip(OWN_WORDS)).exec();
    Err(error).context(format!("{}, which serves the page", server.display()))
}
