//! Times that a program has set on a file and that no timestamp of the host shows. An extended attribute of the file, its mark,
//! keeps them.
//!
//! A clock that began ahead of the host never shows the times in between, and a clock that runs at a rate above 1 shows only some.
//! The kernel's timestamp of such a file is the next one that the clock shows. The mark says which timestamp that was, so it ends
//! with the next change of the file.

use super::proc_files::Text;
use crate::layout::{data, registry};
use crate::sys::{close, sys, to_fd, AtFlags, Fd, OpenFlags, SysResult, Sysno, Timespec, UserPtr};
use crate::timestamps::HostWall;
use crate::user::Access;
use core::ffi::CStr;
use core::sync::atomic::Ordering::Relaxed;
use lorentz_clock::NANOS_PER_SEC;

/// The extended attribute. Its value is a [`Mark`].
const NAME: &CStr = c"user.lorentz.times";

/// Access and modification time of a file.
pub type Times = [Timespec; 2];

/// One time of a file.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
struct Entry {
    /// The kernel's timestamp. As long as the file has it, the entry holds.
    stamp: Timespec,
    /// The time that the file shows.
    shown: Timespec,
}

/// The times that a program has set on a file, as they lie in the attribute.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Mark([Entry; 2]);

impl Mark {
    /// A mark that no timestamp fits.
    const EMPTY: Mark = {
        let none = Timespec { secs: 0, nanos: -1 };
        Mark([Entry { stamp: none, shown: none }; 2])
    };

    /// The mark of a file that has these timestamps, where it may have one.
    pub fn of(file: impl FnOnce() -> Option<File>, stamps: Times, host_wall: HostWall) -> Mark {
        let may_have = registry().file_marks.may_exist()
            && !is_sandboxed()
            && stamps.into_iter().any(|stamp| host_wall.is_since_creation(stamp));
        may_have.then(file).flatten().and_then(|file| file.mark()).unwrap_or(Mark::EMPTY)
    }

    /// Returns the time that the file shows inside for time number `index`, which has this timestamp.
    pub fn shown(&self, index: usize, stamp: Timespec, host_wall: HostWall) -> Timespec {
        match self.0[index] {
            entry if entry.stamp == stamp => entry.shown,
            _ => host_wall.file_to_virtual(stamp),
        }
    }
}

/// Whether the program has added a seccomp filter of its own: the filter may end a program that asks for an attribute.
fn is_sandboxed() -> bool {
    data().sandboxed.load(Relaxed) != 0
}

/// Whether the kernel takes a time as it is. The others mean now, no change, or an error.
pub fn is_explicit(time: Timespec) -> bool {
    (0..NANOS_PER_SEC).contains(&time.nanos)
}

/// Keeps what the program has just set on a file: its `times`, for which the kernel has got the timestamps `host`. Where the file
/// can have no mark, it shows the next time that a timestamp shows.
pub fn keep(file: impl FnOnce() -> Option<File>, times: Times, host: Times) {
    const UTIME_OMIT: i64 = (1 << 30) - 2;
    let host_wall = HostWall::read();
    let needed =
        [0, 1].map(|i| is_explicit(times[i]) && host_wall.file_to_virtual(host[i]) != times[i]);
    let marks = &registry().file_marks;
    if is_sandboxed() || (needed == [false; 2] && !marks.may_exist()) {
        return;
    }
    let Some(file) = file() else { return };
    let Ok(stamps) = file.stamps() else { return };
    let before = file.mark().unwrap_or(Mark::EMPTY);
    let mut mark = before;
    for (i, entry) in mark.0.iter_mut().enumerate() {
        if needed[i] {
            *entry = Entry { stamp: stamps[i], shown: times[i] };
        } else if times[i].nanos != UTIME_OMIT {
            *entry = Mark::EMPTY.0[i];
        }
    }
    if mark != before {
        marks.will_exist();
        file.set_mark(&mark);
    }
}

/// A file, as a call names it.
pub enum File {
    /// By its path.
    Path(UserPtr<u8>),
    /// By its path; a symbolic link is the file itself.
    Link(UserPtr<u8>),
    /// By a descriptor of the program's.
    Descriptor(Fd),
    /// By a descriptor of ours.
    Opened(Fd),
}

