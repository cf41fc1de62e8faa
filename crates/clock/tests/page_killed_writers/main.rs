//! The clock page on this machine while the test stops and kills writers. Does a read go back, does a read wait, and how long
//! does a change take?
//!
//! The test runs its own binary again as writers: processes that take the file's lock and change the clock in a loop. It stops
//! and kills them at random moments and starts others, while three of its threads read the clock. `LORENTZ_CHANGES` in the
//! environment is the number of changes; 20,000 without it.

#![cfg(not(loom))]

#[path = "../clock/mod.rs"]
mod clock;
mod hosts;
mod tally;

use clock::{blank_page, blank_registry, start_at, Random};
use hosts::*;
use lorentz_clock::{
    file, Change, ClockPage, FastClock, Pace, Rate, RealInstant, Registry, Snapshot, Span,
    VirtualInstant, NANOS_PER_SEC,
};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::memfd::{memfd_create, MFdFlags};
use nix::sys::mman::{mmap, MapFlags, ProtFlags};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::resource::{getrusage, UsageWho};
use nix::sys::signal::{kill, Signal};
use nix::time::{clock_gettime, ClockId};
use nix::unistd::Pid;
use std::cell::Cell;
use std::env;
use std::fs::{File, OpenOptions};
use std::num::NonZeroUsize;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{self, Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use tally::*;

const READERS: usize = 3;
const WRITERS: usize = 2;
/// Environment variable of a writer: the path of the clock's file.
const CLOCK_FILE: &str = "LORENTZ_TEST_CLOCK_FILE";
/// The longest read without a context switch, ns.
const LONG: i64 = 20_000;
/// Number of reads between two reads of the count of context switches.
const BLOCK: usize = 16;

/// Reads the host's CLOCK_MONOTONIC by the kernel's vDSO.
fn host() -> RealInstant {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("a monotonic clock");
    RealInstant(now.tv_sec() * NANOS_PER_SEC + now.tv_nsec())
}

/// Returns the context switches of this thread so far, voluntary and involuntary.
fn switches() -> i64 {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).expect("the usage of this thread");
    usage.voluntary_context_switches() + usage.involuntary_context_switches()
}

#[derive(Clone, Copy)]
struct SharedClock {
    page: &'static ClockPage,
    registry: &'static Registry,
    tally: &'static Tally,
}

const TALLY_OFFSET: usize = file::LEN.next_multiple_of(4096);

/// Maps a `T` of the clock's file; the mapping stays until the process ends.
///
/// # Safety
///
/// The file has a `T` at `offset`, and all its bits are valid.
unsafe fn map<T>(file: &File, offset: usize, rights: ProtFlags) -> &'static T {
    let len = NonZeroUsize::new(size_of::<T>()).expect("a size");
    // SAFETY: a new mapping overlays no other, and stays until the process ends. The caller guarantees the rest.
    unsafe {
        let start = mmap(None, len, rights, MapFlags::MAP_SHARED, file, offset as i64);
        start.expect("a mapping").cast().as_ref()
    }
}

impl SharedClock {
    /// Maps the clock in `file`. `page` is the access to the page; programs may only read the page.
    fn map(file: &File, page: ProtFlags) -> SharedClock {
        let both = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: the file has room for all three types, and they consist only of atomics.
        unsafe {
            SharedClock {
                page: map(file, 0, page),
                registry: map(file, file::REGISTRY_OFFSET, both),
                tally: map(file, TALLY_OFFSET, both),
            }
        }
    }

    /// Reads the time by `read`, and checks that no thread has seen a later time before.
    fn observe(&self, read: impl FnOnce() -> VirtualInstant) {
        let before = self.tally.latest.load(Ordering::SeqCst);
        let now = read().0;
        assert!(now >= before, "from {before} back to {now}");
        self.tally.latest.fetch_max(now, Ordering::SeqCst);
    }

