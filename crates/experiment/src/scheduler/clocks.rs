//! Requests for the clock of one container. All containers stand meanwhile, so that the request comes at one instant of all clocks.

use std::collections::BTreeMap;

use lorentz_clock::VirtualInstant;
use lorentz_container::{ClockAnswer, ClockRequest};
use lorentz_syscalls::{Errno, Timex};

use super::Scheduler;
use crate::container::NO_WAIT_HANDLED;

impl Scheduler {
    /// Returns the instants of the experiment at which the clocks of these containers showed these times, ns.
    pub(super) fn truth_at(
        &mut self,
        own: BTreeMap<String, Vec<i64>>,
    ) -> BTreeMap<String, Vec<i64>> {
        let mut found = BTreeMap::new();
        for (name, times) in own {
            let Ok(container) = self.container(&name) else { continue };
            let truth_at = |own: &i64| container.clock.truth_at(VirtualInstant(*own)).0;
            found.insert(name, times.iter().map(truth_at).collect());
        }
        found
    }

    /// Carries out a request for a container's clock.
    pub(super) fn carry_out_on_clock(
        &mut self,
        request: ClockRequest,
    ) -> anyhow::Result<ClockAnswer> {
        match request {
            ClockRequest::Adjust { container, timex, may_set } => {
                let container = self.container(&container)?;
                let bytes = timex.try_into().map_err(|_| anyhow::anyhow!("no struct timex"))?;
                let mut timex = Timex::from_bytes(bytes);
                if timex.step().is_some() {
                    container.waits_handled_until = NO_WAIT_HANDLED;
                }
                let result = match container.clock.adjust(&mut timex, may_set) {
                    Ok(state) => state,
                    Err(refused) => Errno::in_register(refused) as i64,
                };
                Ok(ClockAnswer::Adjusted { result, timex: timex.to_bytes().to_vec() })
            }
            ClockRequest::ChangeError { container, change } => {
                let container = self.container(&container)?;
                Ok(match container.clock.change_error(change) {
                    Ok(()) => {
                        container.waits_handled_until = NO_WAIT_HANDLED;
                        ClockAnswer::Changed
                    }
                    Err(error) => ClockAnswer::NotChanged { why: error.to_string() },
                })
            }
        }
    }
}
