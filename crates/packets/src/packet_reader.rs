//! Client of the socket inside a container, for a reader that wants all packets of the container.

use std::io::{self, BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::Value;

use crate::container_socket::SOCKET;
use crate::error::PacketsError;

const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection to the socket.
pub(crate) struct PacketReader {
    stream: UnixStream,
    lines: BufReader<UnixStream>,
}

impl PacketReader {
    /// Connects, and waits until the server answers.
    pub fn connect() -> Result<PacketReader, PacketsError> {
        let failed = |error: io::Error| {
            let why = "; 'lorentz latency serve' outside makes it, for its own network namespace";
            let error = io::Error::new(error.kind(), format!("{error}{why}"));
            PacketsError::Socket { path: SOCKET.into(), error }
        };
        let stream = UnixStream::connect(SOCKET).map_err(failed)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        let lines = BufReader::new(stream.try_clone()?);
        let mut reader = PacketReader { stream, lines };
        reader.stream.write_all(b"json\n")?;
        reader.catch_up(|_| ()).map_err(failed)?;
        Ok(reader)
    }

    /// Calls `note` with each packet known up to now that this connection has not delivered before.
    pub fn catch_up(&mut self, mut note: impl FnMut(&Value)) -> io::Result<()> {
        self.stream.write_all(b"sync\n")?;
        let mut line = String::new();
        loop {
            line.clear();
            if self.lines.read_line(&mut line)? == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed"));
            }
            if line.starts_with("# sync") {
                return Ok(());
            }
            if let Ok(packet) = serde_json::from_str(&line) {
                note(&packet);
            }
        }
    }
}

impl Drop for PacketReader {
    fn drop(&mut self) {
        // If this fails, the server sees the end of the connection anyway.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}