    /// Reads by the fast path, as the shim's clock_gettime does. Also returns the number of looks. `None` means: take the slow
    /// path.
    fn read_fast(&self) -> (Option<VirtualInstant>, u64) {
        let first = self.page.version();
        let mut looks = 0;
        loop {
            let look = self.page.fast();
            let real = host().0;
            let (secs, nanos) = (real / NANOS_PER_SEC, real % NANOS_PER_SEC);
            looks += 1;
            if let Ok(shown) = look.at(self.page, secs, nanos, FastClock::Monotonic, false) {
                self.check_looks(looks, first);
                let now = shown.map(|(secs, nanos)| VirtualInstant(secs * NANOS_PER_SEC + nanos));
                return (now, looks);
            }
        }
    }

    /// Reads by the slow path. Also returns the number of looks, at least.
    fn read_slow(&self) -> (Snapshot, u64) {
        let first = self.page.version();
        let host = CountingHost::default();
        let snapshot = self.page.snapshot(self.registry, &host);
        let looks = host.looks();
        if host.has_decided(self.page.version() - first) {
            self.tally.under_way.store(snapshot.version, Ordering::Relaxed);
        }
        self.check_looks(looks, first);
        (snapshot, looks)
    }

    /// Checks that a loop which has ended made at most one look more than versions were published since `first`.
    fn check_looks(&self, looks: u64, first: u64) {
        let published = self.page.version() - first;
        assert!(looks <= 1 + published, "{looks} looks through {published} changes");
    }
}

/// Publishes a change and returns its window. `None` if the writer was delayed, or if the page has no room for the change.
fn publish(
    page: &ClockPage,
    registry: &Registry,
    change: &Change,
    delay: Option<Delay>,
) -> Option<Window> {
    let switches_before = switches();
    let host_of_change = WriterHost::new(delay);
    page.publish(registry, &host_of_change, change).ok()?;
    let end = host();
    let switched = switches() != switches_before;
    let length = |begin: &Cell<Option<RealInstant>>| Some(end.since(begin.get()?).0);
    let at_most = length(&host_of_change.before)?;
    let at_least = length(&host_of_change.first_after)?;
    delay.is_none().then_some(Window { at_most, at_least, switched })
}

/// Picks another pace, a leap or another wall clock; to begin now, or within a millisecond.
fn vary(change: &mut Change, random: &mut Random) {
    match random.below(10) {
        0..=4 => {
            change.rate = Rate::new(250 + random.below(3_751), 1_000).expect("1/4 to 4");
            change.pace = Pace::Running(change.rate);
        }
        5..=6 => change.pace = Pace::Running(Rate::ONE),
        7 => change.pace = Pace::Frozen,
        8 => change.leap = Span(random.below(NANOS_PER_SEC as u64) as i64),
        _ => change.wall = change.wall.plus(Span(random.below(7_200) as i64 - 3_600)),
    }
    if random.below(8) == 0 {
        change.at = host().plus(Span(random.below(1_000_000) as i64));
    }
}

/// Changes the clock in the file at `path` until it is killed. This is the main function of a writer process.
fn write_until_killed(path: &str) -> ! {
    // This process must not outlive the test.
    set_pdeathsig(Signal::SIGKILL).expect("a signal at the end of the test");
    let mut file = OpenOptions::new().read(true).write(true).open(path).expect("the clock's file");
    let clock = SharedClock::map(&file, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE);
    let alone = (blank_page(), blank_registry());
    start_at(&alone.0, host());
    let mut random = Random(u64::from(process::id()) << 32 ^ host().0 as u64 | 1);
    for number in 0.. {
        let lock = Flock::lock(file, FlockArg::LockExclusive).expect("the lock");
        let announced = change_once(&clock, &mut random, number == 0);
        file = lock.unlock().expect("no lock");
        if random.below(4) == 0 {
            change_alone(&alone.0, &alone.1, clock.tally, &mut random);
        }
        if let Some(start) = announced.filter(|_| random.below(4) == 0) {
            let span = start.since(host()).0.max(0) as u64;
            thread::sleep(Duration::from_nanos(span));
        }
    }
    unreachable!()
}

