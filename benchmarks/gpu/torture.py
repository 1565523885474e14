"""Batches of a device under random use: delayed streams, early deaths, memory that others fill."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import evenstride as es
from evenstride.cuda import DeviceCollator

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu.queues import Queues

    Batch = dict[str, Any]

NUM_ROWS = 4_000
SYNCHRONIZE_EVERY = 40
DELAYS_MS = (0.02, 0.2, 1.0)


class Corpus:
    """A data set, whose batches a device has already, made by the host."""

    def __init__(self, device: torch.device, *, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.lengths = rng.integers(0, 300, NUM_ROWS)
        offsets = np.concatenate([[0], self.lengths.cumsum()])
        values = rng.integers(1, 2**16, offsets[-1], dtype=np.uint16)
        self.dataset = es.RaggedDataset({"input_ids": (values, offsets)})
        self.collate = es.PadCollator(
            {"input_ids": es.Field(), "labels": es.Field(-100, source="input_ids", start=1)},
            pad_to_multiple_of=8,
        )
        # The same in every pass.
        self.sampler = es.BucketBatchSampler(
            self.lengths, token_budget=16_384, buckets=4, pad_to_multiple_of=8, shuffle=False
        )
        self.rows = list(self.sampler)
        made = (self.collate(self.dataset.__getitems__(rows)) for rows in self.rows)
        self.expected = [{key: value.to(device) for key, value in one.items()} for one in made]


class Torture:
    """Uses batches on random streams, and counts on the device what is wrong in them."""

    def __init__(self, queues: Queues, corpus: Corpus, *, uses_ring: bool) -> None:
        self._queues = queues
        self._corpus = corpus
        self._uses_ring = uses_ring
        # One for each stream, as streams must not add to the same place at once.
        self._wrong = {
            id(stream): torch.zeros((), dtype=torch.int64, device=queues.device)
            for stream in queues.streams
        }
        self._kept: list[tuple[Any, Batch, int]] = []
        self.batches = self.uses = 0
        queues.synchronize()

    @property
    def wrong_values(self) -> int:
        """How many values were wrong. Waits for all streams."""
        self._queues.synchronize()
        return sum(int(count) for count in self._wrong.values())

    def use_collator(self, seconds: float) -> None:
        """Ask for random batches for so long."""
        corpus, random = self._corpus, self._queues.random
        collator = DeviceCollator(
            corpus.dataset,
            corpus.collate,
            device=self._queues.device,
            max_padded_tokens=16_384,
            depth=random.choice([1, 2, 4]),
            memory="ring" if self._uses_ring else "torch",
        )
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            number = random.randrange(len(corpus.rows))
            self.step(lambda number=number: collator(corpus.rows[number]), number)
        self.finish()

    def use_loader(
        self, target: Any, goes_on: Callable[[], bool], *, first: int, stride: int
    ) -> None:
        """Take the batches of a loader's target, pass after pass, as long as `goes_on` says so."""
        while goes_on():
            batches = iter(target)
            for number in itertools.count(first, stride):
                if number >= len(self._corpus.rows):
                    break
                self.step(lambda batches=batches: next(batches), number)
            assert next(batches, None) is None
        self.finish()

    def step(self, take: Any, number: int) -> None:
        """Take batch `number` on a random stream, and use it in random ways."""
        queues, random = self._queues, self._queues.random
        stream = queues.any_stream()
        if random.random() < 0.2:
            queues.delay(queues.lane, random.choice(DELAYS_MS))
        with queues.on(stream):
            if random.random() < 0.4:
                queues.delay(stream, random.choice(DELAYS_MS))
            batch = take()
            self.batches += 1
            if random.random() < 0.4:
                queues.delay(stream, random.choice(DELAYS_MS))
            self._compare(batch, number, stream)
            if random.random() < 0.3:
                self._use_elsewhere(batch, number, stream)
            if random.random() < 0.3:
                self._fill_memory(batch)
        if not self._uses_ring and random.random() < 0.2:
            self._kept.append((stream, batch, number))
        del batch
        while len(self._kept) > 4:
            self._use_kept()
        if self.batches % SYNCHRONIZE_EVERY == 0:
            queues.synchronize()

    def finish(self) -> None:
        """Use what was kept."""
        while self._kept:
            self._use_kept()
        self._queues.synchronize()

    def _compare(self, batch: Batch, number: int, stream: Any) -> None:
        """Compare on the current stream, `stream`, without waiting."""
        self.uses += 1
        wanted = self._corpus.expected[number]
        assert list(batch) == list(wanted)
        for key, tensor in batch.items():
            assert tensor.shape == wanted[key].shape, key
            self._wrong[id(stream)] += (tensor != wanted[key]).sum()

    def _use_elsewhere(self, batch: Batch, number: int, stream: Any) -> None:
        """Use a batch on another stream; say so to torch, or wait for the end of that use."""
        queues, random = self._queues, self._queues.random
        other = queues.any_stream()
        other.wait_stream(stream)
        with queues.on(other):
            queues.delay(other, random.choice(DELAYS_MS))
            self._compare(batch, number, other)
        if self._uses_ring:  # Its memory is not torch's: the stream of the lease must know.
            stream.wait_stream(other)
            return
        for tensor in batch.values():
            queues.keep_for(tensor, other)

    def _fill_memory(self, batch: Batch) -> None:
        """Fill memory of the size of a batch's outputs with what is none of them."""
        for tensor in batch.values():
            torch.full(tensor.shape, -7, dtype=tensor.dtype, device=tensor.device)

    def _use_kept(self) -> None:
        """Use a batch that was taken a while ago, on the stream that took it, and let it die."""
        stream, batch, number = self._kept.pop(self._queues.random.randrange(len(self._kept)))
        with self._queues.on(stream):
            self._compare(batch, number, stream)
