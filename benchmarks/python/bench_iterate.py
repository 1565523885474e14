"""Iterate over an epoch's batches of indices: Evenstride against torch's own samplers.

The time is that of one pass, ``for batch in sampler: pass``, every batch a list of Python ints.
Torch's random sampler draws its permutation when a pass begins; ours plans when an epoch is set,
so one row has the plan made beforehand and the next one includes it.
"""

from __future__ import annotations

import sys
from itertools import chain, count
from typing import TYPE_CHECKING

from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

import evenstride as es
from harness import (
    EDGES,
    MAX_BATCH_SIZE,
    TOKEN_BUDGET,
    Contender,
    alternate,
    compare,
    finish,
    load_lengths,
    parse_arguments,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

BATCH_SIZE = 19
"""Samples in a batch of ours, on average."""


def check(name: str, batches: Iterable[object], num_samples: int) -> None:
    """Assert that every batch is a list of ints, and that each sample is in one of them."""
    lists = list(batches)
    for batch in lists:
        assert type(batch) is list, name
        assert all(type(index) is int for index in batch), name
    assert sorted(chain.from_iterable(lists)) == list(range(num_samples)), name  # type: ignore[arg-type]


def one_pass(batches: Iterable[object]) -> None:
    """Take every batch and drop it."""
    for _ in batches:
        pass


def new_sampler(lengths: NDArray[np.uint16]) -> es.BucketBatchSampler:
    """Return a sampler for one rank, with the options of all these benchmarks."""
    return es.BucketBatchSampler(
        lengths,
        token_budget=TOKEN_BUDGET,
        max_batch_size=MAX_BATCH_SIZE,
        buckets=EDGES,
        num_replicas=1,
        rank=0,
        num_threads=2,
    )


def main() -> int:
    arguments = parse_arguments(__doc__, "iterate")
    lengths = load_lengths()
    if arguments.quick:
        lengths = lengths[:100_000]
    samples = range(lengths.size)
    planned, planning = new_sampler(lengths), new_sampler(lengths)
    shuffled = BatchSampler(RandomSampler(samples), batch_size=BATCH_SIZE, drop_last=False)
    in_order = BatchSampler(SequentialSampler(samples), batch_size=BATCH_SIZE, drop_last=False)
    for name, batches in {"ours": planned, "random": shuffled, "in order": in_order}.items():
        check(name, batches, lengths.size)

    def pass_of_the_same_epoch() -> None:
        planned.set_epoch(0)  # Else the next epoch is planned, since a pass of this one finished.
        one_pass(planned)

    epoch = count(1)

    def pass_of_the_next_epoch() -> None:
        planning.set_epoch(next(epoch))
        one_pass(planning)

    timed = {
        "planned": Contender(pass_of_the_same_epoch),
        "planning": Contender(pass_of_the_next_epoch),
        "random": Contender(lambda: one_pass(shuffled)),
        "in order": Contender(lambda: one_pass(in_order)),
    }
    alternate(timed, rounds=3 if arguments.quick else 31)

    random, sequential = "BatchSampler(RandomSampler)", "BatchSampler(SequentialSampler)"
    rows = [
        ("one pass, plan made before", "planned", random, "random", 6),
        ("one pass, planning included", "planning", random, "random", None),
        ("one pass, plan made before", "planned", sequential, "in order", None),
        ("one pass, planning included", "planning", sequential, "in order", None),
    ]
    return finish(
        "iterate",
        [
            compare(
                f"{work}, {lengths.size:,} indices",
                timed[our],
                items=lengths.size,
                baseline=baseline,
                theirs=timed[their],
                reach=reach,
            )
            for work, our, baseline, their, reach in rows
        ],
        arguments,
    )


if __name__ == "__main__":
    sys.exit(main())
