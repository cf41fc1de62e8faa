//! A watcher: the watched namespaces, the outer devices, and the packets between them.

use std::time::{Duration, Instant};

use crate::error::PacketsError;
use crate::host_clock::monotonic;
use crate::inband::InBand;
use crate::namespace::{cookie_here, Namespace, OuterDevice};
use crate::record::{Packet, RECORD_LEN};
use crate::source::{Counters, RecordSource};
use crate::statistics::LatencyStatistics;
use crate::tracepoints::Tracepoints;

/// Default size of the ring buffer, bytes: room for 16,000 packets.
pub const DEFAULT_RING: u32 = 1 << 20;
const RING_SIZES: std::ops::RangeInclusive<u32> = 1 << 12..=1 << 30;
const MAX_NAMESPACES: usize = 1024;
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Converts a real duration, ns, to that on a container's virtual clock, ns.
pub type ToVirtual = Box<dyn Fn(u64) -> u64>;

/// A watched namespace.
pub struct Watched {
    /// The namespace.
    pub namespace: Namespace,
    /// Whether the watching is on; an order may suspend it.
    pub on: bool,
    /// Statistics of its packets since watching began or since the last reset.
    pub statistics: LatencyStatistics,
    number: u16,
    to_virtual: Option<ToVirtual>,
}

/// Method of measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LatencyMethod {
    /// Tracepoints: from call to outer device and back.
    Traced,
    /// Timestamps in the packets: from the container's device to the outer one and back.
    InBand,
}

/// Watches namespaces until it is dropped.
pub struct Watcher {
    source: Box<dyn RecordSource>,
    outers: Vec<OuterDevice>,
    watched: Vec<Watched>,
    next: u16,
    swept: Instant,
}

impl Watcher {
    /// Makes a watcher that watches no namespace yet. `outers` are the devices of this process's network namespace at which
    /// containers' stacks end. `ring` is the size of the ring buffer that holds the records until they are read: bytes, a power of
    /// two.
    ///
    /// # Errors
    ///
    /// An error if the size is not allowed, or the kernel refuses the BPF programs.
    pub fn new(
        outers: Vec<OuterDevice>,
        method: LatencyMethod,
        ring: u32,
    ) -> Result<Watcher, PacketsError> {
        if !is_ring_size(ring) {
            return Err(PacketsError::RingSize(ring));
        }
        let mut source: Box<dyn RecordSource> = match method {
            LatencyMethod::Traced => Box::new(Tracepoints::load(ring)?),
            LatencyMethod::InBand => Box::new(InBand::load(ring)?),
        };
        let cookie = cookie_here()?;
        for outer in &outers {
            source.add_outer(outer, cookie)?;
        }
        let watched = Vec::new();
        Ok(Watcher { source, outers, watched, next: 0, swept: Instant::now() })
    }

    /// Watches `namespace` too. With `to_virtual`, packets also carry latencies in virtual time.
    ///
    /// # Errors
    ///
    /// An error if the namespace is watched already, or too many are.
    pub fn add(
        &mut self,
        namespace: Namespace,
        to_virtual: Option<ToVirtual>,
    ) -> Result<(), PacketsError> {
        if self.find(namespace.cookie).is_some() {
            return Err(PacketsError::Twice(namespace.name));
        }
        let taken = |number: u16| self.watched.iter().any(|watched| watched.number == number);
        let all = (0..MAX_NAMESPACES as u16).map(|more| (self.next + more) % MAX_NAMESPACES as u16);
        let Some(number) = all.into_iter().find(|&number| !taken(number)) else {
            return Err(PacketsError::TooMany(namespace.name));
        };
        // Records in the ring buffer may carry the number of a namespace that has ended. Therefore a number is reused as late as
        // possible.
        self.next = (number + 1) % MAX_NAMESPACES as u16;
        self.source.add(&namespace, number)?;
        let statistics = LatencyStatistics::default();
        self.watched.push(Watched { namespace, on: true, statistics, number, to_virtual });
        Ok(())
    }

    /// Returns the watched namespaces.
    pub fn watched(&self) -> &[Watched] {
        &self.watched
    }

    /// Returns the outer devices.
    pub fn outers(&self) -> &[OuterDevice] {
        &self.outers
    }

    /// Returns the watched namespace with this cookie, if there is one.
    pub fn find(&self, cookie: u64) -> Option<&Watched> {
        self.watched.iter().find(|watched| watched.namespace.cookie == cookie)
    }

