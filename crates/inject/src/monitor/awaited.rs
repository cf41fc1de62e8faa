//! Waiting for the stop of one thread, while the monitor serves all others: the freezer of an experiment waits for a program whose exec
//! waits for the monitor, and the thread may wait for the freezer.

use super::{Awaited, ExecMonitor};
use crate::trace::{Stop, TracedThread};
use std::io;
use std::path::Path;
use std::time::Instant;

impl ExecMonitor {
    /// Waits until `thread`, which this monitor traces and has interrupted, stops for that; returns whether it has by `deadline`.
    /// Otherwise as [`ExecMonitor::await_stop`].
    pub(crate) fn await_interrupt(
        &mut self,
        thread: TracedThread,
        deadline: Instant,
    ) -> io::Result<bool> {
        thread.go_on_until_interrupted(|| self.await_stop(thread, deadline))
    }

    /// Waits until `thread`, which this monitor traces, stops, and returns the reason. `None` if it has not stopped by `deadline`, or
    /// a thread of its process executes a program: then [`ExecMonitor::is_executing`].
    pub(crate) fn await_stop(
        &mut self,
        thread: TracedThread,
        deadline: Instant,
    ) -> io::Result<Option<Stop>> {
        self.awaited = Some(Awaited { thread, status: None });
        let stop = self.serve_until_awaited(deadline);
        self.awaited = None;
        stop
    }

    fn serve_until_awaited(&mut self, deadline: Instant) -> io::Result<Option<Stop>> {
        loop {
            self.reap().map_err(io::Error::other)?;
            let Some(Awaited { thread, status }) = self.awaited else { return Ok(None) };
            match status {
                Some(status) if libc::WIFSTOPPED(status) => return Ok(Some(Stop::of(status))),
                Some(_) => return Err(io::Error::from_raw_os_error(libc::ESRCH)),
                None => {}
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.is_executing(thread) {
                return Ok(None);
            }
            // The signal of the stop ends this.
            self.poll_events(Some(left)).map_err(io::Error::other)?;
        }
    }

    /// Takes the status of the awaited thread. Returns false if the monitor has to handle it: where a thread of the process executes a
    /// program, the kernel gives its number to the one that has executed it.
    pub(super) fn take_awaited(&mut self, thread: TracedThread, status: i32) -> bool {
        let is_awaited = self.awaited.as_ref().is_some_and(|awaited| awaited.thread == thread);
        if !is_awaited || self.is_executing(thread) {
            return false;
        }
        self.awaited = Some(Awaited { thread, status: Some(status) });
        true
    }

    /// Whether a thread of the process of `thread` executes a program, so that it has to stay traced until it has the shim.
    pub(crate) fn is_executing(&self, thread: TracedThread) -> bool {
        let is_beside = |other: &TracedThread| {
            *other == thread || Path::new(&format!("/proc/{}/task/{}", thread.0, other.0)).exists()
        };
        self.execs.keys().any(is_beside)
    }
}
