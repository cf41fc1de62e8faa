//! `libtimekeeper`: TimeKeeper's functions (Lamps, *TimeKeeper Documentation*, 2015, chapter 3) without its kernel module.
//!
//! To use a simulator that was written for TimeKeeper, compile it with `include/timekeeper.h` and link it to this library. The
//! header says what each function does, and where it differs from TimeKeeper's.
//!
//! - [`keeper`] does the work of the functions.
//! - [`calls`] has their C signatures.
//! - [`mod@clone`] implements [`clone_time`](crate::calls::clone_time).
//! - [`commands`] reads the text that programs send to the module themselves.
//! - The program `timekeeper` combines the documentation's utilities (its section 3.4).
//!
//! There is one experiment, [`keeper::EXPERIMENT`], as there is one in TimeKeeper's kernel module. Every process of the user that
//! calls these functions moves that experiment, and `lorentz experiment status timekeeper` shows it.
//!
//! ```c
//! int pid = clone_time(0, 2.0, 1);
//! if (pid == 0) work();
//! addToExp(pid, 0);
//! synchronizeAndFreeze();
//! setInterval(pid, 1000, 0);
//! progress(0, 1);
//! stopExp();
//! ```

pub mod calls;
pub mod clone;
pub mod commands;
pub mod keeper;
