//! Reads the system: containers, networks and experiments, as the command line does.
//!
//! One [`Reader`] belongs to one thread. A look is cheap: clocks are mapped files. Costly reads are less frequent: the
//! emulator of a large network and the state of an experiment as often as their answers are quick ([`pace`]), control groups
//! and monitors in turn.

mod clocks;
mod containers;
mod experiments;
mod networks;
mod pace;
mod verdict;

use lorentz_container::StateDir;

pub use clocks::{now, time_of, virtual_at};
pub use pace::LOOK_INTERVAL;

use crate::types::State;
use containers::Containers;
use experiments::Experiments;
use networks::Networks;

/// Reads the system.
pub struct Reader {
    state: StateDir,
    containers: Containers,
    networks: Networks,
    experiments: Experiments,
}

impl Reader {
    /// A reader of the containers in `state`.
    pub fn new(state: StateDir) -> Reader {
        Reader {
            state,
            containers: Containers::default(),
            networks: Networks::default(),
            experiments: Experiments::default(),
        }
    }

    /// Looks at everything. `thorough` reads also what was read a moment ago: after an action, and at the first look.
    pub fn look(&mut self, thorough: bool) -> State {
        let now = now();
        let experiments = self.experiments.look(&self.state, thorough);
        self.containers.look(&self.state, thorough);
        let networks = self.networks.look(&self.state, thorough, &self.containers, &experiments);
        self.containers.name_nodes(&networks);
        State { seq: 0, now, networks, experiments, containers: self.containers.shown() }
    }
}
