//! The text of `lorentz --version`.

use std::sync::OnceLock;

use lorentz_checkpoint::{shim_build_id, Shim};
use lorentz_clock::PAGE_LAYOUT;

/// Returns the text of `lorentz --version`. `-V` prints the version alone.
///
/// Programs of one container must have the same page layout. A checkpoint is restored where the shim layout is that of the build which
/// made it.
pub fn long_version() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        format!(
            "{}\ncommit       {}\npage layout  {PAGE_LAYOUT}\nshim layout  {:06x}\nshim image   {:08x}",
            env!("CARGO_PKG_VERSION"),
            env!("LORENTZ_COMMIT"),
            Shim::own().layout,
            shim_build_id(),
        )
    })
}
