"""Gradient norms of batches, and how much of their variance the buckets explain."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from evenstride.demo.noise import group_means, label_means, settled_from, without_trend

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor, nn


class GradientNorms:
    """The norm of each batch's own gradient, while gradients of several are added up."""

    def __init__(self, model: nn.Module) -> None:
        self._square = 0.0
        for parameter in model.parameters():
            parameter.register_hook(self._add)  # Sees what is to be added, not the sum.

    def _add(self, gradient: Tensor) -> None:
        self._square += torch.linalg.vector_norm(gradient).item() ** 2

    def take(self) -> float:
        """Return the norm over all parameters of what came since the last call."""
        norm, self._square = math.sqrt(self._square), 0.0
        return norm


@dataclass(frozen=True)
class NormShares:
    """Between-bucket shares of the variance of gradient norms, in ``[0, 1]``.

    By the law of total variance, the variance of the norms is that of their buckets' means, which
    is between the buckets, and the mean of the variances within the buckets. All norms are taken as
    distances from their trend, over the last two thirds of the epoch. NaN for too short an epoch.

    Attributes
    ----------
    batch : float
        Of the batches' norms.
    optimizer_step : float
        Of the mean norm of an optimizer step's batches, weighted by tokens. It is the sum of the
        mean over the batches of their buckets' means, and of the mean of the rests. This is
        the variance of the first, over the variances of both: 0 where every optimizer step has the
        same mix of buckets.

    """

    batch: float
    optimizer_step: float


def shares_of(
    norms: NDArray[np.float64],
    tokens: NDArray[np.float64],
    buckets: NDArray[np.int64],
    accumulation_steps: int,
) -> NormShares:
    """Return the shares of an epoch's batches, each array of shape (n_steps,)."""
    begin = settled_from(len(norms), accumulation_steps)
    if begin is None:
        return NormShares(math.nan, math.nan)
    rest = without_trend(norms, begin)
    between = label_means(rest, buckets[begin:])
    of_mix, of_rest = (
        group_means(part, tokens[begin:], accumulation_steps).var()
        for part in (between, rest - between)
    )
    return NormShares(float(between.var() / rest.var()), float(of_mix / (of_mix + of_rest)))
