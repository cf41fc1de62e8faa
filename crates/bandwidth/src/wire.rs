//! The protocol between client and server. Messages go over TCP, each as a length of four bytes and JSON; probes go over UDP.
//!
//! ```text
//! client                                   server
//!                                      <-  challenge   version, nonce, whether a token is asked for
//! proof       HMAC-SHA256(token, nonce) ->
//!                                      <-  ready       UDP port, number of the session, limits; or refused
//! stream      number, packets           ->
//!                                      <-  armed
//! (probes over UDP)
//! end         number                    ->
//!                                      <-  arrivals    when each came
//! ```

use hmac::{Hmac, Mac};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Version of the protocol. Both ends must have the same.
pub const VERSION: u32 = 2;
/// The server's default port.
pub const PORT: u16 = 13_979;
/// Length of the longest message to the server, bytes.
pub const MAX_MESSAGE_TO_SERVER: usize = 4 << 10;
/// Length of the longest message to the client, bytes.
pub const MAX_MESSAGE_TO_CLIENT: usize = 4 << 20;
/// Largest number of probes in a stream.
pub const MAX_PACKETS: u32 = 20_000;
/// Length of the longest probe, bytes.
pub const MAX_BYTES: u32 = 65_535;

/// A message from the client.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ToServer {
    /// The answer to the challenge.
    Proof {
        /// HMAC-SHA256 of the nonce under the token, in hexadecimal; empty if the client has no token.
        mac: String,
    },
    /// The client is about to send the probes of a stream.
    Stream {
        /// Number of the stream.
        number: u32,
        /// Number of probes.
        packets: u32,
    },
    /// The client has sent all probes of the stream.
    End {
        /// Number of the stream.
        number: u32,
    },
}

/// A message from the server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ToClient {
    /// The first message.
    Challenge {
        /// The server's [`VERSION`].
        version: u32,
        /// The nonce that the client has to answer, in hexadecimal.
        nonce: String,
        /// Whether the server checks the answer.
        token: bool,
    },
    /// The session has begun.
    Ready {
        /// UDP port to which the client sends probes.
        port: u16,
        /// Number of the session, which every probe carries.
        session: u64,
        /// Largest number of probes in a stream.
        most_packets: u32,
    },
    /// The server waits for the probes of this stream.
    Armed {
        /// Number of the stream.
        number: u32,
    },
    /// The arrivals of a stream's probes.
    Arrivals {
        /// Number of the stream.
        number: u32,
        /// Arrival of the first probe, ns since 1970 by the server's clock.
        first: i64,
        /// Number of packets that found the server's receive buffer full meanwhile.
        overrun: u32,
        /// Number of each probe, and its arrival in ns after the first one, in the order of arrival.
        probes: Vec<(u32, i64)>,
    },
    /// The server ends the session.
    Refused {
        /// The reason.
        why: String,
    },
}

/// One end of the control connection.
#[derive(Debug)]
pub struct Control {
    stream: TcpStream,
}

