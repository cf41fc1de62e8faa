//! What is chosen when an experiment is made.

use lorentz_clock::Span;
use serde::{Deserialize, Serialize};

use crate::cpus::Cpus;
use crate::fault::Refusal;

/// What is chosen when an experiment is made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Virtual length of a round, from 1 us to 1 minute.
    pub timeslice: Span,
    /// The processors that its containers run on, each on one of them.
    pub cpus: Cpus,
    /// Time in which nobody has anything to do is leapt over, and never waited for.
    pub as_fast_as_possible: bool,
    /// So many containers at once, at most.
    pub most: u32,
}

/// The same as people choose it: what is not said has a default.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Wanted {
    /// Virtual nanoseconds; 3 ms, as TimeKeeper's.
    pub timeslice_ns: Option<i64>,
    /// All but the first.
    pub cpus: Option<Cpus>,
    /// Not, unless wanted.
    pub as_fast_as_possible: bool,
    /// 1,024.
    pub most: Option<u32>,
}

impl Wanted {
    const TIMESLICE: Span = Span(3_000_000);
    const SHORTEST: Span = Span(1_000);
    const LONGEST: Span = Span::from_secs(60);
    const MOST: u32 = 1_024;
    const MOST_EVER: u32 = 1_000_000;

    /// What comes of it on this machine.
    ///
    /// # Errors
    ///
    /// A timeslice or number out of range; a processor that is not there.
    pub fn settings(&self) -> anyhow::Result<Settings> {
        let usable = Cpus::usable()?;
        let timeslice = self.timeslice_ns.map_or(Wanted::TIMESLICE, Span);
        if timeslice < Wanted::SHORTEST || timeslice > Wanted::LONGEST {
            return Err(Refusal::Timeslice(timeslice).into());
        }
        let cpus = self.cpus.clone().unwrap_or_else(|| usable.but_one());
        if let Some(missing) = cpus.first_not_in(&usable) {
            return Err(Refusal::NoCpu(missing, usable.to_string()).into());
        }
        let most = self.most.unwrap_or(Wanted::MOST);
        if most == 0 || most > Wanted::MOST_EVER {
            return Err(Refusal::Most(most).into());
        }
        Ok(Settings { timeslice, cpus, as_fast_as_possible: self.as_fast_as_possible, most })
    }
}
