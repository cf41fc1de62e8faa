"""The results of benches/latency.py, as a page and as plots."""

from __future__ import annotations

import random
import statistics
from pathlib import Path

#: Greatest share of steal time in a quiet run: a host's other guests take the processor.
QUIET = 0.05
TRACED, IN_BAND, FTRACE = "container, traced", "container, in-band", "container, ftrace"
STAMPED = "container, stamped"
#: Samples of the bootstrap.
RESAMPLES = 10_000


def quantile(values: list[float], share: float) -> float:
    """Returns the value that the share `share` does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def median(values: list[float]) -> float:
    return quantile(values, 0.5)


def levels(found: dict) -> list[tuple[int, dict]]:
    """Sorts by number of senders; keys of JSON are text."""
    return sorted((int(senders), ways) for senders, ways in found["senders"].items())


def accuracy(ways: dict, share: float) -> tuple[float, float]:
    """Returns the distance of the container's RTT from native: corrected by all of the stack, and
    as host."""
    whole = quantile(ways[TRACED]["corrected"], share) - quantile(
        ways["native, traced"]["corrected"], share
    )
    as_host = quantile(ways[TRACED]["as_host"], share) - quantile(ways["native"]["rtt"], share)
    return whole, as_host


def interval(ways: dict) -> tuple[float, float]:
    """Returns the 95 % interval of the error of the corrected median, by the bootstrap over runs:
    those of a turn belong together."""
    pairs = zip(
        ways[TRACED]["corrected_of_runs"], ways["native, traced"]["corrected_of_runs"], strict=True
    )
    apart = [container - native for container, native in pairs]
    chance = random.Random(1)
    means = [statistics.fmean(chance.choices(apart, k=len(apart))) for _ in range(RESAMPLES)]
    return quantile(means, 0.025), quantile(means, 0.975)


def native_perturbation(ways: dict, way: str) -> float:
    """Returns the time that watching the host adds to its own RTT, us: the median."""
    return median(ways[way]["rtt"]) - median(ways["native"]["rtt"])


def coverage(ways: dict, way: str) -> float:
    """Returns the percentage of packets with a known latency in both directions."""
    return 100 * ways[way]["matched"] / len(ways[way]["rtt"])


def perturbation(ways: dict, way: str, share: float = 0.5) -> float:
    """Returns the time that the measurement adds to the container's RTT, us."""
    return quantile(ways[way]["rtt"], share) - quantile(ways["container"]["rtt"], share)


def mean_perturbation(ways: dict, way: str) -> float:
    """The same, for the means."""
    return statistics.fmean(ways[way]["rtt"]) - statistics.fmean(ways["container"]["rtt"])


def table(head: list[str], rows: list[list[str]]) -> str:
    """Formats a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def us(value: float) -> str:
    return f"{value:+.2f}"


def verdict(met: bool) -> str:
    return "met" if met else "**missed**"


def stamp_errors(all_levels: list[tuple[int, dict]]) -> tuple[float, float]:
    """Returns the errors against the outer device's own stamps, us: the worst median of a level,
    and the bound that 95 % of a level's echoes keep, at the worst level."""
    errors = [ways[STAMPED]["stamp"] for _, ways in all_levels if ways[STAMPED]["stamp"]]
    worst = max((median(of) for of in errors), key=abs)
    return worst, max(quantile([abs(error) for error in of], 0.95) for of in errors)


def by_size(found: dict) -> str:
    """Figure 2's numbers."""
    rows = []
    for size, ways in sorted((int(size), ways) for size, ways in found["sizes"].items()):
        native = ways["native"]["rtt"]
        apart = [
            us(middle(values) - middle(native))
            for values in (ways["container"]["rtt"], ways[TRACED]["as_host"])
            for middle in (statistics.fmean, median)
        ]
        rows.append([str(size), f"{median(native):.2f}", *apart])
    head = ["payload, bytes", "native", "container - native: mean", "median"]
    return table([*head, "as host - native: mean", "median"], rows)


