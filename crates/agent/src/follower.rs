//! One clock of this host, kept on the line of its record by a thread of its own.
//!
//! ```text
//! agent              follower                     the host's clock
//!   record --------->  by the host's TAI
//!                      Clock::follow ----------->  piece to come, at the same instant on every host
//!   report <---------  every second: on the line?
//! ```
//!
//! Between changes nothing is to be done: a clock follows the host's CLOCK_MONOTONIC, which NTP or PTP slews on every host towards the
//! same. A step of the host's wall clock moves TAI and not CLOCK_MONOTONIC. The follower finds that within [`CHECK_INTERVAL`], and slews.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::Arc;
use std::time::Duration;

use lorentz_clock::{saturate, Rate, RealInstant, Span};
use lorentz_container::Container;
use lorentz_control::{host_time, Approach, Clock, Followed, Line};

use crate::host_tai::{HostReading, HostTai};
use crate::record::{ClockRecord, LineSegment};
use crate::store::{HostReport, HostState};

/// Interval of looks at the clock.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// A clock that is off its line by more than this is corrected, real ns. The host's clocks are read together exactly ...
const TOLERANCE: i64 = 100;
/// ... and the line is rounded to whole nanoseconds of virtual time.
const ROUNDING: i64 = 2;

/// The moment of the last answer of the store, host's CLOCK_MONOTONIC; shared by the agent and its followers.
#[derive(Clone, Debug, Default)]
pub struct LastContact(Arc<AtomicI64>);

impl LastContact {
    /// Notes that the store has answered just now.
    pub fn note(&self) {
        self.0.store(host_time::now().0, Ordering::Relaxed);
    }

    fn is_older_than(&self, time: Span) -> bool {
        host_time::now().since(RealInstant(self.0.load(Ordering::Relaxed))) > time
    }
}

/// When a clock without the store stands.
#[derive(Clone, Debug)]
pub struct Fence {
    /// The last answer.
    pub contact: LastContact,
    /// The clock stands when the last answer is older than this.
    pub after: Span,
}

/// A clock and the record that it follows.
pub struct Follower {
    container: Container,
    clock: Clock,
    host: HostTai,
    fence: Option<Fence>,
    record: ClockRecord,
    /// The host's clocks when the lines in force were computed.
    placed: HostReading,
    /// Number of the newest change that the clock has, and how late it was.
    taken: (u64, Span),
    /// Until then the clock is on its way to the line.
    joins: RealInstant,
    on_its_way: HostState,
    fenced: bool,
}

impl Follower {
    /// Begins to follow `record` with the clock of `container`, wherever that clock stands.
    ///
    /// # Errors
    ///
    /// If the clock or the host's clocks cannot be read, or another process keeps the clock.
    pub fn begin(
        container: Container,
        host: HostTai,
        fence: Option<Fence>,
        record: ClockRecord,
    ) -> anyhow::Result<Follower> {
        let clock = container.clock()?;
        let placed = host.read()?;
        let mut follower = Follower {
            container,
            clock,
            host,
            fence,
            record,
            placed,
            taken: (0, Span::ZERO),
            joins: placed.real,
            on_its_way: HostState::Follows,
            fenced: false,
        };
        follower.place_all()?;
        Ok(follower)
    }

    /// Follows the records that `records` brings until the sender is gone. `report` receives a report at the begin, after each
    /// record, and one a second.
    pub fn run(mut self, records: &Receiver<ClockRecord>, mut report: impl FnMut(HostReport)) {
        let mut done = Ok(());
        loop {
            if let Err(error) = done.and_then(|()| self.report()).map(&mut report) {
                eprintln!("lorentz-agent: {}: {error:#}", self.container.name());
            }
            done = match records.recv_timeout(CHECK_INTERVAL) {
                Ok(record) => self.take(record),
                Err(RecvTimeoutError::Timeout) => self.check(),
                Err(RecvTimeoutError::Disconnected) => break,
            };
        }
        if let Err(error) = self.container.leave() {
            eprintln!("lorentz-agent: {}: {error}", self.container.name());
        }
    }

    /// Takes the changes of `record` over that the clock does not have yet.
    fn take(&mut self, record: ClockRecord) -> anyhow::Result<()> {
        let before = std::mem::replace(&mut self.record, record);
        if self.is_held() {
            return Ok(());
        }
        let known = before.change();
        if self.record.segments()[0].change > known {
            // Changes in between were missed.
            return self.place_all();
        }
        let now = self.host.read()?;
        for segment in self.new_segments(known) {
            let in_force = before.in_force(now.tai());
            let line = now.line(&segment);
            let followed = self.put(&line, Approach::AtOnce)?;
            let due = match segment.limits(in_force) {
                true => line.real_at(line.limit),
                false => line.from,
            };
            self.taken = (segment.change, Span(followed.begins.since(due).0.max(0)));
            self.placed = now;
        }
        Ok(())
    }

