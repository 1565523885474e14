"""Writes the tables of docs/experiment.md, or checks that they are up to date.

`python tools/experiment.py` makes them of benchmarks/results/training_effect.json, the results of
`benchmarks/training_effect.py`, and writes each between ``<!-- table: NAME -->`` and
``<!-- end -->``. With `--check` it writes nothing; where the page is out of date it shows the
difference and exits with 1. `tools/experiment_chart.py` draws the page's chart.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenstride.compare import ORDERS
from generated import markdown, with_tables, write_or_check
from intervals import Interval

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Run = dict[str, Any]
    Measure = Callable[[Run], float]

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "experiment.md"
RESULTS = ROOT / "benchmarks" / "results" / "training_effect.json"

COMPOSITIONS = ("stride", "window", "frozen", "window_time", "mixed", "mixed_time")
DECISIVE = ("stride", "shuffle")
"""The orders that all others are compared with."""


def validation(run: Run) -> float:
    """Return the mean loss of a held-out token after the epoch."""
    return float(run["validation"][-1])


def loss_noise(kind: str) -> Measure:
    """Return the measure that is a kind of the loss's noise."""
    return lambda run: float(run["loss_noise"][kind])


def norm_share(kind: str) -> Measure:
    """Return the measure that is a between-bucket share of the gradient norms' variance."""
    return lambda run: float(run["norm_share"][kind])


class Experiment:
    """The runs of all settings with the same seeds.

    Parameters
    ----------
    document : dict
        As `training_effect.py` writes it. A seed that not every setting has is left out.

    Raises
    ------
    ValueError
        If there are fewer than two seeds that every setting has.

    """

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self._runs = {(run["setting"], run["seed"]): run for run in document["runs"]}
        self.settings = list(dict.fromkeys(setting for setting, _ in self._runs))
        self.seeds = sorted(
            seed
            for seed in {seed for _, seed in self._runs}
            if all((setting, seed) in self._runs for setting in self.settings)
        )
        if len(self.seeds) < 2:  # noqa: PLR2004 - What an interval needs.
            msg = f"Every setting must have two seeds at least, but all have {len(self.seeds)}."
            raise ValueError(msg)

    @classmethod
    def load(cls, path: Path) -> Experiment:
        """Read a results file."""
        return cls(json.loads(path.read_text(encoding="utf-8")))

    def runs(self, setting: str) -> list[Run]:
        """Return a setting's runs, seed by seed."""
        return [self._runs[setting, seed] for seed in self.seeds]

    def of(self, setting: str, measure: Measure) -> Interval:
        """Return a setting's mean over the seeds."""
        return Interval.of([measure(run) for run in self.runs(setting)])

    def against(self, setting: str, other: str, measure: Measure) -> Interval:
        """Return by how much a setting is above another one, over pairs of the same seed."""
        pairs = zip(self.runs(setting), self.runs(other), strict=True)
        return Interval.of([measure(run) - measure(its) for run, its in pairs])


def conditions(experiment: Experiment) -> str:
    """Return what was trained on what, in words."""
    facts, machine = experiment.document["facts"], experiment.document["machine"]
    edges = ", ".join(map(str, facts["edges"]))
    commits = ", ".join(dict.fromkeys(run["commit"] for run in experiment.document["runs"]))
    packages = experiment.document["packages"]
    versions = ", ".join(f"{name} {version}" for name, version in packages.items())
    return (
        f"{facts['train_samples']:,} functions of {facts['train_tokens']:,} tokens to train on, "
        f"{facts['validation_samples']:,} of {facts['validation_tokens']:,} held out, drawn from "
        f"{facts['corpus_functions']:,}; cut at {facts['max_length']:,} tokens; edges {edges}; a "
        f"budget of {facts['token_budget']:,} padded tokens, at most {facts['max_batch_size']} "
        f"samples a batch, {facts['accumulation_steps']} batches an optimizer step; windows of "
        f"{facts['window']} samples; a model of {facts['parameters']:,} parameters; "
        f"{len(experiment.seeds)} seeds.\n\n"
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']:g} GiB, "
        f"{machine['system']}, load {machine['load']:g} at the start; torch with "
        f"{facts['threads']} thread{'s' * (facts['threads'] > 1)}; "
        f"Python {experiment.document['python']}, {versions}; commit {commits}."
    )


def losses(experiment: Experiment) -> str:
    """Return the validation loss of each order, and how far it is from the two that decide."""
    rows = []
    for order in ORDERS:
        differences = [
            "-" if order == other else signed(experiment.against(order, other, validation))
            for other in DECISIVE
        ]
        rows.append([f"`{order}`", plain(experiment.of(order, validation)), *differences])
    header = ["order", "validation loss", *(f"less that of `{other}`" for other in DECISIVE)]
    return markdown(header, rows, left=1)


