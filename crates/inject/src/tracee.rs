//! Facts about a thread that execs, and the messages that name it.

use crate::trace::TracedThread;
use std::io;

/// Prints why the exec of `thread` fails: a process that is not one of Lorentz's traces it, or the kernel's `error`.
pub(crate) fn report_refusal(thread: TracedThread, error: &io::Error) {
    let thread_name = describe(thread);
    match tracer_of(thread).map(|tracer| describe(TracedThread(tracer))) {
        Some(tracer) => eprintln!(
            "lorentz: exec refused in {thread_name}: it is traced by {tracer} (strace or gdb inside). Attach from outside instead, with -p"
        ),
        None => eprintln!("lorentz: exec refused in {thread_name}: ptrace: {error}"),
    }
}

/// Returns the thread's tracer, if it has one.
pub(crate) fn tracer_of(thread: TracedThread) -> Option<i32> {
    status_of(thread, "TracerPid:")?.parse().ok().filter(|tracer| *tracer != 0)
}

/// Returns the tracer of process `pid`, if it has one. A monitor traces a program while it puts the shim in.
pub fn tracer_of_process(pid: u32) -> Option<u32> {
    tracer_of(TracedThread(pid as i32)).and_then(|tracer| u32::try_from(tracer).ok())
}

/// The process that traces a thread.
pub(crate) enum Tracer {
    Nobody,
    /// This process.
    This,
    /// Another one of Lorentz's.
    Lorentz,
    /// A debugger.
    Other(i32),
}

impl Tracer {
    /// Looks at the tracer of `thread`. `found` is called before each look at its name.
    ///
    /// A tracer that ends meanwhile has no name any more, or its number is another process's. It does not trace the thread either.
    pub fn of(thread: TracedThread, found: impl Fn()) -> Tracer {
        const MAX_TRIES: u32 = 10;
        let mut last = None;
        for _ in 0..MAX_TRIES {
            let Some(tracer) = tracer_of(thread) else { return Tracer::Nobody };
            found();
            if tracer == std::process::id() as i32 {
                return Tracer::This;
            }
            if is_of_lorentz(tracer) {
                return Tracer::Lorentz;
            }
            // It had no such name, and has been the tracer since.
            if last.replace(tracer) == Some(tracer) {
                return Tracer::Other(tracer);
            }
        }
        last.map_or(Tracer::Nobody, Tracer::Other)
    }
}

/// Whether process `pid` is one of Lorentz's, by its name.
fn is_of_lorentz(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm"))
        .is_ok_and(|name| name.starts_with("lorentz"))
}

/// Returns the letter of the thread's state; `None` if it has ended.
pub(crate) fn state_of(thread: TracedThread) -> Option<char> {
    status_of(thread, "State:")?.chars().next()
}

/// Whether `signal` is pending for the thread alone.
pub(crate) fn is_pending(thread: TracedThread, signal: u32) -> bool {
    is_in_mask(thread, "SigPnd:", signal)
}

/// Whether `signal` is pending for the process of `thread`.
pub(crate) fn is_pending_for_process(thread: TracedThread, signal: u32) -> bool {
    is_in_mask(thread, "ShdPnd:", signal)
}

fn is_in_mask(thread: TracedThread, field: &str, signal: u32) -> bool {
    let mask = status_of(thread, field).and_then(|mask| u64::from_str_radix(&mask, 16).ok());
    let bit = signal.checked_sub(1).and_then(|place| 1u64.checked_shl(place));
    mask.zip(bit).is_some_and(|(mask, bit)| mask & bit != 0)
}

/// Returns a field of /proc/PID/status.
pub(crate) fn status_of(thread: TracedThread, field: &str) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", thread.0)).ok()?;
    status.lines().find_map(|line| line.strip_prefix(field)).map(|value| value.trim().to_string())
}

/// Returns the process id and the name of a thread, for messages.
pub(crate) fn describe(thread: TracedThread) -> String {
    let name = std::fs::read_to_string(format!("/proc/{}/comm", thread.0)).unwrap_or_default();
    format!("process {} ({})", thread.0, name.trim())
}
