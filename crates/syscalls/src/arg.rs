//! Arguments of system calls: how a register is read, and what it names.
//!
//! A type tells how the kernel reads the register: of an int it takes the low half. None of the types accesses memory; the shim
//! adds that to [`UserPtr`].

use core::fmt;
use core::marker::PhantomData;

/// A type that the kernel reads from an argument register.
pub trait FromArg: Copy {
    /// Reads the register as the kernel does.
    fn from_arg(register: u64) -> Self;
}

/// A value that an argument register can hold.
pub trait IntoArg: Copy {
    /// The register that holds the value.
    fn into_arg(self) -> u64;
}

macro_rules! integers {
    ($($integer:ty)*) => {$(
        impl FromArg for $integer {
            #[inline(always)]
            fn from_arg(register: u64) -> Self {
                register as Self
            }
        }

        impl IntoArg for $integer {
            #[inline(always)]
            fn into_arg(self) -> u64 {
                self as u64
            }
        }
    )*};
}

integers! { i32 u32 i64 u64 isize usize }

impl<T> IntoArg for *const T {
    #[inline(always)]
    fn into_arg(self) -> u64 {
        self as u64
    }
}

impl<T> IntoArg for *mut T {
    #[inline(always)]
    fn into_arg(self) -> u64 {
        self as u64
    }
}

/// Defines a type that holds one integer, as an argument does.
macro_rules! argument {
    ($(#[$doc:meta])* $name:ident($integer:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(transparent)]
        pub struct $name($integer);

        impl $crate::arg::FromArg for $name {
            #[inline(always)]
            fn from_arg(register: u64) -> Self {
                $name(register as $integer)
            }
        }

        impl $crate::arg::IntoArg for $name {
            #[inline(always)]
            fn into_arg(self) -> u64 {
                self.0 as u64
            }
        }
    };
}
pub(crate) use argument;

argument! {
    /// A file descriptor of the program.
    Fd(i32)
}

impl Fd {
    /// The directory that relative paths begin at, in the calls of the *at family.
    pub const AT_FDCWD: Fd = Fd(-100);
    /// No descriptor.
    pub const NONE: Fd = Fd(-1);

    /// The descriptor of this number.
    #[inline(always)]
    pub const fn new(number: i32) -> Fd {
        Fd(number)
    }

    /// Its number, as the tables of the shim have it.
    #[inline(always)]
    pub const fn number(self) -> u32 {
        self.0 as u32
    }
}

argument! {
    /// A clock of clock_gettime(2): one of the kernel's, or the CPU clock of a process or a thread, or the clock of a device.
    ClockId(i32)
}

#[allow(missing_docs)]
impl ClockId {
    pub const REALTIME: ClockId = ClockId(0);
    pub const MONOTONIC: ClockId = ClockId(1);
    pub const PROCESS_CPUTIME_ID: ClockId = ClockId(2);
    pub const THREAD_CPUTIME_ID: ClockId = ClockId(3);
    pub const MONOTONIC_RAW: ClockId = ClockId(4);
    pub const REALTIME_COARSE: ClockId = ClockId(5);
    pub const MONOTONIC_COARSE: ClockId = ClockId(6);
    pub const BOOTTIME: ClockId = ClockId(7);
    pub const REALTIME_ALARM: ClockId = ClockId(8);
    pub const BOOTTIME_ALARM: ClockId = ClockId(9);
    pub const TAI: ClockId = ClockId(11);
}

impl ClockId {
    /// The clock of this number.
    #[inline(always)]
    pub const fn new(number: i32) -> ClockId {
        ClockId(number)
    }

    /// Its number.
    #[inline(always)]
    pub const fn number(self) -> i32 {
        self.0
    }

    /// Whether it counts CPU time: the two fixed ids, or that of another process or thread.
    pub const fn is_cpu_clock(self) -> bool {
        const FD_CLOCK: i32 = 3;
        matches!(self, ClockId::PROCESS_CPUTIME_ID | ClockId::THREAD_CPUTIME_ID)
            || (self.0 < 0 && self.0 & 7 != FD_CLOCK)
    }

    /// Whether it wakes a sleeping machine. The kernel has such clocks only where a device of the machine does so.
    pub const fn is_alarm_clock(self) -> bool {
        matches!(self, ClockId::REALTIME_ALARM | ClockId::BOOTTIME_ALARM)
    }

    /// Whether it is one of the kernel's auxiliary clocks.
    pub const fn is_auxiliary(self) -> bool {
        matches!(self.0, 16..24)
    }
}

/// A pointer into the program's memory. It may be null, misaligned, or point nowhere.
#[repr(transparent)]
pub struct UserPtr<T> {
    address: u64,
    pointee: PhantomData<*mut T>,
}

impl<T> Clone for UserPtr<T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for UserPtr<T> {}

impl<T> PartialEq for UserPtr<T> {
    fn eq(&self, other: &Self) -> bool {
        self.address == other.address
    }
}

impl<T> fmt::Debug for UserPtr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.address)
    }
}

