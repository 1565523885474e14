"""One fresh process of `bench_scale.py`: it measures one thing, and prints it as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from answers import check, digest, flat
from fresh import Peak, mapped_lengths
from harness import EDGES, Contender, alternate
from planners import NUMBA, NUMBA_ALONE, NUMPY, Planner, baseline, one_call

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

COPIED_AT_ONCE = 100_000_000
"""Numbers that one `copyto` copies; more are copied in several, over the same memory."""

WARM_UP = 50_000
LEAST_EFFICIENCY = {"shuffle": 0.75, "window": 0.95}


class Copy:
    """Copies as many int64 as there are samples, between arrays that were touched before."""

    def __init__(self, num_samples: int) -> None:
        self._times = max(1, num_samples // COPIED_AT_ONCE)
        self._source = np.ones(num_samples // self._times, np.int64)
        self._target = np.ones_like(self._source)

    def __call__(self) -> None:
        for _ in range(self._times):
            np.copyto(self._target, self._source)


def measure_plan(
    path: Path, composition: str, num_threads: int, *, rounds: int, is_checked: bool
) -> dict[str, Any]:
    """Measure planning: seconds, next to those of a copy, and the memory that it takes."""
    lengths = mapped_lengths(path)
    copy = Copy(lengths.size)
    options: dict[str, Any] = {"composition": composition, "num_threads": num_threads}
    Planner(lengths[:WARM_UP], **options)()  # Its code is no part of the memory.

    peak = Peak()
    planner = Planner(lengths, **options)
    num_batches = len(planner())
    first_peak = peak.bytes()
    timed = {"plan": Contender(planner), "copy": Contender(copy)}
    alternate(timed, rounds=rounds)
    later_peak = peak.bytes()

    if is_checked:
        efficiency = check(composition, flat(planner.plan), lengths, EDGES, spread=0.001)
        assert efficiency > LEAST_EFFICIENCY[composition], efficiency
    return {
        "samples": lengths.size,
        "composition": composition,
        "threads": num_threads,
        "batches": num_batches,
        "plan": asdict(timed["plan"].timing),
        "copy": asdict(timed["copy"].timing),
        "first_peak": first_peak,
        "later_peak": later_peak,
        "digest": digest(planner.plan),
    }


def measure_rivals(path: Path, *, rounds: int) -> dict[str, dict[str, float]]:
    """Return how often the time of one of our plans each baseline takes, by our threads."""
    from baselines import plan_numba, plan_numpy  # noqa: PLC0415 - Needs numba, which is an extra.

    lengths = np.asarray(mapped_lengths(path))
    ours = {threads: Planner(lengths, num_threads=threads) for threads in (1, 2)}
    rivals = {
        NUMPY: baseline(plan_numpy, lengths),
        NUMBA_ALONE: baseline(plan_numba, lengths, num_threads=1),
        NUMBA: baseline(plan_numba, lengths, num_threads=2),
    }
    like = rivals[NUMPY]()
    for name, call in rivals.items():
        check(name, call(), lengths, EDGES, like=like, spread=0.001)
    for threads, planner in ours.items():
        name = f"ours, {threads} threads"
        check(name, flat(planner()), lengths, EDGES, like=like, spread=0.001)
    del like

    calls: dict[str, Callable[[], object]] = {**rivals, **{str(k): v for k, v in ours.items()}}
    timed = {name: Contender(call) for name, call in calls.items()}
    alternate(timed, rounds=rounds)
    seconds = {name: contender.timing.median for name, contender in timed.items()}
    return {
        str(threads): {
            "numpy": seconds[NUMPY] / seconds[str(threads)],
            "numba": seconds[numba] / seconds[str(threads)],
        }
        for threads, numba in ((1, NUMBA_ALONE), (2, NUMBA))
    }


def measure_rates(num_items: int, *, rounds: int) -> dict[str, dict[str, Any]]:
    """Time what any plan must do: copy int64, and read 4 bytes at random places, by threads."""
    source, target = np.ones(num_items, np.int64), np.ones(num_items, np.int64)
    table, read = np.ones(num_items, np.uint32), np.ones(num_items, np.uint32)
    places = np.random.default_rng(0).integers(0, num_items, num_items)

    def copy(part: slice) -> None:
        np.copyto(target[part], source[part])

    def gather(part: slice) -> None:
        np.take(table, places[part], out=read[part], mode="wrap")

    parts = {
        1: [slice(None)],
        2: [slice(0, num_items // 2), slice(num_items // 2, num_items)],
    }
    with ThreadPoolExecutor(2) as pool:

        def on_all(work: Callable[[slice], None], threads: int) -> Callable[[], object]:
            return lambda: list(pool.map(work, parts[threads]))

        timed = {
            f"{work.__name__} {threads}": Contender(on_all(work, threads))
            for work in (copy, gather)
            for threads in parts
        }
        alternate(timed, rounds=rounds)
    return {name: asdict(contender.timing) for name, contender in timed.items()}


def plan_each(path: Path, compositions: list[str]) -> None:
    """Plan once for each composition, on one thread, for a tool that counts instructions."""
    lengths: NDArray[np.uint16] = np.load(path)
    for composition in compositions:
        one_call(lengths, composition=composition, num_threads=1)()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["plan", "rivals", "rates", "count"])
    parser.add_argument("--path", type=Path, help="of the lengths")
    parser.add_argument("--items", type=int, help="for rates")
    parser.add_argument("--composition", nargs="+", default=["shuffle"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    found: Any = None
    if given.what == "plan":
        found = measure_plan(
            *(given.path, given.composition[0], given.threads),
            rounds=given.rounds,
            is_checked=given.check,
        )
    elif given.what == "rivals":
        found = measure_rivals(given.path, rounds=given.rounds)
    elif given.what == "rates":
        found = measure_rates(given.items, rounds=given.rounds)
    else:
        plan_each(given.path, given.composition)
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