    /// Resumes (`on`) or suspends the watching of the namespace with this cookie. Its statistics stay.
    ///
    /// # Errors
    ///
    /// An error if the kernel refuses.
    pub fn switch(&mut self, cookie: u64, on: bool) -> Result<(), PacketsError> {
        let found = self.watched.iter_mut().find(|watched| watched.namespace.cookie == cookie);
        let Some(watched) = found else { return Ok(()) };
        watched.on = on;
        self.source.switch(&watched.namespace, watched.number, on)
    }

    /// Resets the statistics and counters of the namespace with this cookie.
    ///
    /// # Errors
    ///
    /// An error if the kernel refuses.
    pub fn reset(&mut self, cookie: u64) -> Result<(), PacketsError> {
        // Records still in the ring buffer belong to the time before the reset.
        self.read()?;
        let found = self.watched.iter_mut().find(|watched| watched.namespace.cookie == cookie);
        let Some(watched) = found else { return Ok(()) };
        watched.statistics = LatencyStatistics::default();
        self.source.add(&watched.namespace, watched.number)?;
        self.source.switch(&watched.namespace, watched.number, watched.on)
    }

    /// Returns the kernel's counters of the namespace with this cookie.
    ///
    /// # Errors
    ///
    /// An error if the kernel refuses.
    pub fn counters(&self, cookie: u64) -> Result<Counters, PacketsError> {
        match self.find(cookie) {
            Some(watched) => self.source.counters(&watched.namespace, watched.number),
            None => Ok(Counters::default()),
        }
    }

    /// Returns the packets since the last call, each with its namespace's cookie. Once a second, packets without a second event
    /// become misses: after 1 s on the way, 10 s in a socket.
    ///
    /// # Errors
    ///
    /// An error if the ring buffer cannot be read.
    pub fn read(&mut self) -> Result<Vec<(u64, Packet)>, PacketsError> {
        let mut records = self.source.records()?;
        if self.swept.elapsed() >= SWEEP_INTERVAL {
            self.swept = Instant::now();
            records.extend(self.source.sweep(monotonic()?, false)?);
        }
        Ok(self.take(&records))
    }

    /// Returns the last packets. Those still on their way are misses.
    ///
    /// # Errors
    ///
    /// An error if the ring buffer cannot be read.
    pub fn finish(&mut self) -> Result<Vec<(u64, Packet)>, PacketsError> {
        let mut records = self.source.records()?;
        records.extend(self.source.sweep(monotonic()?, true)?);
        Ok(self.take(&records))
    }

    fn take(&mut self, records: &[[u8; RECORD_LEN]]) -> Vec<(u64, Packet)> {
        let mut packets = Vec::with_capacity(records.len());
        for mut packet in records.iter().filter_map(|record| Packet::parse(record)) {
            let of = |watched: &&mut Watched| watched.number == packet.space;
            // The record's namespace is no longer watched.
            let Some(watched) = self.watched.iter_mut().find(of) else { continue };
            packet.virtual_ns = packet.latency_ns.and_then(|ns| watched.in_virtual_time(ns));
            watched.statistics.add(&packet);
            packets.push((watched.namespace.cookie, packet));
        }
        packets
    }

    /// Removes the namespaces that have ended, and returns them with the kernel's counters.
    ///
    /// # Errors
    ///
    /// An error if the kernel refuses.
    pub fn ended(&mut self) -> Result<Vec<(Watched, Counters)>, PacketsError> {
        let mut ended = Vec::new();
        while let Some(at) = self.watched.iter().position(|one| !one.namespace.is_alive()) {
            let watched = self.watched.remove(at);
            let counters = self.source.counters(&watched.namespace, watched.number)?;
            self.source.remove(&watched.namespace, watched.number)?;
            ended.push((watched, counters));
        }
        Ok(ended)
    }

    /// Checks that all outer devices still exist. A renamed device stays the same.
    ///
    /// # Errors
    ///
    /// [`PacketsError::DeviceGone`] if one is gone.
    pub fn check_outers(&self) -> Result<(), PacketsError> {
        match self.outers.iter().find(|outer| outer.name_now().is_none()) {
            Some(gone) => Err(PacketsError::DeviceGone(gone.name.clone())),
            None => Ok(()),
        }
    }
}

/// Whether a ring buffer may have `bytes` bytes: a power of two from 4096 to 1073741824.
pub fn is_ring_size(bytes: u32) -> bool {
    bytes.is_power_of_two() && RING_SIZES.contains(&bytes)
}

impl Watched {
    /// Converts a real duration, ns, to the container's virtual clock; none if it has no virtual clock.
    pub fn in_virtual_time(&self, nanos: u64) -> Option<u64> {
        self.to_virtual.as_ref().map(|clock| clock(nanos))
    }
}
