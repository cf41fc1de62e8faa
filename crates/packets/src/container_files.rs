//! Files beside the socket inside a container: the lines of its packets, for programs that read a file as they would read MACE's
//! device, and its statistics.
//!
//! The file of lines is a FIFO. It keeps the lines that came before a reader, up to [`KEPT`] bytes; a read takes them out, waits
//! for more, or fails with EAGAIN, as the reader has opened it.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};

use nix::errno::Errno;
use nix::fcntl::{fcntl, openat, renameat, FcntlArg, OFlag};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::stat::{umask, Mode};
use nix::unistd::{mkfifoat, unlinkat, UnlinkatFlags};

/// Bytes of lines that wait for a reader: what the kernel lets any user have.
const KEPT: i32 = 1 << 20;
/// Name of the file of statistics while it is written.
const DRAFT: &str = ".latency.json.new";
/// Bytes that make room at once when the lines that nobody reads are too many.
const DROPPED_AT_ONCE: usize = 1 << 16;

/// The files of one container. Dropping this value removes them.
pub(crate) struct ContainerFiles {
    folder: OwnedFd,
    lines_name: OsString,
    statistics_name: OsString,
    lines: LinesFile,
}

impl ContainerFiles {
    /// Makes the files in `folder`, named after the socket there. Replaces those that a crash has left.
    pub fn make(folder: &OwnedFd, socket: &OsStr) -> io::Result<ContainerFiles> {
        let named = |suffix: &str| [socket, OsStr::new(suffix)].into_iter().collect::<OsString>();
        let (lines_name, statistics_name) = (named(".log"), named(".json"));
        let lines = LinesFile::make(folder, &lines_name)?;
        Ok(ContainerFiles { folder: folder.try_clone()?, lines_name, statistics_name, lines })
    }

    /// Adds a line to the file of lines.
    pub fn tell(&mut self, line: &str) {
        self.lines.tell(line);
    }

    /// Replaces the file of statistics.
    pub fn show(&self, statistics: &str) -> io::Result<()> {
        let draft = OsStr::new(DRAFT);
        remove(&self.folder, draft);
        // No link that the container has put there is followed.
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let before = umask(Mode::empty());
        let made = openat(&self.folder, draft, flags, Mode::from_bits_truncate(0o644));
        umask(before);
        writeln!(File::from(made?), "{statistics}")?;
        Ok(renameat(&self.folder, draft, &self.folder, self.statistics_name.as_os_str())?)
    }
}

impl Drop for ContainerFiles {
    fn drop(&mut self) {
        remove(&self.folder, &self.lines_name);
        remove(&self.folder, &self.statistics_name);
        remove(&self.folder, OsStr::new(DRAFT));
    }
}

/// Removes `name` from `folder`. It may not be there.
fn remove(folder: &OwnedFd, name: &OsStr) {
    let _ = unlinkat(folder, name, UnlinkatFlags::NoRemoveDir);
}

/// The FIFO.
struct LinesFile {
    writer: File,
    /// Keeps the FIFO open for reading: a write to one without a reader fails.
    reader: Option<File>,
    lost: u64,
}

impl LinesFile {
    fn make(folder: &OwnedFd, name: &OsStr) -> io::Result<LinesFile> {
        remove(folder, name);
        let before = umask(Mode::empty());
        let made = mkfifoat(folder, name, Mode::from_bits_truncate(0o444));
        umask(before);
        made?;
        let flags = OFlag::O_RDWR | OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let both = File::from(openat(folder, name, flags, Mode::empty())?);
        if !both.metadata()?.file_type().is_fifo() {
            return Err(io::Error::other("another file is in the place of the file of lines"));
        }
        let writer = again(&both, OpenOptions::new().write(true))?;
        // The kernel's own size will do where it gives no more.
        let _ = fcntl(&writer, FcntlArg::F_SETPIPE_SZ(KEPT));
        let reader = again(&writer, OpenOptions::new().read(true))?;
        Ok(LinesFile { writer, reader: Some(reader), lost: 0 })
    }

