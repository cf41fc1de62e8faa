//! A path without a network: one bottleneck that serves packets in order, with cross traffic.

use crate::path::{Limits, Path, PathError, Probe, Stream, StreamPlan};
use crate::rate::BitRate;

/// The properties of a simulated path.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// Capacity of the bottleneck.
    pub capacity: BitRate,
    /// Rate of the cross traffic: packets of 1500 bytes at random times (Poisson).
    pub cross: BitRate,
    /// Length of the queue before the bottleneck, bytes. A packet that finds it full is lost.
    pub queue: u64,
    /// Mean delay of the receiver's timestamps, ns (exponentially distributed).
    pub jitter: f64,
    /// Resolution of the receiver's clock, ns.
    pub grain: i64,
    /// Shortest time in which the sender can send a packet, ns.
    pub least_interval: u64,
    /// Share of probes that are lost at random, 0 to 1.
    pub loss: f64,
    /// Share of streams in which the sender's machine interrupts the sender, at random, 0 to 1.
    pub interrupted: f64,
    /// The interruptions of such a stream.
    pub interruptions: Interruptions,
    /// The times at which the bottleneck delivers nothing, if there are any.
    pub stalls: Option<Stalls>,
    /// The highest rate that is probed.
    pub rate_max: BitRate,
    /// Length of the longest packet, bytes.
    pub most_bytes: u32,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// Pauses of the sender within a stream. As with the real sender, each pause moves all later probes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Interruptions {
    /// Mean time of sending between two pauses, ns (exponentially distributed).
    pub every: f64,
    /// Mean length of a pause, ns (uniformly distributed from half to one and a half times as long).
    pub pause: f64,
}

impl Interruptions {
    /// Another program has the processor for some milliseconds. No long stretch of the stream is left.
    pub const LONG: Interruptions = Interruptions { every: 2.5e6, pause: 4e6 };
    /// Short pauses that do not end a stretch. They make the stream slower than planned.
    pub const SHORT: Interruptions = Interruptions { every: 800e3, pause: 400e3 };
}

/// Times at which the program that emulates the bottleneck has no processor. Packets that should have left the bottleneck meanwhile
/// leave at the end, all at once.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Stalls {
    /// Mean time between two stalls, ns (exponentially distributed).
    pub every: f64,
    /// Mean length of a stall, ns (uniformly distributed from nothing to twice as long).
    pub length: f64,
}

impl Model {
    /// Makes a path of these rates, with no disturbance but its cross traffic.
    pub fn new(capacity: BitRate, cross: BitRate) -> Model {
        Model {
            capacity,
            cross,
            queue: (capacity.0 / 8 / 10).max(64_000),
            jitter: 500.0,
            grain: 1,
            least_interval: 0,
            loss: 0.0,
            interrupted: 0.0,
            interruptions: Interruptions::LONG,
            stalls: None,
            rate_max: BitRate(capacity.0 * 2),
            most_bytes: 1500,
            seed: 1,
        }
    }

    /// Returns the available bandwidth, bits per second.
    pub fn available(&self) -> f64 {
        self.capacity.as_f64() - self.cross.as_f64()
    }
}

/// The simulated path, with its own time.
#[derive(Debug)]
pub struct Simulation {
    model: Model,
    now: f64,
    /// Time at which the bottleneck has served all waiting packets, ns.
    free: f64,
    next_cross: f64,
    /// The last stall, or the next one: its beginning and its end, ns.
    stall: (f64, f64),
    random: u64,
}

const CROSS_BYTES: f64 = 1500.0;
/// Time at which the simulation begins, ns.
const BEGINNING: f64 = 1e9;
/// Offset of the receiver's clock to the sender's, ns.
const OFFSET: f64 = 123_456_789_000.0;

impl Simulation {
    /// Makes a path without waiting packets.
    pub fn new(model: Model) -> Simulation {
        // Without the mixing, the numbers of one seed would be those of the next seed, one later.
        let random = mix(model.seed);
        Simulation { model, now: BEGINNING, free: 0.0, next_cross: 0.0, stall: (0.0, 0.0), random }
    }

    /// Returns a random number between 0 and 1 (splitmix64).
    fn uniform(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        (mix(self.random) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.uniform()).ln()
    }

