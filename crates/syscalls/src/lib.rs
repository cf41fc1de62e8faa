//! The one table of system calls: for each call its number and name, when it is trapped, which part of the shim carries it out,
//! where its timeout lies, what a thread that sleeps in it waits for, and how it goes on after a signal.
//!
//! The filter, the trap handler, attach, the change of a clock and the skipping of idle time take what they need from here. A new
//! call is one row in `table.rs`; `docs/syscalls.md` is written from the rows.
//!
//! ```
//! use lorentz_syscalls::{nr, row, Restart};
//! let poll = row(nr::POLL).unwrap();
//! assert_eq!(poll.name, "poll");
//! assert_eq!(poll.restart, Restart::RestartBlock);
//! assert!(row(nr::GETPID).is_none());
//! ```

#![no_std]

#[cfg(test)]
extern crate std;

mod call;
mod handler;
mod numbers;
mod page;
mod table;
mod when;

pub use call::{Form, Restart, Syscall, Timeout, TimeoutClock, WaitsFor};
pub use handler::Handler;
pub use numbers::{nr, NUMBERS};
pub use page::Page;
pub use table::{ASK_MONITOR, TABLE};
pub use when::{When, Where};

/// The row of a call, by its number; `None` where the call has no time in it. Takes a few instructions.
pub fn row(number: u32) -> Option<&'static Syscall> {
    let place = *PLACES.get(number as usize)?;
    TABLE.get(place as usize)
}

/// One more than the highest number of a call that the handler carries out.
const NUMBERED: usize = nr::FUTEX_WAIT as usize + 1;
/// Place of a number that has no row.
const NOWHERE: u8 = u8::MAX;

/// The place of each number in the table.
const PLACES: [u8; NUMBERED] = {
    assert!(TABLE.len() < NOWHERE as usize);
    let mut places = [NOWHERE; NUMBERED];
    let mut i = 0;
    while i < TABLE.len() {
        let number = TABLE[i].number;
        if number != ASK_MONITOR {
            places[number as usize] = i as u8;
        }
        i += 1;
    }
    places
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
pub fn handler(number: u32) -> Option<Handler> {
    row(number)?.handler
}