/// Changes the clock once, as a controller does under the lock. Returns the start of an announced change. `first` says that this
/// process has not changed the clock before.
fn change_once(clock: &SharedClock, random: &mut Random, first: bool) -> Option<RealInstant> {
    let SharedClock { page, registry, tally } = *clock;
    let completing = CountingHost::default();
    page.complete(registry, &completing);
    // The writer reads the time only if there is a change to complete.
    tally.completed_by_next.fetch_add(u64::from(completing.times.get() > 0), Ordering::Relaxed);
    let mut look = None;
    clock.observe(|| look.insert(page.snapshot(registry, &host)).now());
    let mut change = Change::of(&look?.piece());
    vary(&mut change, random);
    match publish(page, registry, &change, Delay::pick(random)) {
        Some(window) if first => tally.first_windows.add(&window),
        Some(window) => {
            let windows = if window.switched { &tally.windows_with_switch } else { &tally.windows };
            windows.add(&window);
            tally.changes.fetch_add(1, Ordering::Relaxed);
        }
        None => {}
    }
    if random.below(2) == 0 {
        page.refresh(registry, &host);
    }
    Some(change.at).filter(|at| *at > host())
}

/// Makes the same kind of change on a page that no other thread uses, to see how long this machine takes.
fn change_alone(page: &ClockPage, registry: &Registry, tally: &Tally, random: &mut Random) {
    let mut change = Change::of(&page.snapshot(registry, &host).piece());
    vary(&mut change, random);
    match publish(page, registry, &change, None) {
        Some(window) if !window.switched => tally.windows_alone.add(&window),
        _ => {}
    }
}

/// A writer process. It is killed when this value is dropped.
struct Writer(Child);

