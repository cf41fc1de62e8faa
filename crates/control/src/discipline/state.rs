//! The state of a clock that errs, and how it goes on by itself: pure arithmetic over virtual time.

use lorentz_clock::{Rate, Segment, Snapshot, Span, VirtualInstant, WallTime, NANOS_PER_SEC};
use lorentz_syscalls::Timex;
use rand_pcg::rand_core::RngCore;
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};

use super::kernel::{step_of, Discipline, LeapSecond};
use super::part::{Part, WHOLE};

/// Parts of a drift: 10^12 in one.
pub(super) const PARTS: i64 = 1_000_000_000_000;
/// Largest drift of an oscillator, in parts: 10 %, as much as ticks of adjtimex(2) can mend.
pub const MAX_DRIFT: i64 = PARTS / 10;
/// Rates that may be in force: those of changes under way and of the last ones.
const KNOWN_RATES: usize = 48;

/// A clock's error and its discipline.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct ErrorState {
    /// The state that adjtimex(2) reads and changes.
    pub kernel: Discipline,
    /// The discipline by which the clock goes until the one above has been published.
    #[serde(default)]
    in_force: Option<Discipline>,
    /// The rate without error: its two terms.
    rate: (u64, u64),
    /// By how much the oscillator is too fast, in [`PARTS`].
    pub drift: i64,
    /// Drifts that end.
    passing: Vec<PassingDrift>,
    /// How the drift wanders; absent in files of before.
    #[serde(default)]
    wander: Option<Wander>,
    /// Up to here all has been accounted for, virtual ns.
    at: i64,
    /// The truth there, on a monotonic clock that shows the same at the start, ns.
    truth: i64,
    /// The part of a nanosecond by which the truth is ahead, in parts of [`WHOLE`].
    rest: i64,
    /// The wall clock's offset to the virtual clock, ns.
    wall: i128,
    /// The offset of true wall time to the truth, ns.
    true_wall: i128,
    /// The offset of CLOCK_BOOTTIME to the virtual clock, ns. Suspends alone move it.
    boot: i64,
    /// Rates with an error, and the rates without it that they stand for.
    known: Vec<((u64, u64), (u64, u64))>,
}

/// A drift that ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct PassingDrift {
    drift: i64,
    until: i64,
}

/// Virtual time between two steps of a drift that wanders, ns.
const WANDER_STEP: i64 = 8 * NANOS_PER_SEC;

/// A drift that wanders at random.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Wander {
    /// Standard deviation of a second's step, in [`PARTS`].
    by: i64,
    seed: u64,
    steps: u64,
    /// How far the drift has wandered.
    drift: i64,
    /// The virtual instant of the next step.
    next: i64,
}

impl Wander {
    fn step_at(&mut self, at: i64) {
        if at < self.next {
            return;
        }
        self.next += WANDER_STEP;
        self.steps += 1;
        let scale = (WANDER_STEP as f64 / NANOS_PER_SEC as f64).sqrt() * self.by as f64;
        let step = (scale * normal(self.seed, self.steps)).round() as i64;
        self.drift = (self.drift + step).clamp(-MAX_DRIFT, MAX_DRIFT);
    }
}

/// Draws number `number` of `seed`'s values of the normal distribution: twelve even ones, less six.
fn normal(seed: u64, number: u64) -> f64 {
    let mut generator = Pcg64::new(seed.into(), number.into());
    let mut even = || (generator.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    (0..12).map(|_| even()).sum::<f64>() - 6.0
}

/// The clock's way from a virtual instant on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Course {
    pub from: VirtualInstant,
    pub rate: Rate,
    pub wall: WallTime,
    pub boot: Span,
}

impl Course {
    /// Whether the clock goes on as in `other`.
    pub fn is_like(&self, other: &Course) -> bool {
        (self.rate, self.wall, self.boot) == (other.rate, other.wall, other.boot)
    }

    /// Whether the clock goes on like this at a look.
    pub fn is_in_force(&self, look: &Snapshot) -> bool {
        let Segment { wall, boot, .. } = look.segment;
        self.is_like(&Course { from: self.from, rate: look.rate, wall, boot })
    }
}

