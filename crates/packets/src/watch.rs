//! A watcher: some namespaces, the outer devices, the packets between them.

use std::time::{Duration, Instant};

use nix::time::{clock_gettime, ClockId};

use crate::fault::PacketsError;
use crate::inband::InBand;
use crate::kernel::{Counters, Programs};
use crate::namespace::{cookie_here, Namespace, OuterDevice};
use crate::record::{Packet, RECORD};
use crate::source::Source;
use crate::statistics::Statistics;

/// The ring's size in bytes unless another is asked for: room for 16,000 packets.
pub const DEFAULT_RING: u32 = 1 << 20;
const RING_SIZES: std::ops::RangeInclusive<u32> = 1 << 12..=1 << 30;
const MOST: usize = 1024;
const SWEEP: Duration = Duration::from_secs(1);

/// How many ns pass on a container's virtual clock while so many pass really.
pub type ToVirtual = Box<dyn Fn(u64) -> u64>;

/// A namespace that is watched.
pub struct Watched {
    /// Which.
    pub namespace: Namespace,
    /// Whether it is, at the moment.
    pub on: bool,
    /// Its packets, since it was watched or since the last reset.
    pub statistics: Statistics,
    number: u16,
    to_virtual: Option<ToVirtual>,
}

/// How packets are followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// By tracepoints, from call to outer device and back.
    Traced,
    /// By stamps in the packets, from the container's device to the outer one and back.
    InBand,
}

/// Watches namespaces until it is dropped.
pub struct Watcher {
    source: Box<dyn Source>,
    outers: Vec<OuterDevice>,
    watched: Vec<Watched>,
    next: u16,
    swept: Instant,
}

impl Watcher {
    /// Watches nobody yet; containers' stacks end at `outers`, devices of the network namespace this process is in. `ring` is
    /// the size in bytes of the ring that takes the records until they are read, a power of two.
    ///
    /// # Errors
    ///
    /// Where the size cannot be, or the kernel does not take the programs.
    pub fn new(outers: Vec<OuterDevice>, way: Way, ring: u32) -> Result<Watcher, PacketsError> {
        if !is_ring_size(ring) {
            return Err(PacketsError::RingSize(ring));
        }
        let mut source: Box<dyn Source> = match way {
            Way::Traced => Box::new(Programs::load(ring)?),
            Way::InBand => Box::new(InBand::load(ring)?),
        };
        let cookie = cookie_here()?;
        for outer in &outers {
            source.add_outer(outer, cookie)?;
        }
        let watched = Vec::new();
        Ok(Watcher { source, outers, watched, next: 0, swept: Instant::now() })
    }

    /// Watches `namespace` too; latencies are told in its virtual time as well, where `to_virtual` is given.
    ///
    /// # Errors
    ///
    /// Where it is watched already, or too many are.
    pub fn add(
        &mut self,
        namespace: Namespace,
        to_virtual: Option<ToVirtual>,
    ) -> Result<(), PacketsError> {
        if self.find(namespace.cookie).is_some() {
            return Err(PacketsError::Twice(namespace.name));
        }
        let taken = |number: u16| self.watched.iter().any(|watched| watched.number == number);
        let all = (0..MOST as u16).map(|more| (self.next + more) % MOST as u16);
        let Some(number) = all.into_iter().find(|&number| !taken(number)) else {
            return Err(PacketsError::TooMany(namespace.name));
        };
        // Records on their way may still bear the number of one that has gone: it is used again late.
        self.next = (number + 1) % MOST as u16;
        self.source.add(&namespace, number)?;
        let statistics = Statistics::default();
        self.watched.push(Watched { namespace, on: true, statistics, number, to_virtual });
        Ok(())
    }

    /// What is watched.
    pub fn watched(&self) -> &[Watched] {
        &self.watched
    }

    /// The outer devices.
    pub fn outers(&self) -> &[OuterDevice] {
        &self.outers
    }

    /// What is known of the namespace with this cookie, if it is watched.
    pub fn find(&self, cookie: u64) -> Option<&Watched> {
        self.watched.iter().find(|watched| watched.namespace.cookie == cookie)
    }

    /// Goes on watching the namespace with this cookie, or stops for now. What was counted stays.
    ///
    /// # Errors
    ///
    /// Where the kernel does not let it.
    pub fn switch(&mut self, cookie: u64, on: bool) -> Result<(), PacketsError> {
        let found = self.watched.iter_mut().find(|watched| watched.namespace.cookie == cookie);
        let Some(watched) = found else { return Ok(()) };
        watched.on = on;
        self.source.switch(&watched.namespace, watched.number, on)
    }

