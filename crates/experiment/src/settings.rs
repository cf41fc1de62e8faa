//! Options of a new experiment.

use lorentz_clock::Span;
use serde::{Deserialize, Serialize};

use crate::compute::ComputeTime;
use crate::cpus::Cpus;
use crate::error::ExperimentRefusal;

/// Options of an experiment, checked and complete.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExperimentSettings {
    /// Virtual length of a round, from 1 us to 1 minute.
    pub timeslice: Span,
    /// The processors that the containers run on. Each container runs on one of them, or on as many as it asks for.
    pub cpus: Cpus,
    /// Skip idle time: when no container has anything to do, the clocks jump to the first deadline instead of waiting.
    pub as_fast_as_possible: bool,
    /// How the time for which tasks compute counts, for containers that do not choose.
    pub compute: ComputeTime,
    /// Greatest number of containers at once, from 1 to 1,000,000.
    pub most: u32,
}

/// Options as the user gives them. An absent option has a default.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ExperimentOptions {
    /// Virtual length of a round, ns. Default: 3,000,000 (3 ms), as in TimeKeeper.
    pub timeslice_ns: Option<i64>,
    /// The containers' processors. Default: all usable ones but the first.
    pub cpus: Option<Cpus>,
    /// Skip idle time. Default: false.
    pub as_fast_as_possible: bool,
    /// How the time for which tasks compute counts, for containers that do not choose. Default: real.
    #[serde(default)]
    pub compute: ComputeTime,
    /// Greatest number of containers at once. Default: 1,024.
    pub most: Option<u32>,
}

impl ExperimentOptions {
    const DEFAULT_TIMESLICE: Span = Span(3_000_000);
    const MIN_TIMESLICE: Span = Span(1_000);
    const MAX_TIMESLICE: Span = Span::from_secs(60);
    const DEFAULT_MAX_CONTAINERS: u32 = 1_024;
    const MAX_CONTAINERS: u32 = 1_000_000;

    /// Completes the options with the defaults of this machine.
    ///
    /// # Errors
    ///
    /// [`ExperimentRefusal`] if the timeslice or the number of containers is out of range, or this process may not use a processor.
    pub fn settings(&self) -> anyhow::Result<ExperimentSettings> {
        let usable = Cpus::usable()?;
        let timeslice = self.timeslice_ns.map_or(ExperimentOptions::DEFAULT_TIMESLICE, Span);
        if timeslice < ExperimentOptions::MIN_TIMESLICE
            || timeslice > ExperimentOptions::MAX_TIMESLICE
        {
            return Err(ExperimentRefusal::Timeslice(timeslice).into());
        }
        let cpus = self.cpus.clone().unwrap_or_else(|| usable.all_but_first());
        if let Some(missing) = cpus.first_not_in(&usable) {
            return Err(ExperimentRefusal::NoCpu(missing, usable.to_string()).into());
        }
        let most = self.most.unwrap_or(ExperimentOptions::DEFAULT_MAX_CONTAINERS);
        if most == 0 || most > ExperimentOptions::MAX_CONTAINERS {
            return Err(ExperimentRefusal::MaxContainers(most).into());
        }
        Ok(ExperimentSettings {
            timeslice,
            cpus,
            as_fast_as_possible: self.as_fast_as_possible,
            compute: self.compute,
            most,
        })
    }
}
