"""Ways to bring padded batches to a device: ours, and those that people have."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import deque
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

import evenstride as es
from baselines_collate import Rows, pad_tensors
from harness import EDGES, MAX_BATCH_SIZE, TOKEN_BUDGET, load_lengths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Batch = dict[str, torch.Tensor]

DEPTH = 8


class TensorRows(Dataset[torch.Tensor]):
    """A data set of int64 tensors, as most people write it."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows.bounds) - 1

    def __getitem__(self, index: int) -> torch.Tensor:
        return self._rows.tensor(index)


class Data:
    """Rows of random tokens with lengths of the histogram."""

    def __init__(self, num_samples: int) -> None:
        self.lengths = load_lengths()[:num_samples]
        self.offsets = np.zeros(num_samples + 1, np.int64)
        np.cumsum(self.lengths, out=self.offsets[1:])
        rng = np.random.default_rng(0)
        self.values = rng.integers(1, 30_000, self.offsets[-1], dtype=np.uint16)
        self.ragged = es.RaggedDataset({"input_ids": (self.values, self.offsets)})
        self.rows = Rows(self.values, self.offsets)
        self.collate = es.PadCollator({"input_ids": es.Field(padding_value=0)})

    def sampler(self) -> es.BucketBatchSampler:
        """Return a new sampler of all rows."""
        return es.BucketBatchSampler(
            self.lengths, token_budget=TOKEN_BUDGET, max_batch_size=MAX_BATCH_SIZE, buckets=EDGES
        )


class Contender:
    """The batches of one way, pass after pass, on a device."""

    def __init__(self, name: str, make: Callable[[], Any], device: torch.device) -> None:
        self.name = name
        self._make = make
        self._device = device
        self._batches: Iterator[Batch] | None = None

    def open(self) -> None:
        """Begin, with its threads and processes."""
        self._batches = self._endless(self._make())

    def _endless(self, loader: Any) -> Iterator[Batch]:
        while True:
            for batch in loader:
                yield {
                    # Nothing happens to what is there already.
                    key: value.to(self._device, non_blocking=True)
                    for key, value in batch.items()
                }

    def next(self) -> Batch:
        """Return the next batch."""
        assert self._batches is not None
        return next(self._batches)

    def take(self, number: int) -> Iterator[Batch]:
        """Yield the next batches."""
        assert self._batches is not None
        return islice(self._batches, number)

    def skip(self, number: int) -> None:
        """Take so many batches, and keep none: the memory of a ring goes round."""
        deque(self.take(number), maxlen=0)

    def close(self) -> None:
        """End its threads and processes."""
        if self._batches is not None:
            self._batches.close()  # type: ignore[attr-defined]
            self._batches = None


def contenders(data: Data, device: torch.device, *, quick: bool) -> list[Contender]:
    """Return all contenders, ours first."""
    is_cuda = device.type == "cuda"

    def ours(memory: str, num_workers: int) -> es.Loader:
        return es.Loader(
            data.ragged,
            data.sampler(),
            data.collate,
            device=device,
            device_memory=memory,
            num_workers=num_workers,
            depth=DEPTH,
        )

    def loader(dataset: Any, collate: Any, workers: int) -> DataLoader[Any]:
        more: dict[str, Any] = {"prefetch_factor": max(2, DEPTH // workers)} if workers else {}
        return DataLoader(
            dataset,
            batch_sampler=data.sampler(),
            collate_fn=collate,
            num_workers=workers,
            pin_memory=is_cuda,
            **more,
        )

    def moving() -> es.Loader:
        return es.Loader(data.ragged, data.sampler(), data.collate, depth=DEPTH, pin_memory=is_cuda)

    most = 1 if quick else max(2, min(8, len(os.sched_getaffinity(0)) - 2))
    found = {
        "Loader(device), 2 threads": partial(ours, "torch", 2),
        "Loader(device), 1 thread": partial(ours, "torch", 1),
        "Loader(device), ring, 2 threads": partial(ours, "ring", 2),
        "Loader(pin_memory), 2 threads, and .to": moving,
        "DataLoader(2), pad_sequence, pinned, and .to": partial(
            loader, TensorRows(data.rows), pad_tensors, 2
        ),
        f"DataLoader({most}), pad_sequence, pinned, and .to": partial(
            loader, TensorRows(data.rows), pad_tensors, most
        ),
        "DataLoader(2), PadCollator, pinned, and .to": partial(
            loader, data.ragged, data.collate, 2
        ),
    }
    return [Contender(name, make, device) for name, make in found.items()]


def core_seconds() -> float:
    """Return the time that this process and its workers have used on processors so far."""
    ticks = 0
    for child in multiprocessing.active_children():
        text = Path(f"/proc/{child.pid}/stat").read_text(encoding="utf-8")
        user, system = text.rpartition(")")[2].split()[11:13]
        ticks += int(user) + int(system)
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")
