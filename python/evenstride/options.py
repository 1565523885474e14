"""The options of a plan, in the types that the core takes."""

from __future__ import annotations

import operator
import warnings
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, SupportsFloat, SupportsIndex

import numpy as np

from evenstride import _core

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from evenstride.lengths import LengthArray

UNLIMITED = 2**64 - 1
_DEFAULT_THREADS = 4
_NOTABLE_SHARE = 0.01
_COUNTS = (
    "token_budget",
    "max_batch_size",
    "batch_size_multiple",
    "pad_to_multiple_of",
    "window",
    "merge_buckets",
    "accumulation_steps",
    "steps_per_epoch",
)
_OPTIONAL = {"max_batch_size", "steps_per_epoch"}
_MOST_THREADS = 256


def as_count(name: str, value: SupportsIndex) -> int:
    """Return `value` as an int in ``[1, 2**63)``; say what is wrong with it else."""
    return _as_int(name, value, 1, 2**63)


def as_integer(name: str, value: SupportsIndex) -> int:
    """Return `value` as an int; say what is wrong with it else."""
    try:
        return operator.index(value)
    except TypeError:
        msg = f"`{name}` must be an integer, but is {value!r}."
        raise TypeError(msg) from None


def _as_int(name: str, value: SupportsIndex, least: int, end: int) -> int:
    number = as_integer(name, value)
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


def _as_buckets(buckets: Any) -> int | list[int]:
    if hasattr(buckets, "__index__") and not getattr(buckets, "shape", ()):
        return as_count("buckets", buckets)
    if isinstance(buckets, str) or not hasattr(buckets, "__iter__"):
        msg = f"`buckets` must be an integer or a sequence of inner edges, but is {buckets!r}."
        raise TypeError(msg)
    return [as_count(f"buckets[{i}]", edge) for i, edge in enumerate(buckets)]


def as_name(name: str, value: str) -> str:
    """Return `value`, which is a string; say what is wrong with it else."""
    if not isinstance(value, str):
        msg = f"`{name}` must be a string, but is {value!r}."
        raise TypeError(msg)
    return value


def as_bool(name: str, value: Any) -> bool:
    """Return `value`, which is True or False; say what is wrong with it else."""
    if not isinstance(value, (bool, np.bool_)):
        msg = f"`{name}` must be True or False, but is {value!r}."
        raise TypeError(msg)
    return bool(value)


@dataclass(frozen=True)
class PlanOptions:
    """Everything but the lengths, the epoch and the ranks that a plan depends on.

    Plain Python values; :meth:`of` makes them of what a user may pass. Ranges that the core can see
    are checked there.
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

    @property
    def longest_admitted(self) -> int:
        """The most tokens that a sample may have and not be removed."""
        if self.too_long == "alone":
            return UNLIMITED
        widest = self.token_budget // self.pad_to_multiple_of * self.pad_to_multiple_of
        return widest if self.max_length is None else min(widest, self.max_length)

    @classmethod
    def of(cls, **given: Any) -> PlanOptions:
        """Return the options that a user gave, each converted, or say which is not of its kind."""
        options: dict[str, Any] = {field.name: field.default for field in fields(cls)} | given
        for name in _COUNTS:
            if name not in _OPTIONAL or options[name] is not None:
                options[name] = as_count(name, options[name])
        if options["max_length"] is not None:
            options["max_length"] = _as_int("max_length", options["max_length"], 0, 2**63)
        options["seed"] = as_uint64("seed", options["seed"])
        options["buckets"] = _as_buckets(options["buckets"])
        for name in ("composition", "order", "too_long", "empty"):
            options[name] = as_name(name, options[name])
        if options["order"] == "weighted":
            options["order"] = "shuffle"
        if not isinstance(options["jitter"], SupportsFloat):
            msg = f"`jitter` must be a number, but is {options['jitter']!r}."
            raise TypeError(msg)
        options["jitter"] = float(options["jitter"])
        for name in ("shuffle", "drop_last"):
            options[name] = as_bool(name, options[name])
        return cls(**options)

    def planner(
        self,
        lengths: LengthArray,
        num_threads: int,
        progress: Callable[[float], None] | None = None,
    ) -> _core.Planner:
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
            progress=progress,
        )

    def warn_of_removed(self, planner: _core.Planner, stacklevel: int) -> None:
        """Warn if more than one in a hundred tokens is no part of any epoch."""
        removed = planner.removed
        tokens = sum(amount["tokens"] for amount in removed.values())
        total = tokens + planner.admitted["tokens"]
        if tokens > total * _NOTABLE_SHARE:
            samples = removed["too_long"]["samples"]
            warnings.warn(
                f"{tokens:,} of {total:,} tokens are in no epoch: too_long='drop' leaves out "
                f"{samples:,} {'sample' if samples == 1 else 'samples'}.",
                stacklevel=stacklevel + 1,
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the options as plain values, for states and reports."""
        return asdict(self)


def check_names_for_trainer(names: Iterable[str], left_to: Mapping[str, str] | None = None) -> None:
    """Say which option of a sampler that is made for a Trainer is none, or not for users to set.

    `left_to` says what sets an option, besides the ranks, which the Trainer always does.
    """
    left_to = {"num_replicas": "the Trainer", "rank": "the Trainer", **(left_to or {})}
    known = {field.name for field in fields(PlanOptions)} | {"num_threads", "plan_cache"}
    for name in names:
        if name in left_to:
            msg = f"`{name}` must be left to {left_to[name]}, but is given."
            raise TypeError(msg)
        if name not in known:
            msg = f"`{name}` must be an option of BucketBatchSampler, but is not."
            raise TypeError(msg)
