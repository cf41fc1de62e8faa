//! Log capture for the processes that `libcontainer` makes. Such a process tells its parent which step has failed; only its log
//! says why. This module keeps the log's errors in memory that all these processes share, and adds them to the error.

use std::fmt::{Debug, Write as _};
use std::fs::File;
use std::io::{Read, Seek, Write};

use nix::sys::memfd::{memfd_create, MFdFlags};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::report;

/// Runs `work`, a function of libcontainer. Its error gets the first error logged meanwhile, if that one says more.
pub fn with_logged_cause<T, E: Into<anyhow::Error>>(
    work: impl FnOnce() -> Result<T, E>,
) -> anyhow::Result<T> {
    let capture = LogCapture::start();
    work().map_err(|error| {
        let error = error.into();
        let line = report::line(&error);
        let cause =
            capture.and_then(LogCapture::first_error).filter(|cause| !cause.contains(&line));
        cause.map_or(error, |cause| anyhow::anyhow!("{line}: {cause}"))
    })
}

/// Collects the errors logged from now on, by this process and by its children.
struct LogCapture {
    file: File,
}

struct Collector {
    file: File,
}

impl LogCapture {
    /// Starts the only log capture of this process; none if one exists already.
    fn start() -> Option<LogCapture> {
        let file = File::from(memfd_create(c"errors", MFdFlags::MFD_CLOEXEC).ok()?);
        let collector = Collector { file: file.try_clone().ok()? };
        tracing::subscriber::set_global_default(collector).ok()?;
        Some(LogCapture { file })
    }

    /// Returns the first error logged: the one nearest to the cause.
    fn first_error(mut self) -> Option<String> {
        let mut text = String::new();
        self.file.rewind().ok()?;
        self.file.read_to_string(&mut text).ok()?;
        text.lines().next().map(str::to_string)
    }
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR && metadata.is_event()
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let text = format!("{} ({})\n", line.message, line.fields.join(", "));
        let _ = (&self.file).write_all(text.replace(" ()", "").as_bytes());
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Line {
    message: String,
    fields: Vec<String>,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = String::new();
        let _ = write!(text, "{value:?}");
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        match field.name() {
            "message" => self.message = text,
            name => self.fields.push(format!("{name}: {text}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_is_kept() {
        let capture = LogCapture::start().unwrap();
        assert!(LogCapture::start().is_none());
        tracing::warn!("no error");
        tracing::error!(path = "/x", "cannot\nmount");
        tracing::error!("so nothing works");
        assert_eq!(capture.first_error().as_deref(), Some("cannot mount (path: \"/x\")"));
    }
}
