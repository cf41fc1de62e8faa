//! One row of the table.

use crate::handler::Handler;
use crate::numbers::Sysno;
use crate::when::{When, Where};

/// Everything that Lorentz knows of one system call.
#[derive(Clone, Copy, Debug)]
pub struct Syscall {
    /// Its number.
    pub number: Sysno,
    /// Its name, as in the manual.
    pub name: &'static str,
    /// When it is trapped, and in which programs.
    pub traps: &'static [(Where, When)],
    /// The part of the shim that carries it out when it is trapped.
    pub handler: Option<Handler>,
    /// Its timeout.
    pub timeout: Option<Timeout>,
    /// The event that a thread in this call waits for.
    pub waits_for: WaitsFor,
    /// How it goes on after a signal.
    pub restart: Restart,
    /// The virtual part of the call, in a few words.
    pub meaning: &'static str,
    /// The test that holds it: a path below `tests`.
    pub test: &'static str,
}

/// A timeout among the arguments of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeout {
    /// Its argument, counted from 0.
    pub argument: u8,
    /// How it is given.
    pub form: Form,
    /// The clock that counts it.
    pub clock: TimeoutClock,
}

/// How a timeout is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// An int of milliseconds; below 0 is for ever.
    Millis,
    /// A pointer to a struct timespec; null is for ever.
    Timespec,
    /// A pointer to a struct timeval; null is for ever.
    Timeval,
}

/// The clock of a timeout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeoutClock {
    /// A length of time, on CLOCK_MONOTONIC.
    Relative,
    /// An instant of CLOCK_REALTIME.
    Realtime,
    /// Other arguments say which clock, and whether it is an instant.
    ByArguments,
}

/// The event that a sleeping thread waits for, beside its timeout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitsFor {
    /// Other threads of the container, signals, or nothing.
    Tasks,
    /// A connection to a socket that listens.
    Connection,
    /// The descriptor in argument 0, to be read.
    Readable,
    /// The descriptor in argument 0, to be written.
    Writable,
    /// The descriptors of poll(2): argument 0 points at them, argument 1 is their number.
    Polled,
    /// The descriptors of select(2): arguments 1 and 2 point at sets of argument 0 bits.
    Selected,
    /// The epoll set in argument 0.
    EpollSet,
    /// Asynchronous input and output.
    Events,
    /// Lorentz does not know.
    Unknown,
}

/// How a call that a signal interrupts goes on, once the signal's handler has run with SA_RESTART (signal(7)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Restart {
    /// The kernel makes it again.
    ByKernel,
    /// It returns EINTR; where no handler ran, the kernel makes it again for the time that is left.
    RestartBlock,
    /// It returns EINTR where a handler ran; else the kernel makes it again.
    NoHandler,
    /// It returns EINTR where its socket has a timeout; else the kernel makes it again.
    UnlessTimeout,
    /// It returns EINTR even where no handler ran: after a stop, or a freeze.
    Never,
}

impl Syscall {
    /// A call that is not trapped.
    pub(crate) const fn new(number: Sysno, name: &'static str) -> Syscall {
        Syscall {
            number,
            name,
            traps: &[],
            handler: None,
            timeout: None,
            waits_for: WaitsFor::Unknown,
            restart: Restart::ByKernel,
            meaning: "",
            test: "",
        }
    }

    /// Trapped as `traps` says, and carried out by `handler`.
    pub(crate) const fn trapped(
        self,
        traps: &'static [(Where, When)],
        handler: Handler,
    ) -> Syscall {
        Syscall { traps, handler: Some(handler), ..self }
    }

    /// Decided by the filter without the trap handler.
    pub(crate) const fn filtered(self, traps: &'static [(Where, When)]) -> Syscall {
        Syscall { traps, ..self }
    }

    pub(crate) const fn timeout(self, argument: u8, form: Form, clock: TimeoutClock) -> Syscall {
        Syscall { timeout: Some(Timeout { argument, form, clock }), ..self }
    }

    pub(crate) const fn waits_for(self, waits_for: WaitsFor) -> Syscall {
        Syscall { waits_for, ..self }
    }

    pub(crate) const fn restarts(self, restart: Restart) -> Syscall {
        Syscall { restart, ..self }
    }

    pub(crate) const fn means(self, meaning: &'static str, test: &'static str) -> Syscall {
        Syscall { meaning, test, ..self }
    }

    /// Whether every program has it trapped, whatever its arguments are.
    pub fn is_always_trapped(&self) -> bool {
        self.traps.contains(&(Where::Everywhere, When::Always))
    }
}
