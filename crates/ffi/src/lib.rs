//! `liblorentz`: experiments, and the clocks of containers, for programs written in C.
//!
//! `include/lorentz.h` documents each function for its users: effect, units, ranges and errors. The functions here only translate
//! arguments and results. [`lorentz_embed`] does the work.
//!
//! A handle or a text that is NULL is refused as wrong input. A function that can fail returns 0 or the kind of the error, and
//! [`lorentz_error`] returns the error's text.
//!
//! ```c
//! lorentz_experiment *pair;
//! if (lorentz_experiment_create("pair", NULL, &pair) ||
//!     lorentz_experiment_add(pair, "fast", 1, LORENTZ_NO_TIMELINE) ||
//!     lorentz_experiment_add(pair, lorentz_pid(4711), 10, LORENTZ_NO_TIMELINE) ||
//!     lorentz_experiment_synchronize(pair) || lorentz_experiment_start(pair))
//!     fprintf(stderr, "%s\n", lorentz_error());
//! ```

mod clock;
mod experiment;
mod ffi_text;

pub use clock::*;
pub use experiment::*;
pub use ffi_text::{lorentz_error, lorentz_free, lorentz_pid, lorentz_version};
