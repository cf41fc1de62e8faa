//! What the two ends say to each other: messages over TCP, each a length of four bytes and JSON; and probes over UDP.
//!
//! ```text
//! client                                   server
//!                                      <-  challenge   version, nonce, whether a token is asked for
//! proof       HMAC-SHA256(token, nonce) ->
//!                                      <-  ready       UDP port, number of the session, limits; or refused
//! stream      number, packets, bytes    ->
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

/// Of this protocol; both ends must have the same.
pub const VERSION: u32 = 2;
/// The port of the server where none is given.
pub const PORT: u16 = 13_979;
/// No message to the server is longer, and none to the client.
pub const MOST_TO_SERVER: usize = 4 << 10;
/// See [`MOST_TO_SERVER`].
pub const MOST_TO_CLIENT: usize = 4 << 20;
/// The most probes in a stream, and their most bytes.
pub const MOST_PACKETS: u32 = 20_000;
/// See [`MOST_PACKETS`].
pub const MOST_BYTES: u32 = 65_535;

/// From the client.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ToServer {
    /// The answer to the challenge, in hexadecimal; empty where the client has no token.
    Proof {
        /// HMAC-SHA256 of the nonce under the token.
        mac: String,
    },
    /// Probes are about to come.
    Stream {
        /// Which stream this is.
        number: u32,
        /// How many probes.
        packets: u32,
    },
    /// All of them were sent.
    End {
        /// Of which stream.
        number: u32,
    },
}

/// From the server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ToClient {
    /// The first word.
    Challenge {
        /// [`VERSION`].
        version: u32,
        /// To be answered, in hexadecimal.
        nonce: String,
        /// Whether the answer has to be right.
        token: bool,
    },
    /// The session has begun.
    Ready {
        /// Where probes go.
        port: u16,
        /// What probes carry.
        session: u64,
        /// The most probes in a stream.
        most_packets: u32,
    },
    /// Probes of this stream are waited for.
    Armed {
        /// Which.
        number: u32,
    },
    /// What came of a stream.
    Arrivals {
        /// Which.
        number: u32,
        /// When the first one came, nanoseconds since 1970 by the server's clock.
        first: i64,
        /// Packets that found the server's receive buffer full meanwhile.
        overrun: u32,
        /// Number of each probe, and nanoseconds after the first, in the order of arrival.
        probes: Vec<(u32, i64)>,
    },
    /// The server ends the session.
    Refused {
        /// Why.
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
    /// Over this connection.
    pub fn new(stream: TcpStream) -> io::Result<Control> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(Duration::from_secs(10)))?;
        Ok(Control { stream })
    }

    /// The connection.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Says something.
    pub fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let frame = frame(message)?;
        self.stream.write_all(&frame)
    }

    /// Waits for a message of at most `most` bytes, as a whole no longer than `patience`.
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

    /// Fills `buffer`, but not for ever, however slowly it is sent.
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

/// A message as it goes over the wire.
pub fn frame(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let body = serde_json::to_vec(message)?;
    let length = u32::try_from(body.len()).map_err(|_| invalid("a message that is too long"))?;
    Ok([length.to_be_bytes().as_slice(), &body].concat())
}

/// A message from its body.
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
    /// From text, without the white space around it; `None` of nothing.
    pub fn new(text: &str) -> Option<Token> {
        let text = text.trim();
        (!text.is_empty()).then(|| Token(text.as_bytes().to_vec()))
    }

    fn mac(&self, nonce: &str) -> Hmac<Sha256> {
        let mut mac = <Hmac<Sha256> as Mac>::new_from_slice(&self.0).expect("any length is a key");
        mac.update(nonce.as_bytes());
        mac
    }

    /// The answer to `nonce`.
    pub fn answer(&self, nonce: &str) -> String {
        hex(&self.mac(nonce).finalize().into_bytes())
    }

    /// Whether `answer` is that of one who knows the token; how long it takes does not tell how much of it was right.
    pub fn accepts(&self, nonce: &str, answer: &str) -> bool {
        unhex(answer).is_some_and(|answer| self.mac(nonce).verify_slice(&answer).is_ok())
    }
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

/// What every probe begins with; zeroes follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Of which session.
    pub session: u64,
    /// Of which stream.
    pub stream: u32,
    /// Which one.
    pub number: u32,
}

const MARK: [u8; 4] = *b"LzBw";

impl Header {
    /// Its length.
    pub const LEN: usize = 20;

    /// As it goes over the wire.
    pub fn bytes(&self) -> [u8; Header::LEN] {
        let mut bytes = [0; Header::LEN];
        bytes[..4].copy_from_slice(&MARK);
        bytes[4..12].copy_from_slice(&self.session.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.stream.to_be_bytes());
        bytes[16..].copy_from_slice(&self.number.to_be_bytes());
        bytes
    }

    /// From what came.
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
