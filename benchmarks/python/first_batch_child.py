"""One fresh process of `bench_first_batch.py`: seconds to a first batch, printed as JSON."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import evenstride as es
from fresh import mapped_lengths
from harness import EDGES
from planners import LIMITS

if TYPE_CHECKING:
    from answers import IntArray

WARM_UP = 10_000
RESUMED_AT = 0.9
PAUSES = 200
"""Times that a pass sleeps, as training sleeps while a device computes."""
LEAST_SECONDS_OF_PASS = 1.0


def new_sampler(lengths: IntArray) -> es.BucketBatchSampler:
    """Return a sampler for one rank, with the options of all these benchmarks."""
    return es.BucketBatchSampler(lengths, buckets=EDGES, num_replicas=1, rank=0, **LIMITS)


def first_batch(sampler: es.BucketBatchSampler) -> tuple[float, list[int]]:
    """Return the seconds to the first batch of the next pass, and it."""
    start = time.perf_counter()
    batch = next(iter(sampler))
    return time.perf_counter() - start, batch


def cold(lengths: IntArray) -> float:
    """Return the seconds from lengths to a first batch."""
    start = time.perf_counter()
    next(iter(new_sampler(lengths)))
    return time.perf_counter() - start


def state_at(lengths: IntArray, share: float) -> dict[str, Any]:
    """Return the state of a run that has come so far into epoch 1."""
    sampler = new_sampler(lengths)
    return {**sampler.state_dict(), "epoch": 1, "step": int(share * len(sampler))}


def resumed(lengths: IntArray, state: dict[str, Any]) -> float:
    """Return the seconds from lengths and a state to the first batch of what is left."""
    start = time.perf_counter()
    sampler = new_sampler(lengths)
    sampler.load_state_dict(state)
    next(iter(sampler))
    return time.perf_counter() - start


def one_pass(sampler: es.BucketBatchSampler) -> None:
    """Take every batch, and sleep a while now and then."""
    every = max(1, len(sampler) // PAUSES)
    for number, _ in enumerate(sampler):
        if number % every == 0:
            time.sleep(LEAST_SECONDS_OF_PASS / PAUSES)


def next_epochs(lengths: IntArray, epochs: int) -> dict[str, list[float]]:
    """Return the seconds to the first batch after a pass: of the next epoch, and of another one."""
    sampler = new_sampler(lengths)
    found: dict[str, list[float]] = {"next": [], "another": []}
    for _ in range(epochs):
        one_pass(sampler)
        seconds, batch = first_batch(sampler)
        assert batch == first_of(lengths, sampler.epoch)
        found["next"].append(seconds)
        # Not the one that a sampler could have foreseen.
        sampler.set_epoch(sampler.epoch + 10)
        seconds, _ = first_batch(sampler)
        found["another"].append(seconds)
    return found


def first_of(lengths: IntArray, epoch: int) -> list[int]:
    """Return the first batch of an epoch as a sampler has it that plans no other."""
    sampler = new_sampler(lengths)
    sampler.set_epoch(epoch)
    return next(iter(sampler))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["cold", "state", "resumed", "next"])
    parser.add_argument("--path", type=Path, required=True, help="of the lengths")
    parser.add_argument("--state", type=json.loads, help="for resumed")
    parser.add_argument("--epochs", type=int, default=1, help="for next")
    given = parser.parse_args()
    lengths = mapped_lengths(given.path)
    cold(lengths[:WARM_UP])  # Imports torch, and all else that is there once in a process.
    found: Any
    if given.what == "cold":
        found = cold(lengths)
    elif given.what == "state":
        found = state_at(lengths, RESUMED_AT)
    elif given.what == "resumed":
        found = resumed(lengths, given.state)
    else:
        found = next_epochs(lengths, given.epochs)
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
