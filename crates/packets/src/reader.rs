//! A reader: one connection to the socket inside a container.

use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{send, MsgFlags};

/// Limit of a reader's output buffer, bytes. Lines beyond are dropped and counted.
const PATIENCE: usize = 1 << 20;
/// Length limit of a word, bytes.
const LONGEST_WORD: usize = 64;

/// A reader's request: one word a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
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

impl Wish {
    fn parse(word: &[u8]) -> Wish {
        match word.trim_ascii() {
            b"json" => Wish::Json,
            b"text" => Wish::Text,
            b"on" => Wish::Switch(true),
            b"off" => Wish::Switch(false),
            b"reset" => Wish::Reset,
            b"aggregate" => Wish::Aggregate,
            b"sync" => Wish::Sync,
            _ => Wish::Unknown,
        }
    }
}

/// One connection.
pub(crate) struct Client {
    pub stream: UnixStream,
    pub cookie: u64,
    pub json: bool,
    input: Vec<u8>,
    output: Vec<u8>,
    lost: u64,
    silent: bool,
}

impl Client {
    pub fn new(stream: UnixStream, cookie: u64) -> Client {
        Client {
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
    pub fn speaks(&self) -> bool {
        !self.silent
    }

    /// Whether the reader has closed both halves of the connection.
    fn is_gone(&self) -> bool {
        let mut fds = [PollFd::new(self.stream.as_fd(), PollFlags::empty())];
        poll(&mut fds, PollTimeout::ZERO).is_ok_and(|count| count > 0)
    }

    /// Reads the requests that came since the last call; none once the reader has gone.
    pub fn wishes(&mut self) -> Option<Vec<Wish>> {
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
        let mut wishes = Vec::new();
        while let Some(end) = self.input.iter().position(|&byte| byte == b'\n') {
            let word: Vec<u8> = self.input.drain(..=end).collect();
            wishes.push(Wish::parse(&word));
        }
        (self.input.len() <= LONGEST_WORD).then_some(wishes)
    }

    /// Queues `line` for the reader.
    pub fn tell(&mut self, line: &str) {
        if self.output.len() + line.len() > PATIENCE {
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
        let mut client = Client::new(here, 1);
        there.write_all(b"json\nsy").unwrap();
        assert_eq!(client.wishes(), Some(vec![Wish::Json]));
        there.write_all(b"nc\r\nwhat?\n").unwrap();
        assert_eq!(client.wishes(), Some(vec![Wish::Sync, Wish::Unknown]));
        there.write_all(&[b'x'; 100]).unwrap();
        assert_eq!(client.wishes(), None, "a word without an end");
    }

    #[test]
    fn who_reads_slowly_is_told_so() {
        let (mut there, here) = UnixStream::pair().unwrap();
        here.set_nonblocking(true).unwrap();
        let mut client = Client::new(here, 1);
        let line = "y".repeat(1023);
        (0..3000).for_each(|_| client.tell(&line));
        let mut room = vec![0; PATIENCE];
        let mut told = Vec::new();
        for last in ["", "", "z"] {
            while client.flush() {
                there.set_nonblocking(true).unwrap();
                match there.read(&mut room) {
                    Ok(count) => told.extend_from_slice(&room[..count]),
                    Err(_) => break,
                }
            }
            client.tell(last);
        }
        let told = String::from_utf8(told).unwrap();
        assert_eq!(told.matches("lines lost: read too slowly").count(), 1, "{}", told.len());
    }
}
