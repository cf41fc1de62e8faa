//! Measured windows of changes, in memory that all processes of the test share.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// The longest window of 99.9 % of changes, ns.
pub const WINDOW: i64 = 3_000;

/// Bounds of the time from the store of a version to the open fast path, ns.
pub struct Window {
    /// Upper bound: from a reading of the clock right before the store of the version.
    pub at_most: i64,
    /// Lower bound: from the first reading of `publish` after the store of the version.
    pub at_least: i64,
    /// Whether the kernel took the writer off its processor during `publish`.
    pub switched: bool,
}

/// A histogram of lengths of time.
#[repr(C)]
pub struct Histogram {
    pub counts: [AtomicU64; Histogram::STEPS],
    pub longest: AtomicI64,
}

impl Histogram {
    /// Width of a step, ns.
    const STEP: i64 = 10;
    /// The last step holds all greater lengths.
    const STEPS: usize = 2_501;

    /// The greatest length that is told from longer ones.
    pub const MAX: i64 = Self::STEP * (Self::STEPS as i64 - 1);

    pub fn new() -> Histogram {
        Histogram { counts: [const { AtomicU64::new(0) }; Self::STEPS], longest: AtomicI64::new(0) }
    }

    pub fn add(&self, span: i64) {
        let step = (span / Self::STEP) as usize;
        self.counts[step.min(Self::STEPS - 1)].fetch_add(1, Ordering::Relaxed);
        self.longest.fetch_max(span, Ordering::Relaxed);
    }

    pub fn merge(&self, other: &Histogram) {
        for (sum, count) in self.counts.iter().zip(&other.counts) {
            sum.fetch_add(count.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.longest.fetch_max(other.longest.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    pub fn total(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Returns the number of lengths of `span` and more. `span` is a multiple of the step.
    pub fn longer_than(&self, span: i64) -> u64 {
        let steps = &self.counts[(span / Self::STEP) as usize..];
        steps.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Returns the sum of the lengths, ns, as if all were as long as half of them are at most.
    pub fn time(&self) -> f64 {
        self.total() as f64 * self.percentile(500) as f64
    }

    /// Returns the upper end, ns, of the step that `per_mille` of the lengths do not exceed; `i64::MAX` for the last step.
    pub fn percentile(&self, per_mille: u64) -> i64 {
        let rank = (self.total() * per_mille).div_ceil(1_000);
        let mut sum = 0;
        let step = self.counts.iter().position(|count| {
            sum += count.load(Ordering::Relaxed);
            sum >= rank
        });
        match step {
            Some(step) if step < Self::STEPS - 1 => (step as i64 + 1) * Self::STEP,
            _ => i64::MAX,
        }
    }

    pub fn print(&self, what: &str) {
        let (total, longest) = (self.total(), self.longest.load(Ordering::Relaxed));
        print!("{what}: {total}");
        for (name, per_mille) in [("p50", 500), ("p99", 990), ("p99.9", 999)] {
            match self.percentile(per_mille) {
                i64::MAX => print!(", {name} beyond the steps"),
                span => print!(", {name} {span} ns"),
            }
        }
        println!(", max {longest} ns");
    }
}

/// Shared memory of the test's processes, behind the registry.
#[repr(C)]
pub struct Tally {
    /// The latest virtual time that any thread has seen.
    pub latest: AtomicI64,
    /// Changes whose window was measured.
    pub changes: AtomicU64,
    /// The latest version for which a reader found the change incomplete: the fast path was not open.
    pub under_way: AtomicU64,
    /// Changes whose writer died after the store of the version, and which the next writer completed.
    pub completed_by_next: AtomicU64,
    /// Windows of changes without a context switch.
    pub windows: Windows,
    /// Windows of changes with a context switch.
    pub windows_with_switch: Windows,
    /// Windows of the first change of each process, which neither of the above contains: nothing of it is in the caches yet.
    pub first_windows: Windows,
    /// Windows without a context switch, on a page that no other thread uses.
    pub windows_alone: Windows,
}

/// Lengths of windows.
#[repr(C)]
pub struct Windows {
    pub at_most: Histogram,
    pub at_least: Histogram,
}

impl Windows {
    pub fn add(&self, window: &Window) {
        self.at_most.add(window.at_most);
        self.at_least.add(window.at_least);
    }

    pub fn print(&self, what: &str) {
        for (windows, bound) in [(&self.at_most, "at most"), (&self.at_least, "at least")] {
            windows.print(&format!("windows {what}, {bound}"));
            println!("    longer than {WINDOW} ns: {}", windows.longer_than(WINDOW));
        }
    }
}

impl Tally {
    /// Checks that 99.9 % of the windows without a context switch are short. On a slow machine, three times the time that the
    /// same changes take on a page of one thread is permitted. Interrupts and a hypervisor take the processor away without a
    /// context switch: twice as many more may be long as readings of the host's clock were in as much time (`control`).
    pub fn check(&self, control: &Histogram) {
        self.windows.print("without a switch");
        self.windows_with_switch.print("with a switch");
        self.first_windows.print("of the first change of a process");
        self.windows_alone.print("of a page of one thread");
        let alone = self.windows_alone.at_most.percentile(999);
        let longest = WINDOW.max(alone.saturating_mul(3)).min(Histogram::MAX);
        let windows = &self.windows.at_most;
        let taken = control.longer_than(WINDOW) as f64 / control.time() * windows.time();
        let (long, permitted) = (windows.longer_than(longest), windows.total() / 1_000);
        println!("longer than {longest} ns: {long}; permitted {permitted}, and twice {taken:.1}");
        assert!(long as f64 <= permitted as f64 + 2.0 * taken, "too many windows are long");
    }
}
