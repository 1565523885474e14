"""Load batches: `Loader` against `DataLoader`, in one process and with workers.

All contenders hand out the same batches in the same order, int64 ids and an int64 mask, from rows
of uint16 in memory. Each keeps its threads or processes from round to round, with its queues full
when a round begins; only one of them works at a time.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

import evenstride as es
from baselines_collate import Rows, pad_arrays, pad_tensors
from harness import (
    EDGES,
    MAX_BATCH_SIZE,
    TOKEN_BUDGET,
    Contender,
    alternate,
    compare,
    finish,
    load_lengths,
    memory_mib,
    parse_arguments,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

DEPTH = 8
PAUSE_S = 0.002
"""What a consumer computes between two batches, where waits are measured."""


class TensorRows(Dataset[torch.Tensor]):
    """A data set of int64 tensors, as most people write it."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows.bounds) - 1

    def __getitem__(self, index: int) -> torch.Tensor:
        return self._rows.tensor(index)


class ArrayRows(TensorRows):
    """A data set of views, for a collator that reads them in place."""

    def __getitem__(self, index: int) -> NDArray[Any]:
        return self._rows.array(index)


class Source:
    """The batches of one contender, pass after pass."""

    def __init__(self, make: Callable[[es.BucketBatchSampler], Any], data: Data) -> None:
        self.sampler = data.sampler()
        self._loader = make(self.sampler)
        self._batches = self._endless()

    def _endless(self) -> Iterator[dict[str, torch.Tensor]]:
        while True:
            yield from self._loader

    def take(self, number: int) -> Iterator[dict[str, torch.Tensor]]:
        """Yield the next batches."""
        return islice(self._batches, number)

    def close(self) -> None:
        """End its threads or processes."""
        self._batches.close()


class Data:
    """Rows of random tokens with the lengths of the histogram."""

    def __init__(self) -> None:
        self.lengths = load_lengths()
        self.offsets = np.zeros(self.lengths.size + 1, np.int64)
        np.cumsum(self.lengths, out=self.offsets[1:])
        rng = np.random.default_rng(0)
        self.values = rng.integers(1, 30_000, self.offsets[-1], dtype=np.uint16)
        self.ragged = es.RaggedDataset({"input_ids": (self.values, self.offsets)})
        self.rows = Rows(self.values, self.offsets)

    def sampler(self) -> es.BucketBatchSampler:
        """Return a new sampler of all rows."""
        return es.BucketBatchSampler(
            self.lengths, token_budget=TOKEN_BUDGET, max_batch_size=MAX_BATCH_SIZE, buckets=EDGES
        )


def contenders(data: Data) -> dict[str, Source]:
    """Return all contenders, ours first."""
    collate = es.PadCollator({"input_ids": es.Field(padding_value=0)})
    found = {
        f"Loader, {n} thread{'s' if n > 1 else ''}": Source(
            lambda sampler, n=n: es.Loader(
                data.ragged, sampler, collate, num_workers=n, depth=DEPTH
            ),
            data,
        )
        for n in (2, 1)
    }
    for workers in (0, 1, 2, 4):
        prefetch = {"prefetch_factor": max(1, DEPTH // workers)} if workers else {}
        for name, dataset, collate_fn in (
            ("tensor rows, pad_sequence", TensorRows(data.rows), pad_tensors),
            ("views, numpy row loop", ArrayRows(data.rows), pad_arrays),
            ("RaggedDataset, PadCollator", data.ragged, collate),
        ):
            found[f"DataLoader({workers}), {name}"] = Source(
                lambda sampler, dataset=dataset, collate_fn=collate_fn, more=prefetch, n=workers: (
                    DataLoader(
                        dataset, batch_sampler=sampler, collate_fn=collate_fn, num_workers=n, **more
                    )
                ),
                data,
            )
    return found


def check(found: dict[str, Source], number: int) -> None:
    """Assert that all hand out the same batches."""
    for batches in zip(*(source.take(number) for source in found.values()), strict=True):
        for name, batch in zip(found, batches, strict=True):
            assert batch.keys() == batches[0].keys(), name
            assert all(torch.equal(batch[key], batches[0][key]) for key in batch), name


def waits(source: Source, number: int) -> str:
    """Return the median and the 99th percentile of waits, when a consumer computes in between."""
    seconds = []
    batches = source.take(number)
    for _ in range(number):
        time.sleep(PAUSE_S)
        start = time.perf_counter()
        next(batches)
        seconds.append(time.perf_counter() - start)
    p50, p99 = (1e6 * float(np.quantile(seconds, q)) for q in (0.5, 0.99))
    return f"p50 {p50:.0f} us, p99 {p99:.0f} us"


# --------------------------------------------------------------------------- memory


def measure_memory(name: str) -> int:
    """Print the memory that one contender takes, in a process of its own."""
    data = Data()
    source = contenders_named(name, data)
    gc.collect()
    before = memory_mib()
    for _ in source.take(400):
        pass
    print(f"{memory_mib() - before:.0f}")
    source.close()
    return 0


def contenders_named(name: str, data: Data) -> Source:
    """Return one contender; none of the others begins."""
    return contenders(data)[name]


def memory_of(name: str) -> str:
    """Return the memory of a contender as text."""
    done = subprocess.run(  # noqa: S603 - This file.
        [sys.executable, __file__, "--memory", name], capture_output=True, text=True, check=True
    )
    return f"{done.stdout.strip()} MiB"


# --------------------------------------------------------------------------- main


def main() -> int:
    if sys.argv[1:2] == ["--memory"]:
        return measure_memory(sys.argv[2])
    arguments = parse_arguments(__doc__, "loader")
    torch.set_num_threads(1)
    data = Data()
    found = contenders(data)
    check(found, 8)
    number = 16 if arguments.quick else 128
    timed = {
        name: Contender(lambda source=source: sum(1 for _ in source.take(number)))
        for name, source in found.items()
    }
    alternate(timed, rounds=2 if arguments.quick else 9)
    ours = "Loader, 2 threads"
    plain = {name: one for name, one in timed.items() if name.startswith("DataLoader")}
    others = {name: one for name, one in plain.items() if "PadCollator" not in name}
    best = min(others, key=lambda name: others[name].timing.median)
    best_of_all = min(plain, key=lambda name: plain[name].timing.median)
    reach = {"DataLoader(2), tensor rows, pad_sequence": 15.0, best: 2.0, best_of_all: 2.0}
    work = f"{number} batches"
    results = [
        compare(
            f"{work}, {ours}",
            timed[ours],
            items=number,
            baseline=name,
            theirs=one,
            reach=reach.get(name),
        )
        for name, one in timed.items()
        if name != ours
    ]
    tokens = number * float(data.lengths.sum(dtype=np.int64)) / len(data.sampler())
    notes = [
        f"{name}: {tokens / one.timing.median / 1e6:.0f} M real tokens a second"
        for name, one in timed.items()
    ]
    shown = (ours, "DataLoader(2), tensor rows, pad_sequence", best)
    few = 50 if arguments.quick else 500
    notes += [
        f"{name}: waits for a batch {waits(found[name], few)}, computing {1e3 * PAUSE_S:g} ms in "
        "between"
        for name in shown
    ]
    for source in found.values():
        source.close()
    if not arguments.quick:
        notes += [f"{name}: {memory_of(name)} beside the data, {DEPTH} ahead" for name in shown]
    return finish("loader", results, arguments, notes=notes)


if __name__ == "__main__":
    sys.exit(main())
