//! Impairments of one direction of a link: as a user gives them, and as they are in force.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use lorentz_clock::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::{BitRate, Bytes, Delay, Probability};

/// The table of impairments. It makes the keys of a link in a topology file, those of [`Impairments`], and the flags of
/// `lorentz link set`; `Link.set` of the Python package has the flags as keywords.
///
/// A row has the key and its type, a text for the key in a link and the rest of the text for the key elsewhere, and the flags:
/// name, value, help, and a function that sets the impairment to a given text.
#[macro_export]
macro_rules! with_impairments {
    ($make:ident) => {
        $make! {
            rate: BitRate,
                "Rate of the wire", ". The whole Ethernet frame counts, without its checksum",
                [Flag {
                    name: "rate", value: "RATE", may_begin_with_hyphen: false,
                    help: "Transmission rate: 8bit to 1tbit such as 10mbit, or none",
                    set: |all, text| parse_into(text, |value| all.rate = Some(value)),
                }];
            delay: Delay,
                "Propagation, one way", ", after a frame's last bit was sent",
                [Flag {
                    name: "delay", value: "DUR", may_begin_with_hyphen: true,
                    help: "Propagation delay, one way: 0 to 1d such as 20ms",
                    set: |all, text| parse_into(text, |value| all.delay = Some(value)),
                }];
            jitter: JitterOption,
                "Variation of the delay; frames stay in order", "",
                [Flag {
                    name: "jitter", value: "DUR", may_begin_with_hyphen: true,
                    help: "Uniform variation of the delay; a topology file has other distributions",
                    set: |all, text| parse_into(text, |spread| {
                        all.jitter = Some(JitterOption::Full(Jitter { spread, ..Jitter::default() }));
                    }),
                }];
            loss: LossOption,
                "Frames lost on the wire", "",
                [Flag {
                    name: "loss", value: "P%", may_begin_with_hyphen: true,
                    help: "Share of frames lost: 0% to 100% such as 0.1%",
                    set: |all, text| parse_into(text, |share| {
                        all.loss = Some(LossOption::Independent(share));
                    }),
                }];
            duplicate: Probability,
                "Frames that arrive twice", "",
                [Flag {
                    name: "duplicate", value: "P%", may_begin_with_hyphen: true,
                    help: "Share of frames that arrive twice",
                    set: |all, text| parse_into(text, |share| all.duplicate = Some(share)),
                }];
            reorder: Probability,
                "Frames that skip the delay", ", and so overtake those before them",
                [Flag {
                    name: "reorder", value: "P%", may_begin_with_hyphen: true,
                    help: "Share of frames that skip the delay",
                    set: |all, text| parse_into(text, |share| all.reorder = Some(share)),
                }];
            corrupt: Probability,
                "Frames in which one bit is flipped", "",
                [Flag {
                    name: "corrupt", value: "P%", may_begin_with_hyphen: true,
                    help: "Share of frames in which one bit flips",
                    set: |all, text| parse_into(text, |share| all.corrupt = Some(share)),
                }];
            queue: Queue,
                "Queue before the wire", ": its length, and which frames it drops",
                [Flag {
                    name: "queue-packets", value: "N", may_begin_with_hyphen: false,
                    help: "Queue limit in frames, drop-tail: 1 to 1000000",
                    set: |all, text| {
                        let packets = Queue::parse_packets(text)?;
                        all.queue.get_or_insert_default().packets = Some(packets);
                        Ok(())
                    },
                }, Flag {
                    name: "queue-bytes", value: "BYTES", may_begin_with_hyphen: false,
                    help: "Queue limit in bytes, drop-tail: 64 to 4gb such as 64kb",
                    set: |all, text| parse_into(text, |bytes| {
                        all.queue.get_or_insert_default().bytes = Some(bytes);
                    }),
                }];
        }
    };
}

