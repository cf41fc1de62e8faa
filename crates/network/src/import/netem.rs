//! Lines of `tc` by which a lab gives an interface netem. They become impairments of the interface's link: netem keeps real time, and
//! some kernels have none.

use std::collections::BTreeSet;
use std::iter::Peekable;
use std::str::SplitWhitespace;

use lorentz_emulator::impair::{
    Distribution, Impairments, Jitter, JitterOption, LossOption, Queue,
};
use lorentz_emulator::units::{BitRate, Delay, Probability};
use serde_saphyr::Spanned;

use crate::topology::TopologyFile;

/// Takes the lines out of each node's `exec`, and gives what they say to the frames that the interface sends.
pub(super) fn take(file: &mut TopologyFile) {
    let links = file.topology.links.iter();
    let ends: BTreeSet<String> =
        links.flat_map(|link| &link.value.endpoints).map(|end| end.value.clone()).collect();
    let mut taken: Vec<(String, Spanned<Impairments>)> = Vec::new();
    for (name, node) in &mut file.topology.nodes {
        let node = &mut node.value;
        for line in std::mem::take(&mut node.exec) {
            let mut is_taken = false;
            let mut take = |one: &str| {
                let (interface, impairments) = parse(one)?;
                let end = format!("{name}:{interface}");
                ends.contains(&end).then_some(())?;
                is_taken = true;
                taken.push((end, Spanned::new(impairments, line.referenced, line.defined)));
                Some(())
            };
            // A command stays where each line was: their numbers are told, and the script may need one there.
            let rest: Vec<&str> =
                line.value.split('\n').map(|one| take(one).map_or(one, |()| ":")).collect();
            let rest = rest.join("\n");
            if is_taken && rest == ":" {
                continue;
            }
            if let Some(script) = node.script_files.remove(&line.value) {
                node.script_files.insert(rest.clone(), script);
            }
            node.exec.push(Spanned::new(rest, line.referenced, line.defined));
        }
    }
    for (end, impairments) in taken {
        let mut links = file.topology.links.iter_mut();
        let link = links.find(|link| link.value.endpoints.iter().any(|one| one.value == end));
        if let Some(link) = link {
            // A later line replaces an earlier one, as in the kernel.
            link.value.from.insert(end, impairments);
        }
    }
}

/// Returns the interface and the impairments of a line, if all of it is understood. An indented line may depend on a condition.
fn parse(line: &str) -> Option<(&str, Impairments)> {
    if line.starts_with(char::is_whitespace) || line.contains(['$', ';', '&', '|', '<', '>', '`']) {
        return None;
    }
    let line = line.split(" #").next()?;
    let mut words = line.split_whitespace().peekable();
    let interface = interface_of(&mut words)?;
    let mut impairments = Impairments::default();
    let mut jitter = Jitter::default();
    let mut limit = None;
    while let Some(key) = words.next() {
        let is_value = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
        match key {
            "delay" | "latency" => {
                impairments.delay = Some(time(words.next()?)?);
                if let Some(spread) = words.next_if(is_value) {
                    jitter.spread = time(spread)?;
                }
                if let Some(correlation) = words.next_if(is_value) {
                    jitter.correlation = percent(correlation)?;
                }
            }
            "distribution" => {
                jitter.distribution = match words.next()? {
                    "uniform" => Distribution::Uniform,
                    "normal" => Distribution::Normal,
                    "pareto" => Distribution::Pareto,
                    _ => return None,
                }
            }
            "loss" | "drop" => {
                words.next_if_eq(&"random");
                impairments.loss = Some(LossOption::Independent(percent(words.next()?)?));
            }
            "duplicate" => impairments.duplicate = Some(percent(words.next()?)?),
            "corrupt" => impairments.corrupt = Some(percent(words.next()?)?),
            "reorder" => impairments.reorder = Some(percent(words.next()?)?),
            "rate" => impairments.rate = Some(rate(words.next()?)?),
            "limit" => limit = Some(words.next()?.parse().ok().filter(|packets| *packets > 0)?),
            _ => return None,
        }
    }
    if jitter.spread != Delay::default() {
        impairments.jitter = Some(JitterOption::Full(jitter));
    }
    // Of our links only those with a rate have a queue.
    if let Some(packets) = limit.filter(|_| impairments.rate.is_some()) {
        impairments.queue = Some(Queue { packets: Some(packets), ..Queue::default() });
    }
    Some((interface, impairments))
}

type Words<'a> = Peekable<SplitWhitespace<'a>>;

