//! The start of the process, without Rust's own preparations: they ignore SIGPIPE and open closed standard
//! streams, and a program run in virtual time would inherit both.

use std::ffi::{CStr, OsString};
use std::os::unix::ffi::OsStringExt;

use libc::{c_char, c_int};
use lorentz_container::{limits, on_ample_stack};

/// The status of a Rust program that panicked.
const PANICKED: i32 = 101;

/// Called by the C library.
#[cfg(not(test))]
#[no_mangle]
extern "C" fn main(count: c_int, words: *const *const c_char) -> c_int {
    // SAFETY: as the C library calls it.
    let words = unsafe { collect(count, words) };
    begin(words)
}

fn begin(words: Vec<OsString>) -> i32 {
    occupy_standard_streams();
    limits::raise();
    on_ample_stack(|| std::panic::catch_unwind(|| crate::main(words)).unwrap_or(PANICKED))
}

/// The words of the command line.
///
/// # Safety
///
/// `words` are `count` C strings.
unsafe fn collect(count: c_int, words: *const *const c_char) -> Vec<OsString> {
    let count = usize::try_from(count).unwrap_or(0);
    let word = |at: usize| {
        // SAFETY: by this function's contract.
        let word = unsafe { CStr::from_ptr(*words.add(at)) };
        OsString::from_vec(word.to_bytes().to_vec())
    };
    (0..count).map(word).collect()
}

/// Makes sure that no file opened later takes the number of a standard stream that was closed, where messages
/// would be written into it. For programs the stream stays closed.
fn occupy_standard_streams() {
    for stream in 0..3 {
        // SAFETY: plain numbers, and a C string.
        unsafe {
            if libc::fcntl(stream, libc::F_GETFD) == -1 {
                libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_arrive_as_they_are() {
        let words = [c"lorentz".as_ptr(), c"\xff x".as_ptr(), c"".as_ptr()];
        // SAFETY: three C strings.
        let collected = unsafe { collect(3, words.as_ptr()) };
        let expected = [b"lorentz".to_vec(), b"\xff x".to_vec(), Vec::new()];
        assert_eq!(collected, expected.map(OsString::from_vec));
    }

    #[test]
    fn a_whole_command_line_gives_a_status() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect();
        assert_eq!(begin(words("lorentz --version")), 0);
        assert_eq!(begin(words("lorentz run --rate 0 true")), 2);
    }
}
