#!/usr/bin/env python3
"""Writes docs/experiments.md and its plots from figures measured before.

    benches/experiments_page.py [--goals] [RECORD]

With --goals it prints the table of goals and writes nothing. RECORD is the file that `make bench
ARGS=experiments` writes; default: build/bench/experiments.json. It also shows figures of
`experiments-45000` beside it. The prose is in benches/experiments.md.in; each line `<!-- figures:
NAME -->` there is replaced by figures.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import experiments_plots as plots
from experiments_plots import length

ROOT = Path(__file__).resolve().parent.parent
TEMPLATE = ROOT / "benches/experiments.md.in"
PAGE = ROOT / "docs/experiments.md"
THEIRS = json.loads((ROOT / "benches/timekeeper.json").read_text())
REASONS = json.loads((ROOT / "benches/reasons.json").read_text())
MARK = """\
<!-- Written by `make bench ARGS=experiments`, or by `benches/experiments_page.py` from figures that
     are there. Do not edit: the prose is in benches/experiments.md.in, the reasons for missed goals
     in benches/reasons.json. -->

"""

Figures = dict[str, Any]


def table(head: list[str], rows: list[list[str]]) -> str:
    """Lines of a table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def plot(name: str, what: str) -> str:
    """A plot, as the page shows it."""
    return f"![{what}](experiments/{name}.svg)"


def deviating(row: Figures) -> str:
    """A mean and its standard deviation."""
    if row.get("mean") is None:
        return "-"
    return f"{length(row['mean'])} ± {length(row['deviation'])}"


def perceived(row: Figures) -> str:
    """Formats the greatest perceived error, and the number of readings."""
    seen = row["perceived"]
    if seen["worst"] is None:
        return f"{seen['status_worst']} ns (no reading)"
    return f"{max(seen['worst'], seen['status_worst'])} ns ({seen['readings']:,} readings)"


def worst_perceived(rows: list[Figures]) -> float | None:
    """Returns the greatest error of all; None if there are no readings."""
    seen = [row["perceived"] for row in rows if row["perceived"]["worst"] is not None]
    return max((max(one["worst"], one["status_worst"]) for one in seen), default=None)


