//! One word and one sentence on whether the machine keeps up, with a remedy: arithmetic on what networks and experiments report.

use lorentz_clock::Span;

use crate::types::{Verdict, Word};

/// Frames may be late by this part of the shortest delay.
const LATE_PART: i64 = 10;
/// Lateness that counts where no link has a delay, virtual ns.
const LATE_NS: i64 = 1_000_000;
/// Frames that must have been delivered before their lateness counts.
const ENOUGH_FRAMES: u64 = 100;
/// Nodes that reach less than this part of the pace asked for are overloaded.
const FULL_PACE: f64 = 0.95;
/// Nodes may be behind by so much before that counts, virtual ns.
const BEHIND_NS: i64 = 50_000_000;

/// The figures from which a network's verdict is computed.
#[derive(Clone, Copy, Debug)]
pub struct NetworkLoad {
    /// Whether time stands still.
    pub is_frozen: bool,
    /// Frames delivered.
    pub frames: u64,
    /// 99 of 100 frames were at most so late, virtual ns.
    pub late_ns: i64,
    /// The shortest delay of a link, if each has one.
    pub shortest_delay_ns: Option<i64>,
    /// The network's TDF.
    pub tdf: f64,
    /// In rounds: virtual time by which nodes are behind, and their pace as part of the one asked for.
    pub rounds: Option<(i64, Option<f64>)>,
}

impl Verdict {
    fn new(word: Word, text: String, advice: Option<String>) -> Verdict {
        Verdict { word, text, advice }
    }

    /// Of something whose process has ended.
    pub fn ended(text: &str) -> Verdict {
        Verdict::new(Word::Ended, text.to_string(), None)
    }

    /// Of something whose process does not answer.
    pub fn no_answer() -> Verdict {
        let text = "its process has not answered for two seconds; the figures are older";
        Verdict::new(Word::NoAnswer, text.to_string(), None)
    }

    /// Of a network.
    pub fn of_network(load: &NetworkLoad) -> Verdict {
        if load.is_frozen {
            return Verdict::new(Word::Frozen, "time stands still".into(), None);
        }
        match load.rounds {
            Some((behind, pace)) => of_rounds(behind, pace, load.tdf),
            None => of_frames(load),
        }
    }

    /// Of an experiment whose rounds follow each other: real seconds per virtual second, and what its leader's TDF allows.
    pub fn of_experiment(is_running: bool, slowdown: Option<f64>, wanted: f64) -> Verdict {
        let Some(slowdown) = slowdown.filter(|_| is_running) else {
            return Verdict::new(Word::Frozen, "no rounds under way".into(), None);
        };
        let text = format!("{slowdown:.2} real seconds per virtual second");
        if slowdown > wanted / FULL_PACE {
            let why = format!("{text}; its greatest TDF alone would take {wanted:.2}");
            let advice =
                "fewer containers, more processors (--cpus), or lower TDFs make it quicker";
            return Verdict::new(Word::Overloaded, why, Some(advice.into()));
        }
        Verdict::new(Word::KeepsUp, text, None)
    }
}

fn of_rounds(behind: i64, pace: Option<f64>, tdf: f64) -> Verdict {
    let slow = pace.filter(|pace| *pace < FULL_PACE && behind > BEHIND_NS);
    let Some(pace) = slow else {
        let text = "rounds: frames arrive at their exact instants, and the nodes keep up";
        return Verdict::new(Word::KeepsUp, text.into(), None);
    };
    let text = format!(
        "nodes reach {:.0} % of the pace of the network's clock, and are behind by {}",
        pace * 100.0,
        rounded(behind)
    );
    let advice = (pace > 0.0).then(|| raise_tdf(tdf / pace));
    Verdict::new(Word::Overloaded, text, advice)
}

