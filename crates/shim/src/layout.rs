//! Where things lie in the address space of a program in virtual time.
//!
//! All addresses are fixed and below 2 GiB: code can name them in 32 bits, the seccomp filter can tell the
//! image's own system calls by their address, and a tool that inspects a process knows where to look.

use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use lorentz_clock::{file, ClockPage, Registry};

/// The image: code and constants, read and execute.
pub const IMAGE: usize = 0x7000_0000;
/// Room for the image.
pub const IMAGE_LEN: usize = 0x4_0000;
/// The shim's data of its process: [`ProcessData`], then [`ForkData`].
pub const DATA: usize = IMAGE + IMAGE_LEN;
/// Length of both, and of the spare stack behind them.
pub const DATA_LEN: usize = 5 * 4096 + SPARE_STACK_LEN;
/// The page that a fork's child finds empty.
pub const FORK_DATA: usize = DATA + 4 * 4096;
/// A stack for the handlers of a process that was begun on a stack of its parent's choice: see [`crate::clone_tracking`].
pub const SPARE_STACK: usize = FORK_DATA + 4096;
/// Length of the spare stack. It takes no memory before it is used.
pub const SPARE_STACK_LEN: usize = 64 * 1024;
/// The clock page, read only.
pub const CLOCK: usize = file::PAGE_ADDRESS;
/// The registry, read and write.
pub const REGISTRY: usize = CLOCK + file::REGISTRY_OFFSET;
/// Address of the clock's version.
pub const VERSION: usize = CLOCK + ClockPage::VERSION_OFFSET;

/// Address of the trap handler's signal mask.
pub const TRAP_MASK: usize = DATA + core::mem::offset_of!(ProcessData, trap_mask);

/// Where the slots of rewritten call sites lie: see [`crate::call_sites`].
pub const CALL_SLOTS: usize = 0x050f_0000;
/// Call sites that are counted, and may be rewritten.
pub const CALL_SITES_LEN: usize = 128;
/// Address of the table of call sites.
pub const CALL_SITES: usize = DATA + core::mem::offset_of!(ProcessData, call_sites);

/// The number of a call site whose call stands in a register.
pub const ANY_CALL: u32 = u32::MAX;

/// Entries of the fd table.
pub const FD_TABLE_LEN: usize = 256;

/// Which of the two signals that a program may not block a thread has blocked, in its own eyes: the thread's number, twice shifted
/// to the left, and a bit for each of them. 0 where the entry is free.
pub type BlockedSignals = AtomicU32;

/// An alternate stack for the child of a thread's vfork on a stack of its own: see [`crate::clone_tracking`].
#[repr(C)]
pub struct VforkStack {
    /// The thread that waits for such a child, or did; 0 where there was none.
    pub parent: AtomicU32,
    /// Not used.
    pub unused: AtomicU32,
    /// Where the stack lies; 0 where there is none yet.
    pub memory: AtomicUsize,
}

/// Threads of a process that can be in such a vfork at once.
pub const VFORK_STACKS: usize = 32;

/// Places in a process's code that call clone, fork or vfork.
pub const CLONE_SITES: usize = 32;

/// Threads whose beliefs are remembered.
pub const BLOCKED: usize = 254;

/// A place in the program's code where it makes system calls that are trapped. See [`crate::call_sites`]. The assembly of
/// [`crate::direct`] reads it.
#[repr(C)]
pub struct CallSite {
    /// The address behind the syscall instruction; 0 where the entry is free.
    pub end: AtomicU64,
    /// The call's number, or [`ANY_CALL`]. Valid once the site is rewritten.
    pub number: AtomicU32,
    /// How many calls were trapped here, up to `HOT` of `call_sites.rs`; then what has become of the site.
    pub state: AtomicU32,
}

impl CallSite {
    /// Whether it is the site that ends at `end`.
    pub fn is_at(&self, end: u64) -> bool {
        self.end.load(Relaxed) == end
    }
}

/// How long a thread had been waiting when its process was brought in, for the call it makes again.
#[repr(C)]
pub struct Credit {
    /// The thread; 0 where there is none.
    pub thread: AtomicU64,
    /// Nanoseconds.
    pub elapsed: AtomicU64,
}

/// Threads that can be given credit.
pub const CREDITS: usize = 128;

