//! The clock-change signal: its number, and the value that it carries. A controller sends it, the shim's handler receives it.

/// The signal: the last real-time signal, because the kernel delivers it after all others.
pub const CLOCK_CHANGE: u32 = 64;
/// High half of the value. The low half is a [`fingerprint`], or [`NO_CALL`].
pub const MAGIC: u32 = 0x4c7a_6b21;
/// High half of the value for a thread that is to give its process a filter with a new listener: its monitor has died. The low half
/// is as for [`MAGIC`].
pub const ADOPT: u32 = 0x4c7a_6b22;
/// The same; the process also sets no_new_privs, so that the kernel accepts the filter.
pub const ADOPT_NO_NEW_PRIVS: u32 = 0x4c7a_6b23;
/// Low half of the value for a thread that was not seen in a call which the signal would break off.
pub const NO_CALL: u32 = u32::MAX;

/// Returns the blocked-syscall fingerprint of a thread in system call `call` at these registers: 10 bits of the call, 22 of the
/// place.
pub fn fingerprint(call: u32, ip: u64, sp: u64) -> u32 {
    let place = (ip ^ sp.rotate_left(17)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 42;
    (call & 0x3ff) << 22 | place as u32
}

/// Returns the number of the system call in a fingerprint.
pub fn call_of(fingerprint: u32) -> u32 {
    fingerprint >> 22
}
