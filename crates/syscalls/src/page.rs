//! The table as a page: `docs/syscalls.md`.

use crate::call::Syscall;
use crate::numbers::{Sysno, NUMBERS};
use crate::row;
use crate::table::TABLE;
use crate::when::{When, Where};
use core::fmt::{Display, Formatter, Result};

/// Shows the table as Markdown.
pub struct Page;

impl Display for Page {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        writeln!(f, "# System calls")?;
        writeln!(f)?;
        writeln!(
            f,
            "For each system call of x86-64 as of Linux 6.18: when Lorentz traps it, what of it is virtual, what the trap costs,\n\
             and the test below `tests/` that holds it. The page is written from `crates/syscalls/src/table.rs`:\n\
             `scripts/syscalls`.\n\
             \n\
             The column *cost* holds where the condition of *trapped* does. The figures are those of\n\
             [performance](performance.md), beyond the native call:\n\
             \n\
             - *trap*: a signal to the thread and its return, 2 to 4 us.\n\
             - *site*: 0.1 us at a call site that Lorentz has rewritten, if the arguments allow it and nothing waits; else a trap.\n\
             - *monitor*: the thread waits until the container's monitor has answered: two wake-ups.\n\
             - *filter*: the seccomp filter fails the call, without a trap.\n\
             \n\
             Every other call, and a trapped one where its condition does not hold, costs the 30 to 65 ns of the filter."
        )?;
        writeln!(f)?;
        writeln!(f, "| call | trapped | virtual | cost | test |")?;
        writeln!(f, "|---|---|---|---|---|")?;
        for row in TABLE.iter().filter(|row| !row.traps.is_empty()) {
            writeln!(f, "{row}")?;
        }
        writeln!(f)?;
        writeln!(f, "## No time in them")?;
        writeln!(f)?;
        writeln!(f, "These calls tell no time and take none. The filter lets them through by their number alone.")?;
        writeln!(f)?;
        let mut names = NUMBERS.iter().filter(|(number, _)| !is_trapped(*number));
        if let Some((_, first)) = names.next() {
            write!(f, "`{first}`")?;
        }
        for (_, name) in names {
            write!(f, ", `{name}`")?;
        }
        writeln!(f)
    }
}

fn is_trapped(number: Sysno) -> bool {
    row(number).is_some_and(|row| !row.traps.is_empty())
}

impl Display for Syscall {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "| `{}` | ", self.name)?;
        for (i, (place, when)) in self.traps.iter().enumerate() {
            let between = if i == 0 { "" } else { "; " };
            write!(f, "{between}{}{}", when_text(*when, self), where_text(*place))?;
        }
        write!(f, " | {} | {} | `{}` |", self.meaning, cost_text(self), self.test)
    }
}

fn cost_text(call: &Syscall) -> &'static str {
    let has = |wanted: When| call.traps.iter().any(|(_, when)| *when == wanted);
    match call.handler {
        _ if has(When::Exec) => "trap, monitor",
        Some(handler) if handler.works_at_call_sites() => "site",
        Some(_) => "trap",
        None if has(When::Monitor) => "monitor",
        None => "filter",
    }
}

fn when_text(when: When, call: &Syscall) -> &'static str {
    match when {
        When::Always => "always",
        When::Positive(_) => "with a timeout above 0",
        When::PositiveOrGiven(..) => "with a timeout above 0, or a signal mask",
        When::EitherGiven(..) => "with a timeout or a signal mask",
        When::Given(_) if call.timeout.is_some() => "with a timeout",
        When::Given(_) => "where it gives or takes times",
        When::NeitherGiven(..) => "at the start of the file",
        When::IpcTimes(_) => "the commands that return times",
        When::FutexWait => "operations that wait, with a timeout",
        When::SignalAction => "a new action, or one of SIGSYS, SIGSEGV, signal 64",
        When::SocketOption => {
            "SO_RCVTIMEO, SO_SNDTIMEO, SO_TIMESTAMP, SO_TIMESTAMPNS, SO_TIMESTAMPING"
        }
        When::SocketTimeout => "SO_RCVTIMEO, SO_SNDTIMEO",
        When::ProcessOnStack => "a process on a stack of its own",
        When::SetSeccomp => "PR_SET_SECCOMP",
        When::NewTimeNamespace => "CLONE_NEWTIME",
        When::BecomesTracer => "PTRACE_TRACEME, PTRACE_ATTACH, PTRACE_SEIZE",
        When::Exec => "always, and by the monitor",
        When::Monitor => "by the monitor",
        When::Refused => "refused",
    }
}

fn where_text(place: Where) -> &'static str {
    match place {
        Where::Everywhere => "",
        Where::CpuTimes => ", unless `--cpu-clocks real`",
        Where::FileTimes => ", unless `--file-times real`",
        Where::CountedTasks => " with `--skip-idle`",
        Where::OrderedSends => " in rounds",
        Where::Timestamps => " once a socket has timestamps",
        Where::SocketTimeouts => " once a socket has a timeout",
        Where::VirtualReads => " once a descriptor shows time",
        Where::Rewinds => " once a file of /proc is open that shows time",
        Where::PrivateNodes => " in a private node of a network",
    }
}
