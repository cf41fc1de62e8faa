//! One file per family of system calls.

pub mod clock;
pub mod exec;
pub mod file;
mod file_marks;
pub mod futex;
pub mod ipc;
pub mod itimer;
pub mod namespace;
pub mod poll;
pub mod proc_files;
pub mod process;
pub mod rights;
pub mod settime;
pub mod sleep;
pub mod socket;
pub mod timer;