macro_rules! define_impairments {
    ($($key:ident: $type:ty, $in_link:literal, $rest:literal, [$($flag:expr),*];)*) => {
        /// Impairments of one direction of a link. A key that is left out keeps its value; at first there is no impairment.
        #[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case")]
        pub struct Impairments {
            $(
                #[doc = concat!($in_link, $rest)]
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub $key: Option<$type>,
            )*
        }

        impl Impairments {
            /// Returns these impairments, with those that `later` gives in place of theirs.
            pub fn with(&self, later: &Impairments) -> Impairments {
                Impairments { $($key: later.$key.or(self.$key),)* }
            }

            /// Returns the impairments that both have alike, and the others of each.
            pub fn divide(&self, other: &Impairments) -> (Impairments, [Impairments; 2]) {
                let (mut both, mut own) = (Impairments::default(), [self.clone(), other.clone()]);
                $(if self.$key == other.$key {
                    both.$key = self.$key;
                    own.iter_mut().for_each(|one| one.$key = None);
                })*
                (both, own)
            }
        }

        /// The flags by which a command line sets impairments.
        pub const FLAGS: &[Flag] = &[$($($flag,)*)*];
    };
}
with_impairments!(define_impairments);

/// A command-line flag that sets an impairment.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Its name, without the two hyphens.
    pub name: &'static str,
    /// The name of its value.
    pub value: &'static str,
    /// Whether its value may begin with a hyphen. Such a value is refused as a value, not as an unknown flag.
    pub may_begin_with_hyphen: bool,
    /// Help, in one line.
    pub help: &'static str,
    /// Sets the impairment to the value of a text. The error has the accepted values.
    pub set: fn(&mut Impairments, &str) -> Result<(), String>,
}

fn parse_into<T: FromStr<Err: Display>>(text: &str, set: impl FnOnce(T)) -> Result<(), String> {
    text.parse().map(set).map_err(|error: T::Err| error.to_string())
}

/// Least delay in rounds. A round is never longer than the shortest delay, and costs some hundred microseconds whatever its length.
const MIN_ROUND: Span = Span(1_000);

/// Variation of a delay: its spread alone, or all parameters.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected a duration such as 1ms, or spread, distribution and correlation"
)]
pub enum JitterOption {
    /// The spread of a uniform, uncorrelated variation.
    Spread(Delay),
    /// All parameters.
    Full(Jitter),
}

/// Variation of a delay.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Jitter {
    /// Uniform: at most this much more or less. Normal, exponential, pareto: the standard deviation
    pub spread: Delay,
    /// Distribution of the variation, always with mean 0
    #[serde(default)]
    pub distribution: Distribution,
    /// Correlation of a frame's variation with that of the frame before
    #[serde(default)]
    pub correlation: Probability,
}

/// A distribution of mean 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Distribution {
    /// All values within the spread are equally likely
    #[default]
    Uniform,
    /// The normal distribution
    Normal,
    /// The exponential distribution, shifted to mean 0: with a spread as long as the delay, the delay itself is exponential
    Exponential,
    /// The Pareto distribution of shape 3, shifted to mean 0: a few frames come much later
    Pareto,
}

/// Loss of frames: each with the same probability, or in bursts.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected a percentage such as 0.1%, or enter, leave, in-bad and in-good"
)]
pub enum LossOption {
    /// Each frame independently.
    Independent(Probability),
    /// In bursts.
    Bursts(GilbertElliott),
}

/// Loss in bursts, after Gilbert and Elliott: a good and a bad state, with a transition before each frame.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct GilbertElliott {
    /// Probability to go from the good state to the bad one
    pub enter: Probability,
    /// Probability to go from the bad state to the good one
    pub leave: Probability,
    /// Loss in the bad state [default: 100%]
    #[serde(default = "always")]
    pub in_bad: Probability,
    /// Loss in the good state [default: 0%]
    #[serde(default)]
    pub in_good: Probability,
}

fn always() -> Probability {
    Probability::ALWAYS
}

