"""Time to the first batch: in a new process, in a resumed one, and of the next epoch.

*Cold* is from the lengths to a batch, in a fresh process that has imported everything; *resumed*
the same with a state of 90 % of an epoch. *Next epoch* is the first ``next`` after a whole pass,
in a loop that sleeps for a second in all; *another epoch* the same after ``set_epoch`` asked for
one that could not be foreseen. The first batch of a next epoch is checked against a new sampler's.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fresh import in_process, parse_sized, say, sized_parser, sizes_up_to, write_lengths
from harness import Table, Timing, duration, finish_tables

if TYPE_CHECKING:
    from collections.abc import Sequence

SCRIPT = "first_batch_child.py"
FULL_SIZE = 100_000_000
REACH_S = 1e-3


def measure_size(folder: Path, num_samples: int, *, processes: int, epochs: int) -> dict[str, Any]:
    """Return the times for so many samples."""
    path = folder / "lengths.npy"
    say(f"{num_samples:,} lengths ...")
    write_lengths(path, num_samples)
    given = ("--path", path)
    say(f"{num_samples:,} samples, cold ...")
    cold = [in_process(SCRIPT, "cold", *given) for _ in range(processes)]
    say(f"{num_samples:,} samples, resumed ...")
    state = ("--state", json.dumps(in_process(SCRIPT, "state", *given)))
    resumed = [in_process(SCRIPT, "resumed", *given, *state) for _ in range(processes)]
    say(f"{num_samples:,} samples, the next epoch ...")
    after = in_process(SCRIPT, "next", *given, "--epochs", epochs)
    path.unlink()
    times = {"cold": cold, "resumed": resumed, **after}
    return {
        "samples": num_samples,
        **{name: asdict(Timing.of(seconds)) for name, seconds in times.items()},
    }


def table_of(records: Sequence[dict[str, Any]]) -> Table:
    """Return the times, and whether the next epoch's first batch is there in time."""
    head = ["samples", "cold", "resumed at 90 %", "next epoch", "to reach", "another epoch"]
    rows, missed = [], []
    for record in records:
        cold, resumed, after, another = (
            Timing(**record[name]) for name in ("cold", "resumed", "next", "another")
        )
        is_missed = after.median > REACH_S
        samples = f"{record['samples']:,}"
        if is_missed:
            missed.append(f"{samples} samples, next epoch: {duration(after)}, to reach 1 ms")
        verdict = f"1 ms, {'missed' if is_missed else 'reached'}"
        times = [duration(cold), duration(resumed), duration(after), verdict, duration(another)]
        rows.append([samples, *times])
    return Table("Time to the first batch", head, rows, missed)


def main() -> int:
    parser = sized_parser(__doc__, "first_batch", FULL_SIZE)
    arguments = parse_sized(parser, "first_batch", FULL_SIZE)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        records = [
            measure_size(
                Path(name),
                num_samples,
                processes=1 if arguments.quick else 5 if num_samples <= 10_000_000 else 2,
                epochs=1 if arguments.quick else 5 if num_samples <= 10_000_000 else 2,
            )
            for num_samples in sizes_up_to(arguments.samples)
        ]
    return finish_tables("first_batch", [table_of(records)], arguments, measured=records)


if __name__ == "__main__":
    sys.exit(main())
