"""Plan from a million samples to a billion: time, memory, threads and instructions.

Each number of samples, composition and number of threads has a process of its own, in which the
plan is timed in turns with one ``numpy.copyto`` of as many int64 into memory already touched. The
plans of all numbers of threads must be equal, and one of them is checked. By default this stops at
ten million samples, and only the full size writes the results that the documentation shows.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fresh import (
    SIZES,
    in_process,
    parse_sized,
    say,
    script_of,
    sized_parser,
    sizes_up_to,
    write_lengths,
)
from harness import Table, Timing, duration, finish_tables

if TYPE_CHECKING:
    from collections.abc import Sequence

SCRIPT = "scale_child.py"
COMPOSITIONS = ("shuffle", "window")
SIZE_OF_RISING_THREADS = 10_000_000
COUNTED_SAMPLES = 1_000_000
MOST_WITH_RIVALS = 100_000_000
RATES_ITEMS = 100_000_000

LEAST_TO_REACH = 100_000_000
"""From so many samples on there is something to reach, with two threads."""
REACH_COPIES = 10.0
REACH_COPIES_AVX512 = 8.0
REACH_BYTES = 12.5
BYTES_OF_BATCH = 16

Record = dict[str, Any]


# --------------------------------------------------------------------------- measuring


def rounds_for(num_samples: int) -> int:
    """Return how often a plan is timed."""
    if num_samples > MOST_WITH_RIVALS:
        return 1
    return 31 if num_samples <= 1_000_000 else 11 if num_samples <= 10_000_000 else 3


def measure_size(folder: Path, num_samples: int) -> list[Record]:
    """Return a record for each composition and number of threads."""
    path = folder / "lengths.npy"
    say(f"{num_samples:,} lengths ...")
    write_lengths(path, num_samples)
    records = []
    rounds = ("--rounds", rounds_for(num_samples))
    for composition in COMPOSITIONS:
        digests = set()
        for threads in (1, 2, 4) if num_samples == SIZE_OF_RISING_THREADS else (1, 2):
            say(f"{num_samples:,} samples, {composition}, {threads} threads ...")
            options = ("--path", path, "--composition", composition, "--threads", threads)
            checks = ["--check"] if threads == 2 else []
            records.append(in_process(SCRIPT, "plan", *options, *rounds, *checks))
            digests.add(records[-1].pop("digest"))
        assert len(digests) == 1, f"{num_samples} samples, {composition}: the plans differ"
    if num_samples <= MOST_WITH_RIVALS and find_spec("numba") is not None:
        say(f"{num_samples:,} samples, numpy and numba ...")
        rivals = in_process(SCRIPT, "rivals", "--path", path, *rounds)
        for record in records:
            if record["composition"] == "shuffle":
                record["rivals"] = rivals.get(str(record["threads"]))
    path.unlink()
    return records


def count_instructions(folder: Path) -> dict[str, float] | None:
    """Return the instructions of one call of `plan_epoch` for each composition; None if untold.

    Each is the difference between a process that plans once more and one that does not.
    """
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        return None
    path, out = folder / "lengths.npy", folder / "callgrind.out"
    write_lengths(path, COUNTED_SAMPLES)

    def total(*plans: str) -> int:
        say(f"instructions of {', '.join(plans)} ...")
        tool = [valgrind, "--tool=callgrind", f"--callgrind-out-file={out}"]
        script = [sys.executable, script_of(SCRIPT), "count", "--path", str(path), "--composition"]
        subprocess.run(  # noqa: S603 - Valgrind and a script of this folder.
            [*tool, *script, *plans], check=True, capture_output=True
        )
        lines = out.read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("totals:"))

    each_once = total(*COMPOSITIONS)
    return {name: total(*COMPOSITIONS, name) - each_once for name in COMPOSITIONS}


# --------------------------------------------------------------------------- tables


def copies_to_reach() -> float:
    """Return how many copies a plan may take at most on this machine."""
    has_avx512 = "avx512f" in Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    return REACH_COPIES_AVX512 if has_avx512 else REACH_COPIES


def copies_of(record: Record) -> float:
    """Return a plan's time as a multiple of the copy's."""
    ratio: float = record["plan"]["median"] / record["copy"]["median"]
    return ratio


def bytes_of(record: Record, peak: str, *, less_batches: bool) -> float:
    """Return a peak in bytes a sample, with or without those of the batches."""
    batches = BYTES_OF_BATCH * record["batches"] if less_batches else 0
    each: float = (record[peak] - batches) / record["samples"]
    return each


def table_of_plans(records: Sequence[Record]) -> Table:
    """Return time and memory of each plan, and what was to be reached."""
    head = ["samples", "composition", "threads", "one plan", "each", "x copy", "to reach"]
    head += ["bytes a sample", "less 16 a batch", "to reach", "as the next epoch"]
    head += ["numpy + numba", "numba throughout"]
    most = copies_to_reach()
    rows, missed = [], []
    for record in records:
        samples, threads = record["samples"], record["threads"]
        seconds, copies = Timing(**record["plan"]), copies_of(record)
        least = bytes_of(record, "first_peak", less_batches=True)
        reach_copies = reach_bytes = "-"
        if samples >= LEAST_TO_REACH and threads == 2:
            work = f"{samples:,} samples, {record['composition']}"
            reach_copies, reach_bytes = _reach(copies, most), _reach(least, REACH_BYTES)
            if copies > most:
                missed.append(f"{work}: {copies:.2f} copies, to reach {most:g}")
            if least > REACH_BYTES:
                missed.append(f"{work}: {least:.2f} bytes a sample, to reach {REACH_BYTES:g}")
        rivals = record.get("rivals") or {}
        rows.append(
            [
                f"{samples:,}",
                record["composition"],
                str(threads),
                duration(seconds),
                f"{1e9 * seconds.median / samples:.2f} ns",
                f"{copies:.2f}",
                reach_copies,
                f"{bytes_of(record, 'first_peak', less_batches=False):.2f}",
                f"{least:.2f}",
                reach_bytes,
                f"{bytes_of(record, 'later_peak', less_batches=False):.2f}",
                *(f"{rivals[name]:.2f} x" if rivals else "-" for name in ("numpy", "numba")),
            ]
        )
    return Table("One plan", head, rows, missed)


def _reach(value: float, most: float) -> str:
    return f"{most:g}, {'reached' if value <= most else 'missed'}"


def table_of_rates(rates: dict[str, Record], num_items: int) -> Table:
    """Return what the machine does at most, by threads."""

    def each(name: str) -> float:
        seconds: float = rates[name]["median"]
        return seconds / num_items

    copies = [f"{16 / each(f'copy {threads}') / 1e9:.1f} GB/s" for threads in (1, 2)]
    reads = [f"{1e9 * each(f'gather {threads}'):.2f} ns" for threads in (1, 2)]
    return Table(
        f"The machine, with {num_items:,} items",
        ["work", "one thread", "two threads"],
        [
            ["copy int64, bytes read and written", *copies],
            ["read 4 bytes at a random place, each", *reads],
        ],
    )


def table_of_instructions(counts: dict[str, float]) -> Table:
    """Return the instructions of a plan."""
    return Table(
        f"Instructions of one plan of {COUNTED_SAMPLES:,} samples, one thread",
        ["composition", "instructions", "each"],
        [
            [name, f"{count / 1e6:.1f} M", f"{count / COUNTED_SAMPLES:.1f}"]
            for name, count in counts.items()
        ],
    )


def main() -> int:
    parser = sized_parser(__doc__, "scale", SIZES[-1])
    parser.add_argument(
        "--instructions", action="store_true", help="count them too, with valgrind; a minute"
    )
    arguments = parse_sized(parser, "scale", SIZES[-1])
    notes = []
    measured: dict[str, Any] = {"plans": [], "instructions": None}
    rates_items = min(RATES_ITEMS, arguments.samples)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        say("the machine ...")
        measured["rates"] = in_process(SCRIPT, "rates", "--items", rates_items, "--rounds", 3)
        if arguments.instructions:
            measured["instructions"] = count_instructions(folder)
            if measured["instructions"] is None:
                notes.append("Instructions were not counted: there is no valgrind here.")
        for num_samples in sizes_up_to(arguments.samples):
            measured["plans"] += measure_size(folder, num_samples)
    tables = [table_of_plans(measured["plans"]), table_of_rates(measured["rates"], rates_items)]
    if measured["instructions"]:
        tables.append(table_of_instructions(measured["instructions"]))
    return finish_tables("scale", tables, arguments, measured=measured, notes=notes)


if __name__ == "__main__":
    sys.exit(main())
