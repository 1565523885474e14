"""What pictures of an epoch show, as arrays: for matplotlib and for pages alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evenstride.plan import EpochPlan

__all__ = ["Strip", "bucket_name", "histogram_of", "shares_of", "step_labels", "strip_of"]


class Strip(NamedTuple):
    """The labels of steps as an image, and how to read it.

    `image` has a row below each other for the steps of a column, the columns from left to right;
    shape (n_rows, n_columns), -1 after the last step. `reading` is a phrase.
    """

    image: NDArray[np.int16]
    shown: int
    reading: str


def step_labels(plan: EpochPlan) -> NDArray[np.int16]:
    """Return the label of each step: the bucket of most of its batches, the longer one of a tie."""
    steps = plan.buckets.reshape(plan.num_steps, plan.num_replicas)
    labels: NDArray[np.int16] = steps[:, 0].copy()
    mixed = np.flatnonzero((steps != labels[:, None]).any(axis=1))
    most = np.zeros(len(mixed), np.int64)
    for bucket in np.unique(steps[mixed]):
        batches = (steps[mixed] == bucket).sum(axis=1)
        labels[mixed[batches >= most]] = bucket
        most = np.maximum(most, batches)
    return labels


def strip_of(labels: NDArray[np.int16], columns: int, most_rows: int) -> Strip:
    """Return the image of all steps or, where they are too many, of some at equal distances."""
    shown = labels
    if len(labels) > columns * most_rows:
        shown = labels[np.linspace(0, len(labels) - 1, columns * most_rows).astype(np.int64)]
    rows = -(-len(shown) // columns)
    columns = -(-len(shown) // rows)
    image = np.full(rows * columns, -1, np.int16)
    image[: len(shown)] = shown
    every = (
        f"All {len(labels):,} steps"
        if len(shown) == len(labels)
        else f"{len(shown):,} of {len(labels):,} steps"
    )
    reading = "from left to right" if rows == 1 else f"downwards, {rows} to a column"
    return Strip(image.reshape(columns, rows).T, len(shown), f"{every}: {reading}")


def shares_of(
    labels: NDArray[np.int16], num_buckets: int, most_slices: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return each bucket's share of the steps of each slice of the epoch, and where slices end.

    The shares have shape (n_buckets, n_slices), the bounds are fractions of the epoch, shape
    (n_slices + 1,).
    """
    slices = min(most_slices, len(labels))
    bounds = np.arange(slices + 1) * len(labels) // slices
    steps = np.repeat(np.arange(slices), np.diff(bounds)) * num_buckets + labels
    counts = np.bincount(steps, minlength=slices * num_buckets)
    shares = counts.reshape(slices, num_buckets).T / np.diff(bounds)
    return shares, bounds / len(labels)


def histogram_of(
    plan: EpochPlan, values: NDArray[np.float64], bins: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return how many batches of each bucket have which value, and the bounds of the bins.

    Shapes (n_buckets, n_bins) and (n_bins + 1,); the bins go from 0 to the largest value, or to 1.
    """
    top = max(1.0, float(values.max()))
    places = np.minimum(values * (bins / top), bins - 1).astype(np.int64)
    num_buckets = len(plan.edges) - 1
    counts = np.bincount(
        plan.buckets.astype(np.int64) * bins + places, minlength=num_buckets * bins
    )
    return counts.reshape(num_buckets, bins).astype(np.float64), np.linspace(0, top, bins + 1)


def bucket_name(edges: list[int], bucket: int) -> str:
    """Return the number and the lengths of a bucket."""
    return f"{bucket}: [{edges[bucket]}, {edges[bucket + 1]})"
