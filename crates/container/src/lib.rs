//! Containers in virtual time: their state and their lifecycle.
//!
//! A container is a directory with a clock in it ([`StateDir`], [`Container`]). One or more monitors supervise its programs
//! ([`run`], [`exec`], [`attach`], [`adopt()`]). If the kernel allows it, a container also has a control group. Any command of the
//! same user finds a container by its name, or by the process id of any of its processes. It changes the container's clock
//! ([`Container::clock_to_change`]) by the crate `control`. No daemon keeps this state: /proc says which processes are on a clock.
//!
//! - [`StateError`], [`LaunchError`], [`AttachRefused`]: the errors, one line each;
//! - [`skip`]: skipping of idle time;
//! - [`freeze()`], [`unfreeze`], [`clear()`]: changes that need more than the clock;
//! - [`start_monitor`], [`MonitorConnection`]: containers made by an OCI runtime;
//! - [`make_bundle`], [`RootOptions`]: the bundle that such a runtime receives for `lorentz run --rootfs`;
//! - [`image`]: podman's images as root file systems;
//! - [`doctor`]: the abilities of this host, found by trying.
//!
//! ```
//! use lorentz_container::{MonitorKind, NewContainer, StateDir};
//! use lorentz_control::{ClockOptions, HostNow};
//!
//! let host = HostNow::read()?;
//! let asked = ClockOptions { rate: Some("60x".parse()?), ..Default::default() };
//!
//! let dir = tempfile::tempdir()?;
//! let state = StateDir::at(dir.path())?;
//! let new = NewContainer { name: Some("web"), ..NewContainer::monitored_by(MonitorKind::Run) };
//! let container = state.create(&new, &asked.settings(&host)?)?;
//!
//! let reading = state.container("web")?.clock()?.reading();
//! assert_eq!(reading.rate.to_string(), "60");
//! container.leave()?;
//! assert!(state.list()?.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod adopt;
mod attachable;
mod background;
mod batch_spawn;
mod bundle;
mod clear;
mod clock_request;
mod clock_watch;
mod connection;
pub mod criu;
mod directory_watch;
pub mod doctor;
mod engine;
mod error;
mod freeze;
#[cfg(test)]
mod fuzz;
pub mod image;
mod layer;
mod lifecycle;
mod nearest;
mod newcomers;
mod service_dir;
pub mod skip;
mod state;
mod supervise;
#[cfg(test)]
#[path = "../../control/src/test_process.rs"]
mod test_process;
mod time_namespace;

pub use adopt::{adopt, adopt_if_needed, AdoptReport, Refusal};
pub use attachable::check_attachable;
pub use background::{
    close_standard_streams, keep_only, start as start_process, start_in_background, Ready,
};
pub use batch_spawn::{spawn_batch, BatchSpawn, MAX_BATCH};
pub use bundle::{
    bundle_config, bundle_dir, is_bundle_of_ours, make_bundle, remove_bundle, runtime,
    runtime_root, write_config, Bind, RootOptions, RootSource, IDLE_ANNOTATION,
    NARROW_CAPSET_ANNOTATION,
};
pub use clear::{clear, clear_all};
pub use clock_request::{ClockAnswer, ClockRequest};
pub use connection::{Connection, ConnectionError};
pub use engine::ForeignContainer;
pub use error::{launch_status, AttachRefused, LaunchError, StateError};
pub use freeze::{freeze, freeze_at, unfreeze};
pub use layer::{layer_space, overlay, own_mounts, Layer};
pub use lifecycle::{attach, exec, monitor_of, run, AttachReach, Attached};
pub use lorentz_inject::{limits, on_ample_stack, rewritten_sites, NoNewPrivs};
pub use nearest::nearest;
pub use newcomers::{check_newcomers, is_first_process};
pub use service_dir::ServiceDir;
pub use state::{
    is_name, replace_file, scan_processes, Bundle, Container, ContainerRecord, Liveness, Mechanism,
    Monitor, MonitorKind, NewContainer, Newcomers, StateDir, STATE_DIR_VARIABLE,
};
pub use supervise::{
    connect_to_monitor, hand_over_to_background, start_monitor, MonitorConnection,
};
