//! The queue before the wire, and its rules for dropping frames.

use std::collections::VecDeque;

use lorentz_clock::{Span, VirtualInstant};

use super::ecn;
use super::rng::LinkRng;
use crate::impair::{Discipline, Queue};

/// A frame: its bytes, from the destination address on, without checksum.
pub type Frame = Box<[u8]>;

/// The waiting frames of one direction.
#[derive(Debug, Default)]
pub struct FrameQueue {
    frames: VecDeque<(VirtualInstant, Frame)>,
    bytes: u64,
    /// Frames marked so far, in place of a drop.
    marked: u64,
    red: Red,
    codel: Codel,
}

impl FrameQueue {
    /// Number of waiting frames.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Number of frames that were marked in place of a drop.
    pub fn marked(&self) -> u64 {
        self.marked
    }

    /// Adds `frame` to the queue at `now`. Returns false if the queue drops it.
    pub fn push(
        &mut self,
        mut frame: Frame,
        now: VirtualInstant,
        queue: &Queue,
        rng: &mut LinkRng,
    ) -> bool {
        let size = frame.len() as u64;
        let is_full = self.frames.len() as u64 >= queue.max_packets()
            || self.bytes + size > queue.max_bytes();
        let early = queue.discipline == Discipline::Red && self.red.drops(self.bytes, queue, rng);
        if is_full || (early && !self.marks(&mut frame, queue)) {
            return false;
        }
        self.bytes += size;
        self.frames.push_back((now, frame));
        true
    }

    /// Takes the next frame to be sent at `now`. Also returns how many frames were dropped before it.
    pub fn pop(&mut self, now: VirtualInstant, queue: &Queue) -> (Option<Frame>, u64) {
        if queue.discipline != Discipline::Codel {
            return (self.take().map(|(_, frame)| frame), 0);
        }
        let mut dropped = 0;
        while let Some((since, mut frame)) = self.take() {
            let is_last = self.frames.is_empty();
            let drops = !is_last && self.codel.drops(now.since(since), now, queue.codel());
            if !drops || self.marks(&mut frame, queue) {
                return (Some(frame), dropped);
            }
            dropped += 1;
        }
        (None, dropped)
    }

    /// Drops all frames, and returns their number.
    pub fn clear(&mut self) -> u64 {
        let count = self.frames.len() as u64;
        *self = FrameQueue { marked: self.marked, ..FrameQueue::default() };
        count
    }

    /// Marks a frame that the discipline would drop. Returns false if it is to be dropped.
    fn marks(&mut self, frame: &mut Frame, queue: &Queue) -> bool {
        let marks = queue.ecn && ecn::mark(frame);
        self.marked += u64::from(marks);
        marks
    }

    fn take(&mut self) -> Option<(VirtualInstant, Frame)> {
        let (since, frame) = self.frames.pop_front()?;
        self.bytes -= frame.len() as u64;
        Some((since, frame))
    }
}

/// Random early detection after Floyd and Jacobson, 1993.
#[derive(Debug, Default)]
struct Red {
    /// Waiting bytes, as a moving average over arrivals.
    average: f64,
    /// Frames let in since the last drop.
    since_drop: f64,
}

impl Red {
    fn drops(&mut self, bytes: u64, queue: &Queue, rng: &mut LinkRng) -> bool {
        const WEIGHT: f64 = 0.002;
        // An idle wire empties the average too: a frame that arrives at an empty queue starts it anew.
        self.average = match bytes {
            0 => 0.0,
            bytes => self.average + WEIGHT * (bytes as f64 - self.average),
        };
        let (min, max, probability) = queue.red();
        if self.average < min {
            self.since_drop = 0.0;
            return false;
        }
        let base = probability * (self.average - min) / (max - min);
        // Spaces drops evenly: the probability grows with each frame let in.
        let chance = base / (1.0 - self.since_drop * base).max(base);
        let drops = self.average >= max || rng.fraction() < chance;
        self.since_drop = if drops { 0.0 } else { self.since_drop + 1.0 };
        drops
    }
}

/// Controlled delay, RFC 8289.
#[derive(Debug, Default)]
struct Codel {
    /// The instant at which a wait above the target will have lasted too long.
    first_above: Option<VirtualInstant>,
    dropping: bool,
    next_drop: VirtualInstant,
    count: u32,
    last_count: u32,
}

impl Codel {
    /// Whether the queue drops the frame at its head, which has waited for `wait`.
    fn drops(&mut self, wait: Span, now: VirtualInstant, (target, interval): (Span, Span)) -> bool {
        if wait < target {
            self.first_above = None;
            self.dropping = false;
            return false;
        }
        let due = *self.first_above.get_or_insert(now.plus(interval));
        if now < due {
            return false;
        }
        if !self.dropping {
            self.dropping = true;
            // If the last dropping phase ended recently, goes on at about its frequency.
            let fresh = self.count - self.last_count;
            let lately = now.since(self.next_drop).0 < interval.0.saturating_mul(16);
            self.count = if fresh > 1 && lately { fresh } else { 1 };
            self.last_count = self.count;
            self.next_drop = self.after(now, interval);
            return true;
        }
        if now < self.next_drop {
            return false;
        }
        self.count = self.count.saturating_add(1);
        self.next_drop = self.after(self.next_drop, interval);
        true
    }

