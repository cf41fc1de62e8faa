//! The source of ticks. The library measures the usable sources and chooses one, once, or the caller forces one.

use crate::hpet::Hpet;
use crate::scale::Scale;
use crate::{os, virtual_time};
use lorentz_clock::ClockPage;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::OnceLock;
use std::time::Duration;
use std::{fmt, str};

/// The source of ticks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeSource {
    /// The processor's time stamp counter.
    Tsc,
    /// The counter of the HPET.
    Hpet,
    /// The system's CLOCK_MONOTONIC_RAW. A tick is a nanosecond. In a container with a virtual clock, the source is the
    /// virtual clock.
    Os,
}

impl fmt::Display for TimeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            TimeSource::Tsc => "tsc",
            TimeSource::Hpet => "hpet",
            TimeSource::Os => "os",
        })
    }
}

/// The error of a text that names no time source.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("time source {0}: expected tsc, hpet or os")]
pub struct UnknownSource(String);

impl str::FromStr for TimeSource {
    type Err = UnknownSource;

    fn from_str(text: &str) -> Result<TimeSource, UnknownSource> {
        [TimeSource::Tsc, TimeSource::Hpet, TimeSource::Os]
            .into_iter()
            .find(|source| source.to_string() == text)
            .ok_or_else(|| UnknownSource(text.to_string()))
    }
}

/// The reason why a source cannot be forced.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SourceError {
    /// Moments were already taken from this other source. Moments of two sources cannot be compared.
    #[error("{0} is in use already; a source is forced before the first moment is taken")]
    InUse(TimeSource),
    /// The source does not work here; the text says why.
    #[error("{0} cannot be used: {1}")]
    Unusable(TimeSource, String),
    /// An interval was already converted by the length that a tick was found to have. Another length would contradict it.
    #[error("the counter is calibrated already; ask before the first interval is converted")]
    Calibrated,
}

/// The environment variable that forces a source in programs that do not force one themselves.
pub const SOURCE_VARIABLE: &str = "LORENTZ_TIMERS_SOURCE";

struct Chosen {
    source: TimeSource,
    reason: String,
    hpet: Option<Hpet>,
    /// Whether the process is on a virtual clock.
    is_virtual: bool,
    page: Option<&'static ClockPage>,
}

static CHOSEN: OnceLock<Chosen> = OnceLock::new();
static SCALE: OnceLock<Scale> = OnceLock::new();
/// The source in a byte, for the fast path.
static KIND: AtomicU8 = AtomicU8::new(NONE);
const NONE: u8 = 0;
const TSC: u8 = 1;
const HPET: u8 = 2;
const OS: u8 = 3;

impl TimeSource {
    /// Returns the source in force. The first call chooses it.
    pub fn in_force() -> TimeSource {
        chosen().source
    }

    /// Returns the reason for the choice, as a sentence without a full stop.
    pub fn reason() -> &'static str {
        &chosen().reason
    }

    /// Puts this source in force, before any other call.
    ///
    /// # Errors
    /// The source does not work here, or another one is in use already.
    pub fn force(self) -> Result<(), SourceError> {
        let made = forced(self, "forced by the program".to_string())?;
        let in_force = CHOSEN.get_or_init(|| made).source;
        publish();
        if in_force == self {
            Ok(())
        } else {
            Err(SourceError::InUse(in_force))
        }
    }

    /// Measures the length of a tick for `time`, in place of what the processor states. It has no effect on a source whose tick is
    /// known: the system's clock, the HPET.
    ///
    /// # Errors
    /// [`SourceError::Calibrated`]: an interval has been converted already.
    pub fn calibrate(time: Duration) -> Result<(), SourceError> {
        if chosen().source != TimeSource::Tsc {
            return Ok(());
        }
        let mut is_measured = false;
        SCALE.get_or_init(|| {
            is_measured = true;
            measured_scale(i64::try_from(time.as_nanos()).unwrap_or(i64::MAX))
        });
        match is_measured {
            true => Ok(()),
            false => Err(SourceError::Calibrated),
        }
    }

    /// Returns the ticks in a second.
    pub fn hertz() -> u64 {
        scale().hertz()
    }
}

