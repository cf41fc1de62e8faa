//! Files of /proc that the skipper reads again and again. They stay open, because an open costs more than a read.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The subject of a file in /proc.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum About {
    /// The system call of this thread: /proc/PID/task/TID/syscall.
    Call(u32),
    /// This descriptor: /proc/PID/fdinfo/FD.
    Descriptor(u32),
}

/// The open files, by process and subject.
#[derive(Default)]
pub struct ProcFiles {
    open: HashMap<(u32, About), File>,
    text: Vec<u8>,
}

impl ProcFiles {
    /// Returns the present text of the file about `about` in process `pid`.
    ///
    /// # Errors
    ///
    /// If the thread or the descriptor is gone, or the kernel does not allow the look.
    pub fn read(&mut self, pid: u32, about: About) -> io::Result<&str> {
        /// Most descriptors that are kept open.
        const MAX_OPEN: usize = 128;
        let key = (pid, about);
        // The kernel binds an open file to its task, and not to a later task with the same number. The read fails when the task has
        // ended.
        let known = self.open.get(&key).is_some_and(|file| read(file, &mut self.text).is_ok());
        if !known {
            self.open.remove(&key);
            if self.open.len() >= MAX_OPEN {
                self.open.clear();
            }
            let file = File::open(match about {
                About::Call(thread) => format!("/proc/{pid}/task/{thread}/syscall"),
                About::Descriptor(fd) => format!("/proc/{pid}/fdinfo/{fd}"),
            })?;
            read(&file, &mut self.text)?;
            self.open.insert(key, file);
        }
        std::str::from_utf8(&self.text).map_err(io::Error::other)
    }
}

/// Reads the whole of `file` into `text`, from its start.
fn read(file: &File, text: &mut Vec<u8>) -> io::Result<()> {
    const BUFFER_LEN: usize = 4096;
    let mut len = 0;
    loop {
        text.resize(len + BUFFER_LEN, 0);
        let more = file.read_at(&mut text[len..], len as u64)?;
        len += more;
        // The kernel writes these files in one go: only a read that reaches the end leaves room.
        if more < BUFFER_LEN {
            break;
        }
    }
    text.truncate(len);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent};

    use super::*;

    #[test]
    fn what_is_read_is_as_it_is_now() {
        let (a, _b) = std::os::unix::net::UnixStream::pair().unwrap();
        let epoll = Epoll::new(EpollCreateFlags::empty()).unwrap();
        let (me, about) = (std::process::id(), About::Descriptor(epoll.0.as_raw_fd() as u32));
        let mut files = ProcFiles::default();
        assert!(!files.read(me, about).unwrap().contains("tfd:"));
        epoll.add(&a, EpollEvent::empty()).unwrap();
        assert!(files.read(me, about).unwrap().contains("tfd:"));
    }

    #[test]
    fn long_ones_are_read_whole() {
        let epoll = Epoll::new(EpollCreateFlags::empty()).unwrap();
        let sockets: Vec<_> =
            (0..200).map(|_| std::os::unix::net::UnixDatagram::unbound().unwrap()).collect();
        for socket in &sockets {
            epoll.add(socket, EpollEvent::empty()).unwrap();
        }
        let about = About::Descriptor(epoll.0.as_raw_fd() as u32);
        let mut files = ProcFiles::default();
        for _ in 0..2 {
            let text = files.read(std::process::id(), about).unwrap();
            assert_eq!(text.matches("tfd:").count(), sockets.len());
        }
    }

    #[test]
    fn an_ended_process_is_not_found() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let mut files = ProcFiles::default();
        let about = About::Call(child.id());
        assert!(!files.read(child.id(), about).unwrap().is_empty());
        child.kill().unwrap();
        child.wait().unwrap();
        let error = files.read(child.id(), about).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
