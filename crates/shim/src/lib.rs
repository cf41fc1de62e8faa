//! The code that runs inside a program in virtual time: one small ELF image, at once replacement vDSO and trap handler.
//!
//! - Clock reads come to [`vdso`], found by libc and Go as the kernel's own vDSO would be: they read the kernel's clock
//!   and apply the clock page. No system call.
//! - A seccomp filter ([`filter`]) traps waits and all other calls that take or return a time. They arrive in [`trap`],
//!   which decodes their arguments ([`call`]). The handlers are in [`calls`], one file per family. All waits go through [`wait`].
//! - When the clock changes, threads that wait get a signal: [`change_signal`].
//!
//! The image is built from this crate by `lorentz-inject`, without libc, allocation, thread-local storage or writable
//! data, and linked at a fixed address: there is no relocation to be done when it is put into a process. As an ordinary
//! library the crate gives `lorentz-inject` the filter and the layout:
//!
//! ```
//! use lorentz_shim::filter::Program;
//! let filter = Program::of_program(lorentz_clock::Policy::default());
//! assert!(filter.code().len() < 1024);
//! ```

#![no_std]
#![cfg_attr(image, no_main)]

#[cfg(test)]
extern crate std;

pub mod adopt;
mod altstack;
pub mod boot;
mod call;
pub mod call_sites;
mod calls;
pub mod change_signal;
mod clocks;
mod clone_tracking;

mod cpu;
mod deadline;
mod direct;
#[cfg_attr(not(image), allow(dead_code))]
mod elf;
pub mod fd_table;
pub mod filter;
pub mod gate;
mod handlers;
#[cfg(image)]
mod image;
mod install_filter;
pub mod layout;
mod process;
mod read;
mod send_order;
mod signals;
mod sole_thread;
mod spinning;
mod stand_in;
pub mod sys;
pub mod time_namespace;
mod timeout;
mod timers;
mod timestamps;
mod trap;
mod trap_mask;
mod tsc;
mod upcoming;
mod user;
mod vdso;
mod wait;