fn invalid(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

impl Control {
    /// Makes an end of the connection `stream`.
    pub fn new(stream: TcpStream) -> io::Result<Control> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(Duration::from_secs(10)))?;
        Ok(Control { stream })
    }

    /// Returns the connection.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends a message.
    pub fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let frame = frame(message)?;
        self.stream.write_all(&frame)
    }

    /// Waits at most `patience` for a message of at most `most` bytes. Both limits apply to the whole message.
    pub fn receive<M: DeserializeOwned>(
        &mut self,
        most: usize,
        patience: Duration,
    ) -> io::Result<M> {
        let until = Instant::now() + patience;
        let mut head = [0; 4];
        self.read(&mut head, until)?;
        let length = u32::from_be_bytes(head) as usize;
        if length > most {
            return Err(invalid(format!(
                "a message of {length} bytes; at most {most} are accepted"
            )));
        }
        let mut body = vec![0; length];
        self.read(&mut body, until)?;
        parse(&body)
    }

    /// Fills `buffer`, at most until `until`, however slowly the peer sends.
    fn read(&mut self, buffer: &mut [u8], until: Instant) -> io::Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "no message came in time"));
            }
            self.stream.set_read_timeout(Some(left))?;
            match self.stream.read(&mut buffer[filled..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Encodes a message with its length.
pub fn frame(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let body = serde_json::to_vec(message)?;
    let length = u32::try_from(body.len()).map_err(|_| invalid("a message that is too long"))?;
    Ok([length.to_be_bytes().as_slice(), &body].concat())
}

/// Decodes a message's body.
pub fn parse<M: DeserializeOwned>(body: &[u8]) -> io::Result<M> {
    serde_json::from_slice(body).map_err(|error| invalid(format!("not a message: {error}")))
}

/// The shared secret.
#[derive(Clone)]
pub struct Token(Vec<u8>);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// Makes a token of text, without the white space around it; `None` if nothing is left.
    pub fn new(text: &str) -> Option<Token> {
        let text = text.trim();
        (!text.is_empty()).then(|| Token(text.as_bytes().to_vec()))
    }

    fn mac(&self, nonce: &str) -> Hmac<Sha256> {
        let mut mac = <Hmac<Sha256> as Mac>::new_from_slice(&self.0).expect("any length is a key");
        mac.update(nonce.as_bytes());
        mac
    }

    /// Returns the answer to `nonce`, in hexadecimal.
    pub fn answer(&self, nonce: &str) -> String {
        hex(&self.mac(nonce).finalize().into_bytes())
    }

    /// Whether `answer` was made with the token. The time that the comparison takes does not depend on how much of it is right.
    pub fn accepts(&self, nonce: &str, answer: &str) -> bool {
        unhex(answer).is_some_and(|answer| self.mac(nonce).verify_slice(&answer).is_ok())
    }
}

/// Encodes bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

/// Header of a probe packet. Zeroes fill the rest of the packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Number of the session.
    pub session: u64,
    /// Number of the stream.
    pub stream: u32,
    /// Number of the probe in the stream.
    pub number: u32,
}

const MARK: [u8; 4] = *b"LzBw";

impl Header {
    /// Length of the header, bytes.
    pub const LEN: usize = 20;

    /// Encodes the header.
    pub fn bytes(&self) -> [u8; Header::LEN] {
        let mut bytes = [0; Header::LEN];
        bytes[..4].copy_from_slice(&MARK);
        bytes[4..12].copy_from_slice(&self.session.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.stream.to_be_bytes());
        bytes[16..].copy_from_slice(&self.number.to_be_bytes());
        bytes
    }

    /// Decodes the header; `None` if the packet is too short or is no probe.
    pub fn parse(bytes: &[u8]) -> Option<Header> {
        let rest = bytes.get(..Header::LEN)?.strip_prefix(&MARK)?;
        Some(Header {
            session: u64::from_be_bytes(rest[..8].try_into().ok()?),
            stream: u32::from_be_bytes(rest[8..12].try_into().ok()?),
            number: u32::from_be_bytes(rest[12..16].try_into().ok()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_who_knows_the_token_answers_right() {
        let token = Token::new(" secret\n").unwrap();
        let answer = Token::new("secret").unwrap().answer("12ab");
        assert!(token.accepts("12ab", &answer));
        assert!(!token.accepts("12ac", &answer));
        assert!(!token.accepts("12ab", &Token::new("Secret").unwrap().answer("12ab")));
        for wrong in ["", "0", "zz", &answer[2..], "é", &"0".repeat(64)] {
            assert!(!token.accepts("12ab", wrong), "{wrong}");
        }
        assert!(Token::new(" \n").is_none());
        assert_eq!(format!("{token:?}"), "Token");
    }

    proptest! {
        #[test]
        fn headers_come_back(session: u64, stream: u32, number: u32, more in 0usize..100) {
            let header = Header { session, stream, number };
            let mut bytes = header.bytes().to_vec();
            bytes.resize(Header::LEN + more, 0);
            prop_assert_eq!(Header::parse(&bytes), Some(header));
            prop_assert_eq!(Header::parse(&bytes[..Header::LEN - 1]), None);
        }

        #[test]
        fn no_bytes_upset_the_parsers(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Header::parse(&bytes);
            let _ = parse::<ToServer>(&bytes);
            let _ = parse::<ToClient>(&bytes);
        }

        #[test]
        fn messages_come_back(number: u32, first: i64, overrun: u32, probes: Vec<(u32, i64)>) {
            let message = ToClient::Arrivals { number, first, overrun, probes };
            let framed = frame(&message).unwrap();
            prop_assert_eq!(parse::<ToClient>(&framed[4..]).unwrap(), message);
        }
    }
}