fn chosen() -> &'static Chosen {
    let chosen = CHOSEN.get_or_init(choose_here);
    publish();
    chosen
}

/// Publishes the choice to the fast path.
fn publish() {
    if let Some(chosen) = CHOSEN.get() {
        let kind = match chosen.source {
            TimeSource::Tsc => TSC,
            TimeSource::Hpet => HPET,
            TimeSource::Os => OS,
        };
        KIND.store(kind, Ordering::Release);
    }
}

/// Reads the counter, after all instructions that stand before in the program.
#[inline(always)]
pub(crate) fn ticks() -> i64 {
    match KIND.load(Ordering::Acquire) {
        #[cfg(target_arch = "x86_64")]
        TSC => crate::tsc::ordered(),
        OS => os::read(libc::CLOCK_MONOTONIC_RAW),
        _ => ticks_otherwise(),
    }
}

/// Reads the counter, without ordering against other instructions.
#[inline(always)]
pub(crate) fn ticks_unordered() -> i64 {
    match KIND.load(Ordering::Relaxed) {
        #[cfg(target_arch = "x86_64")]
        TSC => crate::tsc::unordered(),
        _ => ticks(),
    }
}

#[cold]
#[inline(never)]
fn ticks_otherwise() -> i64 {
    let chosen = chosen();
    match &chosen.hpet {
        Some(hpet) => hpet.ticks(),
        None => ticks(),
    }
}

/// Whether the source is the counter of the processor or of a chip. The system's clocks must then be followed.
pub(crate) fn is_counter() -> bool {
    match KIND.load(Ordering::Acquire) {
        NONE => chosen().source != TimeSource::Os,
        kind => kind != OS,
    }
}

/// Returns the virtual seconds per real second; 1 outside virtual time.
pub(crate) fn rate() -> f64 {
    chosen().page.map_or(1.0, |page| page.rate().as_f64())
}

/// Whether the process was on a virtual clock when the source was chosen.
pub(crate) fn is_virtual() -> bool {
    chosen().is_virtual
}

/// Returns the length of a tick: as the hardware states it, else as measured once.
pub(crate) fn scale() -> Scale {
    *SCALE.get_or_init(known_scale)
}

fn known_scale() -> Scale {
    const CALIBRATION: i64 = 10_000_000;
    let chosen = chosen();
    match (chosen.source, &chosen.hpet) {
        (TimeSource::Os, _) => Scale::NANOS,
        (_, Some(hpet)) => hpet.scale(),
        (_, None) => reported_scale().unwrap_or_else(|| measured_scale(CALIBRATION)),
    }
}

/// Returns the length that the processor or hypervisor states, if a measurement of half a millisecond does not
/// contradict it.
fn reported_scale() -> Option<Scale> {
    #[cfg(target_arch = "x86_64")]
    {
        let reported = Scale::from_hertz(crate::tsc::reported_hertz()?)?;
        let measured = measure(500_000)?;
        let off = reported.nanos_per_tick() / measured.nanos_per_tick() - 1.0;
        (off.abs() < 1e-3).then_some(reported)
    }
    #[cfg(not(target_arch = "x86_64"))]
    None
}

fn measured_scale(nanos: i64) -> Scale {
    loop {
        if let Some(scale) = measure(nanos) {
            return scale;
        }
    }
}

/// Measures the scale by two samples of counter and CLOCK_MONOTONIC_RAW, `nanos` apart. The error is at most 50 ns in
/// `nanos`.
fn measure(nanos: i64) -> Option<Scale> {
    let first = ClockSample::take(libc::CLOCK_MONOTONIC_RAW);
    let clock = libc::CLOCK_MONOTONIC;
    os::sleep_until(clock, os::read(clock).saturating_add(nanos));
    let second = ClockSample::take(libc::CLOCK_MONOTONIC_RAW);
    let (nanos, ticks) = (second.nanos - first.nanos, second.ticks - first.ticks);
    Scale::from_ratio(nanos.try_into().ok()?, ticks.try_into().ok()?)
}

/// A sample of counter and clock at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockSample {
    pub ticks: i64,
    pub nanos: i64,
    /// Ticks between the two reads of the counter. The clock was read between them.
    pub width: i64,
}

