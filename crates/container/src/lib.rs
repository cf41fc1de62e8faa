//! Containers in virtual time: their options, their state and their lifecycle.
//!
//! A container is a directory with a clock in it ([`StateDir`], [`Container`]). One or more monitors supervise its programs
//! ([`run`], [`exec`], [`attach`]). If the kernel allows it, a container also has a control group ([`Cgroup`]). Any command of the
//! same user finds a container by its name, or by the process id of any of its processes. It changes the container's clock by
//! writing to it ([`Clock`]). No daemon keeps this state: /proc says which processes are on a clock.
//!
//! - [`ClockOptions`], [`Target`]: the options, checked before anything is done;
//! - [`StateError`], [`WrongOption`], [`LaunchError`], [`AttachRefused`]: the errors, one line each;
//! - [`skip`]: skipping of idle time;
//! - [`freeze()`], [`unfreeze`], [`clear()`]: changes that need more than the clock;
//! - [`Asked`], [`look_after`], [`Way`]: containers made by an OCI runtime, on a clock that annotations ask for;
//! - [`make_bundle`], [`RootOptions`]: the bundle that such a runtime receives for `lorentz run --rootfs`;
//! - [`doctor`]: the abilities of this host, found by trying.
//!
//! ```
//! use lorentz_container::{ClockOptions, HostNow, MonitorKind, NewContainer, StateDir};
//!
//! let host = HostNow::read()?;
//! let asked = ClockOptions { rate: Some("60x".parse()?), ..Default::default() };
//!
//! let place = tempfile::tempdir()?;
//! let state = StateDir::at(place.path())?;
//! let new = NewContainer { name: Some("web"), command: &["sleep".into()], kind: MonitorKind::Run };
//! let container = state.create(&new, &asked.settings(&host)?)?;
//!
//! let reading = state.container("web")?.clock()?.reading();
//! assert_eq!(reading.rate.to_string(), "60");
//! container.leave()?;
//! assert!(state.list()?.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod annotations;
mod attachable;
mod background;
mod bundle;
mod care;
mod cgroup;
mod change;
mod changing;
mod clear;
mod control;
pub mod doctor;
mod fault;
mod file_stamps;
mod followers;
mod freeze;
#[cfg(test)]
mod fuzz;
mod home;
pub mod host_time;
#[cfg(test)]
mod inhabitant;
mod leaping;
mod life;
mod lock;
mod numbers;
mod nursery;
mod options;
mod place;
pub mod processes;
mod rounds;
pub mod skip;
mod state;
mod time_namespace;
mod watchkeeping;

pub use annotations::{merge_offset, Asked, WrongAnnotation};
pub use attachable::check_attachable;
pub use background::{start_in_background, Ready};
pub use bundle::{
    is_bundle_of_ours, make_bundle, overlay, own_mounts, remove_bundle, runtime, runtime_root,
    Bind, RootOptions,
};
pub use care::{look_after, way_into, Way};
pub use cgroup::Cgroup;
pub use change::Target;
pub use changing::{ClockChange, Followed};
pub use clear::{clear, clear_all};
pub use control::{Clock, Reading, ToCome};
pub use fault::{
    exit_status, launch_status, AttachRefused, LaunchError, StateError, WrongOption, WRONG_INPUT,
};
pub use freeze::{freeze, freeze_at, unfreeze};
pub use life::{attach, exec, run, Attached};
pub use lock::on_busy_clock;
pub use lorentz_inject::{limits, on_ample_stack};
pub use nursery::{raise, Brood, BROOD};
pub use options::{
    parse_read_cost, ClockOption, ClockOptions, ClockSettings, HostNow, OptionValue, WallStart,
    WhichClock, CLOCK_OPTIONS, LATEST,
};
pub use place::Place;
pub use rounds::HeldClock;
pub use state::{
    is_name, look, Bundle, Container, Life, Mechanism, Monitor, MonitorKind, NewContainer, Record,
    StateDir, STATE_DIR_VARIABLE,
};
