//! A pseudo-terminal, and the program in it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::Stdio;

use nix::fcntl::{fcntl, FcntlArg, OFlag};
use nix::pty::{openpty, Winsize};
use tokio::io::unix::AsyncFd;
use tokio::io::Interest;
use tokio::process::{Child, Command};

/// The side of a pseudo-terminal from which a person looks at it.
pub struct Terminal(AsyncFd<OwnedFd>);

impl Terminal {
    /// Starts `command` on a new terminal of this size.
    pub fn start(command: &mut Command, columns: u16, rows: u16) -> io::Result<(Terminal, Child)> {
        let pair = openpty(&size(columns, rows), None)?;
        for fd in [&pair.master, &pair.slave] {
            fcntl(fd, FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC))?;
        }
        fcntl(&pair.master, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let stream = || pair.slave.try_clone().map(Stdio::from);
        command.stdin(stream()?).stdout(stream()?).stderr(stream()?);
        // SAFETY: between fork and exec it makes two system calls and touches no memory of others.
        unsafe {
            command.pre_exec(|| {
                nix::unistd::setsid()?;
                // SAFETY: plain numbers. Standard input is the terminal, which has no session yet.
                match libc::ioctl(libc::STDIN_FILENO, libc::TIOCSCTTY, 0) {
                    -1 => Err(io::Error::last_os_error()),
                    _ => Ok(()),
                }
            });
        }
        let child = command.spawn()?;
        // The command keeps its streams until it is dropped, and the terminal would not end with the program.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: the descriptor is its owner's alone, and open for as long as the result has the owner.
        let watched = unsafe { AsyncFd::register(pair.master) }.map_err(io::Error::from)?;
        Ok((Terminal(watched), child))
    }

    /// Reads what the program writes; 0 bytes when nobody has the terminal open any more.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = |fd: &OwnedFd| nix::unistd::read(fd, buffer).map_err(io::Error::from);
        match self.0.async_io(Interest::READABLE, read).await {
            // The kernel's word for a terminal whose other side is closed.
            Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(0),
            other => other,
        }
    }

    /// Writes what a person types.
    pub async fn write(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let write = |fd: &OwnedFd| nix::unistd::write(fd, bytes).map_err(io::Error::from);
            let size = self.0.async_io(Interest::WRITABLE, write).await?;
            bytes = &bytes[size..];
        }
        Ok(())
    }

    /// Changes the size.
    pub fn resize(&self, columns: u16, rows: u16) -> io::Result<()> {
        let size = size(columns, rows);
        let fd = self.0.as_fd().as_raw_fd();
        // SAFETY: an open terminal, and a size that outlives the call.
        match unsafe { libc::ioctl(fd, libc::TIOCSWINSZ, std::ptr::from_ref(&size)) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_program_has_the_terminal_and_its_size() {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "stty size; read line; echo \"<$line>\"; test -t 1 && tty -s < /dev/tty && exit 7",
        ]);
        let (terminal, mut child) = Terminal::start(&mut command, 71, 13).unwrap();
        let mut text = String::new();
        let mut buffer = [0; 256];
        let mut is_answered = false;
        loop {
            match terminal.read(&mut buffer).await.unwrap() {
                0 => break,
                size => text += std::str::from_utf8(&buffer[..size]).unwrap(),
            }
            if text.contains("13 71") && !is_answered {
                is_answered = true;
                terminal.write(b"hello\n").await.unwrap();
            }
        }
        assert!(text.contains("<hello>"), "{text}");
        assert_eq!(child.wait().await.unwrap().code(), Some(7));
    }
}