def goals(found: dict) -> str:
    """The table of goals, beside the paper."""
    all_levels = levels(found)
    idle = dict(all_levels)[0]
    loaded = [ways for senders, ways in all_levels if 1 <= senders <= 8]
    at_rest = [accuracy(idle, share) for share in (0.5, 0.99)]
    worst = max((accuracy(ways, 0.5)[0] for ways in loaded), key=abs)
    covered = min(coverage(ways, TRACED) for _, ways in all_levels)
    wrong = sum(ways[way]["wrong"] for _, ways in all_levels for way in ways)
    traced = max(perturbation(ways, TRACED) for _, ways in all_levels)
    in_band = max(perturbation(ways, IN_BAND) for _, ways in all_levels)
    ftrace = max(perturbation(ways, FTRACE) for _, ways in all_levels)
    quiet = [
        us(max(perturbation(ways, way, QUIET) for _, ways in all_levels))
        for way in (TRACED, IN_BAND, FTRACE)
    ]
    costs, stamped = found["syscalls"], stamp_errors(all_levels)
    rows = [
        ["corrected container RTT against native, idle: median", "within 20 us, mean", "1 us",
         us(at_rest[0][0]), verdict(abs(at_rest[0][0]) <= 1)],
        ["the same, p99", "", "5 us", us(at_rest[1][0]), verdict(abs(at_rest[1][0]) <= 5)],
        ["the same with 1 to 8 senders: worst median", "", "2 us", us(worst),
         verdict(abs(worst) <= 2)],
        ["corrected RTT against a packet socket's stamps on the outer device: worst median",
         "hardware's: within 20 us, mean", "", us(stamped[0]), ""],
        ["the same, each echo: 95 % of them within", "", "", f"{stamped[1]:.2f}", ""],
        ["coverage, worst of all levels", "declines, collapses after 17 senders", "100 %",
         f"{covered:.2f} %", verdict(covered == 100)],
        ["wrong matches", "", "0", str(wrong), verdict(wrong == 0)],
        ["perturbation, traced: worst median", "below 20 - 25 us", "3 us", us(traced),
         verdict(traced <= 3)],
        ["perturbation, in-band: worst median", "", "2 us", us(in_band), verdict(in_band <= 2)],
        ["perturbation, ftrace, same events: worst median", "about 90 us under load", "",
         us(ftrace), ""],
        ["the three at the 5th percentile", "", "", ", ".join(quiet), ""],
        ["data volume", "3.9 MB for 2,000 packets", "64 bytes a packet",
         f"{found['volume']:.0f} bytes", verdict(round(found["volume"]) <= 64)],
        ["another process's getppid, traced", "not given", "reported",
         f"{costs['traced'] - costs['alone']:+.0f} ns", ""],
        ["the same, in-band", "", "nothing attached",
         f"{costs['in-band'] - costs['alone']:+.0f} ns", ""],
    ]  # fmt: skip
    return table(["what", "MACE", "goal", "here", ""], rows)


def details(found: dict) -> str:
    """Formats the figures of each level."""
    head = ["senders", "native", "container", "corrected C - N", "p99", "as host - N", "p99"]
    head += ["coverage", "traced", "in-band", "ftrace", "mean: traced", "in-band", "ftrace"]
    head += ["p5: traced", "in-band", "ftrace", "native: traced", "ftrace"]
    rows = []
    for senders, ways in levels(found):
        (half, half_host), (tail, tail_host) = accuracy(ways, 0.5), accuracy(ways, 0.99)
        added = [us(perturbation(ways, way)) for way in (TRACED, IN_BAND, FTRACE)]
        added += [us(mean_perturbation(ways, way)) for way in (TRACED, IN_BAND, FTRACE)]
        added += [us(perturbation(ways, way, QUIET)) for way in (TRACED, IN_BAND, FTRACE)]
        added += [us(native_perturbation(ways, f"native, {how}")) for how in ("traced", "ftrace")]
        plain = [f"{median(ways[way]['rtt']):.2f}" for way in ("native", "container")]
        low, high = interval(ways)
        near = [f"{us(half)} ({us(low)} to {us(high)})"]
        near += [us(value) for value in (tail, half_host, tail_host)]
        covered = f"{coverage(ways, TRACED):.2f} %"
        rows.append([str(senders), *plain, *near, covered, *added])
    return table(head, rows)


