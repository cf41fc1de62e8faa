//! What a process asked of its sockets before it was brought in: timeouts, which are virtual from then on, and stamps on
//! messages.

use crate::remote::Borrowed;
use crate::trace::Thread;
use lorentz_clock::NANOS_PER_SEC;
use lorentz_shim::filter::Extra;
use lorentz_shim::layout::{self, NotedFd};
use lorentz_shim::noted;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

/// A socket that the shim has to know.
pub struct Found {
    fd: u32,
    what: u32,
    file: u64,
    /// SO_RCVTIMEO and SO_SNDTIMEO, nanoseconds.
    timeouts: [u64; 2],
}

/// All such sockets of the process of `thread`, whose thread is `borrowed`. To be asked before the filter is installed.
pub fn find(thread: Thread, borrowed: &Borrowed, scratch: u64) -> io::Result<Vec<Found>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/proc/{}/fd", thread.0))? {
        let path = entry?.path();
        let is_socket = fs::read_link(&path)
            .is_ok_and(|file| file.as_os_str().as_encoded_bytes().starts_with(b"socket:"));
        let fd = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
        let (true, Some(fd), Ok(file)) = (is_socket, fd, fs::metadata(&path)) else { continue };
        let options = Options { thread, borrowed, scratch, fd };
        let timeouts = [options.timeout(libc::SO_RCVTIMEO)?, options.timeout(libc::SO_SNDTIMEO)?];
        let bits = [
            (timeouts[0] > 0, noted::RECEIVE_TIMEOUT),
            (timeouts[1] > 0, noted::SEND_TIMEOUT),
            (options.stamps()?, noted::STAMPS),
        ];
        let what = bits.iter().filter(|(is, _)| *is).fold(0, |what, (_, bit)| what | bit);
        if what != 0 {
            found.push(Found { fd, what, file: noted::identity(file.dev(), file.ino()), timeouts });
        }
    }
    Ok(found)
}

/// What has to be trapped for their sake.
pub fn extras(found: &[Found]) -> Vec<Extra> {
    let any = |bits: u32| found.iter().any(|socket| socket.what & bits != 0);
    let needs = [
        (noted::RECEIVE_TIMEOUT | noted::SEND_TIMEOUT, Extra::Sockets),
        (noted::STAMPS, Extra::Messages),
    ];
    needs.into_iter().filter(|(bits, _)| any(*bits)).map(|(_, extra)| extra).collect()
}

/// Tells the shim, once it is there. Sockets for which it has no room keep real timeouts.
pub fn adopt(thread: Thread, found: &[Found]) -> io::Result<()> {
    let mut taken = BTreeSet::new();
    for socket in found {
        let Some(place) = noted::places(socket.fd).find(|place| taken.insert(*place)) else {
            continue;
        };
        let entry = NotedFd::bytes(socket.fd, socket.what, socket.file, socket.timeouts);
        thread.write(layout::noted_address(place) as u64, &entry)?;
    }
    let filters = extras(found).iter().fold(0, |bits, extra| bits | extra.there());
    thread.write(layout::extra_filters_address() as u64, &filters.to_ne_bytes())
}

/// Asks for the options of one socket.
struct Options<'a> {
    thread: Thread,
    borrowed: &'a Borrowed,
    scratch: u64,
    fd: u32,
}

impl Options<'_> {
    /// The option's value in 64-bit words: as long as the kernel's answer, at most two.
    fn get(&self, option: i32) -> io::Result<[i64; 2]> {
        const VALUE_LEN: usize = 16;
        let mut bytes = [0; VALUE_LEN + 4];
        bytes[VALUE_LEN..].copy_from_slice(&(VALUE_LEN as u32).to_ne_bytes());
        self.thread.write(self.scratch, &bytes)?;
        let len = self.scratch + VALUE_LEN as u64;
        let (level, option) = (libc::SOL_SOCKET as u64, option as u64);
        let args = [u64::from(self.fd), level, option, self.scratch, len, 0];
        // Some families do not know the option.
        if self.borrowed.call(libc::SYS_getsockopt, args)? < 0 {
            return Ok([0; 2]);
        }
        self.thread.read(self.scratch, &mut bytes)?;
        let word =
            |i: usize| bytes[8 * i..8 * i + 8].try_into().map(i64::from_ne_bytes).unwrap_or(0);
        Ok([word(0), word(1)])
    }

    /// A timeout, nanoseconds; 0 where there is none.
    fn timeout(&self, option: i32) -> io::Result<u64> {
        const NANOS_PER_MICRO: i64 = 1000;
        let [secs, micros] = self.get(option)?;
        let whole = secs.saturating_mul(NANOS_PER_SEC);
        Ok(whole.saturating_add(micros * NANOS_PER_MICRO).max(0) as u64)
    }

    /// Whether its messages are stamped.
    fn stamps(&self) -> io::Result<bool> {
        let options = [libc::SO_TIMESTAMP, libc::SO_TIMESTAMPNS, libc::SO_TIMESTAMPING];
        for option in options {
            if self.get(option)?[0] != 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
