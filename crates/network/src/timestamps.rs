//! Timestamps of frames that leave their nodes, to the nanosecond of the host's clock. A BPF program (`bpf/stamp.bpf.c`) takes each
//! as the kernel puts the frame into its TAP device, however late the emulator reads the frame.

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
pub(crate) struct FrameTimestamps {
    skel: StampSkel<'static>,
}

impl FrameTimestamps {
    /// Starts to timestamp the frames of `tap`, which must be empty.
    ///
    /// # Errors
    ///
    /// If the kernel does not allow it: it needs root.
    pub fn of(tap: &Tap) -> anyhow::Result<FrameTimestamps> {
        libbpf_rs::set_print(None);
        // Leaked: the object stays as long as the process, one small piece for each interface.
        let memory = Box::leak(Box::new(MaybeUninit::uninit()));
        let skel = StampSkelBuilder::default().open(memory)?.load()?;
        tap.set_bpf_filter(skel.progs.stamp.as_fd().as_raw_fd())?;
        Ok(FrameTimestamps { skel })
    }

    /// Returns the timestamp of the next frame. Call it once for each frame, just after the frame was read.
    pub fn next(&self) -> Option<RealInstant> {
        let value = self.skel.maps.stamps.lookup_and_delete(&[]).ok()??;
        Some(RealInstant(i64::from_ne_bytes(value.try_into().ok()?)))
    }
}