    fn new_segments(&self, known: u64) -> Vec<LineSegment> {
        self.record.segments().iter().filter(|segment| segment.change > known).copied().collect()
    }

    /// Puts the clock on the line in force and announces the changes to come.
    fn place_all(&mut self) -> anyhow::Result<()> {
        let now = self.host.read()?;
        let in_force = *self.record.in_force(now.tai());
        let line = now.line(&in_force);
        let followed = self.put(&line, Approach::AtOnce)?;
        self.announce_later(&now, in_force.change)?;
        self.placed = now;
        let newest = self.record.change();
        let late = match self.taken.0 {
            // A host that has just begun is late for nothing.
            0 => Span::ZERO,
            known if known >= in_force.change => self.taken.1,
            _ => Span(followed.begins.since(line.from).0.max(0)),
        };
        self.taken = (newest, late);
        Ok(())
    }

    /// Announces the changes after number `known` anew: a change of the clock drops those that were announced for later.
    fn announce_later(&mut self, now: &HostReading, known: u64) -> anyhow::Result<()> {
        for segment in self.new_segments(known) {
            self.put(&now.line(&segment), Approach::AtOnce)?;
        }
        Ok(())
    }

    fn put(&mut self, line: &Line, approach: Approach) -> anyhow::Result<Followed> {
        let followed = self.clock.follow(line, approach)?;
        if followed.joins > followed.begins {
            self.joins = followed.joins;
            self.on_its_way = match approach {
                Approach::AtOnce => HostState::Stands,
                Approach::Slew => HostState::Slews,
            };
        } else {
            // A change that comes before the clock would have joined its line puts it there.
            self.joins = self.joins.min(followed.begins);
        }
        Ok(followed)
    }

    /// Whether the clock is not to be moved now.
    fn is_held(&self) -> bool {
        self.fenced || self.is_held_here()
    }

    /// Whether somebody has frozen the clock on this host, or has it skip idle time.
    fn is_held_here(&self) -> bool {
        self.clock.is_frozen() || self.clock.skipping().leaps_enabled
    }

    /// Looks whether the clock is on its line, and brings it there.
    fn check(&mut self) -> anyhow::Result<()> {
        if let Some(lost) =
            self.fence.as_ref().map(|fence| fence.contact.is_older_than(fence.after))
        {
            match (lost, self.fenced) {
                (true, false) => return self.stop(),
                (false, true) => {
                    self.fenced = false;
                    return self.place_all();
                }
                _ => {}
            }
        }
        let now = self.host.read()?;
        if self.is_held() || now.real < self.joins {
            return Ok(());
        }
        let segment = *self.record.in_force(now.tai());
        let stepped = now.stepped_since(&self.placed);
        if stepped.0.abs() > TOLERANCE {
            self.put(&now.line(&segment), Approach::Slew)?;
            self.placed = now;
            return self.announce_later(&now, segment.change);
        }
        // Somebody else has changed the clock, or a change came late.
        let ahead = self.clock.ahead_of(&self.placed.line(&segment), host_time::now());
        let is_off = ahead.0.abs() > tolerance(segment.rate());
        if is_off || self.clock.look().rate != segment.rate() {
            self.place_all()?;
        }
        Ok(())
    }

    /// Has the clock stand: the store has not answered for too long.
    fn stop(&mut self) -> anyhow::Result<()> {
        let now = self.host.read()?;
        let line = now.line(self.record.in_force(now.tai()));
        // A limit that is past stops a clock where it is.
        let standing = Line { limit: self.clock.look().now(), ..line };
        self.clock.follow(&standing, Approach::AtOnce)?;
        self.fenced = true;
        Ok(())
    }

    fn report(&self) -> anyhow::Result<HostReport> {
        let now = self.host.read()?;
        let segment = self.record.in_force(now.tai());
        let ahead = self.clock.ahead_of(&now.line(segment), now.real);
        let state = match () {
            () if self.fenced => HostState::Fenced,
            () if self.is_held_here() => HostState::HeldHere,
            () if now.real < self.joins => self.on_its_way,
            () => HostState::Follows,
        };
        let rate = segment.rate();
        let real_bound = i128::from(self.host.error_bound().0);
        let bound = real_bound * i128::from(rate.num()) / i128::from(rate.den());
        Ok(HostReport {
            change: self.taken.0,
            state,
            late_ns: self.taken.1 .0,
            ahead_ns: ahead.0,
            error_bound_ns: saturate(bound + i128::from(ahead.0.abs())),
            seen_at_tai_ns: now.tai(),
        })
    }
}

/// The virtual time by which a clock may be off its line, ns.
fn tolerance(rate: Rate) -> i64 {
    let scaled = i128::from(TOLERANCE) * i128::from(rate.num()) / i128::from(rate.den());
    saturate(scaled).max(ROUNDING)
}