fn of_frames(load: &NetworkLoad) -> Verdict {
    let allowed = load.shortest_delay_ns.map_or(LATE_NS, |delay| (delay / LATE_PART).max(1));
    if load.frames < ENOUGH_FRAMES || load.late_ns <= allowed {
        let text = match load.frames {
            0 => "no frame was delivered yet".to_string(),
            _ => format!("99 of 100 frames at most {} late", rounded(load.late_ns)),
        };
        return Verdict::new(Word::KeepsUp, text, None);
    }
    let text = match load.shortest_delay_ns {
        Some(delay) => format!(
            "1 of 100 frames is late by {} or more; the shortest delay is {}",
            rounded(load.late_ns),
            rounded(delay)
        ),
        None => format!("1 of 100 frames is late by {} or more", rounded(load.late_ns)),
    };
    // Real lateness stays, and virtual lateness is that divided by the TDF.
    let wanted = load.tdf * load.late_ns as f64 / allowed as f64;
    Verdict::new(Word::Late, text, Some(raise_tdf(wanted)))
}

/// Advises a TDF of at least `wanted`, as a round number.
fn raise_tdf(wanted: f64) -> String {
    let unit = 10f64.powf(wanted.max(1e-6).log10().floor());
    let steps = [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    let found = steps.into_iter().map(|step| step * unit).find(|round| *round >= wanted);
    format!("raise the TDF to {}", found.unwrap_or(wanted.ceil()))
}

/// Writes a duration with two digits or so.
fn rounded(nanos: i64) -> String {
    let unit = 10i64.pow(nanos.unsigned_abs().checked_ilog10().unwrap_or(0).saturating_sub(1));
    Span(nanos / unit * unit).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: NetworkLoad = NetworkLoad {
        is_frozen: false,
        frames: 1_000,
        late_ns: 40_123,
        shortest_delay_ns: Some(5_000_000),
        tdf: 1.0,
        rounds: None,
    };

    #[test]
    fn lateness_counts_beside_the_shortest_delay() {
        let quiet = Verdict::of_network(&QUIET);
        assert_eq!(
            (quiet.word, quiet.text.as_str()),
            (Word::KeepsUp, "99 of 100 frames at most 40us late")
        );
        let late = Verdict::of_network(&NetworkLoad { late_ns: 3_000_000, ..QUIET });
        assert_eq!(late.word, Word::Late);
        assert_eq!(late.advice.as_deref(), Some("raise the TDF to 6"));
        let few = Verdict::of_network(&NetworkLoad { late_ns: 3_000_000, frames: 5, ..QUIET });
        assert_eq!(few.word, Word::KeepsUp);
        let frozen =
            Verdict::of_network(&NetworkLoad { is_frozen: true, late_ns: 3_000_000, ..QUIET });
        assert_eq!(frozen.word, Word::Frozen);
    }

    #[test]
    fn a_tdf_as_advised_would_be_enough() {
        let late = NetworkLoad { late_ns: 7_000_000, tdf: 10.0, ..QUIET };
        let advice = Verdict::of_network(&late).advice.unwrap();
        let tdf: f64 = advice.rsplit(' ').next().unwrap().parse().unwrap();
        let then = NetworkLoad { late_ns: (7_000_000.0 * 10.0 / tdf) as i64, tdf, ..QUIET };
        assert_eq!(Verdict::of_network(&then).word, Word::KeepsUp);
    }

    #[test]
    fn nodes_that_fall_behind_are_overloaded() {
        let rounds = |behind, pace| NetworkLoad { rounds: Some((behind, pace)), tdf: 2.0, ..QUIET };
        let slow = Verdict::of_network(&rounds(200_000_000, Some(0.5)));
        assert_eq!(slow.word, Word::Overloaded);
        assert_eq!(slow.advice.as_deref(), Some("raise the TDF to 4"));
        for keeps_up in [rounds(200_000_000, Some(1.0)), rounds(1_000, Some(0.5)), rounds(0, None)]
        {
            assert_eq!(Verdict::of_network(&keeps_up).word, Word::KeepsUp);
        }
        assert_eq!(Verdict::of_experiment(true, Some(4.0), 2.0).word, Word::Overloaded);
        assert_eq!(Verdict::of_experiment(true, Some(2.0), 2.0).word, Word::KeepsUp);
    }
}
