//! Flags and commands of system calls, by the kernel's names.

use crate::arg::argument;

/// Defines a type of flags with constants, a set of bits.
macro_rules! flags {
    ($(#[$doc:meta])* $name:ident($integer:ty) { $($flag:ident = $bits:expr,)* }) => {
        argument! {
            $(#[$doc])*
            #[derive(Default)]
            $name($integer)
        }

        #[allow(missing_docs)]
        impl $name {
            $(pub const $flag: $name = $name($bits);)*
        }

        impl $name {
            /// The flags of these bits.
            #[inline(always)]
            pub const fn new(bits: $integer) -> $name {
                $name(bits)
            }

            /// The bits.
            #[inline(always)]
            pub const fn bits(self) -> $integer {
                self.0
            }

            /// Whether all of `flags` are set.
            #[inline(always)]
            pub const fn contains(self, flags: $name) -> bool {
                self.0 & flags.0 == flags.0
            }

            /// Whether one of `flags` is set.
            #[inline(always)]
            pub const fn intersects(self, flags: $name) -> bool {
                self.0 & flags.0 != 0
            }

            /// These flags and `flags`.
            #[inline(always)]
            pub const fn with(self, flags: $name) -> $name {
                $name(self.0 | flags.0)
            }

            /// These flags without `flags`.
            #[inline(always)]
            pub const fn without(self, flags: $name) -> $name {
                $name(self.0 & !flags.0)
            }

            /// Those of these flags that are among `flags`.
            #[inline(always)]
            pub const fn among(self, flags: $name) -> $name {
                $name(self.0 & flags.0)
            }
        }
    };
}

/// Defines a type of one choice among several, with constants.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident($integer:ty) { $($choice:ident = $number:expr,)* }) => {
        argument! {
            $(#[$doc])*
            $name($integer)
        }

        #[allow(missing_docs)]
        impl $name {
            $(pub const $choice: $name = $name($number);)*
        }
    };
}

flags! {
    /// Flags of clock_nanosleep(2), timer_settime(2) and timerfd_settime(2).
    TimerFlags(u32) {
        TIMER_ABSTIME = 1,
        TFD_TIMER_CANCEL_ON_SET = 2,
    }
}

flags! {
    /// Operation of futex(2): a command and two flags.
    FutexOp(u32) {
        FUTEX_WAIT = 0,
        FUTEX_CMP_REQUEUE = 4,
        FUTEX_LOCK_PI = 6,
        FUTEX_WAIT_BITSET = 9,
        FUTEX_WAIT_REQUEUE_PI = 11,
        FUTEX_LOCK_PI2 = 13,
        FUTEX_PRIVATE_FLAG = 128,
        FUTEX_CLOCK_REALTIME = 256,
    }
}

impl FutexOp {
    /// The command without the flags.
    pub const fn command(self) -> FutexOp {
        self.without(FutexOp::FUTEX_PRIVATE_FLAG.with(FutexOp::FUTEX_CLOCK_REALTIME))
    }
}

flags! {
    /// Flags of the calls that send and receive messages.
    MsgFlags(u32) {
        MSG_DONTWAIT = 0x40,
        MSG_WAITALL = 0x100,
        MSG_WAITFORONE = 0x1_0000,
    }
}

flags! {
    /// Flags of open(2), which also are the status flags of a descriptor.
    OpenFlags(u32) {
        O_NONBLOCK = 0o4000,
        O_NOFOLLOW = 0o400_000,
        O_CLOEXEC = 0o2_000_000,
        O_PATH = 0o10_000_000,
    }
}

flags! {
    /// Flags of the *at family.
    AtFlags(u32) {
        AT_SYMLINK_NOFOLLOW = 0x100,
        AT_EACCESS = 0x200,
        AT_EMPTY_PATH = 0x1000,
    }
}

flags! {
    /// Flags of clone(2).
    CloneFlags(u64) {
        CLONE_VM = 0x100,
        CLONE_VFORK = 0x4000,
        CLONE_THREAD = 0x1_0000,
    }
}

flags! {
    /// The modes of adjtimex(2).
    AdjModes(u32) {
        ADJ_OFFSET = 0x1,
        ADJ_FREQUENCY = 0x2,
        ADJ_MAXERROR = 0x4,
        ADJ_ESTERROR = 0x8,
        ADJ_STATUS = 0x10,
        ADJ_TIMECONST = 0x20,
        ADJ_TAI = 0x80,
        ADJ_SETOFFSET = 0x100,
        ADJ_MICRO = 0x1000,
        ADJ_NANO = 0x2000,
        ADJ_TICK = 0x4000,
        // adjtime(3), with ADJ_SINGLESHOT. With ADJ_READONLY it changes nothing.
        ADJ_ADJTIME = 0x8000,
        ADJ_SINGLESHOT = 0x1,
        ADJ_READONLY = 0x2000,
    }
}

flags! {
    /// The flags in a sigaction.
    SaFlags(u64) {
        SA_SIGINFO = 0x4,
        SA_RESTORER = 0x0400_0000,
        SA_ONSTACK = 0x0800_0000,
        SA_RESTART = 0x1000_0000,
        SA_NODEFER = 0x4000_0000,
    }
}

flags! {
    /// The flags in a stack_t.
    SsFlags(u32) {
        SS_ONSTACK = 1,
        SS_DISABLE = 2,
        SS_AUTODISARM = 1 << 31,
    }
}

choice! {
    /// Interval timer of setitimer(2).
    ItimerId(u32) {
        ITIMER_REAL = 0,
        ITIMER_PROF = 2,
    }
}

choice! {
    /// How rt_sigprocmask(2) changes the mask.
    SigHow(i32) {
        SIG_BLOCK = 0,
        SIG_UNBLOCK = 1,
        SIG_SETMASK = 2,
    }
}

choice! {
    /// Subject of getrusage(2).
    RusageWho(i32) {
        RUSAGE_SELF = 0,
        RUSAGE_THREAD = 1,
    }
}

choice! {
    /// Option of setsockopt(2) at SOL_SOCKET.
    SocketOption(u32) {
        SO_RCVLOWAT = 18,
        SO_RCVTIMEO_OLD = 20,
        SO_SNDTIMEO_OLD = 21,
        SO_RCVTIMEO_NEW = 66,
        SO_SNDTIMEO_NEW = 67,
    }
}

impl SocketOption {
    /// Whether it is the receive timeout.
    pub const fn is_receive_timeout(self) -> bool {
        matches!(self, SocketOption::SO_RCVTIMEO_OLD | SocketOption::SO_RCVTIMEO_NEW)
    }

    /// Whether it is the send timeout.
    pub const fn is_send_timeout(self) -> bool {
        matches!(self, SocketOption::SO_SNDTIMEO_OLD | SocketOption::SO_SNDTIMEO_NEW)
    }
}

argument! {
    /// A signal set, as the kernel has it: bit 0 is signal 1.
    #[derive(Default)]
    SigSet(u64)
}

impl SigSet {
    /// The set without a signal.
    pub const EMPTY: SigSet = SigSet(0);
    /// The set of all signals.
    pub const ALL: SigSet = SigSet(u64::MAX);
    /// Length of a set in memory, which the kernel's calls take as an argument.
    pub const LEN: usize = size_of::<SigSet>();

    /// The set of these bits.
    #[inline(always)]
    pub const fn new(bits: u64) -> SigSet {
        SigSet(bits)
    }

    /// The set of one signal.
    #[inline(always)]
    pub const fn of(signal: u32) -> SigSet {
        SigSet(1 << (signal - 1))
    }

    /// The bits.
    #[inline(always)]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Whether `signal`, from 1 to 64, is in the set.
    #[inline(always)]
    pub const fn has(self, signal: u32) -> bool {
        self.0 & SigSet::of(signal).0 != 0
    }

    /// The signals of this set and of `other`.
    #[inline(always)]
    pub const fn with(self, other: SigSet) -> SigSet {
        SigSet(self.0 | other.0)
    }

    /// The signals of this set that are not in `other`.
    #[inline(always)]
    pub const fn without(self, other: SigSet) -> SigSet {
        SigSet(self.0 & !other.0)
    }

    /// The signals of this set that are in `other`.
    #[inline(always)]
    pub const fn among(self, other: SigSet) -> SigSet {
        SigSet(self.0 & other.0)
    }

    /// Takes the lowest signal from the set.
    #[inline(always)]
    pub const fn take_lowest(&mut self) -> Option<u32> {
        if self.0 == 0 {
            return None;
        }
        let signal = self.0.trailing_zeros() + 1;
        self.0 &= self.0 - 1;
        Some(signal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux_raw_sys::general as kernel;

    #[test]
    fn flags_are_the_kernels() {
        let pairs = [
            (TimerFlags::TIMER_ABSTIME.0, kernel::TIMER_ABSTIME),
            (TimerFlags::TFD_TIMER_CANCEL_ON_SET.0, kernel::TFD_TIMER_CANCEL_ON_SET),
            (FutexOp::FUTEX_WAIT.0, kernel::FUTEX_WAIT),
            (FutexOp::FUTEX_CMP_REQUEUE.0, kernel::FUTEX_CMP_REQUEUE),
            (FutexOp::FUTEX_LOCK_PI.0, kernel::FUTEX_LOCK_PI),
            (FutexOp::FUTEX_WAIT_BITSET.0, kernel::FUTEX_WAIT_BITSET),
            (FutexOp::FUTEX_WAIT_REQUEUE_PI.0, kernel::FUTEX_WAIT_REQUEUE_PI),
            (FutexOp::FUTEX_LOCK_PI2.0, kernel::FUTEX_LOCK_PI2),
            (FutexOp::FUTEX_PRIVATE_FLAG.0, kernel::FUTEX_PRIVATE_FLAG),
            (FutexOp::FUTEX_CLOCK_REALTIME.0, kernel::FUTEX_CLOCK_REALTIME),
            (OpenFlags::O_NONBLOCK.0, kernel::O_NONBLOCK),
            (OpenFlags::O_NOFOLLOW.0, kernel::O_NOFOLLOW),
            (OpenFlags::O_CLOEXEC.0, kernel::O_CLOEXEC),
            (OpenFlags::O_PATH.0, kernel::O_PATH),
            (AtFlags::AT_SYMLINK_NOFOLLOW.0, kernel::AT_SYMLINK_NOFOLLOW),
            (AtFlags::AT_EACCESS.0, kernel::AT_EACCESS),
            (AtFlags::AT_EMPTY_PATH.0, kernel::AT_EMPTY_PATH),
            (SsFlags::SS_ONSTACK.0, kernel::SS_ONSTACK),
            (SsFlags::SS_DISABLE.0, kernel::SS_DISABLE),
            (SsFlags::SS_AUTODISARM.0, kernel::SS_AUTODISARM),
            (ItimerId::ITIMER_REAL.0, kernel::ITIMER_REAL),
            (ItimerId::ITIMER_PROF.0, kernel::ITIMER_PROF),
            (SigHow::SIG_BLOCK.0 as u32, kernel::SIG_BLOCK),
            (SigHow::SIG_UNBLOCK.0 as u32, kernel::SIG_UNBLOCK),
            (SigHow::SIG_SETMASK.0 as u32, kernel::SIG_SETMASK),
            (RusageWho::RUSAGE_SELF.0 as u32, kernel::RUSAGE_SELF),
            (RusageWho::RUSAGE_THREAD.0 as u32, kernel::RUSAGE_THREAD),
            (CloneFlags::CLONE_VM.0 as u32, kernel::CLONE_VM),
            (CloneFlags::CLONE_VFORK.0 as u32, kernel::CLONE_VFORK),
            (CloneFlags::CLONE_THREAD.0 as u32, kernel::CLONE_THREAD),
            (SaFlags::SA_SIGINFO.0 as u32, kernel::SA_SIGINFO),
            (SaFlags::SA_RESTORER.0 as u32, kernel::SA_RESTORER),
            (SaFlags::SA_ONSTACK.0 as u32, kernel::SA_ONSTACK),
            (SaFlags::SA_RESTART.0 as u32, kernel::SA_RESTART),
            (SaFlags::SA_NODEFER.0 as u32, kernel::SA_NODEFER),
        ];
        for (i, (ours, kernels)) in pairs.into_iter().enumerate() {
            assert_eq!(ours, kernels, "pair {i}");
        }
    }

    #[test]
    fn a_set_of_signals_is_taken_apart_from_the_lowest_on() {
        let mut set = SigSet::of(64).with(SigSet::of(2));
        assert!(set.has(2) && !set.has(3));
        assert_eq!(set.take_lowest(), Some(2));
        assert_eq!(set, SigSet::of(64));
        assert_eq!(set.take_lowest(), Some(64));
        assert_eq!(set.take_lowest(), None);
    }

    #[test]
    fn a_futex_command_comes_without_its_flags() {
        let op = FutexOp::FUTEX_WAIT_BITSET.with(FutexOp::FUTEX_CLOCK_REALTIME);
        assert_eq!(op.command(), FutexOp::FUTEX_WAIT_BITSET);
    }
}