impl ClockSample {
    /// Takes a few samples and returns the narrowest.
    pub fn take(clock: libc::clockid_t) -> ClockSample {
        let tries = (0..5).map(|_| {
            let before = ticks();
            let nanos = os::read(clock);
            let width = ticks() - before;
            ClockSample { ticks: before + width / 2, nanos, width }
        });
        tries.min_by_key(|sample| sample.width).expect("five tries")
    }
}

fn choose_here() -> Chosen {
    if let Some(name) = std::env::var_os(SOURCE_VARIABLE) {
        let wanted = name.to_string_lossy().parse::<TimeSource>().map_err(|e| e.to_string());
        let reason = format!("forced by {SOURCE_VARIABLE}");
        match wanted.and_then(|source| forced(source, reason).map_err(|e| e.to_string())) {
            Ok(chosen) => return chosen,
            Err(error) => return measured(Some(error)),
        }
    }
    measured(None)
}

fn forced(source: TimeSource, reason: String) -> Result<Chosen, SourceError> {
    let is_virtual = virtual_time::is_here();
    let unusable = |why: String| SourceError::Unusable(source, why);
    let hpet = match source {
        TimeSource::Tsc => tsc_usable(is_virtual).map(|()| None).map_err(unusable)?,
        TimeSource::Hpet => Some(hpet_usable(is_virtual).map_err(unusable)?),
        TimeSource::Os => None,
    };
    Ok(Chosen { source, reason, hpet, is_virtual, page: virtual_time::page() })
}

/// Measures the usable sources. `before` says which source was tried before, and why it did not work.
fn measured(before: Option<String>) -> Chosen {
    let is_virtual = virtual_time::is_here();
    let (tsc, hpet) = (tsc_usable(is_virtual), hpet_usable(is_virtual));
    #[cfg(target_arch = "x86_64")]
    let tsc_cost = tsc.as_ref().ok().map(|()| Cost::of(crate::tsc::ordered));
    #[cfg(not(target_arch = "x86_64"))]
    let tsc_cost = None;
    let hpet_cost = hpet.as_ref().ok().map(|hpet| Cost::of(|| hpet.ticks()));
    let os_cost = Cost::of(|| os::read(libc::CLOCK_MONOTONIC_RAW));
    let source = choose(tsc_cost, hpet_cost, os_cost);
    let mut reason = before.map(|error| error + "; ").unwrap_or_default();
    reason += &match (source, &tsc) {
        (TimeSource::Tsc, _) => "invariant, and the clock source of the kernel".to_string(),
        (_, Err(why)) => format!("tsc cannot be used: {why}"),
        _ => "cheapest to read".to_string(),
    };
    let hpet = hpet.ok().filter(|_| source == TimeSource::Hpet);
    Chosen { source, reason, hpet, is_virtual, page: virtual_time::page() }
}

/// The cost of a read, ns: the median and half the interquartile range of a thousand reads.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Cost {
    median: f64,
    spread: f64,
}

impl Cost {
    fn of<T>(read: impl Fn() -> T) -> Cost {
        const READS_PER_SAMPLE: i64 = 20;
        let once = || {
            let before = os::read(libc::CLOCK_MONOTONIC);
            (0..READS_PER_SAMPLE).for_each(|_| drop(std::hint::black_box(read())));
            (os::read(libc::CLOCK_MONOTONIC) - before) as f64 / READS_PER_SAMPLE as f64
        };
        let mut samples: Vec<f64> = (0..50).map(|_| once()).collect();
        samples.sort_by(f64::total_cmp);
        Cost { median: samples[25], spread: (samples[37] - samples[12]) / 2.0 }
    }
}

