//! The flags of `lorentz web`: those of `lorentz-web`, which looks at them.

#[allow(dead_code, reason = "lorentz-web, which has the same words, looks at them")]
#[path = "../../web/src/args.rs"]
mod shared;

pub use shared::WebArgs;
