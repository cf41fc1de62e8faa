//! Times that the kernel has written down: on files, on messages. From the host's wall time to the container's and back.

use crate::clocks;
use crate::layout::{clock, registry};
use crate::sys::{close, host_clock, sys, to_fd, ClockId, Stat, Sysno, Timespec, Timeval, UserPtr};
use crate::user::Access;
use lorentz_clock::{saturate, RealInstant, Span, WallTime, NANOS_PER_SEC};

/// The host's wall clock may be set while containers run; by less than this it is not believed to have been. Ticks are at most so long.
const MIN_HOST_STEP: i128 = 10_000_000;

/// The lead of the host's wall clock over its monotonic clock, ns. It stays the same to the nanosecond from the making of the clock
/// on, so that a time written and read back is the same, unless the host's wall clock has been set since.
#[derive(Clone, Copy)]
pub struct HostWall(i128);

impl HostWall {
    /// Looks at the host's clocks.
    pub fn read() -> HostWall {
        let known = clock().host_wall().as_nanos();
        // A tick that passes between the two is no step.
        let wall = nanos_of(clocks::host_wall_at_tick());
        let sampled = wall - nanos_of(clocks::host_by(ClockId::MONOTONIC_COARSE));
        HostWall(match (sampled - known).abs() < MIN_HOST_STEP {
            true => known,
            false => within_a_tick().unwrap_or(sampled),
        })
    }

    /// The instant of a time by the host's wall clock.
    fn instant_of(self, stamp: Timespec) -> RealInstant {
        RealInstant(saturate(nanos_of(stamp) - self.0))
    }

    /// Whether the kernel's timestamp of a file is from after the clock was created.
    pub fn is_since_creation(self, stamp: Timespec) -> bool {
        self.instant_of(stamp) >= clock().created()
    }

    /// Translates a file's timestamp into the time that the file shows inside.
    pub fn file_to_virtual(self, stamp: Timespec) -> Timespec {
        let real = self.instant_of(stamp);
        if clock().shows_timestamp(real, self.0) {
            return stamp;
        }
        let (now, ahead) = (clocks::host(), WallTime::from_nanos(self.0));
        with_leaps(clock().wall_of_file(registry(), real, now, ahead), real)
    }

    /// Translates the time that a file is to show inside into the timestamp for the kernel.
    pub fn file_to_host(self, stamp: Timespec) -> Timespec {
        let inside = WallTime { secs: stamp.secs, nanos: stamp.nanos as u32 };
        let ahead = WallTime::from_nanos(self.0);
        let stamp_of = |wall| clock().stamp_of_file(registry(), wall, ahead);
        let real = match clock().leaps_enabled() {
            true => registry().leaps.real_of(|sum| stamp_of(inside.plus(Span(-sum.0)))),
            false => stamp_of(inside),
        };
        let wall = WallTime::from_nanos(i128::from(real.0) + self.0);
        Timespec { secs: wall.secs, nanos: wall.nanos as i64 }
    }
}

fn nanos_of(time: Timespec) -> i128 {
    i128::from(time.secs) * i128::from(NANOS_PER_SEC) + i128::from(time.nanos)
}

/// The same to the nanosecond: within a tick the coarse clocks stand still.
fn within_a_tick() -> Option<i128> {
    let coarse = |clock| nanos_of(host_clock(clock));
    let before = coarse(ClockId::MONOTONIC_COARSE);
    let wall = coarse(ClockId::REALTIME_COARSE);
    (before == coarse(ClockId::MONOTONIC_COARSE)).then_some(wall - before)
}

/// Draws a line between files written before and after: the kernel stamps files by its last tick, but none written from now on
/// with less than this instant. On Linux 6.13 and later, none written before with this instant or more: there a stamp that was
/// looked at is followed by a finer one. None where no file can be made to ask with.
///
/// The thread is the only one of its process: another's next file descriptor would have another number.
pub fn draw_line() -> Option<RealInstant> {
    const MFD_CLOEXEC: u32 = 1;
    const MODIFIED: usize = 11;
    // SAFETY: a name that lasts.
    let file = unsafe { sys!(Sysno::memfd_create, c"stamp".as_ptr(), MFD_CLOEXEC) };
    let file = to_fd(file.ok()?);
    let _ = Stat::of(file);
    // SAFETY: our own file, which gets the present time.
    let _ = unsafe { sys!(Sysno::utimensat, file, 0, 0, 0) };
    let stat = Stat::of(file);
    close(file);
    let Stat(words) = stat.ok()?;
    let stamp = Timespec { secs: words[MODIFIED] as i64, nanos: words[MODIFIED + 1] as i64 };
    Some(HostWall::read().instant_of(stamp))
}

/// Translates a moment by the host's wall clock, such as that at which the kernel received a packet, into wall time inside. A moment
/// before the clock was created shows the same age as outside.
pub fn moment_to_virtual(stamp: Timespec) -> Timespec {
    let real = HostWall::read().instant_of(stamp);
    with_leaps(clock().wall_of(registry(), real), real)
}

fn with_leaps(wall: WallTime, real: RealInstant) -> Timespec {
    let wall = match clock().leaps_enabled() {
        true => wall.plus(registry().leaps.at(real)),
        false => wall,
    };
    Timespec { secs: wall.secs, nanos: wall.nanos as i64 }
}

/// struct msghdr, in words: those that the shim looks at.
pub type Message = [u64; 7];

/// Translates the stamps among the control data of a message that the kernel has just received.
pub fn translate_message(message: UserPtr<Message>) {
    const CONTROL: usize = 4;
    const CONTROL_LEN: usize = 5;
    const HEADER_LEN: u64 = 16;
    const SOL_SOCKET: i32 = 1;
    // SAFETY: the kernel has just read the msghdr, and written its control data and their length. Other threads of the program may
    // write there: no reference is made of it.
    let words = unsafe { message.get() };
    let mut header: UserPtr<[i32; 4]> = UserPtr::new(words[CONTROL]);
    let mut left = words[CONTROL_LEN];
    while !header.is_null() && left >= HEADER_LEN {
        // SAFETY: a header lies within the control data.
        let [len, _, level, kind] = unsafe { header.get() };
        let len = len as u64;
        if len < HEADER_LEN || len > left {
            return;
        }
        if level == SOL_SOCKET {
            // SAFETY: `len` bytes are left of the control data.
            unsafe { translate_stamp(kind, header.field(HEADER_LEN), len - HEADER_LEN) };
        }
        let step = len.div_ceil(8) * 8;
        if step >= left {
            return;
        }
        left -= step;
        header = header.field(step);
    }
}

/// SO_TIMESTAMP holds a timeval, SO_TIMESTAMPNS a timespec, SO_TIMESTAMPING three, of which the first is the system's.
///
/// # Safety
/// The kernel has just written `len` bytes at `stamp`.
unsafe fn translate_stamp(kind: i32, stamp: UserPtr<Timespec>, len: u64) {
    let is_timeval = match kind {
        29 | 63 => true,
        35 | 64 | 37 | 65 => false,
        _ => return,
    };
    if len < size_of::<Timespec>() as u64 {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe {
        if is_timeval {
            let stamp: UserPtr<Timeval> = stamp.field(0);
            let value = stamp.get();
            if value != Timeval::default() {
                stamp.set(Timeval::from_timespec(moment_to_virtual(value.to_timespec())));
            }
        } else {
            let value = stamp.get();
            if value != Timespec::default() {
                stamp.set(moment_to_virtual(value));
            }
        }
    }
}