    fn after(&self, from: VirtualInstant, interval: Span) -> VirtualInstant {
        from.plus(Span((interval.0 as f64 / f64::from(self.count).sqrt()) as i64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(size: usize) -> Frame {
        vec![0; size].into()
    }

    fn queue(text: &str) -> Queue {
        serde_saphyr::from_str(text).unwrap()
    }

    fn at(micros: i64) -> VirtualInstant {
        VirtualInstant(micros * 1_000)
    }

    #[test]
    fn a_full_queue_drops_what_comes() {
        let mut rng = LinkRng::new(0, 0);
        let mut waiting = FrameQueue::default();
        let three = queue("{packets: 3}");
        let taken = (0..5).filter(|_| waiting.push(frame(100), at(0), &three, &mut rng)).count();
        assert_eq!((taken, waiting.len(), waiting.bytes), (3, 3, 300));
        let bytes = queue("{bytes: 1000}");
        let taken = (0..20).filter(|_| waiting.push(frame(100), at(0), &bytes, &mut rng)).count();
        assert_eq!((taken, waiting.bytes), (7, 1_000));
        assert_eq!(waiting.clear(), 10);
    }

    /// An IPv4 packet whose sender understands marks.
    fn capable(size: usize) -> Frame {
        let mut frame = frame(size);
        frame[12..16].copy_from_slice(&[0x08, 0x00, 0x45, 0x02]);
        frame
    }

    #[test]
    fn packets_of_senders_that_understand_it_are_marked_and_not_dropped() {
        for discipline in ["red, red-min: 20kb, red-max: 120kb", "codel"] {
            let marks = queue(&format!("{{packets: 200, ecn: true, discipline: {discipline}}}"));
            let (mut rng, mut waiting) = (LinkRng::new(3, 3), FrameQueue::default());
            let mut marked = 0;
            // Half as many again arrive as are sent, until the queue is almost full.
            for turn in 0..380 {
                assert!(waiting.push(capable(1_000), at(turn * 1_000), &marks, &mut rng));
                if turn % 2 == 1 {
                    let (sent, dropped) = waiting.pop(at(turn * 1_000), &marks);
                    assert_eq!(dropped, 0);
                    marked += u64::from(sent.unwrap()[15] == 0x03);
                }
            }
            while let (Some(sent), 0) = waiting.pop(at(400_000), &marks) {
                marked += u64::from(sent[15] == 0x03);
            }
            assert!(waiting.len() == 0 && marked > 0, "{discipline}");
            assert_eq!(waiting.marked(), marked);
        }
    }

    /// Serves a queue at `service` us a frame and feeds it every `arrival` us. Returns the waits of frames served after the first
    /// second, and the number of drops.
    fn run(queue: &Queue, arrival: i64, service: i64) -> (Vec<i64>, u64) {
        let (mut rng, mut waiting) = (LinkRng::new(3, 3), FrameQueue::default());
        let (mut waits, mut dropped, mut free) = (Vec::new(), 0, 0);
        for now in (0..4_000_000).step_by(arrival as usize) {
            while free <= now {
                let before: Vec<_> = waiting.frames.iter().map(|(since, _)| *since).collect();
                let (sent, gone) = waiting.pop(at(free), queue);
                dropped += gone;
                if sent.is_none() {
                    break;
                }
                if now > 1_000_000 {
                    waits.push(at(free).since(before[gone as usize]).0 / 1_000);
                }
                free += service;
            }
            free = free.max(now);
            dropped += u64::from(!waiting.push(frame(1_000), at(now), queue, &mut rng));
        }
        (waits, dropped)
    }

    fn mean(waits: &[i64]) -> i64 {
        waits.iter().sum::<i64>() / waits.len() as i64
    }

    #[test]
    fn codel_bounds_the_wait_and_leaves_a_short_queue_alone() {
        let codel = queue("{packets: 1000, discipline: codel}");
        // Ten percent more than can be sent: drop-tail fills the whole queue, which is a second.
        let (tail, _) = run(&queue("{packets: 1000}"), 910, 1_000);
        let (waits, dropped) = run(&codel, 910, 1_000);
        assert!(mean(&waits) < mean(&tail) / 2, "{} {}", mean(&waits), mean(&tail));
        assert!(dropped > 10, "{dropped}");
        assert_eq!(run(&codel, 1_000, 900).1, 0);
    }

    #[test]
    fn red_drops_before_the_queue_is_full() {
        let red = queue("{packets: 200, discipline: red, red-min: 20kb, red-max: 120kb}");
        let (waits, dropped) = run(&red, 910, 1_000);
        assert!(dropped > 50, "{dropped}");
        let longest = *waits.iter().max().unwrap();
        // Drop-tail would fill the queue, 200 ms.
        assert!(mean(&waits) < 120_000 && longest < 190_000, "{longest} us");
        assert_eq!(run(&red, 1_000, 900).1, 0);
    }
}
