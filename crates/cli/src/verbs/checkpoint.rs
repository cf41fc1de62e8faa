//! `checkpoint`, `restore`, and `migrate` with its other side.

use std::io::{stdin, stdout};

use lorentz_checkpoint::{
    self as checkpoint, CheckpointOptions, MigrateOptions, RestoreOptions, WallPolicy,
};
use lorentz_container::StateDir;

use crate::checkpoint_args::{CheckpointArgs, MigrateArgs, ReceiveArgs, RestoreArgs, WallArg};
use crate::print;

pub fn checkpoint(args: &CheckpointArgs) -> anyhow::Result<i32> {
    let state = StateDir::open()?;
    let found = state.find(&args.container)?;
    let CheckpointArgs { leave_running, tcp_established, compress, .. } = *args;
    checkpoint::checkpoint(
        &found,
        &args.output,
        CheckpointOptions { leave_running, tcp_established, compress },
    )?;
    Ok(0)
}

pub fn restore(args: &RestoreArgs) -> anyhow::Result<i32> {
    let options = RestoreOptions {
        name: args.name.as_deref(),
        wall: policy(args.wall),
        frozen: args.frozen,
        tcp_established: args.tcp_established,
        is_detached: false,
    };
    if args.check {
        checkpoint::check(&args.dir, &options)?;
        print::out(&format!("{}: can be restored here\n", args.dir.display()))?;
        return Ok(0);
    }
    checkpoint::restore(&StateDir::open()?, &args.dir, &options)?;
    Ok(0)
}

pub fn migrate(args: &MigrateArgs) -> anyhow::Result<i32> {
    let found = StateDir::open()?.find(&args.container)?;
    let ssh: Vec<String> = args.ssh.split_whitespace().map(String::from).collect();
    let options = MigrateOptions {
        host: &args.host,
        ssh: &ssh,
        lorentz: &args.remote_lorentz,
        name: args.name.as_deref(),
        wall: policy(args.wall),
        pre_copy: args.pre_copy,
    };
    checkpoint::migrate(&found, &options)?;
    Ok(0)
}

pub fn receive(args: &ReceiveArgs) -> anyhow::Result<i32> {
    let (mut input, mut output) = (stdin().lock(), stdout().lock());
    let wall = policy(args.wall);
    checkpoint::receive(&StateDir::open()?, &args.name, wall, &mut input, &mut output)?;
    Ok(0)
}

fn policy(wall: WallArg) -> WallPolicy {
    match wall {
        WallArg::Keep => WallPolicy::Keep,
        WallArg::Host => WallPolicy::Host,
    }
}
