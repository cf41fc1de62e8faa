//! Latency that a container's network stack adds to each packet: MACE (Misa, Kannan, Durairajan, ANRW 2019) on a stock kernel.
//!
//! BPF programs on tracepoints (`bpf/packets.bpf.c`) take two timestamps of a packet. For egress: entry of the send call, and start
//! of transmission on the outer device. For ingress: reception on the outer device, and exit of the receive call. They put one
//! record with both into a ring buffer. This crate does everything else: it parses the packet, decides its outcome, keeps
//! statistics, and checks who may read them. A packet seen at one end only counts as a miss; nothing is guessed. Everything in the
//! kernel ends with the process.
//!
//! - [`Namespace`], [`OuterDevice`]: the ends of a measurement, found by the names people use;
//! - [`Watcher`]: returns [`Packet`]s and [`LatencyStatistics`], measured in one [`LatencyMethod`]: traced, or by timestamps that travel
//!   with the packets (`bpf/inband.bpf.c`);
//! - [`Service`]: the loop of a watcher. It hands packets to an [`Audience`], takes orders ([`send_order`]) and makes a socket in
//!   each container, at [`SOCKET`], where the container's programs read of its own packets and no others;
//! - [`correct()`]: corrects the output of a measuring tool inside a container by a [`Rule`];
//! - [`line()`], [`json_line`], [`aggregate`], [`prometheus`]: packets and statistics as text;
//! - [`PacketsError`]: the errors, one line each.
//!
//! ```no_run
//! use lorentz_packets::{Namespace, OuterDevice, Watcher, LatencyMethod, DEFAULT_RING};
//!
//! let outer = OuterDevice::of_default_routes()?;
//! let mut watcher = Watcher::new(outer, LatencyMethod::Traced, DEFAULT_RING)?;
//! watcher.add(Namespace::find("web")?, None)?;
//! for (_, packet) in watcher.read()? {
//!     println!("{} {:?} ns", packet.direction.name(), packet.latency_ns);
//! }
//! # Ok::<(), lorentz_packets::PacketsError>(())
//! ```
//!
//! An example that runs anywhere:
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

mod container_files;
mod container_socket;
mod control;
mod correct;
mod error;
mod exchange;
#[cfg(test)]
mod fuzz;
mod hardware;
mod host_clock;
mod inband;
mod namespace;
mod packet_reader;
mod reader;
mod record;
mod rule;
mod service;
mod source;
mod statistics;
mod text;
mod tracepoints;
mod watch;

pub use container_socket::{SocketLocation, SOCKET};
pub use control::{send_order, WatchOrder};
pub use correct::correct;
pub use error::PacketsError;
pub use host_clock::wall_offset;
pub use namespace::{Namespace, OuterDevice};
pub use record::{Direction, Packet, PacketOutcome, Protocol};
pub use rule::{Found, MatchKey, Rule, Until};
pub use service::{Audience, Service};
pub use source::Counters;
pub use statistics::{Latencies, LatencyStatistics};
pub use text::{aggregate, json_line, line, prometheus};
pub use watch::{is_ring_size, LatencyMethod, ToVirtual, Watched, Watcher, DEFAULT_RING};