    fn service(&self, bytes: f64) -> f64 {
        bytes * 8e9 / self.model.capacity.as_f64()
    }

    fn waiting_bytes(&self, at: f64) -> f64 {
        (self.free - at).max(0.0) * self.model.capacity.as_f64() / 8e9
    }

    /// Puts a packet into the bottleneck. Returns when it leaves; `None` if the queue is full.
    fn serve(&mut self, at: f64, bytes: f64) -> Option<f64> {
        if self.waiting_bytes(at) + bytes > self.model.queue as f64 {
            return None;
        }
        self.free = self.free.max(at) + self.service(bytes);
        Some(self.free)
    }

    fn cross_until(&mut self, at: f64) {
        let cross = self.model.cross.as_f64();
        if cross == 0.0 {
            return;
        }
        let mean = CROSS_BYTES * 8e9 / cross;
        // Cross traffic that came long ago cannot be waiting any more.
        self.next_cross = self.next_cross.max(self.now - 1e9);
        while self.next_cross <= at {
            self.serve(self.next_cross, CROSS_BYTES);
            self.next_cross += self.exponential(mean);
        }
    }

    /// Returns the times at which the sender sends.
    fn times(&mut self, start: f64, interval: f64, packets: u32) -> Vec<f64> {
        let Interruptions { every, pause } = self.model.interruptions;
        // A model without interruptions draws no random number for them.
        let is_interrupted =
            self.model.interrupted > 0.0 && self.uniform() < self.model.interrupted;
        let (mut late, mut next_pause) = (0.0, f64::INFINITY);
        if is_interrupted {
            next_pause = self.exponential(every);
        }
        let mut times = Vec::with_capacity(packets as usize);
        for number in 0..packets {
            let sending = interval * f64::from(number);
            while sending >= next_pause {
                late += pause * (0.5 + self.uniform());
                next_pause += self.exponential(every);
            }
            times.push(start + late + sending);
        }
        times
    }

    /// Returns when a packet is delivered that leaves the bottleneck at `leaves`. Packets are asked for in order.
    fn delivered(&mut self, leaves: f64) -> f64 {
        let Some(Stalls { every, length }) = self.model.stalls else { return leaves };
        while leaves > self.stall.1 {
            let begin = self.stall.1 + self.exponential(every);
            self.stall = (begin, begin + 2.0 * length * self.uniform());
        }
        if leaves < self.stall.0 {
            leaves
        } else {
            self.stall.1
        }
    }

    /// Returns the time since the simulation began, ns.
    pub fn elapsed(&self) -> f64 {
        self.now - BEGINNING
    }

    fn send(&mut self, at: f64, bytes: u32) -> Probe {
        self.cross_until(at);
        let served = self.serve(at, f64::from(bytes));
        let lost = self.uniform() < self.model.loss;
        let late = self.exponential(self.model.jitter.max(1e-9));
        let stamp = served.filter(|_| !lost).map(|leaves| {
            let grain = self.model.grain.max(1);
            (self.delivered(leaves) + OFFSET + late) as i64 / grain * grain
        });
        Probe { sent: at as i64, received: stamp }
    }
}

/// The last step of splitmix64.
fn mix(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

impl Path for Simulation {
    fn limits(&self) -> Limits {
        let Model { most_bytes, rate_max, .. } = self.model;
        Limits { most_bytes, rate_max, most_packets: 8_000 }
    }

    fn probe(&mut self, plan: &StreamPlan) -> Result<Stream, PathError> {
        let start = self.now + plan.rest as f64 + 1e6;
        let interval = plan.interval.max(self.model.least_interval) as f64;
        let times = self.times(start, interval, plan.packets);
        let end = times.last().copied().unwrap_or(start) + interval;
        let mut probes: Vec<Probe> = Vec::new();
        for at in times {
            probes.push(self.send(at, plan.bytes));
        }
        self.now = end;
        // There is one queue, in order, so the timestamps are in order too.
        let mut latest = i64::MIN;
        for received in probes.iter_mut().filter_map(|probe| probe.received.as_mut()) {
            latest = latest.max(*received);
            *received = latest;
        }
        Ok(Stream { plan: *plan, probes, reordered: 0, overrun: 0 })
    }
}
