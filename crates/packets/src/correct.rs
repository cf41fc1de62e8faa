//! Corrects the times that a tool prints by the latency that the container's stack added: the paper's section 3.3, for any tool
//! with a rule.
//!
//! `corrected = time - (egress + ingress)`; of a one-way time only the part that the tool has measured. The ingress part ends at the
//! point where the tool's own measurement ends. If a part is not known, the time stays uncorrected and is counted.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{signal, SigHandler, Signal};

use crate::error::PacketsError;
use crate::exchange::Exchanges;
use crate::packet_reader::PacketReader;
use crate::rule::Rule;

const NANOS_PER_MILLI: f64 = 1e6;
/// Greatest interval between two readings of packets. Once a packet's process has ended, nobody can find out whether it belonged to
/// the tool.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Runs `command` with `arguments` and copies its output to `out`. Each time is followed by the corrected one. The statistics of
/// the corrected times come at the end. Needs the socket that `lorentz latency serve` makes in a container.
///
/// # Errors
///
/// An error if there is no such socket, the tool cannot be started, or `out` cannot be written.
pub fn correct(
    rule: &Rule,
    command: &str,
    arguments: &[String],
    out: &mut dyn Write,
) -> Result<ExitStatus, PacketsError> {
    let mut inside = PacketReader::connect()?;
    let mut tool = Command::new(command);
    tool.args(arguments).env("LC_ALL", "C").stdout(Stdio::piped());
    let failed = |error: io::Error| io::Error::new(error.kind(), format!("{command}: {error}"));
    let mut child = tool.spawn().map_err(failed)?;
    let mut packets = Exchanges::new(rule.key, child.id());
    // SIGINT is for the tool, which then prints its statistics; this process still corrects its last lines.
    // SAFETY: an ignored signal runs no handler.
    unsafe { signal(Signal::SIGINT, SigHandler::SigIgn) }.map_err(io::Error::from)?;
    let mut sums = Sums::default();
    let mut counted = rule.first();
    let until = rule.until(arguments);
    let output = child.stdout.take().ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe))?;
    let lines = lines_of(output);
    loop {
        let line = match lines.recv_timeout(POLL_INTERVAL) {
            Ok(line) => line?,
            Err(RecvTimeoutError::Timeout) => {
                inside.catch_up(|packet| packets.note(packet))?;
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => break,
        };
        let times = rule.times(&line);
        if !times.is_empty() {
            inside.catch_up(|packet| packets.note(packet))?;
        }
        let mut text = String::new();
        let mut written = 0;
        let (hop, count) = (rule.hop(&line), times.len());
        for (place, found) in times.into_iter().enumerate() {
            let of_hop = hop.and_then(|hop| packets.number_of_hop(hop, place, count));
            let number = found.number.or(counted).or(of_hop);
            counted = counted.map(|number| number.wrapping_add(1));
            text.push_str(&line[written..found.end]);
            written = found.end;
            let Some(nanos) = found.nanos else { continue };
            let added = number.and_then(|number| packets.added(number, until, rule.measured));
            let corrected = added.map(|added| nanos - added);
            sums.add(corrected);
            text += &rule.inserted(corrected.map(|nanos| nanos / NANOS_PER_MILLI));
        }
        writeln!(out, "{text}{}", &line[written..])?;
        out.flush()?;
    }
    let status = child.wait()?;
    writeln!(out, "{}", sums.closing())?;
    Ok(status)
}

/// Returns a channel with the lines that the tool prints.
fn lines_of(output: ChildStdout) -> Receiver<io::Result<String>> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        // The receiver is gone once writing has failed.
        BufReader::new(output).lines().try_for_each(|line| sender.send(line))
    });
    lines
}

/// Statistics of the corrected times, in ping's format.
#[derive(Default)]
struct Sums {
    corrected: Vec<f64>,
    unknown: usize,
}

impl Sums {
    fn add(&mut self, nanos: Option<f64>) {
        match nanos {
            Some(nanos) => self.corrected.push(nanos),
            None => self.unknown += 1,
        }
    }

    fn closing(&self) -> String {
        let count = self.corrected.len() as f64;
        if self.corrected.is_empty() {
            return format!("corrected: none; {} without both latencies", self.unknown);
        }
        let average = self.corrected.iter().sum::<f64>() / count;
        let spread = self.corrected.iter().map(|nanos| (nanos - average).powi(2)).sum::<f64>();
        let least = self.corrected.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.corrected.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let [least, average, most, deviation] =
            [least, average, most, (spread / count).sqrt()].map(|nanos| nanos / NANOS_PER_MILLI);
        format!(
            "corrected min/avg/max/mdev = {least:.3}/{average:.3}/{most:.3}/{deviation:.3} ms, \
             {} corrected, {} without both latencies",
            self.corrected.len(),
            self.unknown
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_line_is_as_pings() {
        let mut sums = Sums::default();
        assert_eq!(sums.closing(), "corrected: none; 0 without both latencies");
        for nanos in [Some(1e6), Some(3e6), None] {
            sums.add(nanos);
        }
        let expected = "corrected min/avg/max/mdev = 1.000/2.000/3.000/1.000 ms, 2 corrected, 1 without both latencies";
        assert_eq!(sums.closing(), expected);
    }
}