@dataclass(frozen=True)
class Page:
    """The measured figures."""

    record: Figures
    largest_record: Figures | None

    @property
    def samples(self) -> Figures:
        return self.record["samples"]

    @property
    def largest(self) -> Figures | None:
        return self.largest_record["samples"] if self.largest_record else None

    def steps(self) -> list[Figures]:
        """All of table 5.3."""
        return self.samples.get("stepwise", []) + self.samples.get("many", {}).get("stepwise", [])

    def goals(self) -> str:
        rows, reasons = [], []
        for what, theirs, goal, key, value, shown in self.judged():
            met = value is not None and goal[1](value)
            verdict = "not measured" if value is None else "yes" if met else "**no**"
            rows.append([what, theirs, goal[0], shown if value is not None else "-", verdict])
            if value is not None and not met:
                why = REASONS.get(f"experiments.{key}", "no reason is known yet")
                reasons.append(f"- **{what}**: {why}.")
        lines = [table(["what", "TimeKeeper", "goal", "here", "met"], rows)]
        if reasons:
            lines += ["", "Where a goal is missed:", "", *reasons]
        return "\n".join(lines)

    def judged(self) -> list[tuple[str, str, tuple[str, Any], str, float | None, str]]:
        """Returns, for each goal: its name, TimeKeeper's figure, the bound, its key, the figure,
        and its text."""
        samples = self.samples
        zero = ("0 ns", lambda worst: worst == 0)
        ends = worst_perceived(samples.get("accuracy", []))
        steps = worst_perceived(self.steps()) if "stepwise" in samples else None
        most_steps = max((row["containers"] for row in self.steps()), default=0)
        rate = samples.get("progress_rate", {}).get("progress")
        most = self.largest
        calls = samples.get("clock_calls")
        dearest = self.dearest_call() if calls else None
        speed = ("at least 5,000", lambda value: value >= 5_000)
        cheap = ("at most 1.2x native", lambda value: value <= 1.2)
        return [
            (
                "perceived error at a round's end, 10 to 80 containers, 0.3 to 300 ms",
                "0.2 to 1.0 us (mean)",
                zero,
                "accuracy",
                ends,
                f"{ends} ns (worst)",
            ),
            (
                "perceived error, steps of 10 to 1000 us, 8 to 8000 containers",
                "2 / 10 / 66 us (mean)",
                zero,
                "stepwise",
                steps,
                f"{steps} ns (worst, up to {most_steps:,} containers)",
            ),
            (
                "45,000 containers, 1 % active, 3 ms: overhead ratio",
                "0.23 (28 cores)",
                ("above 1", lambda value: value > 1),
                "largest",
                most and most["overhead_ratio"],
                f"{most['overhead_ratio']:.2f} ({most['containers']:,} containers)" if most else "",
            ),
            (
                "steps per second, 8 containers, empty work",
                "not given",
                speed,
                "progress_rate",
                rate,
                f"{rate:,.0f}" if rate else "",
            ),
            (
                "gettimeofday inside",
                "1,248 to 1,380 ns, 12x native",
                cheap,
                "clock_calls",
                dearest,
                f"{dearest:.2f}x at the dearest TDF" if dearest else "",
            ),
        ]

    def dearest_call(self) -> float:
        """Returns the cost of gettimeofday in an experiment, divided by that of native."""
        calls = self.samples["clock_calls"]
        inside = max(calls[tdf]["clock_gettimeofday"] for tdf in ("1", "0.5", "2"))
        return inside / calls["native"]["clock_gettimeofday"]

    def machine(self) -> str:
        lines = [f"- {name}: {value}" for name, value in self.record["machine"].items()]
        if self.record["quick"]:
            lines += ["", "**These figures are of a short run (`--quick`): few rounds each.**"]
        left_out = self.record.get("left_out", {})
        lines += [f"- Left out: {what}: {reason}" for what, reason in left_out.items()]
        return "\n".join([*lines, "", f"TimeKeeper's: {THEIRS['machine']}. {THEIRS['source']}."])

    def timers(self) -> str:
        rows = []
        for ours, theirs in zip(self.samples["timers"], THEIRS["timers"]["rows"], strict=True):
            rows.append(
                [
                    length(ours["timeslice"]),
                    deviating(theirs),
                    perceived(ours),
                    length(ours["overrun_median"]),
                    length(ours["overrun_p99"]),
                    f"{ours['rounds']:,}",
                ]
            )
        head = ["timeslice", "TimeKeeper, timer", "perceived here", "overrun, median", "99 %"]
        return table([*head, "rounds"], rows)

    def accuracy(self) -> str:
        rows = []
        for theirs in THEIRS["accuracy"]["rows"]:
            same = ("containers", "timeslice")
            ours = next(
                row
                for row in self.samples["accuracy"]
                if all(row[key] == theirs[key] for key in same)
            )
            rows.append(
                [
                    str(theirs["containers"]),
                    length(theirs["timeslice"]),
                    deviating(theirs),
                    perceived(ours),
                    length(ours["overrun_median"]),
                    length(ours["overrun_p99"]),
                    deviating(ours["overruns"]),
                    f"{ours['rounds']:,}",
                ]
            )
        head = ["containers", "timeslice", "TimeKeeper, error", "perceived here"]
        return table([*head, "overrun, median", "99 %", "seen from inside", "rounds"], rows)

    def cdf_containers(self) -> str:
        return plot("cdf-containers", "Shares of overruns, 3 ms, 10 to 80 containers")

    def cdf_timeslice(self) -> str:
        return plot("cdf-timeslice", "Shares of overruns, 10 containers, by timeslice")

    def by_size(self, part: str) -> str:
        rows = [
            [
                str(row["containers"]),
                perceived(row),
                length(row["overrun_median"]),
                length(row["overrun_p99"]),
                f"{row['slowdown']:.3g}",
            ]
            for row in self.samples[part]
        ]
        return table(["containers", "perceived", "overrun, median", "99 %", "slowdown"], rows)

    def fast_clocks(self) -> str:
        shown = plot("scalability", "Error against containers")
        return shown + "\n\n" + self.by_size("fast_clocks")

    def same_product(self) -> str:
        return plot("product", "Error, constant product") + "\n\n" + self.by_size("same_product")

    def stepwise(self) -> str:
        theirs = {row["containers"]: row for row in THEIRS["stepwise"]["rows"]}
        rows = []
        for row in self.steps():
            published = theirs.get(row["containers"], {}).get(str(row["interval"]))
            rows.append(
                [
                    f"{row['containers']:,}",
                    length(row["interval"]),
                    length(published) if published else "-",
                    perceived(row),
                    f"{row['clocks_off']} ns",
                    length(row["progress"]),
                    str(row["points"]),
                ]
            )
        head = ["containers", "interval", "TimeKeeper, error", "perceived here", "clocks off by"]
        rate = self.samples.get("progress_rate", {})
        lines = [table([*head, "time per progress", "points"], rows)]
        if rate:
            lines += [
                "",
                f"Steps per second with 8 containers that sleep, over one connection: "
                f"**{rate['progress']:,.0f}**; where each step sets all 8 intervals anew, "
                f"**{rate['stepped']:,.0f}** by one request, "
                f"{rate['with_intervals']:,.0f} by nine.",
            ]
        return "\n".join(lines)

    def clock_calls(self) -> str:
        calls = self.samples["clock_calls"]
        theirs = THEIRS["clock_calls"]
        cases = ("clock_gettimeofday", "clock_realtime", "clock_monotonic", "clock_syscall")
        rows = []
        for level in ("native", "1", "0.5", "2"):
            name = level if level == "native" else f"in an experiment, TDF {level}"
            cells = [name, f"{theirs['kernel_only'][level]} ns", f"{theirs['whole'][level]:,} ns"]
            for case in cases:
                value, native = calls[level][case], calls["native"][case]
                ratio = "" if level == "native" else f" ({value / native:.2f}x)"
                cells.append(f"{value:.1f} ns{ratio}")
            rows.append(cells)
        head = ["", "TimeKeeper, table 5.4", "TimeKeeper, table 5.5", "gettimeofday"]
        return table(
            [*head, "clock_gettime(REALTIME)", "clock_gettime(MONOTONIC)", "the same as a syscall"],
            rows,
        )

    def overhead(self) -> str:
        rows = []
        for row in plots.overhead_rows(self.samples, self.largest):
            each = row["memory"] / row["containers"] if row["containers"] > 8_000 else None
            rows.append(
                [
                    f"{row['containers']:,}",
                    f"{row['active']:,}",
                    f"{row['overhead_ratio']:.3g}",
                    length(row["synchronizing"]),
                    f"{each / 1024:.0f} KiB" if each else "-",
                    str(row["rounds"]),
                ]
            )
        other = THEIRS["overhead"]
        head = ["containers", "active", "overhead ratio", "synchronizing, per round"]
        lines = [
            plot("overhead", "Overhead ratio against containers"),
            "",
            table([*head, "memory each", "rounds"], rows),
            "",
            f"TimeKeeper: {other['ratio']} with {other['containers']:,} containers "
            f"({other['source']}).",
        ]
        if self.largest is None:
            lines += [
                "",
                "45,000 containers: not measured here; `make bench ARGS=experiments-45000` does.",
            ]
        return "\n".join(lines)

    def synchronizing(self) -> str:
        faster = THEIRS["synchronizing"]["speedup"]
        return "\n\n".join(
            [
                plot("synchronizing", "Time spent on synchronizing, per round"),
                f"TimeKeeper's 8 threads were {faster['8']}x as quick as one with 8 containers, "
                f"{faster['8000']}x with 8,000; the times themselves are not in its text.",
            ]
        )

    def real_time(self) -> str:
        theirs = THEIRS["real_time"]
        rows = []
        for row in self.samples["real_time"]:
            parts = row["parts"]
            printed = theirs["processors"] / (1 / parts + 1)
            rows.append(
                [
                    f"1/{parts}",
                    f"{theirs['processors'] * parts}",
                    f"{printed:.2f}",
                    f"{parts}",
                    str(row["kept"]),
                    "; ".join(f"{size}: {slowdown:.2f}" for size, slowdown in row["tried"]),
                ]
            )
        head = ["TDF", "TimeKeeper's bound, 6/TDF", "TimeKeeper found, 6/(TDF + 1) as printed"]
        head += ["bound here, processors/TDF", "tipping point here", "tried, with the slowdown"]
        return plot("real-time", "Slowdown against containers") + "\n\n" + table(head, rows)

    def part(self, name: str) -> str:
        """Returns the figures for a mark."""
        try:
            return getattr(self, name)()
        except KeyError:
            return "*Not measured in this run.*"

    def text(self) -> str:
        """The whole page."""
        body = TEMPLATE.read_text()
        marks = re.compile(r"^<!-- figures: (\w+) -->$", re.M)
        return MARK + marks.sub(lambda mark: self.part(mark[1]), body)


def main() -> int:
    """Write the page and its plots."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--goals", action="store_true", help="only print the table of goals")
    parser.add_argument(
        "record", nargs="?", type=Path, default=ROOT / "build/bench/experiments.json"
    )
    wanted = parser.parse_args()
    file = wanted.record
    if not file.exists():
        print(f"{file}: not there; `make bench ARGS=experiments` makes it", file=sys.stderr)
        return 2
    beside = file.with_name("experiments-45000.json")
    largest = json.loads(beside.read_text()) if beside.exists() else None
    page = Page(json.loads(file.read_text()), largest)
    if wanted.goals:
        print(page.goals())
        return 0
    plots.draw_all(PAGE.with_suffix(""), page.samples, page.largest, THEIRS)
    PAGE.write_text(page.text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
