//! The BPF programs of `bpf/packets.bpf.c`: loading, attaching, the watched namespaces, and the kernel's counters.

use std::mem::MaybeUninit;

use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapImpl, RingBuffer, RingBufferBuilder};
use std::sync::mpsc::{channel, Receiver};

use crate::error::PacketsError;
use crate::namespace::{Namespace, OuterDevice};
use crate::record::RECORD_LEN;
use crate::source::{Counters, RecordSource};

mod program {
    #![allow(clippy::all, missing_docs, unreachable_pub, dead_code, unused_qualifications)]
    #![allow(clippy::undocumented_unsafe_blocks)]
    include!(concat!(env!("OUT_DIR"), "/packets.skel.rs"));
}
use program::{PacketsSkel, PacketsSkelBuilder};

/// Time in ns that a packet may take between devices before it counts as lost.
const DEVICE_TIMEOUT: u64 = 1_000_000_000;
/// Time in ns that a packet may wait in a socket before it counts as unread.
const READ_TIMEOUT: u64 = 10_000_000_000;
/// Reasons of a miss, numbered as in `bpf/tables.h`.
const UNREAD: u8 = 1;
const LOST: u8 = 6;
/// Size of `struct space`, bytes.
const SPACE_LEN: usize = 48;
/// Offset of flags and reason in a record.
const FLAGS_OFFSET: usize = 39;
/// Offset, in a table's value, of the word that says whether the entry is done: behind record and mark.
const DONE_OFFSET: usize = RECORD_LEN + 16;

/// The loaded programs. They are detached when this value is dropped. The kernel detaches them when the process ends, however it
/// ends.
pub(crate) struct Tracepoints {
    skel: PacketsSkel<'static>,
    ring: RingBuffer<'static>,
    records: Receiver<[u8; RECORD_LEN]>,
}

impl Tracepoints {
    /// Loads and attaches the programs, with a ring buffer of `ring` bytes. They watch no namespace yet.
    pub fn load(ring: u32) -> libbpf_rs::Result<Tracepoints> {
        libbpf_rs::set_print(None);
        // The memory is never freed.
        let object = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = PacketsSkelBuilder::default().open(object)?;
        open.maps.ring.set_max_entries(ring)?;
        let mut skel = open.load()?;
        skel.attach()?;
        let (sender, records) = channel();
        let mut builder = RingBufferBuilder::new();
        builder.add(&skel.maps.ring, move |bytes| {
            // The receiver lives as long as the ring buffer.
            let _ = bytes.get(..RECORD_LEN).and_then(|b| b.try_into().ok()).map(|b| sender.send(b));
            0
        })?;
        let ring = builder.build()?;
        Ok(Tracepoints { skel, ring, records })
    }

    fn write(&self, cookie: u64, number: u16, on: bool, was: Counters) -> Result<(), PacketsError> {
        let mut value = Vec::with_capacity(SPACE_LEN);
        value.extend(u32::from(on).to_ne_bytes());
        value.extend(u32::from(number).to_ne_bytes());
        value.extend(cookie.to_ne_bytes());
        for count in [was.dropped, was.full, was.unclaimed, was.inside] {
            value.extend(count.to_ne_bytes());
        }
        let number = u32::from(number).to_ne_bytes();
        Ok(self.skel.maps.numbered.update(&number, &value, MapFlags::ANY)?)
    }
}

impl RecordSource for Tracepoints {
    fn add_outer(&mut self, device: &OuterDevice, cookie: u64) -> Result<(), PacketsError> {
        let Some(shared) = self.skel.maps.bss_data.as_deref_mut() else { return Ok(()) };
        let Some(free) = shared.outer_devices.iter().position(|&number| number == 0) else {
            return Err(PacketsError::TooManyDevices(shared.outer_devices.len()));
        };
        // Write the device's index last: the programs use the entry once the index is set.
        shared.outer_cookies[free] = cookie;
        shared.outer_devices[free] = device.number;
        Ok(())
    }