impl Credit {
    /// The bytes of an entry, as a process outside writes it.
    pub fn bytes(thread: u32, elapsed: u64) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&u64::from(thread).to_ne_bytes());
        bytes[8..].copy_from_slice(&elapsed.to_ne_bytes());
        bytes
    }
}

/// Where credit number `place` lies.
pub fn credit_address(place: usize) -> usize {
    DATA + core::mem::offset_of!(ProcessData, credits) + place * core::mem::size_of::<Credit>()
}

/// The virtual sigaction of a signal of ours: the one that the program has set.
#[repr(C)]
pub struct Disposition {
    /// SIG_DFL (0), SIG_IGN (1) or a handler.
    pub handler: AtomicUsize,
    /// sa_flags.
    pub flags: AtomicU64,
    /// sa_restorer.
    pub restorer: AtomicUsize,
    /// sa_mask.
    pub mask: AtomicU64,
}

/// An entry of the fd table: properties of one file descriptor of the process.
#[repr(C)]
pub struct FdEntry {
    /// The descriptor plus one; 0 where the entry is free.
    pub key: AtomicU32,
    /// Properties of the descriptor: bits of [`crate::fd_table`].
    pub properties: AtomicU32,
    /// The identity of its file: the number may come to stand for another file.
    pub file: AtomicU64,
    /// SO_RCVTIMEO in virtual nanoseconds.
    pub receive_timeout: AtomicU64,
    /// SO_SNDTIMEO in virtual nanoseconds.
    pub send_timeout: AtomicU64,
}

