"""Edges of buckets."""

from __future__ import annotations

from typing import TYPE_CHECKING, SupportsIndex

from evenstride import _core
from evenstride.lengths import as_lengths
from evenstride.options import UNLIMITED, as_count, as_num_threads

if TYPE_CHECKING:
    from evenstride.lengths import Lengths


def optimal_edges(
    lengths: Lengths,
    num_buckets: SupportsIndex,
    *,
    token_budget: SupportsIndex,
    max_batch_size: SupportsIndex | None = None,
    pad_to_multiple_of: SupportsIndex = 1,
) -> list[int]:
    """Return the inner edges of the buckets that pad least.

    They minimise the expected padded tokens of the fill, with a little added for each batch: for
    each possible bucket a fixed sample of its lengths is filled in a fixed random order, and
    dynamic programming finds the buckets whose sum is smallest. A bucket's last batch counts
    as if full where there are more samples than can be looked at one by one, so that a tiny bucket
    does not pay. Equal lengths are never split.

    Parameters
    ----------
    lengths : array_like of int, shape (n_samples,)
        Tokens of each sample, in ``[0, 2**63)``. At least one.
    num_buckets : int
        How many buckets to make at most, at least 1.
    token_budget : int
        Largest cost of a batch, in padded tokens, at least 1. A sample above it is a batch of its
        own here; a plan would not admit it.
    max_batch_size : int, optional
        Most samples in a batch, at least 1.
    pad_to_multiple_of : int, default 1
        Widths are rounded up to a multiple of this.

    Returns
    -------
    list of int, shape (n_buckets - 1,)
        Strictly increasing; bucket ``k`` holds ``edges[k - 1] <= length < edges[k]``, as
        :func:`numpy.digitize` has it. Ready for ``buckets=``. Fewer than asked where one more would
        not pay.

    Raises
    ------
    TypeError
        If an argument is not of its kind.
    ValueError
        If a value is outside its range above.

    References
    ----------
    R. Bellman, "On the approximation of curves by line segments using dynamic programming",
    Communications of the ACM 4 (6), 1961, has the same recursion for another cost.

    Examples
    --------
    >>> optimal_edges([3, 3, 4, 4, 90, 95, 96], 2, token_budget=200)
    [90]

    """
    return _core.optimal_edges(
        as_lengths(lengths),
        as_count("num_buckets", num_buckets),
        token_budget=as_count("token_budget", token_budget),
        max_batch_size=(
            UNLIMITED if max_batch_size is None else as_count("max_batch_size", max_batch_size)
        ),
        pad_to_multiple_of=as_count("pad_to_multiple_of", pad_to_multiple_of),
        num_threads=as_num_threads(None),
    )