/// The queue before the wire.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Queue {
    /// Most frames in the queue [default: 1000, or no limit if bytes is given]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000000))]
    pub packets: Option<u32>,
    /// Most bytes in the queue [default: no limit]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Bytes>,
    /// Rule for dropping frames
    #[serde(default)]
    pub discipline: Discipline,
    /// RED: average queue length in bytes below which no frame is dropped [default: a sixth of the queue's size]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub red_min: Option<Bytes>,
    /// RED: average queue length in bytes from which on all frames are dropped [default: half of the queue's size]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub red_max: Option<Bytes>,
    /// RED: drop probability just below red-max [default: 2%]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub red_probability: Option<Probability>,
    /// RED and CoDel: mark packets whose senders understand it (ECN, RFC 3168), in place of dropping them
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ecn: bool,
    /// CoDel: target, the longest wait that is acceptable for long, in virtual time [default: 5ms]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub codel_target: Option<Delay>,
    /// CoDel: interval, how long a longer wait is acceptable, in virtual time [default: 100ms]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub codel_interval: Option<Delay>,
}

/// Rule by which a queue drops frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Discipline {
    /// Drops frames that find the queue full
    #[default]
    DropTail,
    /// Random early detection: the longer the average queue, the more likely a drop
    Red,
    /// Controlled delay: drops, at growing frequency, frames that have waited too long
    Codel,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue {
            packets: None,
            bytes: None,
            discipline: Discipline::DropTail,
            red_min: None,
            red_max: None,
            red_probability: None,
            ecn: false,
            codel_target: None,
            codel_interval: None,
        }
    }
}

/// Default for the most frames in a queue.
pub const DEFAULT_QUEUE_PACKETS: u32 = 1_000;
/// Accepted numbers of frames in a queue.
const ACCEPTED_PACKETS: RangeInclusive<u32> = 1..=1_000_000;
/// Longest frame of the usual Ethernet, bytes. It converts a number of frames to bytes.
const MAX_ETHERNET_FRAME: u64 = 1_514;

impl Queue {
    /// Most frames that may wait.
    pub fn max_packets(&self) -> u64 {
        match (self.packets, self.bytes) {
            (Some(packets), _) => packets.into(),
            (None, Some(_)) => u64::MAX,
            (None, None) => DEFAULT_QUEUE_PACKETS.into(),
        }
    }

    /// Most bytes that may wait.
    pub fn max_bytes(&self) -> u64 {
        self.bytes.map_or(u64::MAX, Bytes::get)
    }

    fn size(&self) -> u64 {
        self.max_bytes().min(self.max_packets().saturating_mul(MAX_ETHERNET_FRAME))
    }

    /// RED's thresholds in bytes, and the probability just below the upper one.
    pub fn red(&self) -> (f64, f64, f64) {
        let min = self.red_min.map_or(self.size() / 6, Bytes::get);
        let max = self.red_max.map_or(self.size() / 2, Bytes::get);
        (min as f64, max as f64, self.red_probability.map_or(0.02, Probability::as_f64))
    }

    /// CoDel's target and interval.
    pub fn codel(&self) -> (Span, Span) {
        let span = |delay: Option<Delay>, other| delay.map_or(Span(other), Delay::span);
        (span(self.codel_target, 5_000_000), span(self.codel_interval, 100_000_000))
    }

    /// Parses the number of frames that a flag gives.
    fn parse_packets(text: &str) -> Result<u32, String> {
        let number: i64 = text.parse().map_err(|error| format!("{error}"))?;
        let packets =
            u32::try_from(number).ok().filter(|packets| ACCEPTED_PACKETS.contains(packets));
        packets.ok_or_else(|| {
            format!("{number} is not in {}..={}", ACCEPTED_PACKETS.start(), ACCEPTED_PACKETS.end())
        })
    }