impl<T> UserPtr<T> {
    /// The pointer to `address`.
    #[inline(always)]
    pub const fn new(address: u64) -> UserPtr<T> {
        UserPtr { address, pointee: PhantomData }
    }

    /// A pointer to memory of the shim, which the kernel takes like the program's own.
    #[inline(always)]
    pub fn to(value: &T) -> UserPtr<T> {
        UserPtr::new(value as *const T as u64)
    }

    /// The address.
    #[inline(always)]
    pub const fn address(self) -> u64 {
        self.address
    }

    /// Whether it is null.
    #[inline(always)]
    pub const fn is_null(self) -> bool {
        self.address == 0
    }

    /// The pointer `bytes` bytes behind this one, to another type.
    #[inline(always)]
    pub const fn field<U>(self, bytes: u64) -> UserPtr<U> {
        UserPtr::new(self.address.wrapping_add(bytes))
    }

    /// The pointer to element number `index` of an array that begins here.
    #[inline(always)]
    pub const fn element(self, index: u64) -> UserPtr<T> {
        self.field(index.wrapping_mul(size_of::<T>() as u64))
    }
}

impl<T> FromArg for UserPtr<T> {
    #[inline(always)]
    fn from_arg(register: u64) -> Self {
        UserPtr::new(register)
    }
}

impl<T> IntoArg for UserPtr<T> {
    #[inline(always)]
    fn into_arg(self) -> u64 {
        self.address
    }
}

/// `None` is the null pointer: an argument that is not given.
impl<T> FromArg for Option<UserPtr<T>> {
    #[inline(always)]
    fn from_arg(register: u64) -> Self {
        (register != 0).then_some(UserPtr::new(register))
    }
}

impl<T> IntoArg for Option<UserPtr<T>> {
    #[inline(always)]
    fn into_arg(self) -> u64 {
        self.map_or(0, |pointer| pointer.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_int_is_the_low_half_of_its_register() {
        assert_eq!(Fd::from_arg(0xdead_beef_0000_0007), Fd::new(7));
        assert_eq!(ClockId::from_arg(0x1234_5678_ffff_fffe), ClockId::new(-2));
        assert_eq!(Fd::AT_FDCWD.into_arg(), -100i64 as u64);
    }

    #[test]
    fn a_null_pointer_is_not_given() {
        assert_eq!(Option::<UserPtr<u64>>::from_arg(0), None);
        let given = Option::<UserPtr<u64>>::from_arg(8).unwrap();
        assert_eq!(given.element(2).address(), 24);
        assert_eq!(UserPtr::<u64>::new(u64::MAX).field::<u32>(2).address(), 1);
    }

    #[test]
    fn clocks_are_the_kernels() {
        use linux_raw_sys::general as kernel;
        let pairs = [
            (ClockId::REALTIME, kernel::CLOCK_REALTIME),
            (ClockId::MONOTONIC, kernel::CLOCK_MONOTONIC),
            (ClockId::PROCESS_CPUTIME_ID, kernel::CLOCK_PROCESS_CPUTIME_ID),
            (ClockId::THREAD_CPUTIME_ID, kernel::CLOCK_THREAD_CPUTIME_ID),
            (ClockId::MONOTONIC_RAW, kernel::CLOCK_MONOTONIC_RAW),
            (ClockId::REALTIME_COARSE, kernel::CLOCK_REALTIME_COARSE),
            (ClockId::MONOTONIC_COARSE, kernel::CLOCK_MONOTONIC_COARSE),
            (ClockId::BOOTTIME, kernel::CLOCK_BOOTTIME),
            (ClockId::REALTIME_ALARM, kernel::CLOCK_REALTIME_ALARM),
            (ClockId::BOOTTIME_ALARM, kernel::CLOCK_BOOTTIME_ALARM),
            (ClockId::TAI, kernel::CLOCK_TAI),
        ];
        for (ours, kernels) in pairs {
            assert_eq!(ours.number() as u32, kernels);
        }
    }
}