fn terms(rate: Rate) -> (u64, u64) {
    (rate.num(), rate.den())
}

impl ErrorState {
    /// The state of a clock whose wall clock alone may err: it has been stepped from `true_wall` on.
    pub fn new(
        now: VirtualInstant,
        wall: WallTime,
        boot: Span,
        rate: Rate,
        true_wall: WallTime,
    ) -> ErrorState {
        ErrorState {
            kernel: Discipline::default(),
            in_force: None,
            rate: terms(rate),
            drift: 0,
            passing: Vec::new(),
            wander: None,
            at: now.0,
            truth: now.0,
            rest: 0,
            wall: wall.as_nanos(),
            true_wall: true_wall.as_nanos(),
            boot: boot.0,
            known: vec![(terms(rate), terms(rate))],
        }
    }

    /// How long the clock's second is to be, in ns << 32, for a second of an oscillator without error.
    fn length(&self) -> i128 {
        self.length_by(&self.kernel)
    }

    /// The length by which the clock goes on now.
    fn length_in_force(&self) -> i128 {
        self.length_by(self.in_force.as_ref().unwrap_or(&self.kernel)).max(1)
    }

    fn length_by(&self, kernel: &Discipline) -> i128 {
        let passing: i64 = self.passing.iter().map(|one| one.drift).sum();
        let passing = passing + self.wander.map_or(0, |wander| wander.drift);
        let parts =
            i128::from(PARTS) + i128::from((self.drift + passing).clamp(-MAX_DRIFT, MAX_DRIFT));
        i128::from(kernel.second_length()) * parts / i128::from(PARTS)
    }

    /// By how much the clock is too fast, as a ratio.
    pub fn frequency_error(&self) -> f64 {
        (self.length() - WHOLE) as f64 / WHOLE as f64
    }

    /// Takes note that the clock goes on by `in_force` until the state's own discipline is published.
    pub fn go_on_by(&mut self, in_force: Discipline) {
        self.in_force.get_or_insert(in_force);
    }

    /// Takes note that all of the state is in force.
    pub fn is_published(&mut self) {
        self.in_force = None;
    }

    /// The rate of the clock, with its error.
    pub fn rate(&self) -> Rate {
        let (num, den) = (u128::from(self.rate.0), u128::from(self.rate.1));
        // 2^62 times 2^50 fits.
        let (num, den) = (num * self.length().max(1) as u128, den * WHOLE as u128);
        let surplus = (u128::BITS - num.max(den).leading_zeros()).saturating_sub(50);
        let rate = Rate::new((num >> surplus) as u64, (den >> surplus) as u64);
        rate.or(Rate::new(self.rate.0, self.rate.1)).unwrap_or_default()
    }

    /// Takes note of the rate in force: an announced change may have set another one.
    pub fn notice_rate(&mut self, in_force: Rate) {
        let known = self.known.iter().rev().find(|(with, _)| *with == terms(in_force));
        match known {
            Some((_, without)) => self.rate = *without,
            None => self.set_rate(in_force),
        }
    }

    /// The rate without error.
    pub fn rate_without_error(&self) -> Rate {
        Rate::new(self.rate.0, self.rate.1).unwrap_or_default()
    }

    /// Sets the rate without error.
    pub fn set_rate(&mut self, rate: Rate) {
        self.rate = terms(rate);
    }

    /// Notes that a rate may be in force from now on, for the rate without error.
    pub fn note_rate(&mut self, with: Rate, without: Option<Rate>) {
        let entry = (terms(with), without.map_or(self.rate, terms));
        self.known.retain(|known| known.0 != entry.0);
        self.known.push(entry);
        let surplus = self.known.len().saturating_sub(KNOWN_RATES);
        self.known.drain(..surplus);
    }

    /// The clock's own time up to which all is accounted for.
    pub fn own(&self) -> VirtualInstant {
        VirtualInstant(self.at)
    }

    /// The offset of the wall clock to the virtual clock.
    pub fn wall(&self) -> WallTime {
        WallTime::from_nanos(self.wall)
    }

    /// The wall clock at the virtual instant up to which all is accounted for: seconds, nanoseconds.
    pub fn wall_clock(&self) -> (i64, i64) {
        let wall = WallTime::from_nanos(self.wall + i128::from(self.at));
        (wall.secs, i64::from(wall.nanos))
    }

