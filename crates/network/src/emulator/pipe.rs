//! One direction of a link: frames wait, are put on the wire one after the other, and take their time to the other end.

use lorentz_clock::{Span, VirtualInstant, NANOS_PER_SEC};

use super::dice::Dice;
use super::queue::{Frame, Waiting};
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
struct Terms {
    rate: BitRate,
    delay: Span,
    jitter: Jitter,
    loss: GilbertElliott,
    duplicate: Probability,
    reorder: Probability,
    corrupt: Probability,
    queue: Queue,
}

impl Terms {
    fn of(asked: &Impairments) -> Terms {
        Terms {
            rate: asked.rate.unwrap_or_default(),
            delay: asked.delay.map_or(Span::ZERO, Delay::span),
            jitter: asked.jitter(),
            loss: asked.loss(),
            duplicate: asked.duplicate.unwrap_or_default(),
            reorder: asked.reorder.unwrap_or_default(),
            corrupt: asked.corrupt.unwrap_or_default(),
            queue: asked.queue.unwrap_or_default(),
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
    asked: Impairments,
    terms: Terms,
    dice: Dice,
    waiting: Waiting,
    /// The frame on the wire.
    sending: Option<Frame>,
    /// The instant at which its last bit is sent, and the fraction of a nanosecond left there, in units of 1/rate.
    done: VirtualInstant,
    rest: u64,
    /// The latest arrival so far. No frame arrives before an earlier one, unless it overtakes.
    last_due: VirtualInstant,
    is_up: bool,
    counts: Counts,
    flying: u64,
}

impl Pipe {
    /// Makes a direction with the impairments `asked`, and a random generator of its own.
    pub fn new(asked: &Impairments, dice: Dice) -> Pipe {
        Pipe {
            asked: asked.clone(),
            terms: Terms::of(asked),
            dice,
            waiting: Waiting::default(),
            sending: None,
            done: VirtualInstant::default(),
            rest: 0,
            last_due: VirtualInstant(i64::MIN),
            is_up: true,
            counts: Counts::default(),
            flying: 0,
        }
    }

    /// The impairments that were asked for.
    pub fn asked(&self) -> &Impairments {
        &self.asked
    }

    /// The counters so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Frames that wait, are on the wire, or are on their way.
    pub fn in_flight(&self) -> u64 {
        self.waiting.len() as u64 + u64::from(self.sending.is_some()) + self.flying
    }

    /// Frames that wait.
    pub fn queued(&self) -> usize {
        self.waiting.len()
    }

    /// Applies the impairments `asked` from now on. The frame on the wire, and frames on their way, keep their times.
    pub fn set(&mut self, asked: &Impairments) {
        self.asked = asked.clone();
        self.terms = Terms::of(asked);
        self.rest = 0;
    }

    /// Whether the direction is up.
    pub fn is_up(&self) -> bool {
        self.is_up
    }

    /// Cuts the link, or restores it. Frames that wait or are on the wire are lost. The owner drops those on their way.
    pub fn set_up(&mut self, is_up: bool) {
        if !is_up && self.is_up {
            self.counts.cut +=
                self.waiting.clear() + u64::from(self.sending.take().is_some()) + self.flying;
            self.flying = 0;
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
            return Some(self.put_on_the_wire(frame, now));
        }
        if !self.waiting.push(frame, now, &self.terms.queue, &mut self.dice) {
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
        self.fly(frame, now, arrivals);
        let (next, dropped) = self.waiting.pop(now, &self.terms.queue);
        self.counts.dropped += dropped;
        next.map(|frame| self.put_on_the_wire(frame, now))
    }

    /// Counts the arrival of a frame of `bytes`.
    pub fn delivered(&mut self, bytes: usize) {
        self.flying -= 1;
        self.counts.delivered += 1;
        self.counts.delivered_bytes += bytes as u64;
    }

    fn put_on_the_wire(&mut self, frame: Frame, now: VirtualInstant) -> VirtualInstant {
        let bits = frame.len() as u64 * 8;
        self.sending = Some(frame);
        let Some(rate) = self.terms.rate.limit() else {
            (self.done, self.rest) = (now, 0);
            return now;
        };
        // Between frames back to back, fractions of a nanosecond add up. After a pause they mean nothing.
        let rest = if now == self.done { self.rest } else { 0 };
        let scaled = u128::from(bits) * NANOS_PER_SEC as u128 + u128::from(rest);
        self.rest = (scaled % u128::from(rate)) as u64;
        self.done = now.plus(Span((scaled / u128::from(rate)) as i64));
        self.done
    }

    fn fly(&mut self, mut frame: Frame, sent: VirtualInstant, arrivals: &mut Vec<Arrival>) {
        let terms = self.terms;
        if self.dice.loses(&terms.loss) {
            self.counts.lost += 1;
            return;
        }
        if !frame.is_empty() && self.dice.happens(terms.corrupt) {
            let bit = self.dice.below(frame.len() as u64 * 8);
            frame[(bit / 8) as usize] ^= 1 << (bit % 8);
            self.counts.corrupted += 1;
        }
        let due = if terms.delay > Span::ZERO && self.dice.happens(terms.reorder) {
            self.counts.reordered += 1;
            sent
        } else {
            let delay = Span((terms.delay.0 + self.dice.jitter(&terms.jitter).0).max(0));
            self.last_due = self.last_due.max(sent.plus(delay));
            self.last_due
        };
        if self.dice.happens(terms.duplicate) {
            self.counts.duplicated += 1;
            self.flying += 1;
            arrivals.push(Arrival { due, frame: frame.clone() });
        }
        self.flying += 1;
        arrivals.push(Arrival { due, frame });
    }
}
