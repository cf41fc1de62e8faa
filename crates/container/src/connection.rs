//! Client side of a background process's socket: requests and answers, one line of JSON each. Clients of experiments and of
//! networks use it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use serde::{de::DeserializeOwned, Serialize};
use thiserror::Error;

use crate::ServiceDir;

/// A connection to a background process. It carries one request at a time.
#[derive(Debug)]
pub struct Connection(BufReader<UnixStream>);

/// A failure of a connection.
#[derive(Debug, Error)]
pub enum ConnectionError {
    /// The process has ended, or has closed the connection.
    #[error("the process at the other end of the socket has ended")]
    Ended,
    /// The socket failed.
    #[error(transparent)]
    Io(io::Error),
    /// A request or an answer cannot be JSON of its type.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

impl From<io::Error> for ConnectionError {
    fn from(error: io::Error) -> ConnectionError {
        match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => ConnectionError::Ended,
            _ => ConnectionError::Io(error),
        }
    }
}

impl Connection {
    /// Connects to the socket in `directory`. `None` if no process listens there, not yet or not any more.
    ///
    /// # Errors
    ///
    /// If the socket belongs to another user.
    pub fn open(directory: &ServiceDir) -> io::Result<Option<Connection>> {
        let stream = directory.connect()?;
        Ok(stream.map(|stream| Connection(BufReader::new(stream))))
    }

    /// Sends `request`, and waits for the answer.
    ///
    /// # Errors
    ///
    /// [`ConnectionError`] if there is no answer.
    pub fn ask<A: DeserializeOwned>(
        &mut self,
        request: &impl Serialize,
    ) -> Result<A, ConnectionError> {
        self.send(request)?;
        self.receive()
    }

    /// Sends `request`.
    ///
    /// # Errors
    ///
    /// [`ConnectionError`] if the process has ended.
    pub fn send(&mut self, request: &impl Serialize) -> Result<(), ConnectionError> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        Ok(self.0.get_mut().write_all(&line)?)
    }

    /// Waits for the next answer.
    ///
    /// # Errors
    ///
    /// [`ConnectionError`] if the process ends before it has sent a whole line.
    pub fn receive<A: DeserializeOwned>(&mut self) -> Result<A, ConnectionError> {
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line)?;
        if !line.ends_with(b"\n") {
            return Err(ConnectionError::Ended);
        }
        Ok(serde_json::from_slice(&line)?)
    }

    /// Returns the reader of all that follows the last answer.
    pub fn into_reader(self) -> impl Read {
        self.0
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Connection, UnixStream) {
        let (mine, other) = UnixStream::pair().unwrap();
        (Connection(BufReader::new(mine)), other)
    }

    #[test]
    fn a_request_is_a_line_and_so_is_its_answer() {
        let (mut connection, mut other) = pair();
        other.write_all(b"[2]\nrest").unwrap();
        assert_eq!(connection.ask::<Vec<u8>>(&"one").unwrap(), [2]);
        let mut line = [0; 6];
        other.read_exact(&mut line).unwrap();
        assert_eq!(&line, b"\"one\"\n");
        drop(other);
        let mut rest = String::new();
        connection.into_reader().read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "rest");
    }

    #[test]
    fn a_line_that_breaks_off_is_the_end_of_the_process() {
        let (mut connection, mut other) = pair();
        other.write_all(b"[2").unwrap();
        drop(other);
        let received = connection.receive::<Vec<u8>>();
        assert!(matches!(received, Err(ConnectionError::Ended)));
        assert!(matches!(connection.send(&1), Err(ConnectionError::Ended)));
    }
}
