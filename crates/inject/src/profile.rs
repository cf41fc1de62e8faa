//! A seccomp profile that somebody else has chosen for a program. It is installed last, and must not block the shim's calls.

use crate::filter::SockFprog;
use lorentz_shim::filter::{
    allow_handler, Extra, Instruction, Program, EXTRA_LEN, SET_MODE_FILTER,
};
use lorentz_shim::layout::IMAGE;
use std::arch::asm;
use std::io;

/// A seccomp filter: its instructions as the kernel reads them, and flags of seccomp(2).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Profile {
    code: Vec<[u8; 8]>,
    flags: u64,
}

impl Profile {
    /// Reads a program in the kernel's form.
    ///
    /// # Errors
    ///
    /// The bytes are no whole number of instructions, or more than the kernel accepts.
    pub fn new(code: &[u8], flags: u64) -> io::Result<Profile> {
        const MAX_INSTRUCTIONS: usize = 4096 - EXTRA_LEN;
        let whole: Vec<[u8; 8]> =
            code.chunks_exact(8).filter_map(|one| one.try_into().ok()).collect();
        if whole.len() * 8 != code.len() || whole.is_empty() || whole.len() > MAX_INSTRUCTIONS {
            let problem =
                format!("{} bytes; expected up to {MAX_INSTRUCTIONS} instructions", code.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        Ok(Profile { code: whole, flags })
    }

    /// Installs the profile on this process, which must not have the filter of this crate.
    ///
    /// # Errors
    ///
    /// The kernel refuses it.
    pub fn install(&self) -> io::Result<()> {
        let program = SockFprog::new(&self.code);
        // SAFETY: the kernel copies the program.
        let result = unsafe {
            libc::syscall(libc::SYS_seccomp, u64::from(SET_MODE_FILTER), self.flags, &program)
        };
        if result == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Installs the profile on this process, which has the filter of this crate and no handler yet. The profile lets calls that
    /// the shim needs through when they come from its addresses, as does a filter that a program installs by itself.
    ///
    /// # Errors
    ///
    /// The kernel refuses it.
    pub(crate) fn install_inside(&self) -> io::Result<()> {
        let mut front = [Instruction::default(); EXTRA_LEN];
        let len = allow_handler(&mut front);
        let front = front[..len].iter().map(|one| one.to_bytes());
        let code: Vec<[u8; 8]> = front.chain(self.code.iter().copied()).collect();
        install_from_image(&code, self.flags)
    }
}

/// Adds the filter of `extra` to this process, which has the filter of this crate and no handler yet.
///
/// # Errors
///
/// The kernel refuses it.
pub(crate) fn trap_too(extra: Extra) -> io::Result<()> {
    install_from_image(Program::of_extra(extra).code(), 0)
}

/// Installs a filter of instructions of type `T` (8 bytes each) by a call that our own filter lets through.
fn install_from_image<T>(code: &[T], flags: u64) -> io::Result<()> {
    let program = SockFprog::new(code);
    let words = [SET_MODE_FILTER.into(), flags, &raw const program as u64];
    match from_image(libc::SYS_seccomp as u64, words)? {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error as i32)),
    }
}

/// Makes a system call from the address where the image will be: the filter lets calls from there through.
fn from_image(number: u64, words: [u64; 3]) -> io::Result<i64> {
    const SYSCALL_AND_RETURN: [u8; 3] = [0x0f, 0x05, 0xc3];
    const PAGE: usize = 4096;
    const ANONYMOUS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let place = IMAGE as *mut libc::c_void;
    let result;
    // SAFETY: the page is new, at a free address. It contains three bytes of code when they run, and is unmapped afterwards.
    unsafe {
        let page = libc::mmap(place, PAGE, libc::PROT_READ | libc::PROT_WRITE, ANONYMOUS, -1, 0);
        if page != place {
            return Err(io::Error::last_os_error());
        }
        page.cast::<[u8; 3]>().write(SYSCALL_AND_RETURN);
        if libc::mprotect(page, PAGE, libc::PROT_READ | libc::PROT_EXEC) != 0 {
            return Err(io::Error::last_os_error());
        }
        asm!(
            "call {code}",
            code = in(reg) page,
            inlateout("rax") number => result,
            in("rdi") words[0], in("rsi") words[1], in("rdx") words[2],
            lateout("rcx") _, lateout("r11") _,
        );
        libc::munmap(page, PAGE);
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_instructions_are_a_profile() {
        assert!(Profile::new(&[6, 0, 0, 0, 0, 0, 0xff, 0x7f], 0).is_ok());
        for wrong in [&[][..], &[6, 0, 0][..], &[0; 8 * 4096][..]] {
            assert!(Profile::new(wrong, 0).is_err());
        }
    }

    #[test]
    fn calls_can_be_made_from_the_image() {
        let pid = from_image(libc::SYS_getpid as u64, [0; 3]).unwrap();
        assert_eq!(pid, i64::from(std::process::id()));
    }
}