def noise(experiment: Experiment) -> str:
    """Return how much loss and gradient norm scatter in each order."""
    rows = []
    for order in ORDERS:
        longest = max(run["longest_run"] for run in experiment.runs(order))
        shares = [experiment.of(order, norm_share(kind)) for kind in ("batch", "optimizer_step")]
        kinds = ("batch", "optimizer_step", "running_mean")
        rest = [experiment.of(order, loss_noise(kind)) for kind in kinds]
        cells = [*map(percents, shares), *(plain(one, 3) for one in rest)]
        rows.append([f"`{order}`", f"{longest:,}", *cells])
    header = ["order", "longest run", "share, batches", "share, optimizer steps"]
    return markdown([*header, "noise, batches", "optimizer steps", "four of them"], rows, left=1)


def noise_differences(experiment: Experiment) -> str:
    """Return how far the noise between optimizer steps is from that of `stride`."""
    measures = {
        "share (of 1), optimizer steps": norm_share("optimizer_step"),
        "noise, optimizer steps": loss_noise("optimizer_step"),
        "noise, four of them": loss_noise("running_mean"),
    }
    return less_stride(experiment, measures)


def quarters(experiment: Experiment) -> str:
    """Return how far each order is from `stride` after each quarter of the tokens."""
    names = ["a quarter", "half", "three quarters", "all"]
    measures = [partial(after_quarter, quarter) for quarter in range(len(names))]
    return less_stride(experiment, dict(zip(names, measures, strict=True)))


def buckets(experiment: Experiment) -> str:
    """Return how far each order is from `stride` on the held-out samples of each bucket."""
    edges = [0, *experiment.document["facts"]["edges"]]
    names = [*(f"[{start}, {stop})" for start, stop in pairwise(edges)), f"from {edges[-1]}"]
    losses = experiment.runs("stride")[0]["validation_by_bucket"]
    measures = {
        name: partial(in_bucket, bucket)
        for bucket, (name, loss) in enumerate(zip(names, losses, strict=True))
        if loss is not None  # Else nothing of the bucket is held out.
    }
    return less_stride(experiment, measures)


def less_stride(experiment: Experiment, measures: Mapping[str, Measure]) -> str:
    """Return how far each order is from `stride`: a column for each measure."""
    rows = [
        [
            f"`{order}`",
            *(
                signed(experiment.against(order, "stride", measure))
                for measure in measures.values()
            ),
        ]
        for order in ORDERS[1:]
    ]
    return markdown(["order, less `stride`", *measures], rows, left=1)


def compositions(experiment: Experiment) -> str:
    """Return what padding less gives, at equal tokens and at equal time."""
    rows = []
    for setting in COMPOSITIONS:
        run = experiment.runs(setting)[0]
        time = experiment.of(setting, lambda run: float(run["processor_s"]))
        loss = experiment.of(setting, validation)
        difference = experiment.against(setting, "stride", validation)
        counts = [f"{run[name]:,}" for name in ("batches", "tokens", "padded_tokens")]
        real = f"{100 * run['tokens'] / run['padded_tokens']:.1f}%"
        cells = [*counts, real, plain(time, 1), plain(loss)]
        rows.append([f"`{setting}`", *cells, "-" if setting == "stride" else signed(difference)])
    header = ["setting", "batches", "tokens", "padded tokens", "real", "processor time (s)"]
    return markdown([*header, "validation loss", "less that of `stride`"], rows, left=1)


TABLES = {
    "conditions": conditions,
    "losses": losses,
    "quarters": quarters,
    "buckets": buckets,
    "noise": noise,
    "noise_differences": noise_differences,
    "compositions": compositions,
}


def after_quarter(quarter: int, run: Run) -> float:
    """Return the validation loss after a quarter of the tokens, from 0 on."""
    return float(run["validation"][quarter])


def in_bucket(bucket: int, run: Run) -> float:
    """Return the validation loss of the held-out samples of a bucket."""
    return float(run["validation_by_bucket"][bucket])


def plain(interval: Interval, digits: int = 4) -> str:
    """Return a mean and its uncertainty."""
    return f"{interval.mean:.{digits}f} ± {interval.half:.{digits}f}"


def signed(interval: Interval, digits: int = 4) -> str:
    """Return a difference, bold where its interval excludes 0."""
    text = f"{interval.mean:+.{digits}f} ± {interval.half:.{digits}f}"
    return f"**{text}**" if interval.excludes_zero else text


def percents(interval: Interval) -> str:
    """Return a share and its uncertainty as percentages."""
    return f"{100 * interval.mean:.1f}% ± {100 * interval.half:.1f}"


def updated() -> str:
    """Return the page with every table as it is now."""
    experiment = Experiment.load(RESULTS)
    return with_tables(PAGE, {name: partial(table, experiment) for name, table in TABLES.items()})


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, updated, __doc__, "python tools/experiment.py"))