impl File {
    /// The file that a call of the *at family names. `None` where it cannot be reached.
    ///
    /// # Safety
    /// The kernel must have read the path just before, for this call of the program's.
    pub unsafe fn at(dir: Fd, path: UserPtr<u8>, flags: AtFlags) -> Option<File> {
        let is_link = flags.contains(AtFlags::AT_SYMLINK_NOFOLLOW);
        // SAFETY: the caller's promise.
        let first = if path.is_null() { 0 } else { unsafe { path.get() } };
        match first {
            0 if dir == Fd::AT_FDCWD => None,
            0 => Some(File::Descriptor(dir)),
            _ if first != b'/' && dir != Fd::AT_FDCWD => {
                let follow = if is_link { OpenFlags::O_NOFOLLOW } else { OpenFlags::new(0) };
                let how = OpenFlags::O_PATH.with(OpenFlags::O_CLOEXEC).with(follow);
                // SAFETY: the program's own path.
                let opened = unsafe { sys!(Sysno::openat, dir, path, how) };
                opened.ok().map(|fd| File::Opened(to_fd(fd)))
            }
            _ if is_link => Some(File::Link(path)),
            _ => Some(File::Path(path)),
        }
    }

    /// The kernel's timestamps.
    fn stamps(&self) -> SysResult<Times> {
        // struct stat, in words.
        let mut stat = [0u64; 18];
        const ACCESSED: usize = 9;
        const MODIFIED: usize = 11;
        let out = stat.as_mut_ptr();
        // SAFETY: struct stat is 144 bytes.
        unsafe {
            match self {
                File::Path(path) => sys!(Sysno::stat, *path, out)?,
                File::Link(path) => sys!(Sysno::lstat, *path, out)?,
                File::Descriptor(fd) | File::Opened(fd) => sys!(Sysno::fstat, *fd, out)?,
            }
        };
        let time = |at: usize| Timespec { secs: stat[at] as i64, nanos: stat[at + 1] as i64 };
        Ok([time(ACCESSED), time(MODIFIED)])
    }

    fn mark(&self) -> Option<Mark> {
        let mut mark = Mark::EMPTY;
        let calls = [Sysno::getxattr, Sysno::lgetxattr, Sysno::fgetxattr];
        // SAFETY: room for a mark, of which any bytes are one.
        let len = unsafe { self.attribute(calls, (&raw mut mark).cast(), 0) };
        (len == Ok(size_of::<Mark>() as isize)).then_some(mark)
    }

    fn set_mark(&self, mark: &Mark) {
        let calls = [Sysno::setxattr, Sysno::lsetxattr, Sysno::fsetxattr];
        // SAFETY: the kernel reads the mark.
        let _ = unsafe { self.attribute(calls, core::ptr::from_ref(mark).cast_mut().cast(), 0) };
    }

    /// Makes the one of the calls that fits: by path, by link, or by descriptor.
    ///
    /// # Safety
    /// The call may access a mark at `value`.
    unsafe fn attribute(
        &self,
        [by_path, by_link, by_fd]: [Sysno; 3],
        value: *mut u8,
        flags: u32,
    ) -> SysResult {
        let (name, len) = (NAME.as_ptr(), size_of::<Mark>());
        // SAFETY: the caller's promise, and paths of the program's or of ours.
        unsafe {
            match self {
                File::Path(path) => sys!(by_path, *path, name, value, len, flags),
                File::Link(path) => sys!(by_link, *path, name, value, len, flags),
                File::Descriptor(fd) => sys!(by_fd, *fd, name, value, len, flags),
                File::Opened(fd) => {
                    // The kernel has no such call for a descriptor of O_PATH.
                    let mut path = Text::new();
                    path.bytes(b"/proc/self/fd/");
                    path.number(fd.number().into(), 1);
                    sys!(by_path, path.terminated(), name, value, len, flags)
                }
            }
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if let File::Opened(fd) = self {
            close(*fd);
        }
    }
}