    /// By how much the wall clock is ahead of true wall time, ns.
    pub fn offset(&self) -> i128 {
        let shown = self.wall + i128::from(self.at);
        shown - self.true_wall - i128::from(self.truth)
    }

    /// True wall time.
    pub fn true_wall_clock(&self) -> WallTime {
        WallTime::from_nanos(self.true_wall + i128::from(self.truth))
    }

    /// The straight part of the clock's way that begins here.
    pub fn part(&self) -> Part {
        let length = self.length_in_force();
        Part { own: self.at, truth: self.truth, rest: self.rest, length }
    }

    /// The clock and the truth leap to `truth` together. Errors stay, and what is to come of them comes as much later. True wall time shows
    /// `wall` there, if that is given.
    pub fn leap(&mut self, truth: VirtualInstant, wall: Option<WallTime>) {
        let by = truth.0.saturating_sub(self.truth);
        if let Some(wall) = wall {
            let offset = self.offset();
            self.true_wall = wall.as_nanos() - i128::from(truth.0);
            let at = i128::from(self.at) + i128::from(by);
            self.wall = wall.as_nanos() + offset - at;
        }
        self.truth = truth.0;
        self.rest = 0;
        self.at = self.at.saturating_add(by);
        self.passing.iter_mut().for_each(|one| one.until = one.until.saturating_add(by));
        self.wander.iter_mut().for_each(|wander| wander.next = wander.next.saturating_add(by));
    }

    /// Steps the wall clock as clock_settime(2) does.
    pub fn step(&mut self, by: i128) {
        self.wall += by;
        self.kernel.clear();
    }

    /// The wall clock and true wall time have gone on, as over a suspend, which leaves the discipline alone.
    pub fn step_with_truth(&mut self, by: i128) {
        self.wall += by;
        self.true_wall += by;
    }

    /// Carries adjtimex(2) out: `timex` becomes the answer. Returns the state of the clock.
    pub fn adjust(&mut self, timex: &mut Timex) -> i64 {
        if let Some(by) = step_of(timex) {
            self.step(by);
        }
        let wall = self.wall_clock();
        self.kernel.adjust(timex, wall)
    }

    /// Moves the wall clock, without a word to the programs: their clock errs from the start.
    pub fn err_by(&mut self, by: i128) {
        self.wall += by;
    }

    /// Takes note that somebody else has moved the wall clock.
    pub fn notice_wall(&mut self, wall: WallTime) {
        if wall != self.wall() {
            self.step(wall.as_nanos() - self.wall);
        }
    }

    /// The clock's machine has been suspended: CLOCK_BOOTTIME, the wall clock and true wall time have gone on.
    pub fn suspend(&mut self, by: Span) {
        self.boot = self.boot.saturating_add(by.0);
        self.step_with_truth(i128::from(by.0));
    }

    /// Takes note of CLOCK_BOOTTIME's offset in force: a suspend may not have been published.
    pub fn notice_boot(&mut self, boot: Span) {
        self.suspend(Span(boot.0 - self.boot));
    }

    /// The offset of CLOCK_BOOTTIME to the virtual clock.
    pub fn boot(&self) -> Span {
        Span(self.boot)
    }

    /// Adds a drift that ends after `length` of virtual time, in [`PARTS`].
    pub fn drift_for(&mut self, drift: i64, length: Span) {
        self.passing.push(PassingDrift { drift, until: self.at.saturating_add(length.0) });
    }

    /// Lets the drift wander: a random walk that `seed` decides, which goes `by` parts in a second, and the square root of that in more.
    pub fn wander(&mut self, by: i64, seed: u64) {
        self.wander = (by != 0).then_some(Wander {
            by,
            seed,
            steps: 0,
            drift: 0,
            next: self.at + WANDER_STEP,
        });
    }

    /// Ends all errors: no drift, no discipline, and the wall clock shows true time.
    pub fn reset(&mut self) {
        self.step(-self.offset());
        self.drift = 0;
        self.passing.clear();
        self.wander = None;
        self.kernel = Discipline::default();
    }

