//! Waits of one container, with their deadlines: the registry of its clock, and what /proc tells of each thread.

use std::fs;
use std::sync::Arc;

use axum::extract::{Path, State};
use lorentz_clock::Waiter;
use lorentz_control as control;
use lorentz_control::processes;
use lorentz_syscalls::NUMBERS;

use crate::app::App;
use crate::reply::{self, Answer, Refusal};
use crate::types::{Nanos, Wait};

/// Most waits of an answer. A program may have many threads.
const MAX_WAITS: usize = 1_000;
/// System calls whose first argument is the file that they wait for.
const ON_A_FILE: [&str; 9] = [
    "read",
    "readv",
    "recvfrom",
    "recvmsg",
    "accept",
    "accept4",
    "connect",
    "epoll_wait",
    "epoll_pwait",
];

/// `GET /api/v1/containers/NAME/waits`.
pub async fn waits(State(app): State<Arc<App>>, Path(name): Path<String>) -> Answer {
    let found = tokio::task::spawn_blocking(move || {
        let container =
            app.state.container(&name).map_err(|error| Refusal::unknown(error.to_string()))?;
        let clock = container.clock().map_err(Refusal::failed)?;
        // Containers may share a clock: only this one's processes are asked for.
        let own = container.processes().map_err(Refusal::failed)?;
        let now = clock.look().now();
        let mut all: Vec<Wait> = clock
            .waits()
            .iter()
            .filter(|wait| own.iter().any(|process| process.pid == wait.thread.pid))
            .take(MAX_WAITS)
            .map(|wait| describe(wait, now.0))
            .collect();
        all.sort_by_key(|wait| (wait.until_ns.is_none(), wait.until_ns, wait.pid, wait.tid));
        Ok(all)
    });
    reply::json(&found.await.map_err(Refusal::failed)??)
}

fn describe(wait: &control::Wait, now: i64) -> Wait {
    let processes::Thread { pid, tid } = wait.thread;
    let of_thread = |file: &str| {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/{file}"));
        text.unwrap_or_default().trim().to_string()
    };
    let call = call_name(wait.call);
    // The number of the call and its arguments, while the thread is in it.
    let arguments = of_thread("syscall");
    let first = arguments.split(' ').nth(1).and_then(|word| word.strip_prefix("0x"));
    let descriptor = first.and_then(|word| u64::from_str_radix(word, 16).ok());
    let on = descriptor.filter(|_| ON_A_FILE.contains(&call.as_str())).and_then(|descriptor| {
        let path = fs::read_link(format!("/proc/{pid}/fd/{descriptor}")).ok()?;
        Some(path.display().to_string())
    });
    Wait {
        pid,
        tid,
        thread: of_thread("comm"),
        command: command_line(pid),
        call,
        on,
        until_ns: wait.until.map(|until| Nanos(until.0)),
        remaining_ns: wait.until.map(|until| Nanos(until.0.saturating_sub(now).max(0))),
    }
}

fn call_name(call: u32) -> String {
    if call == Waiter::SEND_ORDER {
        return "a send that waits for its turn".to_string();
    }
    let known = NUMBERS.iter().find(|(number, _)| number.number() == call);
    known.map_or_else(|| format!("call {call}"), |(_, name)| (*name).to_string())
}

fn command_line(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty()).collect();
    words.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_their_names() {
        assert_eq!(call_name(libc::SYS_clock_nanosleep as u32), "clock_nanosleep");
        assert_eq!(call_name(100_000), "call 100000");
        for call in ON_A_FILE {
            assert!(NUMBERS.iter().any(|(_, name)| *name == call), "{call}");
        }
    }
}
