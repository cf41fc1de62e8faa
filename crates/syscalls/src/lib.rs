//! The one table of system calls: for each call its number and name, when it is trapped, which part of the shim carries it out,
//! where its timeout lies, what a thread that sleeps in it waits for, and how it goes on after a signal. Beside it, the types of
//! arguments and errors by the kernel's names: a handler of the shim takes a [`ClockId`], not a number.
//!
//! The filter, the trap handler, attach, the change of a clock and the skipping of idle time take what they need from here. A new
//! call is one row in `table.rs`; `docs/syscalls.md` is written from the rows.
//!
//! ```
//! use lorentz_syscalls::{row, Restart, Sysno};
//! let poll = row(Sysno::poll).unwrap();
//! assert_eq!(poll.name, "poll");
//! assert_eq!(poll.restart, Restart::RestartBlock);
//! assert!(row(Sysno::getpid).is_none());
//! ```

#![no_std]

#[cfg(test)]
extern crate std;

mod arg;
mod call;
mod errno;
mod flags;
mod handler;
mod numbers;
mod page;
mod table;
pub mod timex;
mod when;

pub use arg::{ClockId, Fd, FromArg, IntoArg, UserPtr};
pub use call::{Form, Restart, Syscall, Timeout, TimeoutClock, WaitsFor};
pub use errno::Errno;
pub use flags::{
    AdjModes, AtFlags, CloneFlags, FutexOp, ItimerId, MsgFlags, OpenFlags, RusageWho, SaFlags,
    SigHow, SigSet, SocketOption, SsFlags, TimerFlags,
};
pub use handler::Handler;
pub use numbers::{Sysno, NUMBERS};
pub use page::Page;
pub use table::{ASK_MONITOR, TABLE};
pub use timex::Timex;
pub use when::{When, Where};

/// The row of a call, given as such or by its bare number; `None` where the call has no time in it. Takes a few instructions.
pub fn row(call: impl Into<Sysno>) -> Option<&'static Syscall> {
    let place = *ROW_INDEX.get(call.into().number() as usize)?;
    TABLE.get(place as usize)
}

/// One more than the highest number of a call that the handler carries out.
const INDEX_LEN: usize = Sysno::futex_wait.number() as usize + 1;
/// Marks a call that has no row.
const NO_ROW: u8 = u8::MAX;

/// The place of each call in the table.
const ROW_INDEX: [u8; INDEX_LEN] = {
    assert!(TABLE.len() < NO_ROW as usize);
    let mut index = [NO_ROW; INDEX_LEN];
    let mut i = 0;
    while i < TABLE.len() {
        let number = TABLE[i].number;
        if number.number() != ASK_MONITOR.number() {
            index[number.number() as usize] = i as u8;
        }
        i += 1;
    }
    index
};

// A row that is trapped without a handler does not compile, unless the filter alone decides about it.
const _: () = {
    let mut i = 0;
    while i < TABLE.len() {
        let row = &TABLE[i];
        let mut decided_by_filter = !row.traps.is_empty();
        let mut j = 0;
        while j < row.traps.len() {
            decided_by_filter &= matches!(row.traps[j].1, When::Refused | When::Monitor);
            j += 1;
        }
        assert!(row.handler.is_some() || row.traps.is_empty() || decided_by_filter);
        i += 1;
    }
};

/// The part of the shim that carries out a trapped call; `None` where no row says that the call is trapped.
pub fn handler(call: Sysno) -> Option<Handler> {
    row(call)?.handler
}
