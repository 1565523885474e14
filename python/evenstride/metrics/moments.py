"""Means and variances that take one value after the other, and merge."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["LARGEST", "Moments", "between_share", "merged"]

LARGEST = 1e140  # Squares of differences, and sums of them, are floats.


@dataclass(slots=True)
class Moments:
    """The mean and the variance of values that came one after the other.

    Attributes
    ----------
    count : int
        Values in ``[-1e140, 1e140]``. At least 0.
    mean : float
        Of those values; NaN if there are none.
    squares : float
        Sum of the squares of their differences from the mean. At least 0.
    nonfinite : int
        Other values: NaN, infinite, or so large that a square would be. They count nowhere else.
        At least 0.

    Notes
    -----
    Values are added with the recurrence of Welford (1962) and sets of them with that of Chan, Golub
    and LeVeque (1983), so that nothing cancels out where the mean is large and the variance small.

    Examples
    --------
    >>> from evenstride.metrics import Moments
    >>> moments = Moments()
    >>> for value in (1.0, 3.0, float("inf")):
    ...     moments.add(value)
    >>> moments.count, moments.mean, moments.variance, moments.nonfinite
    (2, 2.0, 1.0, 1)

    """

    count: int = 0
    mean: float = math.nan
    squares: float = 0.0
    nonfinite: int = 0

    @property
    def variance(self) -> float:
        """Mean square of the differences from the mean, NaN without a value."""
        return self.squares / self.count if self.count else math.nan

    def add(self, value: float) -> None:
        """Add a value."""
        if not -LARGEST <= value <= LARGEST:
            self.nonfinite += 1
            return
        self.count += 1
        if self.count == 1:
            self.mean = value
            return
        change = value - self.mean
        self.mean += change / self.count
        self.squares += change * (value - self.mean)

    def merge(self, other: Moments) -> None:
        """Add all the values of `other`."""
        self.nonfinite += other.nonfinite
        if other.count == 0:
            return
        if self.count == 0:
            self.count, self.mean, self.squares = other.count, other.mean, other.squares
            return
        count = self.count + other.count
        change = other.mean - self.mean
        self.mean += change * other.count / count
        self.squares += other.squares + change * change * (self.count * other.count / count)
        self.count = count


def merged(parts: Iterable[Moments]) -> Moments:
    """Return the moments of all the values of `parts` together."""
    whole = Moments()
    for part in parts:
        whole.merge(part)
    return whole


def between_share(groups: Iterable[Moments]) -> float:
    """Return which share of the variance of all values lies between the groups.

    By the law of total variance, the variance of all values is the mean of the groups' variances
    plus the variance of the groups' means, both weighted by the groups' counts ``n_k``::

        between = sum of n_k * (mean_k - mean)**2
        within  = sum of squares_k
        share   = between / (between + within)

    which statistics calls the squared correlation ratio, or eta squared (Pearson 1905, Fisher
    1925). With values that do not depend on the group at all, it is ``(groups - 1) / (values - 1)``
    on average, not 0.

    Parameters
    ----------
    groups : iterable of Moments
        One for each group; those without values do not matter.

    Returns
    -------
    float
        In ``[0, 1]``; NaN if all values are equal, or there are none.

    Examples
    --------
    >>> from evenstride.metrics import Moments, between_share
    >>> short, long = Moments(), Moments()
    >>> for value in (1.0, 3.0):
    ...     short.add(value)
    >>> for value in (5.0, 7.0):
    ...     long.add(value)
    >>> between_share([short, long])
    0.8

    """
    counted = [group for group in groups if group.count > 0]
    mean = merged(counted).mean
    between = sum(group.count * (group.mean - mean) ** 2 for group in counted)
    total = between + sum(group.squares for group in counted)
    return between / total if total > 0 else math.nan
