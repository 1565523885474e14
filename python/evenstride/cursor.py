"""The position of a pass over the batches of a rank."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class Cursor:
    """Where a pass began, and how far it has come, in batches of the rank."""

    __slots__ = ("_batches", "_end", "began", "epoch")

    def __init__(self, epoch: int, began: int, step: int) -> None:
        self.epoch = epoch
        self.began = began
        self._end = step
        self._batches: Iterator[list[int]] = iter(())

    @property
    def step(self) -> int:
        """Batches before this one are handed out."""
        return self._end - operator.length_hint(self._batches)

    def hand_out(self, batches: list[list[int]]) -> Iterator[list[int]]:
        """Return an iterator over the next batches, which knows by itself how far it has come."""
        self._batches = iter(batches)
        self._end += len(batches)
        return self._batches

    def count(self) -> None:
        """Count a batch that was handed out elsewhere."""
        self._end += 1

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle the position, without the batches that lie ready."""
        return Cursor, (self.epoch, self.began, self.step)