    fn check(&self) -> Result<(), String> {
        if self.packets.is_some_and(|packets| !ACCEPTED_PACKETS.contains(&packets)) {
            return Err("queue: packets: expected 1 to 1000000".into());
        }
        let red = [self.red_min.is_some(), self.red_max.is_some(), self.red_probability.is_some()];
        if red.contains(&true) && self.discipline != Discipline::Red {
            return Err(
                "queue: red-min, red-max, red-probability: expected with discipline: red".into()
            );
        }
        if self.ecn && self.discipline == Discipline::DropTail {
            return Err("queue: ecn: expected with discipline: red or codel".into());
        }
        let codel = self.codel_target.is_some() || self.codel_interval.is_some();
        if codel && self.discipline != Discipline::Codel {
            return Err(
                "queue: codel-target, codel-interval: expected with discipline: codel".into()
            );
        }
        let (min, max, _) = self.red();
        if self.discipline == Discipline::Red && min >= max {
            return Err("queue: red-min: expected less than red-max".into());
        }
        if self.discipline == Discipline::Codel && self.codel().1 <= Span::ZERO {
            return Err("queue: codel-interval: expected more than 0".into());
        }
        Ok(())
    }
}

impl Impairments {
    /// Whether nothing is given.
    pub fn is_empty(&self) -> bool {
        *self == Impairments::default()
    }

    /// Checks that the impairments make sense together.
    ///
    /// # Errors
    ///
    /// The impairment that does not, and the accepted values.
    pub fn check(&self) -> Result<(), String> {
        let delay = self.delay.unwrap_or_default().span();
        if self.reorder.is_some_and(|p| p > Probability::NEVER) && delay == Span::ZERO {
            return Err("reorder: expected with a delay above 0, which the frames can skip".into());
        }
        if self.jitter().correlation == Probability::ALWAYS {
            return Err("jitter: correlation: expected less than 100%".into());
        }
        self.queue.unwrap_or_default().check()
    }

    /// Returns all parameters of the jitter.
    pub fn jitter(&self) -> Jitter {
        match self.jitter {
            None => Jitter::default(),
            Some(JitterOption::Spread(spread)) => Jitter { spread, ..Jitter::default() },
            Some(JitterOption::Full(jitter)) => jitter,
        }
    }

    /// Returns the least delay of any frame: each frame takes at least so long, and the next one not less.
    pub fn least_delay(&self) -> Span {
        let jitter = self.jitter();
        let spread = jitter.spread.span();
        let overtakes = self.reorder.is_some_and(|p| p > Probability::NEVER);
        // No value of these is the spread or more below the mean.
        let is_bounded =
            matches!(jitter.distribution, Distribution::Uniform | Distribution::Exponential);
        let reaches = !is_bounded && spread > Span::ZERO;
        match self.delay {
            Some(delay) if !overtakes && !reaches => Span((delay.span().0 - spread.0).max(0)),
            _ => Span::ZERO,
        }
    }

    /// Checks that frames take long enough for rounds.
    ///
    /// # Errors
    ///
    /// If they do not; the error says what is accepted.
    pub fn check_for_rounds(&self) -> Result<(), String> {
        match self.least_delay() {
            least if least < MIN_ROUND => Err(format!(
                "in rounds each frame is on its way for {MIN_ROUND} at least; expected a delay that is longer, less its \
                 jitter, which is uniform or exponential then, and no reorder"
            )),
            _ => Ok(()),
        }
    }

