//! The timeout of a blocking call, as the kernel takes it. A wait computes it anew for each try.

use crate::clocks;
use crate::deadline;
use crate::sys::{
    host_clock, sys, ClockId, Fd, Request, SocketOption, Sysno, Timespec, Timeval, UserPtr,
};
use lorentz_clock::{Deadline, RealInstant, Snapshot, Span, NANOS_PER_SEC};

/// A timeout: its form, and its value for the present try.
pub struct Timeout {
    form: Form,
    until: RealInstant,
    /// The value that the kernel reads. Calls that count a timeout down write back into it.
    value: Timespec,
    /// Whether a try may end before the deadline, and the next one waits for the rest.
    in_tries: bool,
}

/// How a call takes its timeout, and as which of its arguments.
#[derive(Clone, Copy)]
enum Form {
    /// A length of time, the longest for never.
    Length { argument: usize },
    /// A length of time, null for never.
    OptionalLength { argument: usize },
    /// A length of time, which the kernel writes back through the argument behind it.
    Sleep { argument: usize },
    /// An instant of CLOCK_MONOTONIC.
    Monotonic { argument: usize },
    /// An instant of the host's CLOCK_REALTIME.
    HostWall { argument: usize },
    /// An option of a socket, outside of the call.
    Socket { socket: Fd, option: SocketOption },
}

impl Form {
    /// By how much the kernel may be late at the end of a call that waits for `length`; 0 where that is less than some ms.
    fn lateness(self, length: Span) -> Span {
        match self {
            // fs/select.c, select_estimate_accuracy: a thousandth, five of them for a process that is nice, and at most this.
            Form::Length { .. } | Form::OptionalLength { .. } if length > Span(1_000_000_000) => {
                const MAX: Span = Span(100_000_000);
                Span(length.0 / 200).min(MAX)
            }
            // kernel/time/timer.c: from 64 ticks on a timer's granularity is an eighth of its length, before that two ticks.
            Form::Socket { .. } if length > Span(250_000_000) => Span(length.0 / 8),
            Form::Socket { .. } if length > Span(50_000_000) => Span(25_000_000),
            _ => Span::ZERO,
        }
    }
}

impl Timeout {
    fn new(form: Form) -> Timeout {
        Timeout { form, until: RealInstant::NEVER, value: Timespec::default(), in_tries: false }
    }

    /// Asks the kernel for so much less that a long wait is not late by what the kernel allows itself. The call must lose nothing when
    /// a try ends by its timeout.
    pub fn in_tries(self) -> Timeout {
        Timeout { in_tries: true, ..self }
    }

    /// A length of time as argument number `argument`.
    pub fn length(argument: usize) -> Timeout {
        Timeout::new(Form::Length { argument })
    }

    /// A length of time as argument number `argument`; null for never.
    pub fn optional_length(argument: usize) -> Timeout {
        Timeout::new(Form::OptionalLength { argument })
    }

    /// A length of time as argument number `argument`. The kernel writes the rest through the argument behind it.
    pub fn sleep(argument: usize) -> Timeout {
        Timeout::new(Form::Sleep { argument })
    }

    /// An instant of CLOCK_MONOTONIC as argument number `argument`.
    pub fn monotonic(argument: usize) -> Timeout {
        Timeout::new(Form::Monotonic { argument })
    }

    /// An instant of the host's wall clock as argument number `argument`.
    pub fn host_wall(argument: usize) -> Timeout {
        Timeout::new(Form::HostWall { argument })
    }

    /// The timeout `option` of `socket`: SO_RCVTIMEO or SO_SNDTIMEO.
    pub fn of_socket(socket: Fd, option: SocketOption) -> Timeout {
        Timeout::new(Form::Socket { socket, option })
    }

    /// Gives `request` the timeout that ends at `until`, as computed at `look`.
    pub fn set(&mut self, request: &mut Request, until: RealInstant, look: &Snapshot) {
        let until = match self.in_tries && until != RealInstant::NEVER {
            true => RealInstant(until.0 - self.form.lateness(until.since(look.real)).0),
            false => until,
        };
        self.until = until;
        self.value = match self.form {
            Form::Monotonic { .. } => clocks::for_kernel(until),
            Form::HostWall { .. } => on_host_wall(until, look),
            _ => Timespec::from_span(until.since(look.real)),
        };
        let value: UserPtr<Timespec> = UserPtr::new(&raw mut self.value as u64);
        let mut give = |argument, value: Option<UserPtr<Timespec>>| {
            *request = request.with(argument, value);
        };
        match self.form {
            Form::OptionalLength { argument } if until == RealInstant::NEVER => {
                give(argument, None);
            }
            Form::Length { argument }
            | Form::OptionalLength { argument }
            | Form::Monotonic { argument }
            | Form::HostWall { argument } => give(argument, Some(value)),
            Form::Sleep { argument } => {
                give(argument, Some(value));
                give(argument + 1, Some(value));
            }
            Form::Socket { socket, option } => {
                let left = match until {
                    RealInstant::NEVER => Span::ZERO,
                    _ => Span(until.since(look.real).0.max(1)),
                };
                set_of_socket(socket, option, left);
            }
        }
    }

    /// Virtual time left until `deadline` when a signal broke off the last try. The whole timeout where no try was made.
    pub fn left_at_interruption(&self, deadline: Deadline) -> Span {
        let left = match self.until {
            RealInstant::NEVER => Span::ZERO,
            _ => self.value.to_span().unwrap_or(Span::ZERO),
        };
        deadline::left_at_interruption(deadline, self.until, left)
    }
}

/// A real instant on the host's wall clock.
fn on_host_wall(real: RealInstant, look: &Snapshot) -> Timespec {
    let now = host_clock(ClockId::REALTIME);
    let nanos = (now.secs * NANOS_PER_SEC + now.nanos).saturating_add(real.since(look.real).0);
    Timespec::from_span(Span(nanos))
}

/// Sets the kernel's timeout `option` of a socket to the real time `left`, 0 for none.
pub fn set_of_socket(socket: Fd, option: SocketOption, left: Span) {
    const SOL_SOCKET: i32 = 1;
    let time = Timeval::from_span_up(left);
    // SAFETY: reads `time`.
    let _ = unsafe {
        let len = size_of::<Timeval>();
        sys!(Sysno::setsockopt, socket, SOL_SOCKET, option, &raw const time, len)
    };
}