/// Chooses the TSC if it is usable and a read costs at most a quarter more than one of the system's clock. A hypervisor
/// that traps rdtsc makes it cost more. Otherwise chooses the cheaper one of HPET and system clock. If their costs are
/// within a quarter of each other, chooses the steadier one.
fn choose(tsc: Option<Cost>, hpet: Option<Cost>, os: Cost) -> TimeSource {
    const EQUAL_COST_RATIO: f64 = 1.25;
    if tsc.is_some_and(|tsc| tsc.median <= os.median * EQUAL_COST_RATIO) {
        return TimeSource::Tsc;
    }
    let Some(hpet) = hpet else { return TimeSource::Os };
    let alike =
        hpet.median <= os.median * EQUAL_COST_RATIO && os.median <= hpet.median * EQUAL_COST_RATIO;
    let hpet_is_better = if alike { hpet.spread < os.spread } else { hpet.median < os.median };
    if hpet_is_better {
        TimeSource::Hpet
    } else {
        TimeSource::Os
    }
}

fn hpet_usable(is_virtual: bool) -> Result<Hpet, String> {
    if is_virtual {
        return Err("the process lives in virtual time, the HPET in the host's".to_string());
    }
    Hpet::open(Path::new(Hpet::PATH)).map_err(|error| format!("{} {error}", Hpet::PATH))
}

#[cfg(not(target_arch = "x86_64"))]
fn tsc_usable(_is_virtual: bool) -> Result<(), String> {
    Err("this architecture has none".to_string())
}

/// Whether the TSC can be the clock of this process.
///
/// # Errors
///
/// The text says why it cannot.
#[cfg(target_arch = "x86_64")]
fn tsc_usable(is_virtual: bool) -> Result<(), String> {
    const CLOCKSOURCE_FILE: &str =
        "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    if is_virtual {
        return Err("the process lives in virtual time, the TSC in the host's".to_string());
    }
    if os::tsc_traps() {
        return Err("rdtsc traps in this process (prctl PR_SET_TSC)".to_string());
    }
    if !crate::tsc::is_invariant_tsc() {
        return Err("it is not invariant (CPUID 0x80000007)".to_string());
    }
    match std::fs::read_to_string(CLOCKSOURCE_FILE) {
        Ok(name) if name.trim() == "tsc" => Ok(()),
        Ok(name) => {
            Err(format!("the kernel does not trust it, its clock source is {}", name.trim()))
        }
        Err(error) => {
            Err(format!("it is unknown whether the kernel trusts it: {CLOCKSOURCE_FILE}: {error}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(median: f64, spread: f64) -> Cost {
        Cost { median, spread }
    }

    #[test]
    fn the_source_is_chosen_by_cost_then_steadiness() {
        let os = cost(24.0, 1.0);
        assert_eq!(choose(Some(cost(19.0, 9.0)), None, os), TimeSource::Tsc);
        assert_eq!(choose(Some(cost(2000.0, 1.0)), None, os), TimeSource::Os, "trapped");
        assert_eq!(choose(None, Some(cost(500.0, 0.1)), os), TimeSource::Os);
        assert_eq!(choose(None, Some(cost(500.0, 0.1)), cost(900.0, 1.0)), TimeSource::Hpet);
        assert_eq!(choose(None, Some(cost(500.0, 0.1)), cost(450.0, 1.0)), TimeSource::Hpet);
        assert_eq!(choose(None, Some(cost(450.0, 2.0)), cost(500.0, 1.0)), TimeSource::Os);
    }

    #[test]
    fn names_are_read_back() {
        for source in [TimeSource::Tsc, TimeSource::Hpet, TimeSource::Os] {
            assert_eq!(source.to_string().parse(), Ok(source));
        }
        let wrong = "sundial".parse::<TimeSource>().unwrap_err().to_string();
        assert_eq!(wrong, "time source sundial: expected tsc, hpet or os");
    }

    #[test]
    fn what_is_in_use_stays() {
        let in_force = TimeSource::in_force();
        assert!(!TimeSource::reason().is_empty());
        assert_eq!(in_force.force(), Ok(()));
        if in_force != TimeSource::Os {
            assert_eq!(TimeSource::Os.force(), Err(SourceError::InUse(in_force)));
        }
        let hertz = TimeSource::hertz() as f64;
        let measured = 1e9 / measured_scale(10_000_000).nanos_per_tick();
        // Over 10 ms of the counter the two samples may be a microsecond off on a busy machine.
        assert!(in_force == TimeSource::Os || (measured / hertz - 1.0).abs() < 1e-3);
    }
}
