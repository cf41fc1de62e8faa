//! What the network stack of a container adds to each packet: MACE (Misa, Kannan, Durairajan, ANRW 2019) on a stock kernel.
//!
//! BPF programs on tracepoints (`bpf/packets.bpf.c`) stamp a packet at the entry of the send call and at the start of
//! transmission on the outer device, or at reception there and at the exit of the receive call, and put a record of both into a
//! ring. All else is done here: what the packet is, what became of it, statistics, who may read of it. A packet that is not seen
//! at both ends is told as a miss; nothing is guessed. Everything the kernel holds ends with the process.
//!
//! - [`Namespace`], [`OuterDevice`]: what is measured, found by the names people use;
//! - [`Watcher`]: gives [`Packet`]s and [`Statistics`], by one [`Way`] or the other: traced, or by stamps that travel with the
//!   packets (`bpf/inband.bpf.c`);
//! - [`Service`]: a watcher at work, which hands packets to an [`Audience`], takes orders ([`command`]) and gives containers a
//!   socket at [`SOCKET`], where each reads of its own packets and no others;
//! - [`correct()`]: inside a container, the output of a tool that measures, corrected by a [`Rule`];
//! - [`line()`], [`json_line`], [`aggregate`], [`prometheus`]: packets and statistics as text;
//! - [`PacketsError`]: what may be wrong, one line each.
//!
//! ```no_run
//! use lorentz_packets::{Namespace, OuterDevice, Watcher, Way, DEFAULT_RING};
//!
//! let outer = OuterDevice::of_default_routes()?;
//! let mut watcher = Watcher::new(outer, Way::Traced, DEFAULT_RING)?;
//! watcher.add(Namespace::find("web")?, None)?;
//! for (_, packet) in watcher.read()? {
//!     println!("{} {:?} ns", packet.direction.name(), packet.latency_ns);
//! }
//! # Ok::<(), lorentz_packets::PacketsError>(())
//! ```
//!
//! One that runs anywhere:
//!
//! ```
//! use lorentz_packets::{Namespace, Rule};
//!
//! let own = Namespace::find(&std::process::id().to_string())?;
//! assert!(own.is_alive());
//!
//! let times = Rule::find("ping")?.times("64 bytes from 10.9.0.2: icmp_seq=7 ttl=63 time=0.076 ms");
//! assert_eq!(times[0].number, Some(7));
//! # Ok::<(), lorentz_packets::PacketsError>(())
//! ```

mod client;
mod control;
mod correct;
mod door;
mod exchange;
mod fault;
#[cfg(test)]
mod fuzz;
mod hardware;
mod inband;
mod inside;
mod kernel;
mod namespace;
mod record;
mod rule;
mod service;
mod source;
mod statistics;
mod text;
mod watch;

pub use control::{command, Order};
pub use correct::correct;
pub use door::{Place, SOCKET};
pub use fault::PacketsError;
pub use kernel::Counters;
pub use namespace::{Namespace, OuterDevice};
pub use record::{Direction, Outcome, Packet, Protocol};
pub use rule::{Found, Key, Rule, Until};
pub use service::{Audience, Service};
pub use statistics::{Latencies, Statistics};
pub use text::{aggregate, json_line, line, prometheus};
pub use watch::{is_ring_size, wall_offset, ToVirtual, Watched, Watcher, Way, DEFAULT_RING};
