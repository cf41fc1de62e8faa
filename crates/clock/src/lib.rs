//! The virtual clock: a map from the host's time to a container's, in one page of shared memory.
//!
//! `V(R) = V0 + (R - R0) * rate`, never beyond `limit`. R is the host's CLOCK_MONOTONIC, so that a step of the
//! host's wall clock moves no virtual clock. Wall time inside is `V + wall`, boot time `V + boot`.
//!
//! - [`Segment`]: the map between two changes, and its arithmetic;
//! - [`ClockPage`]: the pieces of the clock, past, present and to come, whose readers never wait;
//! - [`Registry`]: who waits for which virtual instant, so that a change can reach them;
//! - [`Leaps`]: how much idle time has been skipped;
//! - [`Span`], [`Rate`], [`WallTime`] and their text: time as people write it.
//!
//! No system call is made here, and nothing is allocated: the same code runs inside every program (the shim), in
//! the commands that change clocks, and in the tests.
//!
//! ```
//! use lorentz_clock::{Pace, Rate, RealInstant, Segment, Span, VirtualInstant, WallTime};
//! let midnight: WallTime = "2038-01-19T00:00:00Z".parse().unwrap();
//! let clock = Segment {
//!     real: RealInstant(0), virt: VirtualInstant(0), pace: Pace::Running("60x".parse().unwrap()),
//!     wall: midnight, boot: Span::ZERO,
//! };
//! let after_a_minute = clock.virtual_at(RealInstant(60_000_000_000));
//! assert_eq!(clock.wall_at(after_a_minute).to_string(), "2038-01-19T01:00:00Z");
//! ```

#![no_std]

#[cfg(any(test, loom))]
extern crate std;

mod failpoint;
mod file_marks;
mod instant;
mod leaps;
mod page;
mod process;
mod rate;
mod registry;
mod segment;
pub mod signal;
mod start;
mod sync;
mod task_counters;
mod text;

pub use failpoint::{failpoint, Failpoint, Failpoints, FAILPOINTS};
#[cfg(all(feature = "failpoints", not(loom)))]
pub use file::FAILPOINTS_OFFSET;
pub use file_marks::FileMarks;
pub use instant::{
    saturate, RealInstant, Span, VirtualInstant, WallTime, MAX_SETTABLE_SECS, NANOS_PER_SEC,
};
pub use leaps::{Leaps, SkipMode, Skipping, LEAP_LOG_LEN};
pub use page::{
    Change, Changed, ClockPage, FastClock, FastLook, HostClock, Piece, Policy, Published, Snapshot,
    TooManyChanges, HOLD_DELAY, MAGIC, MAX_CHANGES_AHEAD, PAGE_LAYOUT, PIECES,
};
pub use process::{PidNamespace, PidNamespaces, ProcessId, MAX_PID_NAMESPACES};
pub use rate::Rate;
pub use registry::{
    Armed, Deadline, Epoch, Holder, Registry, Setting, Timer, TimerKind, TimerOwner, Waiter,
    TIMERS, WAITERS,
};
pub use segment::{Pace, Segment};
pub use start::Start;
#[cfg(loom)]
pub use sync::completes_before_store;
pub use task_counters::{TaskCount, TaskCounters};
pub use text::TextError;

/// Layout of a clock's file: the page, then the registry. A program maps the page read-only and the registry read-write.
pub mod file {
    use crate::{ClockPage, Registry};

    /// Address of the clock page in every program on the clock.
    pub const PAGE_ADDRESS: usize = 0x7008_0000;
    /// Address of the word in which the shim has the address of its function for unfiltered system calls.
    pub const HOST_CALL_ADDRESS: usize = 0x7004_00b8;
    /// Address of two words: the offsets of the program's time namespace, of CLOCK_MONOTONIC first, ns.
    pub const TIME_OFFSETS_ADDRESS: usize = 0x7004_00c8;
    /// Offset of the registry in the file, bytes.
    pub const REGISTRY_OFFSET: usize = 4096;
    /// Length of the whole file, bytes.
    pub const LEN: usize = REGISTRY_OFFSET + core::mem::size_of::<Registry>();

    /// Offset of the failpoints' words in the file, bytes. Each word is four bytes, in the order of [`crate::Failpoint::ALL`].
    #[cfg(all(feature = "failpoints", not(loom)))]
    pub const FAILPOINTS_OFFSET: usize = REGISTRY_OFFSET + crate::registry::FAILPOINTS_OFFSET;

    const _: () = assert!(core::mem::size_of::<ClockPage>() <= REGISTRY_OFFSET);
}
