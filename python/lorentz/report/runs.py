"""Reads the files of `lorentz study`, and joins files of one kind to one study."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import polars as pl

#: The accepted format of the files, which crates/study/src/table.rs writes.
FORMAT = "1"
#: Settings that must agree before records can stand beside one another.
SIZES = ("calls", "sleeps", "millis", "samples")


class WrongRunError(Exception):
    """A file that cannot be judged; the message is one line."""


@dataclass(frozen=True)
class Run:
    """One study: its raw samples, and its records. The tests compare records.

    `records` has a row for each round, load, level and metric, with `value_ns`: nanoseconds per
    call; for sleeps of the timing paper, how much later than asked. Where a record has many samples
    it is their median.
    """

    study: str
    #: The name of the machine by `lorentz study --as`; empty if it has none.
    platform: str
    settings: dict
    environment: dict
    left_out: dict[str, str]
    samples: pl.DataFrame
    records: pl.DataFrame
    sources: list[str]

    @property
    def name(self) -> str:
        """The study, with its platform if that has a name: `clocks`, `clocks-guest`."""
        return f"{self.study}-{self.platform}" if self.platform else self.study

    @property
    def machine(self) -> str:
        """The platform's name, to stand beside others."""
        return self.platform or "unnamed"

    @property
    def levels(self) -> list[str]:
        """The measured ones, in the order of the study."""
        there = set(self.records["level"])
        return [name for name in self.settings["levels"] if name in there]

    @property
    def metrics(self) -> list[str]:
        """The measured ones, in the order of the study."""
        there = set(self.records["metric"])
        return [name for name in self.settings["metrics"] if name in there]

    @property
    def loads(self) -> list[str]:
        """The loads of the study."""
        return list(self.settings["loads"])

    def values(self, metric: str, load: str) -> dict[str, list[float]]:
        """The records of a metric under a load, by level."""
        chosen = self.records.filter(pl.col("metric") == metric, pl.col("load") == load)
        found = {
            level: chosen.filter(pl.col("level") == level)["value_ns"].to_list()
            for level in self.levels
        }
        return {level: values for level, values in found.items() if values}


def read(paths: list[str]) -> list[Run]:
    """The studies in these files, one for each kind and platform; files of one are one study."""
    by_name: dict[str, list[Run]] = {}
    for path in paths:
        run = _read_one(path)
        by_name.setdefault(run.name, []).append(run)
    return [_joined(runs) for runs in by_name.values()]


def _read_one(path: str) -> Run:
    if not Path(path).is_file():
        raise WrongRunError(f"RUN {path}: there is no such file; expected one of 'lorentz study'")
    try:
        metadata = pl.read_parquet_metadata(path)
        samples = pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        why = str(error).strip().splitlines()[0]
        raise WrongRunError(
            f"RUN {path}: not Parquet ({why}); expected a file of 'lorentz study'"
        ) from error
    found = metadata.get("lorentz_study_format")
    if found is None:
        raise WrongRunError(f"RUN {path}: it is no study; expected a file of 'lorentz study'")
    if found != FORMAT:
        raise WrongRunError(f"RUN {path}: its format is {found}; expected {FORMAT}")
    if samples.is_empty():
        raise WrongRunError(f"RUN {path}: it has no records; expected some")
    settings = json.loads(metadata["settings"])
    return Run(
        study=metadata["study"],
        platform=settings.get("platform") or "",
        settings=settings,
        environment=json.loads(metadata["environment"]),
        left_out=json.loads(metadata["left_out"]),
        samples=samples.with_columns(value_ns=pl.col("mean_ns") - _asked(metadata["study"])),
        records=pl.DataFrame(),
        sources=[path],
    )


def _asked(study: str) -> pl.Expr:
    """The time to subtract: of a sleep of the timing paper, its lateness alone counts."""
    return pl.col("asked_ns") if study == "timers" else pl.lit(0)


def _joined(runs: list[Run]) -> Run:
    first = runs[0]
    rounds = 0
    parts = []
    for run in runs:
        for size in SIZES:
            if run.settings[size] != first.settings[size]:
                raise WrongRunError(
                    f"RUN {run.sources[0]}: {size} is {run.settings[size]}, in {first.sources[0]} "
                    f"{first.settings[size]}; expected studies of the same settings"
                )
        for fact in ("kernel", "processor"):
            own, other = (one.environment["facts"].get(fact) for one in (run, first))
            if own != other:
                raise WrongRunError(
                    f"RUN {run.sources[0]}: its {fact} is {own}, that of {first.sources[0]} "
                    f"{other}; expected studies of one machine, or of machines named by --as"
                )
        parts.append(run.samples.with_columns(round=pl.col("round") + rounds))
        rounds = parts[-1]["round"].max() + 1
    samples = pl.concat(parts)
    keys = ["round", "load", "level", "metric"]
    records = samples.group_by(keys, maintain_order=True).agg(pl.col("value_ns").median())
    settings = dict(first.settings)
    for name in ("levels", "metrics", "loads"):
        settings[name] = list(dict.fromkeys(one for run in runs for one in run.settings[name]))
    return Run(
        study=first.study,
        platform=first.platform,
        settings=settings,
        environment=first.environment,
        left_out={level: why for run in runs for level, why in run.left_out.items()},
        samples=samples,
        records=records,
        sources=[source for run in runs for source in run.sources],
    )