    /// Counts the packets of the namespace with this cookie from nothing.
    ///
    /// # Errors
    ///
    /// Where the kernel does not let it.
    pub fn reset(&mut self, cookie: u64) -> Result<(), PacketsError> {
        // What is still in the ring is of before.
        self.read()?;
        let found = self.watched.iter_mut().find(|watched| watched.namespace.cookie == cookie);
        let Some(watched) = found else { return Ok(()) };
        watched.statistics = Statistics::default();
        self.source.add(&watched.namespace, watched.number)?;
        self.source.switch(&watched.namespace, watched.number, watched.on)
    }

    /// What the kernel counted for the namespace with this cookie.
    ///
    /// # Errors
    ///
    /// Where the kernel does not tell.
    pub fn counters(&self, cookie: u64) -> Result<Counters, PacketsError> {
        match self.find(cookie) {
            Some(watched) => self.source.counters(&watched.namespace, watched.number),
            None => Ok(Counters::default()),
        }
    }

    /// Packets since the last time, each with the namespace it belongs to. Once a second those that nothing has been heard
    /// of for long are told as misses: 1 s on the way, 10 s in a socket.
    ///
    /// # Errors
    ///
    /// Where the ring cannot be read.
    pub fn read(&mut self) -> Result<Vec<(u64, Packet)>, PacketsError> {
        let mut records = self.source.records()?;
        if self.swept.elapsed() >= SWEEP {
            self.swept = Instant::now();
            records.extend(self.source.sweep(monotonic()?, false)?);
        }
        Ok(self.take(&records))
    }

    /// Ends with what is still on its way, as misses.
    ///
    /// # Errors
    ///
    /// Where the ring cannot be read.
    pub fn finish(&mut self) -> Result<Vec<(u64, Packet)>, PacketsError> {
        let mut records = self.source.records()?;
        records.extend(self.source.sweep(monotonic()?, true)?);
        Ok(self.take(&records))
    }

    fn take(&mut self, records: &[[u8; RECORD]]) -> Vec<(u64, Packet)> {
        let mut packets = Vec::with_capacity(records.len());
        for mut packet in records.iter().filter_map(|record| Packet::parse(record)) {
            let of = |watched: &&mut Watched| watched.number == packet.space;
            // Of one that has gone.
            let Some(watched) = self.watched.iter_mut().find(of) else { continue };
            packet.virtual_ns = packet.latency_ns.and_then(|ns| watched.in_virtual_time(ns));
            watched.statistics.add(&packet);
            packets.push((watched.namespace.cookie, packet));
        }
        packets
    }

    /// Those of the watched that have ended, with what the kernel counted for them; they are watched no more.
    ///
    /// # Errors
    ///
    /// Where the kernel does not let it.
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

    /// Refuses to go on once an outer device is gone; one that is renamed stays the same.
    ///
    /// # Errors
    ///
    /// [`PacketsError::DeviceGone`].
    pub fn check_outers(&self) -> Result<(), PacketsError> {
        match self.outers.iter().find(|outer| outer.name_now().is_none()) {
            Some(gone) => Err(PacketsError::DeviceGone(gone.name.clone())),
            None => Ok(()),
        }
    }
}

/// Whether a ring may have so many bytes: a power of two from 4096 to 1073741824.
pub fn is_ring_size(bytes: u32) -> bool {
    bytes.is_power_of_two() && RING_SIZES.contains(&bytes)
}

impl Watched {
    /// So many real ns on the container's virtual clock, where it has one.
    pub fn in_virtual_time(&self, nanos: u64) -> Option<u64> {
        self.to_virtual.as_ref().map(|clock| clock(nanos))
    }
}

/// CLOCK_MONOTONIC in ns.
///
/// # Errors
///
/// None on Linux.
pub(crate) fn monotonic() -> Result<u64, PacketsError> {
    nanos(ClockId::CLOCK_MONOTONIC)
}

/// How far CLOCK_REALTIME is ahead of CLOCK_MONOTONIC, in ns, as packets' times are told.
///
/// # Errors
///
/// None on Linux.
pub fn wall_offset() -> Result<u64, PacketsError> {
    Ok(nanos(ClockId::CLOCK_REALTIME)?.saturating_sub(monotonic()?))
}

fn nanos(clock: ClockId) -> Result<u64, PacketsError> {
    let time = clock_gettime(clock).map_err(std::io::Error::from)?;
    Ok(Duration::from(time).as_nanos() as u64)
}
