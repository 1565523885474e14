"""A step that a meter has counted, and how its state keeps it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evenstride.metrics.source import StepCounts

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["StepRecord"]


@dataclass(slots=True)
class StepRecord:
    """A step, and what is known of it. Values may be tensors until they are read."""

    optimizer_step: tuple[int, int]
    counts: StepCounts
    loss: Any
    grad_norm: Any
    seconds: float | None

    def to_list(self) -> list[Any]:
        """Return everything as plain numbers: 9 counts, loss, gradient norm and seconds."""
        values = self.loss, self.grad_norm, self.seconds
        return [*self.optimizer_step, *self.counts, *map(_plain, values)]

    @classmethod
    def from_list(cls, values: Sequence[Any]) -> StepRecord:
        """Return what :meth:`to_list` was called on."""
        epoch, optimizer_step, *rest = values
        counts, known = StepCounts(*rest[:7]), map(_number, rest[7:])
        return cls((epoch, optimizer_step), counts, *known)


def _plain(value: float | None) -> float | str | None:
    """Return infinite values and NaN, which JSON does not have, by their names."""
    return value if value is None or math.isfinite(value) else str(value)


def _number(value: float | str | None) -> float | None:
    return None if value is None else float(value)
