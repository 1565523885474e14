"""How much a loss curve scatters about its trend, and how much of that the buckets explain."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.polynomial import Polynomial

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from evenstride.demo.training import StepLoss

    FloatArray = NDArray[np.float64]

__all__ = [
    "LossNoise",
    "group_means",
    "label_means",
    "noise_of",
    "running_mean",
    "settled_from",
    "without_trend",
]

_SETTLED = 1 / 3  # Where the steep beginning is over, as a fraction of the curve.
_DEGREE = 3
_FEWEST_OPTIMIZER_STEPS = 8


@dataclass(frozen=True)
class LossNoise:
    """Standard deviations of the loss about its trend, in nats; NaN for too short a curve.

    The trend is the cubic polynomial in the logarithm of the step that fits best, over the last
    two thirds of the curve.

    Attributes
    ----------
    batch : float
        Of the batches.
    optimizer_step : float
        Of the means over the tokens of an optimizer step.
    running_mean : float
        Of the means over the tokens of four optimizer steps, which is what the eye follows.
    explained : float
        Share of the batches' variance that lies between the buckets. In ``[0, 1]``.

    """

    batch: float
    optimizer_step: float
    running_mean: float
    explained: float


def noise_of(steps: Sequence[StepLoss], accumulation_steps: int) -> LossNoise:
    """Return the noise of a loss curve."""
    begin = settled_from(len(steps), accumulation_steps)
    if begin is None:
        return LossNoise(math.nan, math.nan, math.nan, math.nan)
    settled = steps[begin:]
    tokens = np.array([step.tokens for step in settled], np.float64)
    rest = without_trend(np.array([step.loss for step in steps]), begin)
    means = label_means(rest, np.array([step.bucket for step in settled]))
    return LossNoise(
        batch=float(rest.std()),
        optimizer_step=float(group_means(rest, tokens, accumulation_steps).std()),
        running_mean=float(group_means(rest, tokens, 4 * accumulation_steps).std()),
        explained=float(means.var() / rest.var()),
    )


def settled_from(num_steps: int, accumulation_steps: int) -> int | None:
    """Return the first step of the last two thirds, where an optimizer step begins.

    None if these are fewer than eight optimizer steps.
    """
    begin = math.ceil(_SETTLED * num_steps / accumulation_steps) * accumulation_steps
    return begin if num_steps - begin >= _FEWEST_OPTIMIZER_STEPS * accumulation_steps else None


def without_trend(values: FloatArray, begin: int) -> FloatArray:
    """Return how far each value from step `begin` on is from their trend."""
    places = np.log(np.arange(begin, len(values)) + 1.0)
    settled = values[begin:]
    rest: FloatArray = settled - Polynomial.fit(places, settled, _DEGREE)(places)
    return rest


def label_means(values: FloatArray, labels: NDArray[np.int64]) -> FloatArray:
    """Return, in place of each value, the mean of all values that have its label."""
    _, places, counts = np.unique(labels, return_inverse=True, return_counts=True)
    means: FloatArray = (np.bincount(places, values) / counts)[places]
    return means


def group_means(values: FloatArray, weights: FloatArray, size: int) -> FloatArray:
    """Return the weighted mean of each `size` values, one after the other; a rest is left out."""
    whole = len(values) // size * size
    groups, of_groups = (array[:whole].reshape(-1, size) for array in (values, weights))
    means: FloatArray = (groups * of_groups).sum(axis=1) / of_groups.sum(axis=1)
    return means


def running_mean(steps: Sequence[StepLoss], window: int) -> tuple[FloatArray, FloatArray]:
    """Return the middles of all windows of so many steps, and the mean loss of their tokens.

    A curve that is shorter than a window has none.
    """
    if len(steps) < window:
        return np.empty(0), np.empty(0)
    tokens = np.array([step.tokens for step in steps], np.float64)
    losses = np.array([step.loss for step in steps]) * tokens
    ones = np.ones(window)
    means = np.convolve(losses, ones, "valid") / np.convolve(tokens, ones, "valid")
    middles = np.arange(len(means), dtype=np.float64) + (window - 1) / 2
    return middles, means
