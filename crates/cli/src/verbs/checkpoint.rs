//! `checkpoint` and `restore`.

use lorentz_checkpoint::{self as checkpoint, CheckpointOptions, RestoreOptions, WallPolicy};
use lorentz_container::StateDir;

use crate::args::{CheckpointArgs, RestoreArgs, WallArg};
use crate::print;

pub fn checkpoint(args: &CheckpointArgs) -> anyhow::Result<i32> {
    let state = StateDir::open()?;
    let found = state.find(&args.container)?;
    let CheckpointArgs { leave_running, tcp_established, .. } = *args;
    checkpoint::checkpoint(
        &found,
        &args.output,
        CheckpointOptions { leave_running, tcp_established },
    )?;
    Ok(0)
}

pub fn restore(args: &RestoreArgs) -> anyhow::Result<i32> {
    let options = RestoreOptions {
        name: args.name.as_deref(),
        wall: match args.wall {
            WallArg::Keep => WallPolicy::Keep,
            WallArg::Host => WallPolicy::Host,
        },
        frozen: args.frozen,
        tcp_established: args.tcp_established,
    };
    if args.check {
        checkpoint::check(&args.dir, &options)?;
        print::out(&format!("{}: can be restored here\n", args.dir.display()))?;
        return Ok(0);
    }
    checkpoint::restore(&StateDir::open()?, &args.dir, &options)?;
    Ok(0)
}
