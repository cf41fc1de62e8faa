//! Sending the clock-change signal to a thread.

use std::fs;
use std::io;

use lorentz_clock::signal::{fingerprint, CLOCK_CHANGE, MAGIC, NO_CALL};

/// Returns the blocked-syscall fingerprint of a thread. The clock-change signal carries it, so that the handler repeats the call.
pub(crate) fn fingerprint_of(pid: u32, thread: u32) -> u32 {
    let Ok(text) = fs::read_to_string(format!("/proc/{pid}/task/{thread}/syscall")) else {
        return NO_CALL;
    };
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let hex = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
    // Call number, six arguments, stack pointer, instruction pointer.
    match words[..] {
        [call, _, _, _, _, _, _, sp, ip] => match (call.parse(), hex(ip), hex(sp)) {
            (Ok(call), Some(ip), Some(sp)) => fingerprint(call, ip, sp),
            _ => NO_CALL,
        },
        _ => NO_CALL,
    }
}

/// Sends the clock-change signal.
pub(crate) fn send(pid: u32, thread: u32, fingerprint: u32) -> io::Result<()> {
    #[repr(C)]
    struct Info {
        signo: i32,
        errno: i32,
        code: i32,
        pad: i32,
        pid: u32,
        uid: u32,
        value: u64,
        rest: [u64; 12],
    }
    let info = Info {
        signo: CLOCK_CHANGE as i32,
        errno: 0,
        code: libc::SI_QUEUE,
        pad: 0,
        pid: std::process::id(),
        uid: 0,
        value: u64::from(MAGIC) << 32 | u64::from(fingerprint),
        rest: [0; 12],
    };
    // SAFETY: reads a whole siginfo.
    match unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, pid, thread, CLOCK_CHANGE, &info) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
