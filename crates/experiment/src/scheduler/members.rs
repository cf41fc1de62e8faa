//! Containers join an experiment, and leave it.

use anyhow::Context;
use lorentz_clock::VirtualInstant;

use super::{rate_of, ContainerSlot, Scheduler};
use crate::compute::ComputeTime;
use crate::container::ExperimentContainer;
use crate::error::ExperimentRefusal;
use crate::phase::Phase;

impl Scheduler {
    /// Adds the container called `name`.
    pub(super) fn add(
        &mut self,
        name: &str,
        tdf: (u64, u64),
        timeline: Option<u32>,
        parallel: u32,
        compute: Option<ComputeTime>,
    ) -> anyhow::Result<()> {
        let rate = rate_of(tdf)?;
        self.settings.cpus.check_parallel(parallel)?;
        let cpus = self.settings.cpus.from_nth(self.processors_given, parallel as usize);
        let found = self.state.container(name)?;
        if let Ok(container) = self.container(name) {
            if container.handle().is_same(&found) {
                return Err(ExperimentRefusal::AlreadyIn(name.to_string()).into());
            }
            // The container known by this name has ended, and a new one has the name.
            let slot = container.group as usize;
            self.forget(slot);
        }
        self.phase.check_joining(timeline.is_some(), self.mode())?;
        let group = self.free.last().copied().unwrap_or(self.slots.len());
        if group >= self.settings.most as usize {
            return Err(ExperimentRefusal::Full(self.settings.most).into());
        }
        let found_frozen = found.clock()?.is_frozen();
        let added_before = self.added;
        let mut container =
            ExperimentContainer::new(found, group as u32, added_before, rate, timeline, cpus)
                .with_context(|| name.to_string())?;
        container.compute = compute.unwrap_or(self.settings.compute);
        container.handle().clone().set_experiment(Some(&self.name))?;
        container.observe_new_processes(&self.watch);
        container.reset_statistics();
        match self.phase {
            Phase::SettingUp if !found_frozen => container.let_go(),
            // The user froze it before; it begins with the others.
            Phase::SettingUp => {
                container.has_not_begun = true;
                container.stop_tasks()?;
            }
            _ => {
                let at = self.joining_time(timeline);
                container.stop_at(at)?;
                container.clock.allow_sends_until(if timeline.is_some() {
                    VirtualInstant::NEVER
                } else {
                    at
                });
            }
        }
        self.added += 1;
        self.processors_given += parallel as usize;
        if self.free.pop().is_none() {
            self.slots.push(ContainerSlot::Free);
        }
        self.index.insert(name.to_string(), group);
        self.slots[group] = ContainerSlot::Present(Box::new(container));
        Ok(())
    }

    /// The virtual time at which a container begins that joins now: that of the container furthest behind on its timeline, or of
    /// the experiment.
    fn joining_time(&self, timeline: Option<u32>) -> VirtualInstant {
        let same = self
            .containers()
            .filter(|container| timeline.is_some() && container.timeline == timeline);
        same.map(|container| container.clock.now()).min().unwrap_or(self.now)
    }

    /// Removes a container, which goes on by itself.
    pub(super) fn remove(&mut self, name: &str) -> anyhow::Result<()> {
        self.container(name)?.release();
        if let Some(slot) = self.index.get(name).copied() {
            self.forget(slot);
        }
        Ok(())
    }
}
