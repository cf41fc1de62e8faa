//! `why`: what keeps a container's time from leaping, and what its tasks wait for.

use lorentz_container::StateDir;

use crate::args::LookAt;
use crate::print;
use crate::print_why;
use crate::why::look;

pub fn why(args: &LookAt) -> anyhow::Result<i32> {
    let found = look(&StateDir::open()?, &args.container)?;
    match args.json {
        true => print::out_json(&print_why::json(&found))?,
        false => print::out(&print_why::words(&found))?,
    }
    Ok(0)
}
