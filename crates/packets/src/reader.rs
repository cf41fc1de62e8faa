//! A reader: one connection to the socket inside a container.

use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{send, MsgFlags};

/// Limit of a reader's output buffer, bytes. Lines beyond are dropped and counted.
const MAX_OUTPUT_LEN: usize = 1 << 20;
/// Length limit of a word, bytes.
const MAX_WORD_LEN: usize = 64;

/// A reader's request: one word a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReaderRequest {
    /// Send packets as JSON from now on.
    Json,
    /// Send packets as lines of text from now on, as at the beginning.
    Text,
    /// Switch the watching of its namespace on or off.
    Switch(bool),
    /// Reset the statistics.
    Reset,
    /// Send the statistics of all packets, as one line of JSON.
    Aggregate,
    /// Send all packets known up to now, then a line that marks the end.
    Sync,
    /// An unknown word.
    Unknown,
}

impl ReaderRequest {
    fn parse(word: &[u8]) -> ReaderRequest {
        match word.trim_ascii() {
            b"json" => ReaderRequest::Json,
            b"text" => ReaderRequest::Text,
            b"on" => ReaderRequest::Switch(true),
            b"off" => ReaderRequest::Switch(false),
            b"reset" => ReaderRequest::Reset,
            b"aggregate" => ReaderRequest::Aggregate,
            b"sync" => ReaderRequest::Sync,
            _ => ReaderRequest::Unknown,
        }
    }
}

/// One connection.
pub(crate) struct Reader {
    pub stream: UnixStream,
    pub cookie: u64,
    pub json: bool,
    input: Vec<u8>,
    output: Vec<u8>,
    lost: u64,
    silent: bool,
}

impl Reader {
    pub fn new(stream: UnixStream, cookie: u64) -> Reader {
        Reader {
            stream,
            cookie,
            json: false,
            input: Vec::new(),
            output: Vec::new(),
            lost: 0,
            silent: false,
        }
    }

    /// Whether the reader may still send requests.
    pub fn may_send(&self) -> bool {
        !self.silent
    }

    /// Whether the reader has closed both halves of the connection.
    fn is_gone(&self) -> bool {
        let mut fds = [PollFd::new(self.stream.as_fd(), PollFlags::empty())];
        poll(&mut fds, PollTimeout::ZERO).is_ok_and(|count| count > 0)
    }

    /// Reads the requests that came since the last call; none once the reader has gone.
    pub fn requests(&mut self) -> Option<Vec<ReaderRequest>> {
        if self.silent {
            return (!self.is_gone()).then(Vec::new);
        }
        let mut bytes = [0; 512];
        match self.stream.read(&mut bytes) {
            // The reader may have closed its sending half only, as `echo aggregate | nc -NU` does, and still read.
            Ok(0) => self.silent = true,
            Ok(count) => self.input.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => (),
            Err(_) => return None,
        }
        let mut requests = Vec::new();
        while let Some(end) = self.input.iter().position(|&byte| byte == b'\n') {
            let word: Vec<u8> = self.input.drain(..=end).collect();
            requests.push(ReaderRequest::parse(&word));
        }
        (self.input.len() <= MAX_WORD_LEN).then_some(requests)
    }

    /// Queues `line` for the reader.
    pub fn tell(&mut self, line: &str) {
        if self.output.len() + line.len() > MAX_OUTPUT_LEN {
            self.lost += 1;
            return;
        }
        if self.lost > 0 {
            self.output.extend(format!("# {} lines lost: read too slowly\n", self.lost).bytes());
            self.lost = 0;
        }
        self.output.extend_from_slice(line.as_bytes());
        self.output.push(b'\n');
    }

    /// Writes as much as the socket takes. Returns false once the reader has gone.
    pub fn flush(&mut self) -> bool {
        while !self.output.is_empty() {
            match send(self.stream.as_raw_fd(), &self.output, MsgFlags::MSG_NOSIGNAL) {
                Ok(count) => drop(self.output.drain(..count)),
                Err(Errno::EAGAIN | Errno::EINTR) => return true,
                Err(_) => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn words_are_lines() {
        let (mut there, here) = UnixStream::pair().unwrap();
        here.set_nonblocking(true).unwrap();
        let mut reader = Reader::new(here, 1);
        there.write_all(b"json\nsy").unwrap();
        assert_eq!(reader.requests(), Some(vec![ReaderRequest::Json]));
        there.write_all(b"nc\r\nwhat?\n").unwrap();
        assert_eq!(reader.requests(), Some(vec![ReaderRequest::Sync, ReaderRequest::Unknown]));
        there.write_all(&[b'x'; 100]).unwrap();
        assert_eq!(reader.requests(), None, "a word without an end");
    }

    #[test]
    fn who_reads_slowly_is_told_so() {
        let (mut there, here) = UnixStream::pair().unwrap();
        here.set_nonblocking(true).unwrap();
        let mut reader = Reader::new(here, 1);
        let line = "y".repeat(1023);
        (0..3000).for_each(|_| reader.tell(&line));
        let mut room = vec![0; MAX_OUTPUT_LEN];
        let mut output = Vec::new();
        for last in ["", "", "z"] {
            while reader.flush() {
                there.set_nonblocking(true).unwrap();
                match there.read(&mut room) {
                    Ok(count) => output.extend_from_slice(&room[..count]),
                    Err(_) => break,
                }
            }
            reader.tell(last);
        }
        let output = String::from_utf8(output).unwrap();
        assert_eq!(output.matches("lines lost: read too slowly").count(), 1, "{}", output.len());
    }
}
