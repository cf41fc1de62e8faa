//! One direction of a link: frames wait, are put on the wire one after the other, and take their time to the other end.

use lorentz_clock::{Span, VirtualInstant, NANOS_PER_SEC};

use super::queue::{Frame, FrameQueue};
use super::rng::LinkRng;
use crate::impair::{GilbertElliott, Impairments, Jitter, Queue};
use crate::units::{BitRate, Delay, Probability};

/// Counters of one direction. With [`Pipe::in_flight`] they add up: `sent + duplicated = delivered + lost + dropped + cut + in
/// flight`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Counts {
    /// Frames handed to it.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Frames that have arrived.
    pub delivered: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Frames lost on the wire.
    pub lost: u64,
    /// Frames dropped by the queue.
    pub dropped: u64,
    /// Frames that the queue marked as having met congestion, in place of a drop.
    #[serde(default)]
    pub marked: u64,
    /// Frames dropped because the link is down: those sent while it was, and those in flight when it went down.
    pub cut: u64,
    /// Frames that arrive twice.
    pub duplicated: u64,
    /// Frames that overtook others.
    pub reordered: u64,
    /// Frames with a bit flipped.
    pub corrupted: u64,
}

/// The impairments in force.
#[derive(Clone, Copy, Debug)]
struct ActiveImpairments {
    rate: BitRate,
    delay: Span,
    jitter: Jitter,
    loss: GilbertElliott,
    duplicate: Probability,
    reorder: Probability,
    corrupt: Probability,
    queue: Queue,
}

impl ActiveImpairments {
    fn of(impairments: &Impairments) -> ActiveImpairments {
        ActiveImpairments {
            rate: impairments.rate.unwrap_or_default(),
            delay: impairments.delay.map_or(Span::ZERO, Delay::span),
            jitter: impairments.jitter(),
            loss: impairments.loss(),
            duplicate: impairments.duplicate.unwrap_or_default(),
            reorder: impairments.reorder.unwrap_or_default(),
            corrupt: impairments.corrupt.unwrap_or_default(),
            queue: impairments.queue.unwrap_or_default(),
        }
    }
}

/// A frame that arrives at the other end at an instant.
#[derive(Debug)]
pub struct Arrival {
    /// The instant.
    pub due: VirtualInstant,
    /// The frame.
    pub frame: Frame,
}

/// One direction of a link.
#[derive(Debug)]
pub struct Pipe {
    impairments: Impairments,
    active: ActiveImpairments,
    rng: LinkRng,
    queue: FrameQueue,
    /// The frame on the wire.
    sending: Option<Frame>,
    /// The instant at which its last bit is sent, and the fraction of a nanosecond left there, in units of 1/rate.
    sent_at: VirtualInstant,
    fraction: u64,
    /// The latest arrival so far. No frame arrives before an earlier one, unless it overtakes.
    last_due: VirtualInstant,
    is_up: bool,
    counts: Counts,
    propagating: u64,
}

impl Pipe {
    /// Makes a direction with `impairments`, and a random generator of its own.
    pub fn new(impairments: &Impairments, rng: LinkRng) -> Pipe {
        Pipe {
            impairments: impairments.clone(),
            active: ActiveImpairments::of(impairments),
            rng,
            queue: FrameQueue::default(),
            sending: None,
            sent_at: VirtualInstant::default(),
            fraction: 0,
            last_due: VirtualInstant(i64::MIN),
            is_up: true,
            counts: Counts::default(),
            propagating: 0,
        }
    }

    /// The impairments, as given.
    pub fn impairments(&self) -> &Impairments {
        &self.impairments
    }

    /// The counters so far.
    pub fn counts(&self) -> Counts {
        Counts { marked: self.queue.marked(), ..self.counts }
    }

    /// Frames that wait, are on the wire, or are on their way.
    pub fn in_flight(&self) -> u64 {
        self.queue.len() as u64 + u64::from(self.sending.is_some()) + self.propagating
    }

    /// Frames that wait.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Applies `impairments` from now on. The frame on the wire, and frames on their way, keep their times.
    pub fn set(&mut self, impairments: &Impairments) {
        self.impairments = impairments.clone();
        self.active = ActiveImpairments::of(impairments);
        self.fraction = 0;
    }

