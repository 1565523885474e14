"""The options of a plan, in the types that the core takes."""

from __future__ import annotations

import operator
import warnings
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, SupportsFloat, SupportsIndex

from evenstride import _core

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenstride.lengths import LengthArray

UNLIMITED = 2**64 - 1
_DEFAULT_THREADS = 4
_NOTABLE_SHARE = 0.01
_MOST_THREADS = 256


def as_count(name: str, value: SupportsIndex) -> int:
    """Return `value` as an int in ``[1, 2**63)``; say what is wrong with it else."""
    return _as_int(name, value, 1, 2**63)


def _as_int(name: str, value: SupportsIndex, least: int, end: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        msg = f"`{name}` must be an integer, but is {value!r}."
        raise TypeError(msg) from None
    if not least <= number < end:
        msg = f"`{name}` must be in [{least}, 2**{end.bit_length() - 1}), but is {number}."
        raise ValueError(msg)
    return number


def as_uint64(name: str, value: SupportsIndex) -> int:
    """Return `value` as an int in ``[0, 2**64)``; say what is wrong with it else."""
    return _as_int(name, value, 0, 2**64)


def as_num_threads(num_threads: SupportsIndex | None) -> int:
    """Return the number of threads to plan with, by default at most four."""
    if num_threads is None:
        return min(_DEFAULT_THREADS, _core.available_processors())
    return min(_MOST_THREADS, as_count("num_threads", num_threads))


def _as_buckets(buckets: SupportsIndex | Sequence[SupportsIndex]) -> int | list[int]:
    if hasattr(buckets, "__index__") and not getattr(buckets, "shape", ()):
        return as_count("buckets", buckets)
    if isinstance(buckets, str) or not hasattr(buckets, "__iter__"):
        msg = f"`buckets` must be an integer or a sequence of inner edges, but is {buckets!r}."
        raise TypeError(msg)
    return [as_count(f"buckets[{i}]", edge) for i, edge in enumerate(buckets)]


def _as_name(name: str, value: str) -> str:
    if not isinstance(value, str):
        msg = f"`{name}` must be a string, but is {value!r}."
        raise TypeError(msg)
    return value


@dataclass(frozen=True)
class PlanOptions:
    """Everything but the lengths, the epoch and the ranks that a plan depends on.

    Takes what a user may pass and holds plain Python values. Ranges that the core can see are
    checked there.
    """

    token_budget: int
    max_batch_size: int | None = None
    batch_size_multiple: int = 1
    pad_to_multiple_of: int = 1
    max_length: int | None = None
    buckets: int | list[int] = 6
    composition: str = "shuffle"
    window: int = 1024
    merge_buckets: int = 1
    order: str = "stride"
    jitter: float = 0.25
    accumulation_steps: int = 1
    shuffle: bool = True
    seed: int = 0
    drop_last: bool = False
    too_long: str = "error"
    empty: str = "keep"
    steps_per_epoch: int | None = None

    def __post_init__(self) -> None:
        """Convert each option, and refuse what is not of its kind."""
        for name in (
            "token_budget",
            "max_batch_size",
            "batch_size_multiple",
            "pad_to_multiple_of",
            "window",
            "merge_buckets",
            "accumulation_steps",
            "steps_per_epoch",
        ):
            value = getattr(self, name)
            if value is not None:
                self._set(name, as_count(name, value))
        if self.max_length is not None:
            self._set("max_length", _as_int("max_length", self.max_length, 0, 2**63))
        self._set("seed", as_uint64("seed", self.seed))
        self._set("buckets", _as_buckets(self.buckets))
        for name in ("composition", "order", "too_long", "empty"):
            _as_name(name, getattr(self, name))
        if self.order == "weighted":
            self._set("order", "shuffle")
        if not isinstance(self.jitter, SupportsFloat):
            msg = f"`jitter` must be a number, but is {self.jitter!r}."
            raise TypeError(msg)
        self._set("jitter", float(self.jitter))
        self._set("shuffle", bool(self.shuffle))
        self._set("drop_last", bool(self.drop_last))

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)  # The way that a frozen dataclass leaves open.

    def planner(self, lengths: LengthArray, num_threads: int) -> _core.Planner:
        """Return a planner for `lengths`, which it refers to."""
        return _core.Planner(
            lengths,
            self.buckets,
            merge_buckets=self.merge_buckets,
            token_budget=self.token_budget,
            max_batch_size=UNLIMITED if self.max_batch_size is None else self.max_batch_size,
            batch_size_multiple=self.batch_size_multiple,
            pad_to_multiple_of=self.pad_to_multiple_of,
            max_length=UNLIMITED - 1 if self.max_length is None else self.max_length,
            composition=self.composition,
            window=self.window,
            order=self.order,
            jitter=self.jitter,
            accumulation_steps=self.accumulation_steps,
            shuffle=self.shuffle,
            seed=self.seed,
            too_long=self.too_long,
            empty=self.empty,
            num_threads=num_threads,
        )

    def warn_of_removed(self, planner: _core.Planner, stacklevel: int) -> None:
        """Warn if more than one in a hundred tokens is no part of any epoch."""
        removed = planner.removed
        tokens = sum(amount["tokens"] for amount in removed.values())
        total = tokens + planner.admitted["tokens"]
        if tokens > total * _NOTABLE_SHARE:
            warnings.warn(
                f"{tokens:,} of {total:,} tokens are in no epoch: {removed['too_long']['samples']:,} "
                f"samples are too long, and too_long='drop' leaves them out.",
                stacklevel=stacklevel + 1,
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the options as plain values, for states and reports."""
        return asdict(self)
