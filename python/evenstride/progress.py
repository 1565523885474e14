"""Telling a callback how far a piece of work is."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["Progress"]

_BETWEEN_CALLS_S = 0.1


class Progress:
    """A piece of work of several parts, of which a callback is told the fraction done.

    The callback is called at most ten times a second, first after a tenth of a second, with values
    that rise, and last with 1.0 if it was called at all and the work came to its end.
    """

    def __init__(self, callback: Callable[[float], None] | None) -> None:
        self._callback = callback
        self._last = 0.0
        self._told_at = time.monotonic()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Tell of the end, if it was reached."""
        if kind is None and self._callback is not None and self._last > 0.0:
            self._callback(1.0)

    def part(self, begin: float, end: float) -> Callable[[float], None] | None:
        """Return what is to be told of the part of the work from `begin` to `end`, if anything."""
        callback = self._callback
        if callback is None:
            return None

        def tell(fraction: float) -> None:
            done = begin + (end - begin) * fraction
            now = time.monotonic()
            if self._last < done < 1.0 and now >= self._told_at + _BETWEEN_CALLS_S:
                self._last, self._told_at = done, now
                callback(done)

        return tell