    /// Whether the direction is up.
    pub fn is_up(&self) -> bool {
        self.is_up
    }

    /// Cuts the link, or restores it. Frames that wait or are on the wire are lost. The owner drops those on their way.
    pub fn set_up(&mut self, is_up: bool) {
        if !is_up && self.is_up {
            self.counts.cut +=
                self.queue.clear() + u64::from(self.sending.take().is_some()) + self.propagating;
            self.propagating = 0;
            // No frame is left that could be overtaken.
            self.last_due = VirtualInstant(i64::MIN);
        }
        self.is_up = is_up;
    }

    /// Takes a frame at `now`. If the frame goes on the wire at once, returns the instant at which its last bit is sent.
    pub fn send(&mut self, frame: Frame, now: VirtualInstant) -> Option<VirtualInstant> {
        self.counts.sent += 1;
        self.counts.sent_bytes += frame.len() as u64;
        if !self.is_up {
            self.counts.cut += 1;
            return None;
        }
        if self.sending.is_none() {
            return Some(self.start_sending(frame, now));
        }
        if !self.queue.push(frame, now, &self.active.queue, &mut self.rng) {
            self.counts.dropped += 1;
        }
        None
    }

    /// Handles that the frame on the wire has been sent at `now`, the instant that was returned when it was put there. Adds its
    /// arrival and that of its duplicate, unless the wire loses it. Puts the next frame on the wire, and returns when that one has
    /// been sent.
    pub fn sent(
        &mut self,
        now: VirtualInstant,
        arrivals: &mut Vec<Arrival>,
    ) -> Option<VirtualInstant> {
        let frame = self.sending.take()?;
        self.propagate(frame, now, arrivals);
        let (next, dropped) = self.queue.pop(now, &self.active.queue);
        self.counts.dropped += dropped;
        next.map(|frame| self.start_sending(frame, now))
    }

    /// Counts the arrival of a frame of `bytes`.
    pub fn delivered(&mut self, bytes: usize) {
        self.propagating -= 1;
        self.counts.delivered += 1;
        self.counts.delivered_bytes += bytes as u64;
    }

    fn start_sending(&mut self, frame: Frame, now: VirtualInstant) -> VirtualInstant {
        let bits = frame.len() as u64 * 8;
        self.sending = Some(frame);
        let Some(rate) = self.active.rate.limit() else {
            (self.sent_at, self.fraction) = (now, 0);
            return now;
        };
        // Between frames back to back, fractions of a nanosecond add up. After a pause they mean nothing.
        let fraction = if now == self.sent_at { self.fraction } else { 0 };
        let scaled = u128::from(bits) * NANOS_PER_SEC as u128 + u128::from(fraction);
        self.fraction = (scaled % u128::from(rate)) as u64;
        self.sent_at = now.plus(Span((scaled / u128::from(rate)) as i64));
        self.sent_at
    }

    fn propagate(&mut self, mut frame: Frame, sent: VirtualInstant, arrivals: &mut Vec<Arrival>) {
        let active = self.active;
        if self.rng.loses(&active.loss) {
            self.counts.lost += 1;
            return;
        }
        if !frame.is_empty() && self.rng.happens(active.corrupt) {
            let bit = self.rng.below(frame.len() as u64 * 8);
            frame[(bit / 8) as usize] ^= 1 << (bit % 8);
            self.counts.corrupted += 1;
        }
        let due = if active.delay > Span::ZERO && self.rng.happens(active.reorder) {
            self.counts.reordered += 1;
            sent
        } else {
            let delay = Span((active.delay.0 + self.rng.jitter(&active.jitter).0).max(0));
            self.last_due = self.last_due.max(sent.plus(delay));
            self.last_due
        };
        if self.rng.happens(active.duplicate) {
            self.counts.duplicated += 1;
            self.propagating += 1;
            arrivals.push(Arrival { due, frame: frame.clone() });
        }
        self.propagating += 1;
        arrivals.push(Arrival { due, frame });
    }
}