impl Writer {
    fn start(file: &File) -> Writer {
        let path = format!("/proc/{}/fd/{}", process::id(), file.as_raw_fd());
        let child = Command::new(env::current_exe().expect("this test"))
            .args(["--exact", TEST, "--nocapture"])
            .env(CLOCK_FILE, path)
            .stdout(Stdio::null())
            .spawn();
        Writer(child.expect("a writer"))
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id() as i32), signal).expect("a writer that is not reaped");
    }

    /// Kills the writer, which must not have ended by itself before.
    fn kill(mut self) {
        self.signal(Signal::SIGKILL);
        let status = self.0.wait().expect("the writer's end");
        assert_eq!(status.signal(), Some(Signal::SIGKILL as i32), "a writer failed: {status}");
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // If the process was reaped already, neither call has anything to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Measurements of one reader.
struct Readings {
    /// Lengths of reads without a context switch, ns.
    lengths: Histogram,
    /// Lengths of single readings of the host's clock during the same time without a context switch, ns.
    control: Histogram,
    /// Reads by the slow path.
    slow: u64,
    /// Reads by the fast path.
    fast: u64,
    /// Reads that looked more than once.
    repeated: u64,
    most_looks: u64,
}

impl Readings {
    fn new() -> Readings {
        let (lengths, control) = (Histogram::new(), Histogram::new());
        Readings { lengths, control, slow: 0, fast: 0, repeated: 0, most_looks: 0 }
    }

    fn merge(&mut self, other: &Readings) {
        self.lengths.merge(&other.lengths);
        self.control.merge(&other.control);
        self.slow += other.slow;
        self.fast += other.fast;
        self.repeated += other.repeated;
        self.most_looks = self.most_looks.max(other.most_looks);
    }

    /// Reads the clock, by the slow path only, or as programs do. Returns the length of the read, ns.
    fn read(&mut self, clock: &SharedClock, slow_alone: bool) -> i64 {
        let (mut begin, mut end) = (RealInstant(0), RealInstant(0));
        clock.observe(|| {
            begin = host();
            let (fast, fast_looks) = if slow_alone { (None, 0) } else { clock.read_fast() };
            let (now, slow_looks) = match fast {
                Some(now) => (now, 0),
                None => {
                    let (snapshot, looks) = clock.read_slow();
                    (snapshot.now(), looks)
                }
            };
            end = host();
            *(if fast.is_some() { &mut self.fast } else { &mut self.slow }) += 1;
            let looks = fast_looks.max(slow_looks);
            self.repeated += u64::from(looks > 1);
            self.most_looks = self.most_looks.max(looks);
            now
        });
        end.since(begin).0
    }

    /// Checks that long reads are hardly more frequent than long readings of the host's clock by the same threads during the same
    /// time.
    fn check(&self) {
        let Readings { slow, fast, .. } = self;
        println!(
            "reads: {slow} slow, {fast} fast; {} looked again, {} looks at most",
            self.repeated, self.most_looks
        );
        self.lengths.print("reads without a switch");
        self.control.print("readings of the host's clock without a switch");
        let [long, others] = [&self.lengths, &self.control].map(|all| all.longer_than(LONG));
        println!("longer than {LONG} ns: {long} reads, {others} readings of the host's clock");
        assert!(*slow > 1_000 && *fast > 1_000, "too few reads by one of the paths");
        // Interrupts and a hypervisor take the processor away without a context switch.
        assert!(long <= 2 * others + 20, "{long} long reads, {others} long readings of the host");
    }
}

/// Reads the clock until `ended`.
fn read_until(clock: &SharedClock, ended: &AtomicBool) -> Readings {
    let mut readings = Readings::new();
    let mut control = Vec::new();
    while !ended.load(Ordering::Relaxed) {
        let switches_before = switches();
        let mut lengths = [0; BLOCK];
        for (number, length) in lengths.iter_mut().enumerate() {
            *length = readings.read(clock, number % 2 == 0);
        }
        // For as long again, measure without the page: interrupts and a hypervisor take as much of that time.
        control.clear();
        let mut rest: i64 = lengths.iter().map(|length| length.min(&LONG)).sum();
        let mut last = host();
        while rest > 0 {
            let now = host();
            let length = now.since(last).0;
            control.push(length);
            rest -= length.min(LONG);
            last = now;
        }
        if switches() == switches_before {
            lengths.iter().for_each(|length| readings.lengths.add(*length));
            control.iter().for_each(|length| readings.control.add(*length));
        }
    }
    readings
}

/// Counts of what the test did to writers.
#[derive(Default, Debug)]
struct Acts {
    kills: u64,
    stops: u64,
    /// Stops in the midst of a change, during which reads completed.
    stops_read_through: u64,
}

impl Acts {
    /// Lets the writers make some changes, then stops or kills one of them at a random moment.
    fn disturb(
        &mut self,
        clock: &SharedClock,
        file: &File,
        writers: &mut [Writer],
        random: &mut Random,
    ) {
        let changes = || clock.tally.changes.load(Ordering::Relaxed);
        let (enough, deadline) = (changes() + random.below(50), host().plus(Span(20_000_000)));
        while changes() < enough && host() < deadline {
            thread::sleep(Duration::from_micros(random.below(100)));
        }
        let writer = &mut writers[random.below(WRITERS as u64) as usize];
        if random.below(2) == 0 {
            writer.signal(Signal::SIGSTOP);
            self.stops += 1;
            // Allow time for the signal to arrive, and for reads that began before.
            thread::sleep(Duration::from_micros(100));
            let version = clock.page.version();
            clock.tally.under_way.store(0, Ordering::Relaxed);
            thread::sleep(Duration::from_micros(100 + random.below(3_000)));
            let read = clock.tally.under_way.load(Ordering::Relaxed) == version;
            self.stops_read_through += u64::from(read && clock.page.version() == version);
            if random.below(2) == 0 {
                writer.signal(Signal::SIGCONT);
                return;
            }
        }
        self.kills += 1;
        std::mem::replace(writer, Writer::start(file)).kill();
    }

    /// Whether at least one writer was stopped, and one was killed, in the midst of a change.
    fn suffice(&self, tally: &Tally) -> bool {
        self.stops_read_through > 0 && tally.completed_by_next.load(Ordering::Relaxed) > 0
    }
}

/// Ends the readers, also when the test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Stops and kills writers while readers read, until the windows of `changes` changes were measured.
fn run(file: &File, clock: &SharedClock, changes: u64) -> (Acts, Readings) {
    // Map the page as programs do.
    let readonly = SharedClock::map(file, ProtFlags::PROT_READ);
    let ended = AtomicBool::new(false);
    let (mut acts, mut readings) = (Acts::default(), Readings::new());
    let mut random = Random(0x4c6f_7265_6e74_7a21);
    thread::scope(|scope| {
        let end = End(&ended);
        let readers = [(); READERS].map(|()| scope.spawn(|| read_until(&readonly, &ended)));
        let mut writers = [(); WRITERS].map(|()| Writer::start(file));
        let tally = clock.tally;
        let is_enough =
            |acts: &Acts| tally.changes.load(Ordering::Relaxed) >= changes && acts.suffice(tally);
        let deadline = host().plus(Span::from_secs(60 + changes as i64 / 1_000));
        while !is_enough(&acts) && !readers.iter().any(|reader| reader.is_finished()) {
            acts.disturb(clock, file, &mut writers, &mut random);
            assert!(host() < deadline, "after too long a time: {acts:?}");
        }
        acts.kills += WRITERS as u64;
        writers.into_iter().for_each(Writer::kill);
        drop(end);
        for reader in readers {
            readings.merge(&reader.join().expect("no reader failed"));
        }
    });
    (acts, readings)
}

/// Checks after the last change that both paths show the same and that nothing is left to do.
fn check_whole(clock: &SharedClock) {
    let SharedClock { page, registry, .. } = *clock;
    page.complete(registry, &host);
    let latest = page.snapshot(registry, &host);
    let last = page.to_come(registry, &latest).map(|(piece, _)| piece.segment.real).max();
    thread::sleep(Duration::from_nanos(last.unwrap_or(host()).since(host()).0.max(0) as u64));
    page.refresh(registry, &host);
    page.set_notified(page.state());
    assert_eq!(page.supervision_due(host()), None);
    clock.observe(|| page.snapshot(registry, &host).now());
    for _ in 0..1_000 {
        let real = host();
        let (secs, nanos) = (real.0 / NANOS_PER_SEC, real.0 % NANOS_PER_SEC);
        let fast = page.fast().at(page, secs, nanos, FastClock::Monotonic, false);
        let slow = page.snapshot(registry, &|| real).now();
        let shown = fast.expect("nobody changes it").map(|(s, ns)| s * NANOS_PER_SEC + ns);
        assert_eq!(shown, Some(slow.0));
    }
}

const TEST: &str = "no_read_goes_back_or_waits_while_writers_are_killed";

#[test]
fn no_read_goes_back_or_waits_while_writers_are_killed() {
    if let Ok(path) = env::var(CLOCK_FILE) {
        write_until_killed(&path);
    }
    let changes =
        env::var("LORENTZ_CHANGES").map_or(20_000, |count| count.parse().expect("a count"));
    let file = File::from(memfd_create(c"clock", MFdFlags::MFD_CLOEXEC).expect("memory"));
    file.set_len((TALLY_OFFSET + size_of::<Tally>()) as u64).expect("room");
    let clock = SharedClock::map(&file, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE);
    start_at(clock.page, host());

    let (acts, readings) = run(&file, &clock, changes);
    check_whole(&clock);

    let completed = clock.tally.completed_by_next.load(Ordering::Relaxed);
    println!("{acts:?}, {completed} changes completed by the next writer");
    readings.check();
    clock.tally.check(&readings.control);
}