    /// Returns the loss as states and transitions. Independent loss has one state only.
    pub fn loss(&self) -> GilbertElliott {
        match self.loss {
            Some(LossOption::Bursts(bursts)) => bursts,
            other => GilbertElliott {
                enter: Probability::NEVER,
                leave: Probability::ALWAYS,
                in_bad: Probability::ALWAYS,
                in_good: match other {
                    Some(LossOption::Independent(loss)) => loss,
                    _ => Probability::NEVER,
                },
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn impairments(text: &str) -> Impairments {
        serde_saphyr::from_str(text).unwrap()
    }

    #[test]
    fn what_is_left_out_stays() {
        let first = impairments("{rate: 10mbit, delay: 5ms, loss: 1%}");
        let both = first.with(&impairments("{delay: 0, jitter: 1ms}"));
        assert_eq!(both, impairments("{rate: 10mbit, delay: 0, loss: 1%, jitter: 1ms}"));
    }

    #[test]
    fn each_impairment_has_a_flag() {
        let texts = ["10mbit", "5ms", "1ms", "1%", "2%", "3%", "4%", "7", "64kb"];
        let mut set = Impairments::default();
        for (flag, text) in FLAGS.iter().zip(texts) {
            (flag.set)(&mut set, text).unwrap();
            assert!((flag.set)(&mut set, "x").is_err(), "{}", flag.name);
        }
        let same = "{rate: 10mbit, delay: 5ms, jitter: {spread: 1ms}, loss: 1%, duplicate: 2%, reorder: 3%, corrupt: 4%, \
                    queue: {packets: 7, bytes: 64kb}}";
        assert_eq!((set, FLAGS.len()), (impairments(same), texts.len()));
        assert_eq!(Queue::parse_packets("0"), Err("0 is not in 1..=1000000".into()));
    }

    /// The Python package hands its keywords on as flags.
    #[test]
    fn python_has_a_keyword_for_each_flag() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../python/lorentz/networks.py");
        let text = std::fs::read_to_string(path).unwrap();
        for flag in FLAGS {
            assert!(text.contains(&format!("\"{}\": ", flag.name)), "{}", flag.name);
        }
    }

    #[test]
    fn the_least_delay_is_what_no_frame_undercuts() {
        for (text, least) in [
            ("{}", 0),
            ("{delay: 5ms}", 5_000_000),
            ("{delay: 5ms, jitter: 2ms}", 3_000_000),
            ("{delay: 5ms, jitter: 7ms}", 0),
            ("{delay: 5ms, jitter: {spread: 1ms, distribution: normal}}", 0),
            ("{delay: 5ms, reorder: 1%}", 0),
            ("{delay: 5ms, reorder: 0%}", 5_000_000),
        ] {
            assert_eq!(impairments(text).least_delay(), Span(least), "{text}");
            assert_eq!(impairments(text).check_for_rounds().is_ok(), least > 0, "{text}");
        }
    }

    #[test]
    fn they_survive_json() {
        let full = impairments(
            "{rate: 1gbit, delay: 1.5s, jitter: {spread: 1ms, distribution: pareto, correlation: 25%}, \
             loss: {enter: 1%, leave: 20%}, duplicate: 1%, reorder: 2%, corrupt: 3%, \
             queue: {bytes: 64kb, discipline: codel, codel-target: 1ms}}",
        );
        let json = serde_json::to_string(&full).unwrap();
        assert_eq!(serde_json::from_str::<Impairments>(&json).unwrap(), full);
        assert_eq!(full.loss().in_bad, Probability::ALWAYS);
    }

    #[test]
    fn what_makes_no_sense_together_is_refused() {
        let cases = [
            ("{reorder: 1%}", "reorder: expected with a delay"),
            ("{jitter: {spread: 1ms, correlation: 100%}}", "less than 100%"),
            ("{queue: {red-min: 64}}", "discipline: red"),
            ("{queue: {ecn: true}}", "discipline: red or codel"),
            ("{queue: {codel-target: 1ms}}", "discipline: codel"),
            ("{queue: {discipline: red, red-min: 4kb, red-max: 2kb}}", "less than red-max"),
            ("{queue: {packets: 0}}", "1 to 1000000"),
        ];
        for (text, words) in cases {
            let refusal = impairments(text).check().unwrap_err();
            assert!(refusal.contains(words), "{text}: {refusal}");
        }
        assert!(impairments("{reorder: 1%, delay: 1ms}").check().is_ok());
    }
}