def text(found: dict) -> str:
    """The page."""
    shown = ("Date", "Kernel", "Processor", "System", "Measured", "Load average at the start")
    lines = found["machine"].items()
    about = "".join(f"- {name}: {what}\n" for name, what in lines if name in shown)
    count = found["count"] * found["turns"]
    return f"""# Latency added to packets, and the error of its measurement

Written by `benches/latency.py`, which measures all of it anew. The figures are explained in
[design.md](design.md#latencies), what is not covered in [limits.md](limits.md#latencies). MACE's
figures are those of Misa, Kannan and Durairajan, *Can We Containerize Internet Measurements?*
(ANRW 2019), on other machines and with network cards.

{about}
The network is made of namespaces: a container behind veth, bridge and masquerade, its host, a
remote machine behind the host's veth; {count} ICMP echoes of 56 bytes for each cell, in
{found["turns"]} runs that take turns with those of the other ways; further containers that ping as
fast as they get replies. All devices are virtual and work in the sender's own time: load shows as
rare long waits, in the means, and hardly in the medians. Times are us.

## Goals

*Corrected* takes off all of the stack, on either side: container and native RTT, both traced, are
compared. *As host* takes off what lies between the container's device and the outer one: it is
compared with the native RTT while nothing looks on, so it holds the perturbation too.

{goals(found)}
Medians and tails are compared as differences of pooled statistics. A goal that is missed by one
run's chance is missed. Costs of tracing: an echo and its reply pass some 20 tracepoints on the
devices of their path, each of which costs before anything is decided; the rest is six table
look-ups, five reads of headers and two records.

Tried for the 3 us: the programs' own work is some 2.5 us of it, spread over 27 runs for an echo;
that the kernel passes them at all, and the slow way of each system call while anything is
attached to them, is the rest. Clocks that nobody needed and a device's kind, looked up again for
each packet, were taken out (0.2 us). In-band has none of that: two devices pay.

## By senders

{details(found)}
In brackets stands the 95 % interval of the error, from the medians of the runs. Columns *traced*,
*in-band*, *ftrace*: what each adds to the median, then to the mean, then to the 5th percentile of
the container's RTT; then what two of them add to the median of the host's own. On a virtual machine
a processor is a third slower while the host has another guest on the same core, for tens of
milliseconds at a time, so that RTTs have two modes; a median is of one or of the other, or between
them, and moves by more than what is measured. The 5th percentile is of the quick one.

## By size

{by_size(found)}
## Figures

As 2 to 5 of the paper. The bars of figure 3 are 95 % intervals.

![Difference of container and native RTT by packet size](latency/figure2.svg)

![Error of the corrected RTT by senders](latency/figure3.svg)

![Coverage by senders](latency/figure4.svg)

![Perturbation by senders, beside ftrace](latency/figure5.svg)
"""


def plots(found: dict, folder: Path) -> None:
    """The four figures."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "lorentz"
    folder.mkdir(parents=True, exist_ok=True)
    by_size = sorted((int(size), ways) for size, ways in found["sizes"].items())
    sizes = [size for size, _ in by_size]

    def apart(ways: dict, way: str, what: str) -> float:
        return statistics.fmean(ways[way][what]) - statistics.fmean(ways["native"]["rtt"])

    draw(
        folder / "figure2.svg",
        ("payload, bytes", "container - native RTT, mean, us"),
        sizes,
        {
            "container": [apart(ways, "container", "rtt") for _, ways in by_size],
            "as host": [apart(ways, TRACED, "as_host") for _, ways in by_size],
        },
    )
    senders = [number for number, _ in levels(found)]
    ways_of = [ways for _, ways in levels(found)]
    raw = [median(w["container"]["rtt"]) - median(w["native"]["rtt"]) for w in ways_of]
    draw(
        folder / "figure3.svg",
        ("senders", "error against native, median, us"),
        senders,
        {
            "container, not corrected": raw,
            "corrected": [accuracy(ways, 0.5)[0] for ways in ways_of],
            "as host": [accuracy(ways, 0.5)[1] for ways in ways_of],
        },
        {"corrected": [interval(ways) for ways in ways_of]},
    )
    draw(
        folder / "figure4.svg",
        ("senders", "coverage, %"),
        senders,
        {way: [coverage(w, way) for w in ways_of] for way in (TRACED, "native, traced", IN_BAND)},
    )
    draw(
        folder / "figure5.svg",
        ("senders", "perturbation, median, us"),
        senders,
        {
            **{way: [perturbation(w, way) for w in ways_of] for way in (TRACED, IN_BAND, FTRACE)},
            **{
                way: [native_perturbation(w, way) for w in ways_of]
                for way in ("native, traced", "native, ftrace")
            },
        },
    )


def draw(
    path: Path,
    labels: tuple[str, str],
    at: list[int],
    lines: dict[str, list[float]],
    intervals: dict[str, list[tuple[float, float]]] | None = None,
) -> None:
    """One plot; a line in `intervals` has error bars with these ends."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.5))
    for name, values in lines.items():
        line = axes.plot(at, values, marker="o", label=name)[0]
        if intervals and name in intervals:
            low, high = zip(*intervals[name], strict=True)
            axes.vlines(at, low, high, color=line.get_color())
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    axes.set_ylim(bottom=min(0, *axes.get_ylim()))
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