    /// Adds a line. If there is no room and nobody has the file open, the oldest lines go; a reader that is too slow loses the
    /// newest ones.
    fn tell(&mut self, line: &str) {
        let note = match self.lost {
            0 => String::new(),
            lost => format!("# {lost} lines lost: read too slowly\n"),
        };
        let text = format!("{note}{line}\n");
        if self.reader.is_none() && !self.open_reader() {
            self.lost += 1;
            return;
        }
        // The kernel takes a text of this length whole or not at all.
        let mut written = self.writer.write(text.as_bytes());
        if is_full(&written) && !self.has_other_readers() && self.reader.is_some() {
            self.drop_oldest();
            written = self.writer.write(text.as_bytes());
        }
        self.lost = if is_full(&written) { self.lost + 1 } else { 0 };
    }

    /// Whether another process has the file open for reading.
    fn has_other_readers(&mut self) -> bool {
        self.reader = None;
        let mut ends = [PollFd::new(self.writer.as_fd(), PollFlags::empty())];
        let polled = poll(&mut ends, PollTimeout::ZERO);
        let none_is_left =
            ends[0].revents().is_some_and(|events| events.contains(PollFlags::POLLERR));
        self.open_reader();
        polled.is_err() || !none_is_left
    }

    /// Opens the file for reading. Returns false if this process may open no more files. Without a reader a write would end the
    /// process, by SIGPIPE.
    fn open_reader(&mut self) -> bool {
        self.reader = again(&self.writer, OpenOptions::new().read(true)).ok();
        self.reader.is_some()
    }

    /// Takes out the oldest lines.
    fn drop_oldest(&mut self) {
        let mut room = vec![0; DROPPED_AT_ONCE];
        let Some(reader) = &mut self.reader else { return };
        let Ok(count) = reader.read(&mut room) else { return };
        let mut last = room[..count].last().copied();
        // To the end of the line.
        let mut byte = [0];
        while last.is_some_and(|last| last != b'\n') {
            last = matches!(reader.read(&mut byte), Ok(1)).then_some(byte[0]);
        }
    }
}

fn is_full(written: &io::Result<usize>) -> bool {
    written.as_ref().is_err_and(|error| error.raw_os_error() == Some(Errno::EAGAIN as i32))
}

/// Opens the FIFO `file` once more.
fn again(file: &File, how: &mut OpenOptions) -> io::Result<File> {
    how.custom_flags(libc::O_NONBLOCK).open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::fcntl::open;

    fn fifo() -> (tempfile::TempDir, LinesFile, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY;
        let folder = open(dir.path(), flags, Mode::empty()).unwrap();
        let lines = LinesFile::make(&folder, OsStr::new("lines")).unwrap();
        let path = dir.path().join("lines");
        (dir, lines, path)
    }

    fn drained(path: &std::path::Path) -> Vec<String> {
        let mut file =
            OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).unwrap();
        let mut text = Vec::new();
        // Ends with EAGAIN.
        let _ = file.read_to_end(&mut text);
        String::from_utf8(text).unwrap().lines().map(str::to_string).collect()
    }

    #[test]
    fn a_late_reader_gets_the_newest_lines_each_whole() {
        let (_dir, mut lines, path) = fifo();
        let count = 40_000;
        (0..count).for_each(|number| lines.tell(&format!("{number:063}")));
        let found = drained(&path);
        assert!(found.len() > 10_000, "{}", found.len());
        let first: usize = found[0].parse().unwrap();
        assert_eq!(found.len(), count - first);
        assert!(found.iter().zip(first..).all(|(line, number)| line.parse() == Ok(number)));
        assert!(drained(&path).is_empty(), "a read takes them out");
    }

    #[test]
    fn a_slow_reader_is_told_of_its_loss_and_keeps_what_it_had() {
        let (_dir, mut lines, path) = fifo();
        let reader =
            OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
        (0..20_000).for_each(|number| lines.tell(&format!("{number:063}")));
        let found = drained(&path);
        assert_eq!(found[0].parse(), Ok(0));
        lines.tell("next");
        let lost = 20_000 - found.len();
        let expected = [format!("# {lost} lines lost: read too slowly"), "next".into()];
        assert_eq!(drained(&path), expected);
        drop(reader);
    }
}
