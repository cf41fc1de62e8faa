//! Random faults of clocks, written out as changes of the schedule.

use lorentz_clock::Span;
use lorentz_emulator::units::Delay;
use lorentz_emulator::LinkRng;
use serde_saphyr::{Location, Spanned};

use super::{ChosenClocks, Names, NodeKind, ScheduledChange, Strobe, TopologyFile};

/// Faults begin for so long after the start, if the file does not say.
const DEFAULT_LENGTH: Span = Span::from_secs(3_600);
/// Most faults that a file has written out.
const MAX_FAULTS: i64 = 10_000;
/// The generator of faults; links have those of small numbers.
const STREAM: u64 = u64::MAX;

impl TopologyFile {
    /// Writes its faults out: each becomes a change of the schedule. The same seed gives the same.
    ///
    /// # Errors
    ///
    /// The accepted values, and where the wrong one stands.
    pub fn write_out_faults(&mut self) -> Result<(), (Location, String)> {
        let Some(faults) = self.faults.clone() else { return Ok(()) };
        let (at, faults) = (faults.defined, faults.value);
        let is_node = |name: &&String| self.topology.nodes[*name].value.kind == NodeKind::Process;
        let nodes: Vec<String> = self.topology.nodes.keys().filter(is_node).cloned().collect();
        let every = faults.every.span();
        let length = faults.length.map_or(DEFAULT_LENGTH, Delay::span);
        if !self.rounds {
            let what = "faults: expected 'rounds: true', without which all nodes are on one clock";
            return Err((at, what.into()));
        }
        if every <= Span::ZERO || length.0 / every.0 > MAX_FAULTS {
            let what = format!("faults: every: {every}: expected at most {MAX_FAULTS} faults");
            return Err((at, what));
        }
        let mut random = LinkRng::new(faults.seed, STREAM);
        for number in 1..=length.0 / every.0 {
            let Some(at) = Delay::new(Span(every.0 * number)) else { break };
            let names = chosen(&nodes, faults.clocks, &mut random);
            self.schedule.push(here(fault(at, names, &mut random)));
        }
        self.faults = None;
        Ok(())
    }
}

/// Chooses the nodes of one fault, in the order of the file.
fn chosen(nodes: &[String], clocks: ChosenClocks, random: &mut LinkRng) -> Vec<String> {
    let count = match clocks {
        ChosenClocks::One => 1,
        ChosenClocks::Minority => (nodes.len().saturating_sub(1) / 2).max(1),
        ChosenClocks::Majority => nodes.len() / 2 + 1,
        ChosenClocks::All => nodes.len(),
    };
    let mut places: Vec<usize> = (0..nodes.len()).collect();
    // The first steps of a shuffle.
    for at in 0..count.min(places.len()) {
        let other = at + random.below((places.len() - at) as u64) as usize;
        places.swap(at, other);
    }
    places.truncate(count);
    places.sort_unstable();
    places.into_iter().map(|place| nodes[place].clone()).collect()
}

/// A fault of Jepsen's: a step of 11 ms to 288 s, steps forth and back of 4 ms to 131 s for up to 32 s, or the end of all errors.
/// Source: `nemesis/time.clj` of Jepsen.
fn fault(at: Delay, names: Vec<String>, random: &mut LinkRng) -> ScheduledChange {
    let mut change = ScheduledChange::at(at);
    change.clock = Some(here(Names::Several(names)));
    match random.below(3) {
        0 => {
            let millis = 1.5_f64.powi(6 + random.below(26) as i32).round();
            let sign = if random.below(2) == 0 { "+" } else { "-" };
            change.bump = Some(here(format!("{sign}{millis}ms")));
        }
        1 => {
            let by = 4_u64 << random.below(16);
            let period = 1_u64 << random.below(10);
            let length = 1 + random.below(32);
            change.strobe = Some(Strobe {
                by: here(format!("{by}ms")),
                period: here(format!("{period}ms")),
                length: here(format!("{length}s")),
            });
        }
        _ => change.reset = true,
    }
    change
}

fn here<T>(value: T) -> Spanned<T> {
    Spanned::new(value, Location::UNKNOWN, Location::UNKNOWN)
}

#[cfg(test)]
mod tests {
    use crate::topology::{parse, TopologyFile};

    fn file(faults: &str) -> String {
        let nodes = "{a: {}, b: {}, c: {}, d: {}, e: {}, s: {kind: switch}}";
        format!("name: l\nrounds: true\ntopology: {{nodes: {nodes}}}\nfaults: {{{faults}}}\n")
    }

    fn written_out(faults: &str) -> Result<String, String> {
        let mut file: TopologyFile = parse("x", &file(faults)).unwrap();
        file.write_out_faults().map_err(|(_, what)| what)?;
        Ok(file.to_yaml().unwrap())
    }

    #[test]
    fn a_seed_gives_the_same_faults_and_the_result_is_a_schedule() {
        let faults = "like: jepsen, every: 10s, clocks: minority, for: 10m, seed: 42";
        let one = written_out(faults).unwrap();
        assert_eq!(one, written_out(faults).unwrap());
        assert_ne!(one, written_out(&faults.replace("42", "43")).unwrap());
        assert!(!one.contains("faults:"));
        let plan = crate::check::plan_from_text("x", &one).unwrap();
        let plan_of_faults = crate::check::plan_from_text("x", &file(faults)).unwrap();
        assert_eq!(plan.clock_schedule, plan_of_faults.clock_schedule);
        assert!(plan.clock_schedule.len() > 60);
        // A minority of five: two.
        let first = plan.clock_schedule[0].at;
        let at_first = plan.clock_schedule.iter().filter(|change| change.at == first);
        assert_eq!(at_first.count(), 2);
    }

    #[test]
    fn too_many_faults_are_refused() {
        let refusal = written_out("like: jepsen, every: 1ms, for: 1d").unwrap_err();
        assert!(refusal.contains("every: 1ms: expected at most 10000 faults"), "{refusal}");
    }
}
