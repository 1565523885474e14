"""Pipelines that plan an epoch without Evenstride, for comparison.

All of them compute what ``plan_epoch`` computes with its defaults and one replica: samples grouped
by length, shuffled inside each bucket, cut greedily into batches that keep the token budget at
their real longest sample, and every bucket's batches spread over the epoch by stride, phase and
jitter. None of them checks its input, and none reports widths or buckets.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numba
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from answers import FlatPlan, IntArray

JITTER = 0.25

_BLOCK = 256
"""Samples drawn, swapped and filled at a time by `plan_numba`."""

_Function = TypeVar("_Function", bound="Callable[..., Any]")


def _jit(function: _Function) -> _Function:
    return cast("_Function", numba.njit(cache=True)(function))


def _jit_parallel(function: _Function) -> _Function:
    return cast("_Function", numba.njit(cache=True, parallel=True)(function))


# --------------------------------------------------------------------------- plain Python


def plan_plain(
    lengths: Sequence[int],
    edges: Sequence[int],
    token_budget: int,
    max_batch_size: int,
    seed: int,
) -> list[list[int]]:
    """Plan an epoch with the standard library alone."""
    rng = random.Random(seed)  # noqa: S311
    buckets: list[list[int]] = [[] for _ in range(len(edges) + 1)]
    for index, length in enumerate(lengths):
        buckets[bisect_right(edges, length)].append(index)

    placed: list[tuple[float, list[int]]] = []
    for bucket in buckets:
        rng.shuffle(bucket)
        batches = _fill_plain(bucket, lengths, token_budget, max_batch_size)
        phase = rng.random()
        for i, batch in enumerate(batches):
            placed.append(((i + phase + rng.uniform(-JITTER, JITTER)) / len(batches), batch))
    placed.sort(key=itemgetter(0))
    return [batch for _, batch in placed]


def _fill_plain(
    order: list[int], lengths: Sequence[int], token_budget: int, max_batch_size: int
) -> list[list[int]]:
    batches: list[list[int]] = []
    batch: list[int] = []
    width = 0
    for index in order:
        length = lengths[index]
        wider = max(width, length)
        if batch and (len(batch) == max_batch_size or wider * (len(batch) + 1) > token_budget):
            batches.append(batch)
            batch = []
            wider = length
        batch.append(index)
        width = wider
    if batch:
        batches.append(batch)
    return batches


# --------------------------------------------------------------------------- numpy, jitted fill


def plan_numpy(
    lengths: IntArray, edges: Sequence[int], token_budget: int, max_batch_size: int, seed: int
) -> FlatPlan:
    """Plan an epoch with one numpy call for each stage, and numba for the loop that has none.

    Of the ways to write a stage in numpy, the fastest for 902,087 and for 9,020,870 samples: a
    table over the lengths (a tenth of the time of `digitize` or `searchsorted`), `flatnonzero` for
    each bucket (half of a stable argsort of the buckets), `permutation` of each bucket (a sixth of
    an argsort of random keys), and a stable argsort of the places, which finds them nearly sorted.
    """
    rng = np.random.default_rng(seed)
    num_buckets = len(edges) + 1
    bucket_of_sample = _bucket_of_length(lengths, edges)[lengths]
    members = [np.flatnonzero(bucket_of_sample == bucket) for bucket in range(num_buckets)]
    order = np.concatenate([rng.permutation(samples) for samples in members])
    bounds = np.cumsum([0, *(samples.size for samples in members)])

    starts, counts = _fill(lengths, order, bounds, token_budget, max_batch_size)
    steps = np.argsort(_places(counts, rng), kind="stable")
    sizes = np.diff(starts, append=order.size)[steps]
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    source = np.repeat(starts[steps] - offsets[:-1], sizes)
    source += np.arange(order.size)
    return order[source], offsets


def _bucket_of_length(lengths: IntArray, edges: Sequence[int]) -> NDArray[np.uint8]:
    return np.digitize(np.arange(int(lengths.max()) + 1), edges).astype(np.uint8)


def _places(counts: IntArray, rng: np.random.Generator) -> NDArray[np.float64]:
    return np.concatenate(
        [
            (np.arange(n) + (rng.random() + rng.uniform(-JITTER, JITTER, n))) / max(n, 1)
            for n in counts.tolist()
        ]
    )


@_jit
def _fill(
    lengths: IntArray, order: IntArray, bounds: IntArray, token_budget: int, max_batch_size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    starts = np.empty(order.size, np.int64)
    counts = np.zeros(bounds.size - 1, np.int64)
    num_batches = 0
    for bucket in range(bounds.size - 1):
        width = 0
        size = max_batch_size
        for i in range(bounds[bucket], bounds[bucket + 1]):
            length = np.int64(lengths[order[i]])
            width = max(width, length)
            if size == max_batch_size or width * (size + 1) > token_budget:
                starts[num_batches] = i
                num_batches += 1
                counts[bucket] += 1
                width = length
                size = 0
            size += 1
    return starts[:num_batches].copy(), counts


# --------------------------------------------------------------------------- numba throughout


def plan_numba(
    lengths: IntArray,
    edges: Sequence[int],
    token_budget: int,
    max_batch_size: int,
    seed: int,
    *,
    num_threads: int = 2,
) -> FlatPlan:
    """Plan an epoch with a jitted loop for every stage that touches a sample.

    What won, stage by stage, each against at least one other way:

    - Grouping: count, then scatter, with a table of buckets and no array of them. Two threads
      share it without a lock, since each knows where its part of a bucket begins.
    - Entries: length and index packed in 64 bits. Twice as much to scatter as indices alone, but
      the fill then reads no length out of order (1.6 times faster for 9,020,870 samples).
    - Shuffle: forward Fisher-Yates with draws from SplitMix64 (a third of the time of
      `np.random.shuffle` under numba or of numpy's `shuffle`, or less). Draws, swaps and fill take
      turns of 256 samples, which stay in the first cache (two thirds of the time of one loop).
    - Places: numpy, since there are few batches.
    - Gather: one copy of each batch.

    Threads: two. A thread takes whole buckets, or parts of equal size where order does not matter.
    """
    numba.set_num_threads(num_threads)
    num_samples = lengths.size
    num_buckets = len(edges) + 1
    table = _bucket_of_length(lengths, edges)

    counts_of_part = _count(lengths, table, num_buckets, num_threads)
    bounds = np.concatenate(([0], np.cumsum(counts_of_part.sum(axis=0))))
    first_of_part = bounds[:-1] + np.cumsum(counts_of_part, axis=0) - counts_of_part

    # Allocated by numpy, which asks for huge pages: faster to touch than what numba allocates.
    entries = np.empty(num_samples, np.uint64)
    starts = np.empty(num_samples, np.uint32)
    indices = np.empty(num_samples, np.uint32)
    counts = np.empty(num_buckets, np.int64)
    _scatter(lengths, table, first_of_part, entries)
    _shuffle_and_fill(entries, bounds, token_budget, max_batch_size, seed, starts, counts)

    first = np.concatenate(
        [
            starts[start : start + count]
            for start, count in zip(bounds.tolist(), counts.tolist(), strict=False)
        ]
    )
    steps = np.argsort(_places(counts, np.random.default_rng(seed)), kind="stable")
    sizes = np.diff(first, append=np.uint32(num_samples))[steps]
    offsets = np.zeros(steps.size + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    _gather(entries, first[steps], offsets, indices)
    return indices, offsets


@_jit_parallel
def _count(
    lengths: IntArray, table: NDArray[np.uint8], num_buckets: int, num_parts: int
) -> NDArray[np.int64]:
    counts = np.empty((num_parts, num_buckets), np.int64)
    for part in numba.prange(num_parts):
        count = np.zeros(num_buckets, np.int64)
        for i in range(lengths.size * part // num_parts, lengths.size * (part + 1) // num_parts):
            count[table[lengths[i]]] += 1
        counts[part] = count
    return counts


@_jit_parallel
def _scatter(
    lengths: IntArray,
    table: NDArray[np.uint8],
    first_of_part: NDArray[np.int64],
    entries: NDArray[np.uint64],
) -> None:
    num_parts = first_of_part.shape[0]
    for part in numba.prange(num_parts):
        cursor = first_of_part[part].copy()
        for i in range(lengths.size * part // num_parts, lengths.size * (part + 1) // num_parts):
            length = lengths[i]
            bucket = table[length]
            entries[cursor[bucket]] = (np.uint64(length) << np.uint64(32)) | np.uint64(i)
            cursor[bucket] += 1


@_jit_parallel
def _shuffle_and_fill(  # noqa: PLR0917 - numba takes no keyword-only arguments.
    entries: NDArray[np.uint64],
    bounds: NDArray[np.int64],
    token_budget: int,
    max_batch_size: int,
    seed: int,
    starts: NDArray[np.uint32],
    counts: NDArray[np.int64],
) -> None:
    for bucket in numba.prange(bounds.size - 1):
        begin = bounds[bucket]
        end = bounds[bucket + 1]
        key = _mix(_mix(np.uint64(seed)) + np.uint64(bucket))
        partners = np.empty(_BLOCK, np.int64)
        count = 0
        width = 0
        size = max_batch_size
        for block in range(begin, end, _BLOCK):
            block_end = min(block + _BLOCK, end)
            for i in range(block, block_end):
                draw = _mix(key + np.uint64(i) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)
                partners[i - block] = i + np.int64((draw * np.uint64(end - i)) >> np.uint64(32))
            for i in range(block, block_end):
                j = partners[i - block]
                entries[i], entries[j] = entries[j], entries[i]
            for i in range(block, block_end):
                length = np.int64(entries[i] >> np.uint64(32))
                width = max(width, length)
                if size == max_batch_size or width * (size + 1) > token_budget:
                    starts[begin + count] = i
                    count += 1
                    width = length
                    size = 0
                size += 1
        counts[bucket] = count


@_jit
def _mix(state: np.uint64) -> np.uint64:
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.uint64 = state ^ (state >> np.uint64(31))
    return mixed


@_jit_parallel
def _gather(
    entries: NDArray[np.uint64],
    first: NDArray[np.uint32],
    offsets: NDArray[np.int64],
    indices: NDArray[np.uint32],
) -> None:
    for step in numba.prange(first.size):
        source = np.int64(first[step])
        for target in range(offsets[step], offsets[step + 1]):
            indices[target] = entries[source] & np.uint64(0xFFFFFFFF)
            source += 1
