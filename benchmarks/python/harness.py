"""What the benchmarks share: the data, the machine, fair timing, and the results file."""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

BENCHMARKS = Path(__file__).resolve().parents[1]
RESULTS = BENCHMARKS / "results"
HISTOGRAM = BENCHMARKS / "data" / "length_histogram.csv"

EDGES = [770, 1216, 1728, 2432, 3296]
TOKEN_BUDGET = 49_152
MAX_BATCH_SIZE = 64


def load_lengths(copies: int = 1, *, seed: int = 0) -> NDArray[np.uint16]:
    """Return the 902,087 lengths of the histogram, `copies` times, shuffled."""
    table = np.loadtxt(HISTOGRAM, delimiter=",", skiprows=1, dtype=np.int64)
    lengths = np.tile(np.repeat(table[:, 0].astype(np.uint16), table[:, 1]), copies)
    np.random.default_rng(seed).shuffle(lengths)
    return lengths


# --------------------------------------------------------------------------- timing


@dataclass(frozen=True)
class Timing:
    """Seconds of one call: median and the two outer deciles of `runs` calls."""

    median: float
    p10: float
    p90: float
    runs: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Timing:
        """Summarise `seconds`."""
        p10, p90 = np.quantile(seconds, [0.1, 0.9]).tolist()
        return cls(statistics.median(seconds), p10, p90, len(seconds))


@dataclass
class Contender:
    """A call to time, `per_round` times in each round."""

    call: Callable[[], object]
    per_round: int = 1
    rounds: list[list[float]] = field(default_factory=list)

    @property
    def timing(self) -> Timing:
        """All rounds together."""
        return Timing.of([seconds for one in self.rounds for seconds in one])


def alternate(contenders: Mapping[str, Contender], *, rounds: int, pause: float = 0.005) -> None:
    """Time the contenders in turn, `rounds` times, each round from another one on.

    So that what else the machine does hits all alike. Each is called once before. The pause lets
    the threads of the contender before fall asleep; what a call returns dies outside its time.
    """
    names = list(contenders)
    for name in names:
        contenders[name].call()
    gc.collect()
    gc.disable()
    try:
        for turn in range(rounds):
            first = turn % len(names)
            for name in names[first:] + names[:first]:
                contender = contenders[name]
                contender.rounds.append(
                    [_seconds(contender.call, pause) for _ in range(contender.per_round)]
                )
    finally:
        gc.enable()


def _seconds(call: Callable[[], object], pause: float) -> float:
    time.sleep(pause)
    start = time.perf_counter()
    result = call()
    stop = time.perf_counter()
    del result
    return stop - start


def memory_mib() -> float:
    """Return what this process and its children hold beside files, each shared page once."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="utf-8").split()
    total = 0
    for process in ("self", *children):
        text = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="utf-8")
        total += sum(
            int(line.split()[1])
            for line in text.splitlines()
            if line.startswith(("Pss_Anon:", "Pss_Shmem:"))
        )
    return total / 1024


# --------------------------------------------------------------------------- results


@dataclass(frozen=True)
class Row:
    """One line of a result table: our time, a baseline's, and the ratio to reach."""

    work: str
    ours: Timing
    baseline: str | None = None
    theirs: Timing | None = None
    ratio: float | None = None
    ratio_p10: float | None = None
    ratio_p90: float | None = None
    reach: float | None = None
    items: int = 0
    """Samples or indices of one call, for a time an item."""

    @property
    def missed(self) -> bool:
        """Whether there is a ratio to reach, and it was not."""
        return self.reach is not None and (self.ratio is None or self.ratio < self.reach)


def compare(
    work: str,
    ours: Contender,
    *,
    items: int,
    baseline: str | None = None,
    theirs: Contender | None = None,
    reach: float | None = None,
) -> Row:
    """Make a row of two contenders that ran in the same rounds.

    The ratio is that of the medians; its spread, p10 to p90, that of the rounds' own ratios.
    """
    if theirs is None:
        return Row(work, ours.timing, items=items)
    each = [
        statistics.median(their_round) / statistics.median(our_round)
        for their_round, our_round in zip(theirs.rounds, ours.rounds, strict=True)
    ]
    p10, p90 = np.quantile(each, [0.1, 0.9]).tolist()
    ratio = theirs.timing.median / ours.timing.median
    return Row(work, ours.timing, baseline, theirs.timing, ratio, p10, p90, reach, items)


def show(rows: Sequence[Row]) -> None:
    """Print the rows as a table for a terminal."""
    cells = [("work", "ours", "baseline", "its time", "ratio", "p10..p90", "reach", "")]
    cells += [
        (
            row.work,
            milliseconds(row.ours),
            row.baseline or "-",
            milliseconds(row.theirs) if row.theirs else "-",
            f"{row.ratio:.2f}" if row.ratio else "-",
            f"{row.ratio_p10:.2f}..{row.ratio_p90:.2f}" if row.ratio else "-",
            f"{row.reach:g}" if row.reach else "-",
            "" if row.reach is None else "missed" if row.missed else "reached",
        )
        for row in rows
    ]
    _print(cells)