    fn add(&mut self, namespace: &Namespace, number: u16) -> Result<(), PacketsError> {
        let cookie = namespace.cookie;
        self.write(cookie, number, true, Counters::default())?;
        let value = u32::from(number).to_ne_bytes();
        self.skel.maps.spaces.update(&cookie.to_ne_bytes(), &value, MapFlags::ANY)?;
        if let Some(shared) = self.skel.maps.bss_data.as_deref_mut() {
            let place = (cookie % shared.place_cookies.len() as u64) as usize;
            // The place stays taken. The BPF programs look up any further namespace whose cookie has the same remainder in the map.
            if [0, cookie].contains(&shared.place_cookies[place]) {
                shared.place_numbers[place] = number.into();
                shared.place_cookies[place] = cookie;
            }
        }
        Ok(())
    }

    fn remove(&mut self, namespace: &Namespace, number: u16) -> Result<(), PacketsError> {
        self.skel.maps.spaces.delete(&namespace.cookie.to_ne_bytes())?;
        self.write(0, number, false, Counters::default())
    }

    fn switch(&mut self, namespace: &Namespace, number: u16, on: bool) -> Result<(), PacketsError> {
        self.write(namespace.cookie, number, on, self.counters(namespace, number)?)
    }

    fn counters(&self, _: &Namespace, number: u16) -> Result<Counters, PacketsError> {
        let number = u32::from(number).to_ne_bytes();
        let value = self.skel.maps.numbered.lookup(&number, MapFlags::ANY)?;
        let value = value.unwrap_or_default();
        let count = |at: usize| word_at(&value, at).unwrap_or(0);
        Ok(Counters {
            dropped: count(16),
            full: count(24),
            unclaimed: count(32),
            inside: count(40),
        })
    }

    fn records(&mut self) -> Result<Vec<[u8; RECORD_LEN]>, PacketsError> {
        self.ring.consume()?;
        Ok(self.records.try_iter().collect())
    }

    fn sweep(&mut self, now: u64, all: bool) -> Result<Vec<[u8; RECORD_LEN]>, PacketsError> {
        let maps = &self.skel.maps;
        let limit = |age: u64| if all { now } else { now.saturating_sub(age) };
        let miss = |value: &[u8], reason: u8| -> Option<[u8; RECORD_LEN]> {
            let mut record: [u8; RECORD_LEN] = value.get(..RECORD_LEN)?.try_into().ok()?;
            record[FLAGS_OFFSET] = record[FLAGS_OFFSET] & 0xf | reason << 4;
            Some(record)
        };
        let mut misses = Vec::new();
        // `outer` is the time at which it left, until the packet reaches the outer device.
        for value in take_older(&maps.leaving, 0, limit(DEVICE_TIMEOUT)) {
            let seen = word_at(&value, DONE_OFFSET).is_none_or(|socket| socket == 0);
            misses.extend((!seen).then(|| miss(&value, LOST)).flatten());
        }
        take_older(&maps.arrived, 0, limit(DEVICE_TIMEOUT));
        for value in take_older(&maps.delivered, 0, limit(READ_TIMEOUT)) {
            let read = word_at(&value, DONE_OFFSET).is_none_or(|read| read != 0);
            misses.extend((!read).then(|| miss(&value, UNREAD)).flatten());
        }
        Ok(misses)
    }
}

fn word_at(value: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(value.get(at..at + 8)?.try_into().ok()?))
}

/// Removes the entries of `map` whose time, at byte `at` of the value, is before `limit`. Returns their values.
fn take_older(map: &MapImpl<'_>, at: usize, limit: u64) -> Vec<Vec<u8>> {
    let old = |key: &Vec<u8>| {
        let value = map.lookup(key, MapFlags::ANY).ok()??;
        word_at(&value, at).is_some_and(|time| time < limit).then_some(value)
    };
    let keys: Vec<Vec<u8>> = map.keys().collect();
    let old = keys.into_iter().filter_map(|key| Some((old(&key)?, key)));
    // Race: a BPF program takes an entry. This loop then finds it gone. Therefore only deleted entries are returned.
    old.filter(|(_, key)| map.delete(key).is_ok()).map(|(value, _)| value).collect()
}
