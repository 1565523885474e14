"""Counts of what was cut off, to which any number of threads add."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Truncation:
    """Samples and tokens that were cut, by key.

    Each thread counts on its own. So no lock is needed, which a fork could find taken.
    """

    def __init__(self) -> None:
        self._of_threads: dict[int, Counter[tuple[str, str]]] = {}

    def add(self, truncated: Mapping[str, Mapping[str, int]]) -> None:
        """Add the counts of some batches."""
        if truncated:
            own = self._of_threads.setdefault(threading.get_ident(), Counter())
            own.update(_flat(truncated))

    def plus(self, more: Iterable[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
        """Return all counts, with `more` added to them."""
        total: Counter[tuple[str, str]] = Counter()
        for counts in (*self._of_threads.copy().values(), *map(_flat, more)):
            total.update(counts.copy())
        result: dict[str, dict[str, int]] = {}
        for (key, unit), count in total.items():
            result.setdefault(key, {})[unit] = count
        return result


def _flat(truncated: Mapping[str, Mapping[str, int]]) -> Counter[tuple[str, str]]:
    return Counter(
        {(key, unit): count for key, counts in truncated.items() for unit, count in counts.items()}
    )