def _print(cells: Sequence[Sequence[str]]) -> None:
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    for line in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)))


@dataclass(frozen=True)
class Table:
    """A table of another shape, its cells as they are to be read."""

    title: str
    head: list[str]
    rows: list[list[str]]
    missed: list[str] = field(default_factory=list)
    """What was to be reached and was not, a sentence each."""


def milliseconds(timing: Timing) -> str:
    """Return median and spread in milliseconds, to three digits."""
    return _with_spread(timing, "ms", 1e3)


def duration(timing: Timing) -> str:
    """Return the median in milliseconds or seconds, and the spread where there is one."""
    text = _with_spread(timing, "s", 1.0) if timing.median >= 1 else milliseconds(timing)
    return text if timing.runs > 1 else text.partition(" (")[0]


def _with_spread(timing: Timing, unit: str, factor: float) -> str:
    values = (timing.median, timing.p10, timing.p90)
    median, p10, p90 = (three_digits(factor * seconds) for seconds in values)
    return f"{median} {unit} ({p10}..{p90})"


def three_digits(value: float) -> str:
    """Return a number as text, to about three digits."""
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def environment(packages: Sequence[str] = ("numpy", "torch", "numba")) -> dict[str, Any]:
    """Return machine, compiler, versions and commit, ready for JSON."""
    return {
        "machine": {
            "cpu": _cpu_model(),
            "cores": len(os.sched_getaffinity(0)),
            "memory_gib": round(
                os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1
            ),
            "system": f"{platform.system()} {platform.machine()}",
            "load": round(os.getloadavg()[0], 2),
        },
        "compiler": _compiler(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in ("evenstride", *packages)},
        "commit": _commit(),
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _compiler() -> str:
    """Return the compiler of the extension, else the one that would have built it here."""
    try:
        version = str(import_module("evenstride._core").compiler)
    except (ImportError, AttributeError):
        return _first_line("g++", "--version") or "unknown"
    return f"GCC {version}" if version[0].isdigit() else version


def _commit() -> str:
    commit = _first_line("git", "-C", str(BENCHMARKS), "rev-parse", "--short=12", "HEAD")
    if commit is None:
        return "none"
    changed = _first_line(
        # Results, and the pages about them, do not change what was measured.
        *("git", "-C", str(BENCHMARKS.parent), "status", "--porcelain", "--", "."),
        *(":(exclude)benchmarks/results", ":(exclude)docs"),
    )
    return commit + ("-dirty" if changed else "")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _first_line(*command: str) -> str | None:
    try:
        done = subprocess.run(  # noqa: S603 - The commands are this file's own.
            command, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.partition("\n")[0].strip() or None


# --------------------------------------------------------------------------- command line


def parse_arguments(description: str | None, name: str) -> argparse.Namespace:
    """Return the options that every benchmark has: quick, json, assert_reached."""
    arguments = argument_parser(description, name).parse_args()
    if arguments.json is None and not arguments.quick:
        arguments.json = RESULTS / f"{name}.json"
    return arguments


def argument_parser(description: str | None, name: str) -> argparse.ArgumentParser:
    """Return a parser of those options, to which a benchmark may add."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="a smoke test; its times mean little")
    parser.add_argument(
        "--json",
        type=Path,
        metavar="PATH",
        help=f"where to write the results (default: benchmarks/results/{name}.json; "
        "with --quick: nowhere)",
    )
    parser.add_argument(
        "--assert",
        dest="assert_reached",
        action="store_true",
        help="exit with status 1 if what was to be reached was missed",
    )
    return parser


def finish(
    name: str, rows: Sequence[Row], arguments: argparse.Namespace, *, notes: Sequence[str] = ()
) -> int:
    """Show the rows and notes, write them, and return the exit status."""
    show(rows)
    print(*notes, sep="\n")
    _write(name, arguments, {"rows": [asdict(row) for row in rows], "notes": list(notes)})
    missed = [
        f"{row.work} against {row.baseline}: {row.ratio:.2f}, to reach {row.reach:g}"
        for row in rows
        if row.missed
    ]
    return _status(missed, arguments)


def finish_tables(
    name: str,
    tables: Sequence[Table],
    arguments: argparse.Namespace,
    *,
    measured: object,
    notes: Sequence[str] = (),
) -> int:
    """Show the tables and notes, write them and what was measured, and return the exit status."""
    for table in tables:
        print(f"\n{table.title}")
        _print([table.head, *table.rows])
    print(*notes, sep="\n")
    found = {
        "tables": [asdict(table) for table in tables],
        "notes": list(notes),
        "measured": measured,
    }
    _write(name, arguments, found)
    return _status([text for table in tables for text in table.missed], arguments)


def _write(name: str, arguments: argparse.Namespace, found: Mapping[str, object]) -> None:
    if arguments.json is not None:
        document = {"name": name, **environment(), **found}
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _status(missed: Sequence[str], arguments: argparse.Namespace) -> int:
    if not missed or not arguments.assert_reached:
        return 0
    print("\nMissed:", *missed, sep="\n  ", file=sys.stderr)
    return 1
