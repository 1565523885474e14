"""What every contender's plan must be, before it is timed."""

from __future__ import annotations

import hashlib
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from harness import MAX_BATCH_SIZE, TOKEN_BUDGET

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

IntArray: TypeAlias = "NDArray[np.integer[Any]]"
FlatPlan: TypeAlias = "tuple[IntArray, NDArray[np.int64]]"
"""Indices of all batches, one after the other, and where each batch starts (one entry more)."""

_BLOCK = 1 << 16
"""Batches looked at together."""

_ALWAYS_OFF = 20
"""Batches by which a bucket's number in a quarter may be off, however few there are."""


def check(
    name: str,
    plan: FlatPlan,
    lengths: IntArray,
    edges: Sequence[int],
    *,
    like: FlatPlan | None = None,
    spread: float | None = None,
) -> float:
    """Assert that `plan` is an epoch: every sample once, every batch in one bucket and its limits.

    With `like`, also that each bucket has as many batches as there, to 0.5 %. With `spread`, that
    it has in each quarter of the epoch the same share of the batches as in all of it, to that much.
    Returns the padding efficiency. Takes a byte a sample, and two a batch.
    """
    indices, offsets = plan
    lengths = np.asarray(lengths)
    assert offsets[0] == 0, name
    assert offsets[-1] == lengths.size == indices.size, name
    bucket_of_length = np.digitize(np.arange(int(lengths.max()) + 1), edges).astype(np.int16)
    seen = np.zeros(lengths.size, np.uint8)
    buckets = np.empty(offsets.size - 1, np.int16)
    tokens = padded_tokens = 0
    for first in range(0, buckets.size, _BLOCK):
        bounds = offsets[first : first + _BLOCK + 1]
        samples = indices[bounds[0] : bounds[-1]]
        seen[samples] = 1
        sizes = np.diff(bounds)
        assert sizes.min() >= 1, f"{name}: a batch is empty"
        assert sizes.max() <= MAX_BATCH_SIZE, f"{name}: a batch has too many samples"
        own = lengths[samples]
        widths = np.maximum.reduceat(own, bounds[:-1] - bounds[0]).astype(np.int64)
        assert (widths * sizes).max() <= TOKEN_BUDGET, f"{name}: a batch is over the budget"
        block = bucket_of_length[widths]
        assert np.array_equal(np.repeat(block, sizes), bucket_of_length[own]), (
            f"{name}: a batch spans two buckets"
        )
        buckets[first : first + _BLOCK] = block
        tokens += int(own.sum(dtype=np.int64))
        padded_tokens += int((widths * sizes).sum())
    assert seen.all(), f"{name}: a sample is missing"

    counts = np.bincount(buckets, minlength=len(edges) + 1)
    if like is not None:
        expected = np.bincount(_buckets_of(like, lengths, edges), minlength=len(edges) + 1)
        assert np.allclose(counts, expected, rtol=0.005, atol=2), (
            f"{name}: {counts}, not {expected}"
        )
    if spread is not None:
        for quarter in np.array_split(buckets, 4):
            share = np.bincount(quarter, minlength=len(edges) + 1) / quarter.size
            off = np.abs(share - counts / buckets.size).max()
            assert off <= max(spread, _ALWAYS_OFF / quarter.size), (
                f"{name}: a quarter is off by {off:.3%}"
            )
    return tokens / padded_tokens


def _buckets_of(plan: FlatPlan, lengths: IntArray, edges: Sequence[int]) -> NDArray[np.int64]:
    """Return the bucket of each batch's first sample."""
    indices, offsets = plan
    return np.digitize(lengths[indices[offsets[:-1]]], edges)


def flat(plan: Any) -> FlatPlan:
    """Return an EpochPlan's indices and offsets."""
    return plan.indices, plan.offsets


def flattened(batches: Sequence[Sequence[int]]) -> FlatPlan:
    """Return lists of indices as one array and the batches' offsets."""
    offsets = np.cumsum([0, *map(len, batches)])
    return np.fromiter(chain.from_iterable(batches), np.int64, offsets[-1]), offsets


def digest(plan: Any) -> str:
    """Return a hash of all that an EpochPlan says of its batches."""
    hashed = hashlib.sha256()
    for array in (plan.indices, plan.offsets, plan.buckets, plan.widths):
        hashed.update(f"{array.dtype} {array.size} ".encode())
        hashed.update(array.data)
    return hashed.hexdigest()