/// Takes the words of `tc qdisc add dev INTERFACE root netem`, and returns the interface.
fn interface_of<'a>(words: &mut Words<'a>) -> Option<&'a str> {
    words.next_if_eq(&"sudo");
    let tc = words.next()?;
    let is_known = tc.rsplit('/').next()? == "tc"
        && words.next()? == "qdisc"
        && ["add", "replace", "change"].contains(&words.next()?)
        && words.next()? == "dev";
    let interface = words.next().filter(|_| is_known)?;
    (words.next()? == "root").then_some(())?;
    if words.next_if_eq(&"handle").is_some() {
        words.next()?;
    }
    (words.next()? == "netem").then_some(interface)
}

/// Parses a time of `tc`, which is in microseconds where it has no unit.
fn time(text: &str) -> Option<Delay> {
    let unit = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit);
    let unit = match unit.to_ascii_lowercase().as_str() {
        "" | "us" | "usec" | "usecs" => "us",
        "ms" | "msec" | "msecs" => "ms",
        "s" | "sec" | "secs" => "s",
        _ => return None,
    };
    format!("{number}{unit}").parse().ok()
}

fn percent(text: &str) -> Option<Probability> {
    format!("{}%", text.trim_end_matches('%')).parse().ok()
}

/// Parses a rate of `tc` in bits; its units of bytes end in "bps".
fn rate(text: &str) -> Option<BitRate> {
    let is_bare = text.bytes().all(|c| c.is_ascii_digit());
    let text = if is_bare { format!("{text}bit") } else { text.to_string() };
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::import::{read_text, Format};

    fn interface_and_json(line: &str) -> Option<(String, String)> {
        let (interface, impairments) = parse(line)?;
        Some((interface.to_string(), serde_json::to_string(&impairments).unwrap()))
    }

    #[test]
    fn a_line_of_netem_is_parsed() {
        let parsed = [
            ("tc qdisc add dev eth0 root netem delay 100ms", r#"{"delay":"100ms"}"#),
            ("tc qdisc add dev eth0 root netem delay 50", r#"{"delay":"50us"}"#),
            (
                "sudo /sbin/tc qdisc replace dev eth0 root handle 1: netem loss random 0.5% rate 1mbit limit 20 # slow",
                r#"{"rate":"1mbit","loss":"0.5%","queue":{"packets":20,"discipline":"drop-tail"}}"#,
            ),
            (
                "tc qdisc change dev eth0 root netem latency 2msec 1ms 25% distribution normal reorder 3 duplicate 1% corrupt 0.1%",
                r#"{"delay":"2ms","jitter":{"spread":"1ms","distribution":"normal","correlation":"25%"},"duplicate":"1%","reorder":"3%","corrupt":"0.1%"}"#,
            ),
        ];
        for (line, expected) in parsed {
            let (interface, impairments) = interface_and_json(line).unwrap();
            assert_eq!(
                (interface.as_str(), impairments.split_whitespace().collect::<String>()),
                ("eth0", expected.into())
            );
        }
    }

    #[test]
    fn other_lines_stay() {
        for line in [
            "  tc qdisc add dev eth0 root netem delay 1ms",
            "tc qdisc add dev $DEV root netem delay 1ms",
            "tc qdisc add dev eth0 root netem delay 1ms || true",
            "tc qdisc add dev eth0 parent 1:1 netem delay 1ms",
            "tc qdisc add dev eth0 root netem loss gemodel 1% 10%",
            "tc qdisc add dev eth0 root netem loss 10% 25%",
            "tc qdisc add dev eth0 root netem delay soon",
            "tc qdisc add dev eth0 root netem rate 1mbps",
            "tc qdisc add dev eth0 root tbf rate 1mbit burst 32kbit latency 400ms",
            "tc qdisc del dev eth0 root",
        ] {
            assert_eq!(interface_and_json(line), None, "{line}");
        }
    }

    #[test]
    fn it_is_an_impairment_of_the_frames_that_the_interface_sends() {
        let lab = "name: x\ntopology:\n  nodes:\n    a:\n      kind: linux\n      exec:\n        \
                   - tc qdisc add dev eth1 root netem delay 7ms\n        - tc qdisc add dev eth9 root netem delay 7ms\n        \
                   - |-\n          echo 1\n          tc qdisc add dev eth1 root netem delay 9ms\n          echo 2\n    \
                   b: {kind: linux}\n  links:\n    - endpoints: ['a:eth1', 'b:eth1']\n";
        let read = read_text(Path::new("/x.clab.yml"), Format::Containerlab, lab).unwrap();
        let link = &read.topology.topology.links[0].value;
        assert_eq!(link.from["a:eth1"].value.delay, "9ms".parse().ok());
        assert_eq!(link.from.len(), 1);
        let lines: Vec<&str> = read.topology.topology.nodes["a"]
            .value
            .exec
            .iter()
            .map(|one| one.value.as_str())
            .collect();
        assert_eq!(lines, ["tc qdisc add dev eth9 root netem delay 7ms", "echo 1\n:\necho 2"]);
    }
}
