//! The flags of `lorentz cluster`: those of `lorentz-agent`, which looks at them.

#[allow(dead_code, reason = "lorentz-agent, which has the same words, looks at them")]
#[path = "../../agent/src/args.rs"]
mod shared;

pub use shared::ClusterArgs;
