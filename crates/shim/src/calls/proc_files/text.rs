//! Texts without allocation: short ones, and copies of the kernel's with some numbers replaced.

use crate::sys::{sys, Errno, Fd, Sysno, Timespec};

/// The number at the start of `text`, and the rest behind it.
pub fn leading_number(text: &[u8]) -> Option<(u64, &[u8])> {
    let len = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let number = parse(&text[..len])?;
    Some((number, &text[len..]))
}

/// A decimal number without a sign.
fn parse(word: &[u8]) -> Option<u64> {
    if word.is_empty() {
        return None;
    }
    word.iter().try_fold(0u64, |number, byte| {
        let digit = byte.is_ascii_digit().then_some(u64::from(byte.wrapping_sub(b'0')))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

fn put(fd: Fd, bytes: &[u8], at: u64) -> bool {
    // SAFETY: reads the bytes.
    let mut put = unsafe { sys!(Sysno::pwrite64, fd, bytes.as_ptr(), bytes.len(), at) };
    if put == Err(Errno::ESPIPE) {
        // SAFETY: as above.
        put = unsafe { sys!(Sysno::write, fd, bytes.as_ptr(), bytes.len()) };
    }
    put == Ok(bytes.len() as isize)
}

fn cut(fd: Fd, len: u64) -> bool {
    // SAFETY: numbers only, of our own file. A pipe ends with what was written to it.
    let result = unsafe { sys!(Sysno::ftruncate, fd, len) };
    matches!(result, Ok(_) | Err(Errno::EINVAL))
}

/// A short text.
pub struct Text {
    bytes: [u8; 80],
    len: usize,
}

impl Text {
    pub fn new() -> Text {
        Text { bytes: [0; 80], len: 0 }
    }

    /// Where it lies, with a zero byte behind it.
    pub fn terminated(&mut self) -> *const u8 {
        self.bytes(b"\0");
        self.bytes.as_ptr()
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if let Some(place) = self.bytes.get_mut(self.len) {
                *place = *byte;
                self.len += 1;
            }
        }
    }

    /// A number of at least `digits` digits.
    pub fn number(&mut self, mut number: u64, digits: usize) {
        let mut reversed = [b'0'; 20];
        let mut len = 0;
        while (number > 0 || len < digits) && len < reversed.len() {
            reversed[len] = b'0' + (number % 10) as u8;
            number /= 10;
            len += 1;
        }
        (0..len).rev().for_each(|i| self.bytes(&reversed[i..=i]));
    }

    /// Seconds and hundredths, as /proc/uptime has them.
    pub fn seconds(&mut self, time: Timespec) {
        self.number(time.secs.max(0) as u64, 1);
        self.bytes(b".");
        self.number(time.nanos as u64 / 10_000_000, 2);
    }

    /// Makes it the content of a file.
    pub fn write_to(&self, fd: Fd) -> bool {
        cut(fd, self.len as u64) && put(fd, &self.bytes[..self.len], 0)
    }
}

/// The kernel hands out a task's whole line at one read of this size.
const BUFFER_LEN: usize = 1536;
/// More digits than a number has.
const WORD_LEN: usize = 24;
const OUTPUT_LEN: usize = 512;

/// Copies a text of the kernel's to a file in memory, with numbers replaced.
pub struct Copier {
    source: Fd,
    read: u64,
    buffer: [u8; BUFFER_LEN],
    filled: usize,
    /// The first byte of the buffer that is not copied.
    at: usize,
    failed: bool,
    output: Output,
}

impl Copier {
    pub fn new(memory: Fd, source: Fd) -> Copier {
        let output = Output { memory, pending: [0; OUTPUT_LEN], len: 0, written: 0, failed: false };
        let buffer = [0; BUFFER_LEN];
        let mut copier =
            Copier { source, read: 0, buffer, filled: 0, at: 0, failed: false, output };
        copier.fill();
        copier
    }

    fn fill(&mut self) {
        // SAFETY: writes to the buffer.
        let got = unsafe {
            sys!(Sysno::pread64, self.source, self.buffer.as_mut_ptr(), BUFFER_LEN, self.read)
        };
        self.failed |= got.is_err();
        self.filled = got.unwrap_or(0) as usize;
        self.at = 0;
        self.read += self.filled as u64;
    }

    fn next_byte(&mut self) -> Option<u8> {
        if self.at == self.filled && self.filled > 0 {
            self.fill();
        }
        let byte = self.buffer[..self.filled].get(self.at).copied();
        self.at += 1;
        byte
    }

    /// Copies a task's number and name, which may hold anything, and the space behind.
    pub fn skip_name(&mut self) {
        let text = &self.buffer[..self.filled];
        let end = text.iter().rposition(|byte| *byte == b')').map_or(0, |at| at + 2);
        self.at = end.min(self.filled);
        text[..self.at].iter().for_each(|byte| self.output.push(*byte));
    }

    /// Word number `word` of those that come next, from 0; 0 where it is no number.
    pub fn peek(&self, word: usize) -> u64 {
        let text = &self.buffer[self.at..self.filled];
        text.split(|byte| b" \n".contains(byte)).nth(word).and_then(parse).unwrap_or(0)
    }

    /// Copies the rest. `replace` gets the first word of the line, and the place in the line, from 0, and the value of a
    /// word that is a number. False where the kernel's text cannot be read or the copy not be written.
    pub fn copy(mut self, mut replace: impl FnMut(&[u8], usize, u64) -> u64) -> bool {
        let mut first = Word::default();
        let mut word = Word::default();
        let mut place = 0;
        loop {
            let byte = self.next_byte();
            if let Some(byte) = byte.filter(|byte| !b" \n".contains(byte)) {
                if let Some(overflow) = word.push(byte) {
                    self.output.push(overflow);
                }
                continue;
            }
            if word.len > 0 {
                if place == 0 {
                    first = word;
                }
                match parse(word.bytes()) {
                    Some(value) => self.output.number(replace(first.bytes(), place, value)),
                    None => word.bytes().iter().for_each(|byte| self.output.push(*byte)),
                }
                place += 1;
                word.len = 0;
            }
            match byte {
                Some(separator) => self.output.push(separator),
                None => return !self.failed && self.output.end(),
            }
            if byte == Some(b'\n') {
                place = 0;
            }
        }
    }
}

/// The last bytes of a word. Those before are copied: such a word is no number.
#[derive(Clone, Copy, Default)]
struct Word {
    bytes: [u8; WORD_LEN],
    len: usize,
}

impl Word {
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Adds a byte; gives the one that has no room any more.
    fn push(&mut self, byte: u8) -> Option<u8> {
        if self.len < WORD_LEN {
            self.bytes[self.len] = byte;
            self.len += 1;
            return None;
        }
        let oldest = self.bytes[0];
        self.bytes.copy_within(1.., 0);
        self.bytes[WORD_LEN - 1] = byte;
        Some(oldest)
    }
}

/// A file in memory, written in pieces.
struct Output {
    memory: Fd,
    pending: [u8; OUTPUT_LEN],
    len: usize,
    written: u64,
    failed: bool,
}

impl Output {
    fn push(&mut self, byte: u8) {
        if self.len == OUTPUT_LEN {
            self.flush();
        }
        self.pending[self.len] = byte;
        self.len += 1;
    }

    fn number(&mut self, number: u64) {
        let mut text = Text::new();
        text.number(number, 1);
        text.bytes[..text.len].iter().for_each(|byte| self.push(*byte));
    }

    fn flush(&mut self) {
        self.failed |= !put(self.memory, &self.pending[..self.len], self.written);
        self.written += self.len as u64;
        self.len = 0;
    }

    /// Writes what is left, and cuts off what the file had behind.
    fn end(mut self) -> bool {
        self.flush();
        !self.failed && cut(self.memory, self.written)
    }
}
