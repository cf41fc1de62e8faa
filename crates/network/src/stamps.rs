//! When each frame left its node, to the nanosecond of the host's clock: noted by the kernel as the frame is put into its TAP device, by a BPF
//! program (`bpf/stamp.bpf.c`), however late it is read.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::MapCore;
use lorentz_clock::RealInstant;

use crate::tap::Tap;

mod program {
    #![allow(clippy::all, missing_docs, unreachable_pub, dead_code)]
    #![allow(clippy::undocumented_unsafe_blocks)]
    include!(concat!(env!("OUT_DIR"), "/stamp.skel.rs"));
}
use program::{StampSkel, StampSkelBuilder};

/// The instants at which frames were put into one TAP device.
pub(crate) struct Stamps {
    skel: StampSkel<'static>,
}

impl Stamps {
    /// Has the frames of `tap` stamped from here on. None may be in it.
    ///
    /// # Errors
    ///
    /// Where the kernel does not let it: that needs root.
    pub fn of(tap: &Tap) -> anyhow::Result<Stamps> {
        libbpf_rs::set_print(None);
        // It is kept as long as the program is, in one small piece for each interface.
        let place = Box::leak(Box::new(MaybeUninit::uninit()));
        let skel = StampSkelBuilder::default().open(place)?.load()?;
        tap.filter_by(skel.progs.stamp.as_fd().as_raw_fd())?;
        Ok(Stamps { skel })
    }

    /// That of the next frame, to whoever has just read it.
    pub fn next(&self) -> Option<RealInstant> {
        let value = self.skel.maps.stamps.lookup_and_delete(&[]).ok()??;
        Some(RealInstant(i64::from_ne_bytes(value.try_into().ok()?)))
    }
}
