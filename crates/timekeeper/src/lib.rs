//! `libtimekeeper`: TimeKeeper's functions (Lamps, *TimeKeeper Documentation*, 2015, chapter 3) without its kernel.
//!
//! A simulator that was written for TimeKeeper is compiled with `include/timekeeper.h`, which tells what each function does
//! and where it cannot be the same, and linked to this library. [`keeper`] is what the functions do, [`calls`] their C side,
//! [`clone_time`](crate::calls::clone_time) is in [`mod@clone`]; the program `timekeeper` is the documentation's utilities (its
//! section 3.4) under one roof.
//!
//! There is one experiment, [`keeper::EXPERIMENT`], as TimeKeeper's kernel module has one: every process of the user's that
//! calls these functions moves it, and `lorentz experiment status timekeeper` shows it.
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
pub mod keeper;
