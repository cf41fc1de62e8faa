//! The BPF programs of `bpf/inband.bpf.c`: timestamps that travel with the packets, by tcx programs on the container's devices and
//! the outer ones.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::mpsc::{channel, Receiver};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, RingBuffer, RingBufferBuilder};
use libbpf_sys::{bpf_attach_type, BPF_TCX_EGRESS, BPF_TCX_INGRESS};

use crate::error::PacketsError;
use crate::host_clock::wall_offset;
use crate::namespace::{Namespace, OuterDevice};
use crate::record::RECORD_LEN;
use crate::source::{Counters, RecordSource};

mod program {
    #![allow(clippy::all, missing_docs, unreachable_pub, dead_code, unused_qualifications)]
    #![allow(clippy::undocumented_unsafe_blocks)]
    include!(concat!(env!("OUT_DIR"), "/inband.skel.rs"));
}
use program::{InbandSkel, InbandSkelBuilder};

/// Interface index of the loopback device, in every namespace.
const LOOPBACK_INDEX: u32 = 1;

/// The programs of one namespace.
struct InsidePrograms {
    skel: InbandSkel<'static>,
    /// Empty while it is off. The links end with their descriptors, however the process ends.
    links: Vec<OwnedFd>,
}

/// In-band measurement: timestamps in the packets themselves.
pub(crate) struct InBand {
    outer: InbandSkel<'static>,
    links: Vec<OwnedFd>,
    inside: HashMap<u16, InsidePrograms>,
    ring: RingBuffer<'static>,
    records: Receiver<[u8; RECORD_LEN]>,
}

impl InBand {
    /// Loads the programs of the outer devices, with a ring buffer of `ring` bytes.
    pub fn load(ring: u32) -> Result<InBand, PacketsError> {
        libbpf_rs::set_print(None);
        let mut open = InbandSkelBuilder::default().open(leak_uninit())?;
        open.maps.ring.set_max_entries(ring)?;
        let outer = open.load()?;
        let (sender, records) = channel();
        let mut builder = RingBufferBuilder::new();
        builder.add(&outer.maps.ring, move |bytes| {
            // The receiver lives as long as the ring buffer.
            let _ = bytes.get(..RECORD_LEN).and_then(|b| b.try_into().ok()).map(|b| sender.send(b));
            0
        })?;
        let ring = builder.build()?;
        let in_band = InBand { outer, links: Vec::new(), inside: HashMap::new(), ring, records };
        in_band.set_clock()?;
        Ok(in_band)
    }

    /// Writes the offset of the wall clock into the programs' map.
    fn set_clock(&self) -> Result<(), PacketsError> {
        let offset = wall_offset()?.to_ne_bytes();
        let map = &self.outer.maps.wall_offset;
        Ok(map.update(&0_u32.to_ne_bytes(), &offset, MapFlags::ANY)?)
    }

    /// Loads the programs for one namespace, on the same maps.
    fn programs_of(&self, number: u16) -> Result<InbandSkel<'static>, PacketsError> {
        let mut open = InbandSkelBuilder::default().open(leak_uninit())?;
        if let Some(data) = open.maps.rodata_data.as_deref_mut() {
            data.space = number;
        }
        open.maps.ring.reuse_fd(self.outer.maps.ring.as_fd())?;
        open.maps.counts.reuse_fd(self.outer.maps.counts.as_fd())?;
        open.maps.wall_offset.reuse_fd(self.outer.maps.wall_offset.as_fd())?;
        Ok(open.load()?)
    }

    fn clear_counts(&self, number: u16) -> Result<(), PacketsError> {
        let key = u32::from(number).to_ne_bytes();
        Ok(self.outer.maps.counts.update(&key, &[0; 16], MapFlags::ANY)?)
    }
}

/// Allocates memory for a skeleton. The memory is never freed.
fn leak_uninit<T>() -> &'static mut MaybeUninit<T> {
    Box::leak(Box::new(MaybeUninit::uninit()))
}

/// Attaches `program` to the device with index `device` in this thread's network namespace.
fn attach(program: RawFd, device: u32, kind: bpf_attach_type) -> io::Result<OwnedFd> {
    // SAFETY: the arguments are plain numbers, and there are no options.
    let link =
        unsafe { libbpf_sys::bpf_link_create(program, device as i32, kind, std::ptr::null()) };
    if link < 0 {
        return Err(io::Error::from_raw_os_error(-link));
    }
    // SAFETY: the kernel has just made the descriptor; nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
}

/// Attaches both programs to each of this thread's devices.
fn attach_inside(leave: RawFd, arrive: RawFd) -> io::Result<Vec<OwnedFd>> {
    let mut links = Vec::new();
    for device in nix::net::if_::if_nameindex()?.iter() {
        if device.index() != LOOPBACK_INDEX {
            links.push(attach(leave, device.index(), BPF_TCX_EGRESS)?);
            links.push(attach(arrive, device.index(), BPF_TCX_INGRESS)?);
        }
    }
    Ok(links)
}

fn number_of(program: &impl AsFd) -> RawFd {
    let fd: BorrowedFd<'_> = program.as_fd();
    fd.as_raw_fd()
}

impl RecordSource for InBand {
    fn add_outer(&mut self, device: &OuterDevice, _: u64) -> Result<(), PacketsError> {
        let programs = &self.outer.progs;
        let (leave, arrive) = (number_of(&programs.leave_outer), number_of(&programs.arrive_outer));
        self.links.push(attach(leave, device.number, BPF_TCX_EGRESS)?);
        self.links.push(attach(arrive, device.number, BPF_TCX_INGRESS)?);
        Ok(())
    }

    fn add(&mut self, namespace: &Namespace, number: u16) -> Result<(), PacketsError> {
        self.clear_counts(number)?;
        if !self.inside.contains_key(&number) {
            let skel = self.programs_of(number)?;
            self.inside.insert(number, InsidePrograms { skel, links: Vec::new() });
        }
        self.switch(namespace, number, true)
    }

    fn remove(&mut self, _: &Namespace, number: u16) -> Result<(), PacketsError> {
        self.inside.remove(&number);
        Ok(())
    }

    fn switch(&mut self, namespace: &Namespace, number: u16, on: bool) -> Result<(), PacketsError> {
        let Some(inside) = self.inside.get_mut(&number) else { return Ok(()) };
        if !on {
            inside.links.clear();
        } else if inside.links.is_empty() {
            let programs = &inside.skel.progs;
            let (leave, arrive) =
                (number_of(&programs.leave_inside), number_of(&programs.arrive_inside));
            inside.links = namespace.inside(move || attach_inside(leave, arrive))?;
        }
        Ok(())
    }

    fn counters(&self, _: &Namespace, number: u16) -> Result<Counters, PacketsError> {
        let key = u32::from(number).to_ne_bytes();
        let value = self.outer.maps.counts.lookup(&key, MapFlags::ANY)?.unwrap_or_default();
        let count = |at: usize| {
            let bytes = value.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u64::from_ne_bytes)
        };
        Ok(Counters { dropped: count(0), unclaimed: count(8), ..Counters::default() })
    }

    fn records(&mut self) -> Result<Vec<[u8; RECORD_LEN]>, PacketsError> {
        self.ring.consume()?;
        Ok(self.records.try_iter().collect())
    }

    fn sweep(&mut self, _: u64, _: bool) -> Result<Vec<[u8; RECORD_LEN]>, PacketsError> {
        // No packet waits in a table. But the wall clock may have been set.
        self.set_clock()?;
        Ok(Vec::new())
    }
}