impl FdEntry {
    /// The bytes of an entry, as a process outside writes it.
    pub fn bytes(fd: u32, properties: u32, file: u64, timeouts: [u64; 2]) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&fd.wrapping_add(1).to_ne_bytes());
        bytes[4..8].copy_from_slice(&properties.to_ne_bytes());
        for (i, word) in [file, timeouts[0], timeouts[1]].into_iter().enumerate() {
            bytes[8 * (i + 1)..8 * (i + 2)].copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

/// The address of entry number `place` of the fd table.
pub fn fd_entry_address(place: usize) -> usize {
    DATA + core::mem::offset_of!(ProcessData, fds) + place * core::mem::size_of::<FdEntry>()
}

/// The address of the process id namespace that the process believes to be in.
pub fn space_address() -> usize {
    DATA + core::mem::offset_of!(ProcessData, space)
}

/// The addresses of [`ProcessData::time_offsets`] and [`ProcessData::base_offsets`].
pub fn time_offset_addresses() -> [usize; 2] {
    let offsets = [
        core::mem::offset_of!(ProcessData, time_offsets),
        core::mem::offset_of!(ProcessData, base_offsets),
    ];
    offsets.map(|offset| DATA + offset)
}

/// Where it is said which filters were added.
pub fn extra_filters_address() -> usize {
    DATA + core::mem::offset_of!(ProcessData, extra_filters)
}

/// The shim's data of its process; copied by fork, lost by exec.
#[repr(C)]
pub struct ProcessData {
    /// The kernel's vDSO: where it lies, to its end.
    pub vdso: AtomicUsize,
    /// One past its last byte.
    pub vdso_end: AtomicUsize,
    /// The kernel's functions, 0 where it has none. This one is 0 in a time namespace with offsets too: see `host_gettime`.
    pub clock_gettime: AtomicUsize,
    /// As above.
    pub clock_getres: AtomicUsize,
    /// As above.
    pub getcpu: AtomicUsize,
    /// As above.
    pub getrandom: AtomicUsize,
    /// The lead of TAI over the wall clock, seconds.
    pub tai: AtomicU64,
    /// TSC ticks per second, where rdtsc is virtual; else 0.
    pub tsc_hz: AtomicU64,
    /// The program's own view of SIGSYS, ...
    pub sigsys: Disposition,
    /// ... of the clock-change signal, ...
    pub change_signal: Disposition,
    /// ... and of SIGSEGV, where rdtsc is virtual.
    pub sigsegv: Disposition,
    /// The process id namespace: a [`lorentz_clock::PidNamespace`].
    pub space: AtomicU32,
    /// Whether children come into another time namespace: see [`crate::time_namespace`].
    pub children_elsewhere: AtomicU32,
    /// Filters added since the start: bits of [`crate::filter::Extra`].
    pub extra_filters: AtomicU32,
    /// Whether the program has added a seccomp filter of its own.
    pub sandboxed: AtomicU32,
    /// The signal mask of the trap handler: see [`crate::trap_mask`].
    pub trap_mask: AtomicU64,
    /// [`crate::sys::host_call`].
    pub host_call: AtomicUsize,
    /// The kernel's clock_gettime, 0 where it has none that makes no system call.
    pub host_gettime: AtomicUsize,
    /// By how many nanoseconds this process's CLOCK_MONOTONIC and CLOCK_BOOTTIME are ahead of those that the clock page speaks of.
    pub time_offsets: [AtomicI64; 2],
    /// By how many those are ahead of the machine's.
    pub base_offsets: [AtomicI64; 2],
    /// Files show timestamps from before this second by the host's wall clock: [`lorentz_clock::ClockPage::old_stamps_end`].
    pub old_stamps_end: AtomicI64,
    /// Which of our signals threads believe to have blocked.
    pub blocked: [BlockedSignals; BLOCKED],
    /// Each entry of `blocked` is at most so many places from where its thread begins to look for it. Only grows.
    pub blocked_reach: AtomicU32,
    /// Where the program goes on after it has begun a task: see [`crate::clone_tracking`].
    pub clone_sites: [AtomicUsize; CLONE_SITES],
    /// Alternate stacks of children that share this memory while their parents wait.
    pub vfork_stacks: [VforkStack; VFORK_STACKS],
    /// Credit of threads that were waiting when the process was brought in.
    pub credits: [Credit; CREDITS],
    /// The fd table.
    pub fds: [FdEntry; FD_TABLE_LEN],
    /// Addresses of the handlers of SIGSYS and of the clock-change signal: see [`crate::handlers`].
    pub handlers: [AtomicUsize; 2],
    /// Where the program makes trapped calls: see [`crate::call_sites`].
    pub call_sites: [CallSite; CALL_SITES_LEN],
    /// 1 once the slots of rewritten call sites are mapped.
    pub call_slots: AtomicU32,
    /// How often the process has read the clock at [`ProcessData::instant_read`]: see [`crate::spinning`].
    pub reads_of_instant: AtomicU32,
    /// The virtual instant, ns, of its latest read.
    pub instant_read: AtomicI64,
}

/// The start of a task in ticks, by the host's boot clock and as the shim reported it. The seal is computed from both: a thread
/// that reads while another writes finds that they do not fit.
#[repr(C)]
pub struct ReportedStart {
    /// Ticks of the host.
    pub host: AtomicU64,
    /// Ticks of the container.
    pub reported: AtomicU64,
    /// 0 where the entry is free.
    pub seal: AtomicU64,
}

/// Start times that a process remembers.
pub const REPORTED_STARTS: usize = 32;

impl ReportedStart {
    fn seal(host: u64, reported: u64) -> u64 {
        const FREE_DOES_NOT_FIT: u64 = 1 << 63;
        host.rotate_left(32) ^ reported ^ FREE_DOES_NOT_FIT
    }

    /// The start that the shim reported for `host`, if the entry has it.
    pub fn get(&self, host: u64) -> Option<u64> {
        let reported = self.reported.load(Relaxed);
        let fits = self.host.load(Relaxed) == host
            && self.seal.load(Relaxed) == Self::seal(host, reported);
        fits.then_some(reported)
    }

    /// Remembers it.
    pub fn set(&self, host: u64, reported: u64) {
        self.host.store(host, Relaxed);
        self.reported.store(reported, Relaxed);
        self.seal.store(Self::seal(host, reported), Relaxed);
    }
}

/// CPU time of a process or a thread when the rate last changed.
#[repr(C)]
pub struct CpuAnchor {
    /// Thread id; 0 is the process, as entry 0.
    pub thread: AtomicU32,
    /// Which state of the clock it was computed in.
    pub state: AtomicU32,
    /// CPU time the host says, nanoseconds, then.
    pub real: AtomicU64,
    /// CPU time reported to the program then, ns.
    pub reported: AtomicU64,
    /// The rate that has been in force since.
    pub num: AtomicU64,
    /// Its lower term.
    pub den: AtomicU64,
}

impl CpuAnchor {
    /// Length of an entry, bytes.
    pub const LEN: usize = core::mem::size_of::<CpuAnchor>();

    /// The address of entry number `place`.
    pub fn address(place: usize) -> usize {
        FORK_DATA + core::mem::offset_of!(ForkData, anchors) + place * CpuAnchor::LEN
    }

    /// The places at which the entry of a thread may lie, in the order in which it is looked for. Place 0 is the process's.
    pub fn places(thread: u32) -> impl Iterator<Item = usize> {
        let first = thread as usize;
        (0..CPU_ANCHORS - 1).map(move |i| 1 + (first + i) % (CPU_ANCHORS - 1))
    }

    /// Returns an entry as a process outside writes it, for a thread whose kernel CPU clock shows less by `lost` nanoseconds than it
    /// did when `before` was written. `rate` is the clock's, as a fraction.
    pub fn continued(before: &[u8; 40], thread: u32, lost: i64, rate: (u64, u64)) -> [u8; 40] {
        const ANY_STATE: u32 = 1;
        let word = |at: usize| u64::from_ne_bytes(core::array::from_fn(|i| before[at + i]));
        let state = (word(0) >> 32) as u32;
        let (state, real, rest) = match state {
            0 => (ANY_STATE, 0, [0, rate.0, rate.1]),
            state => (state, word(8) as i64, [word(16), word(24), word(32)]),
        };
        let first = u64::from(state) << 32 | u64::from(thread);
        let words = [first, real.wrapping_sub(lost) as u64, rest[0], rest[1], rest[2]];
        let mut bytes = [0; 40];
        for (i, word) in words.into_iter().enumerate() {
            bytes[8 * i..8 * (i + 1)].copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

const _: () = assert!(CpuAnchor::LEN == 40);

/// CPU clocks kept apart.
pub const CPU_ANCHORS: usize = 80;

/// The shim's data of its process that a fork's child must not have.
#[repr(C)]
pub struct ForkData {
    /// The thread that reads or changes the anchors; 0 where none does.
    pub anchors_holder: AtomicU32,
    /// The process whose memory this is, once known.
    pub process: AtomicU32,
    /// The life of this process ([`lorentz_clock::Epoch`]), once asked for.
    pub epoch: AtomicU32,
    /// How often a thread began to set its timers anew because of a change, ...
    pub rearms_begun: AtomicU32,
    /// ... and how often one was done with it.
    pub rearms_done: AtomicU32,
    /// 1 once the offsets of its time namespace are known.
    pub time_known: AtomicU32,
    /// The thread that rewrites a call site; 0 where none does.
    pub code_writer: AtomicU32,
    /// CPU times at the last change of rate.
    pub anchors: [CpuAnchor; CPU_ANCHORS],
    /// Start times that the shim has reported to the program. They lie here because the other pages are full.
    pub starts: [ReportedStart; REPORTED_STARTS],
}

const _: () = assert!(core::mem::size_of::<ProcessData>() <= FORK_DATA - DATA);
const _: () = assert!(core::mem::size_of::<ForkData>() <= 4096);
const _: () = assert!(DATA + DATA_LEN <= CLOCK);
// Controllers look for these two at fixed addresses.
const _: () =
    assert!(DATA + core::mem::offset_of!(ProcessData, host_call) == file::HOST_CALL_ADDRESS);
const _: () =
    assert!(DATA + core::mem::offset_of!(ProcessData, time_offsets) == file::TIME_OFFSETS_ADDRESS);

/// The clock page of this process.
#[inline(always)]
pub fn clock() -> &'static ClockPage {
    // SAFETY: code of the image runs only where the boot code has mapped it; the page is never unmapped.
    unsafe { &*(CLOCK as *const ClockPage) }
}

/// The registry of this process's clock.
#[inline(always)]
pub fn registry() -> &'static Registry {
    // SAFETY: as for the clock page; every field is an atomic.
    unsafe { &*(REGISTRY as *const Registry) }
}

/// The shim's data of this process.
#[inline(always)]
pub fn data() -> &'static ProcessData {
    // SAFETY: mapped by the boot code, zeroed by the kernel; every field is an atomic.
    unsafe { &*(DATA as *const ProcessData) }
}

/// The shim's data that a fork's child finds empty.
#[inline(always)]
pub fn fork_data() -> &'static ForkData {
    // SAFETY: as above.
    unsafe { &*(FORK_DATA as *const ForkData) }
}
