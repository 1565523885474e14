"""Means of a few measurements, and how sure they are."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % interval, ``mean - half`` to ``mean + half``, by Student's t."""

    mean: float
    half: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval:
        """Return that of independent values, at least two."""
        error = statistics.stdev(values) / math.sqrt(len(values))
        return cls(statistics.fmean(values), critical_t(len(values) - 1) * error)

    @property
    def excludes_zero(self) -> bool:
        """Whether the mean differs from 0 by more than its uncertainty."""
        return abs(self.mean) > self.half


def critical_t(degrees: int) -> float:
    """Return the t that Student's t exceeds, on either side, in 5 % of cases."""
    low, high = 0.0, 1.0
    while probability_within(high, degrees) < CONFIDENCE:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        if probability_within(middle, degrees) < CONFIDENCE:
            low = middle
        else:
            high = middle
    return high


def probability_within(t: float, degrees: int) -> float:
    """Return how likely Student's t is in ``(-t, t)``.

    By the finite series for a whole number of degrees of freedom: Abramowitz and Stegun, Handbook
    of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    angle = math.atan(t / math.sqrt(degrees))
    odd = degrees % 2
    term = math.cos(angle) if odd else 1.0
    series = 0.0
    for k in range(2 + odd, degrees + 1, 2):
        series += term
        term *= (k - 1) / k * math.cos(angle) ** 2
    if odd:
        return 2 / math.pi * (angle + math.sin(angle) * series)
    return math.sin(angle) * series