    /// Whether each second may be unlike the one before.
    fn needs_seconds(&self) -> bool {
        let kernel = &self.kernel;
        let asked = kernel.asks_leap_second();
        kernel.is_slewing()
            || self.in_force.is_some_and(|in_force| in_force.is_slewing())
            || match kernel.leap {
                LeapSecond::No => asked,
                LeapSecond::Over => !asked,
                _ => true,
            }
    }

    /// The virtual instant at which the wall clock's next second begins, and that second.
    fn next_second(&self) -> (i64, i64) {
        let (secs, nanos) = self.wall_clock();
        (self.at.saturating_add(NANOS_PER_SEC - nanos), secs + 1)
    }

    /// Accounts for all until `to`. The wall clock is as it will be there if only leap seconds step it.
    pub fn advance(&mut self, to: VirtualInstant) {
        while self.at < to.0 {
            let end = self.next_change_of_drift().min(to.0);
            let (second, secs) = self.next_second();
            if self.needs_seconds() && second <= end {
                self.pass(second);
                self.begin_second(secs);
            } else {
                let before = self.wall_clock().0;
                self.pass(end);
                if !self.needs_seconds() {
                    self.kernel.pass_seconds(self.wall_clock().0 - before);
                }
            }
            self.passing.retain(|one| one.until > self.at);
            let at = self.at;
            self.wander.iter_mut().for_each(|wander| wander.step_at(at));
        }
    }

    fn begin_second(&mut self, secs: i64) {
        let step = match &mut self.in_force {
            Some(in_force) => {
                let step = self.kernel.begin_second_slewed_by(in_force, secs);
                in_force.begin_second(secs);
                step
            }
            None => self.kernel.begin_second(secs),
        };
        self.wall += i128::from(step) * i128::from(NANOS_PER_SEC);
    }

    /// The truth goes on to virtual instant `to`.
    fn pass(&mut self, to: i64) {
        let elapsed = i128::from(to.saturating_sub(self.at).max(0));
        let length = self.length_in_force();
        // Whole nanoseconds of the oscillator's truth, and the rest in parts of the length.
        let scaled = elapsed * WHOLE + i128::from(self.rest);
        self.truth = self.truth.saturating_add((scaled / length) as i64);
        self.rest = (scaled % length) as i64;
        self.at = self.at.max(to);
    }

    /// Returns the course if all is published now: what holds now, then the changes that are known, at most `count`. A slew that goes on
    /// beyond the last one ends there.
    pub fn course(&self, count: usize) -> Vec<Course> {
        /// Seconds that are alike are looked through so far.
        const MAX_LOOKS: u32 = 1000;
        let mut then = self.clone();
        then.is_published();
        let mut course = vec![then.course_now()];
        for _ in 0..MAX_LOOKS {
            let next = then.next_event();
            if next == i64::MAX {
                break;
            }
            then.advance(VirtualInstant(next));
            let (now, last) = (then.course_now(), course[course.len() - 1]);
            if now.is_like(&last) {
                continue;
            }
            course.push(now);
            if course.len() > count {
                then.kernel.end_slew();
                course[count].rate = then.rate();
                break;
            }
        }
        course
    }

    /// The next virtual instant at which the course may change.
    pub fn next_event(&self) -> i64 {
        let drift = self.next_change_of_drift();
        let second = match self.kernel.leap_to_come() {
            // Until a leap second all seconds are alike.
            Some((leap_at, _)) if !self.kernel.is_slewing() => self.virtual_at_second(leap_at),
            _ if self.needs_seconds() => self.next_second().0,
            _ => i64::MAX,
        };
        drift.min(second)
    }

    fn next_change_of_drift(&self) -> i64 {
        let ends = self.passing.iter().map(|one| one.until);
        ends.chain(self.wander.map(|wander| wander.next)).min().unwrap_or(i64::MAX)
    }

    fn course_now(&self) -> Course {
        let from = VirtualInstant(self.at);
        Course { from, rate: self.rate(), wall: self.wall(), boot: self.boot() }
    }

    fn virtual_at_second(&self, secs: i64) -> i64 {
        lorentz_clock::saturate(i128::from(secs) * i128::from(NANOS_PER_SEC) - self.wall)
    }
}
