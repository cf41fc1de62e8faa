//! Socket options that a process set before it was attached: timeouts, which are virtual from then on, and timestamps of
//! messages.

use crate::borrowed_thread::BorrowedThread;
use crate::trace::TracedThread;
use lorentz_clock::NANOS_PER_SEC;
use lorentz_shim::fd_table;
use lorentz_shim::filter::Extra;
use lorentz_shim::layout::{self, FdEntry};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

/// A socket that the shim has to enter into its fd table.
pub struct FoundSocket {
    fd: u32,
    properties: u32,
    file: u64,
    /// SO_RCVTIMEO and SO_SNDTIMEO, ns; 0 for none.
    timeouts: [u64; 2],
}

/// Returns all such sockets of the process of `thread`. The calls are made by `borrowed`, before the filter is installed.
pub fn find(
    thread: TracedThread,
    borrowed: &BorrowedThread,
    scratch: u64,
) -> io::Result<Vec<FoundSocket>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/proc/{}/fd", thread.0))? {
        let path = entry?.path();
        let is_socket = fs::read_link(&path)
            .is_ok_and(|file| file.as_os_str().as_encoded_bytes().starts_with(b"socket:"));
        let fd = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
        let (true, Some(fd), Ok(file)) = (is_socket, fd, fs::metadata(&path)) else { continue };
        let options = SocketOptions { thread, borrowed, scratch, fd };
        let timeouts = [options.timeout(libc::SO_RCVTIMEO)?, options.timeout(libc::SO_SNDTIMEO)?];
        let bits = [
            (timeouts[0] > 0, fd_table::RECEIVE_TIMEOUT),
            (timeouts[1] > 0, fd_table::SEND_TIMEOUT),
            (options.timestamps()?, fd_table::TIMESTAMPS),
        ];
        let properties = bits.iter().filter(|(is, _)| *is).fold(0, |all, (_, bit)| all | bit);
        if properties != 0 {
            found.push(FoundSocket {
                fd,
                properties,
                file: fd_table::file_identity(file.dev(), file.ino()),
                timeouts,
            });
        }
    }
    Ok(found)
}

/// Returns the additional calls that the filter has to trap because of these sockets.
pub fn extras(found: &[FoundSocket]) -> Vec<Extra> {
    let any = |bits: u32| found.iter().any(|socket| socket.properties & bits != 0);
    let needs = [
        (fd_table::RECEIVE_TIMEOUT | fd_table::SEND_TIMEOUT, Extra::Sockets),
        (fd_table::TIMESTAMPS, Extra::Messages),
    ];
    needs.into_iter().filter(|(bits, _)| any(*bits)).map(|(_, extra)| extra).collect()
}

/// Passes the sockets to the shim, after it has been put in. Sockets for which the shim has no room keep real timeouts.
pub fn adopt(thread: TracedThread, found: &[FoundSocket]) -> io::Result<()> {
    let mut taken = BTreeSet::new();
    for socket in found {
        let Some(place) = fd_table::slots(socket.fd).find(|place| taken.insert(*place)) else {
            continue;
        };
        let entry = FdEntry::bytes(socket.fd, socket.properties, socket.file, socket.timeouts);
        thread.write(layout::fd_entry_address(place) as u64, &entry)?;
    }
    let filters = extras(found).iter().fold(0, |bits, extra| bits | extra.there());
    thread.write(layout::extra_filters_address() as u64, &filters.to_ne_bytes())
}

/// Reads the options of one socket.
struct SocketOptions<'a> {
    thread: TracedThread,
    borrowed: &'a BorrowedThread,
    scratch: u64,
    fd: u32,
}

impl SocketOptions<'_> {
    /// Returns the option's value as 64-bit words: as many as the kernel returns, at most two.
    fn get(&self, option: i32) -> io::Result<[i64; 2]> {
        const VALUE_LEN: usize = 16;
        let mut bytes = [0; VALUE_LEN + 4];
        bytes[VALUE_LEN..].copy_from_slice(&(VALUE_LEN as u32).to_ne_bytes());
        self.thread.write(self.scratch, &bytes)?;
        let len = self.scratch + VALUE_LEN as u64;
        let (level, option) = (libc::SOL_SOCKET as u64, option as u64);
        let args = [u64::from(self.fd), level, option, self.scratch, len, 0];
        // Sockets of some families do not have the option.
        if self.borrowed.call(libc::SYS_getsockopt, args)? < 0 {
            return Ok([0; 2]);
        }
        self.thread.read(self.scratch, &mut bytes)?;
        let word =
            |i: usize| bytes[8 * i..8 * i + 8].try_into().map(i64::from_ne_bytes).unwrap_or(0);
        Ok([word(0), word(1)])
    }

    /// Returns a timeout, ns; 0 for none.
    fn timeout(&self, option: i32) -> io::Result<u64> {
        const NANOS_PER_MICRO: i64 = 1000;
        let [secs, micros] = self.get(option)?;
        let whole = secs.saturating_mul(NANOS_PER_SEC);
        Ok(whole.saturating_add(micros * NANOS_PER_MICRO).max(0) as u64)
    }

    /// Whether the kernel puts timestamps into the socket's messages.
    fn timestamps(&self) -> io::Result<bool> {
        let options = [libc::SO_TIMESTAMP, libc::SO_TIMESTAMPNS, libc::SO_TIMESTAMPING];
        for option in options {
            if self.get(option)?[0] != 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
