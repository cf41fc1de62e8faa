//! Errors of system calls.

/// An error number of the kernel, positive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct Errno(u16);

#[allow(missing_docs)]
impl Errno {
    pub const EPERM: Errno = Errno(1);
    pub const ENOENT: Errno = Errno(2);
    pub const ESRCH: Errno = Errno(3);
    pub const EINTR: Errno = Errno(4);
    pub const EBADF: Errno = Errno(9);
    pub const EAGAIN: Errno = Errno(11);
    pub const ENOMEM: Errno = Errno(12);
    pub const EACCES: Errno = Errno(13);
    pub const EFAULT: Errno = Errno(14);
    pub const EINVAL: Errno = Errno(22);
    pub const ESPIPE: Errno = Errno(29);
    pub const ENOSYS: Errno = Errno(38);
    pub const ETIMEDOUT: Errno = Errno(110);
    pub const EINPROGRESS: Errno = Errno(115);
    pub const ECANCELED: Errno = Errno(125);
    /// Internal to the kernel, which never returns it to a program: the call is made again.
    pub const ERESTARTNOINTR: Errno = Errno(513);
    /// Not one of the kernel's: the monitor's answer to an exec that the program is to make again.
    pub const EXEC_AGAIN: Errno = Errno(4000);
}

impl Errno {
    /// The highest error number.
    const MAX: isize = 4095;

    /// Divides the kernel's result register into a result and an error.
    #[inline(always)]
    pub const fn check(result: isize) -> Result<isize, Errno> {
        if result < 0 && result >= -Self::MAX {
            return Err(Errno(-result as u16));
        }
        Ok(result)
    }

    /// The result register of a call that fails with this error.
    #[inline(always)]
    pub const fn in_register(self) -> isize {
        -(self.0 as isize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_the_kernels() {
        use linux_raw_sys::errno;
        let pairs = [
            (Errno::EPERM, errno::EPERM),
            (Errno::ENOENT, errno::ENOENT),
            (Errno::ESRCH, errno::ESRCH),
            (Errno::EINTR, errno::EINTR),
            (Errno::EBADF, errno::EBADF),
            (Errno::EAGAIN, errno::EAGAIN),
            (Errno::ENOMEM, errno::ENOMEM),
            (Errno::EACCES, errno::EACCES),
            (Errno::EFAULT, errno::EFAULT),
            (Errno::EINVAL, errno::EINVAL),
            (Errno::ESPIPE, errno::ESPIPE),
            (Errno::ENOSYS, errno::ENOSYS),
            (Errno::ETIMEDOUT, errno::ETIMEDOUT),
            (Errno::EINPROGRESS, errno::EINPROGRESS),
            (Errno::ECANCELED, errno::ECANCELED),
        ];
        for (ours, kernels) in pairs {
            assert_eq!(u32::from(ours.0), kernels);
        }
    }

    #[test]
    fn a_result_register_holds_a_result_or_an_error() {
        assert_eq!(Errno::check(0), Ok(0));
        assert_eq!(Errno::check(isize::MAX), Ok(isize::MAX));
        assert_eq!(Errno::check(-22), Err(Errno::EINVAL));
        assert_eq!(Errno::check(-4096), Ok(-4096));
        assert_eq!(Errno::EINVAL.in_register(), -22);
    }
}
