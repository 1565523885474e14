"""What a meter's state must be, so that it can go on from it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from evenstride.metrics.moments import LARGEST
from evenstride.options import as_integer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["check_values"]


def check_values(state: dict[str, Any], num_buckets: int) -> None:
    """Say which value of a meter's state is not of its kind or outside its range, if one is."""
    for name in ("epoch", "step"):
        number = as_integer(name, state[name])
        if number < -1:
            msg = f"`{name}` must be at least -1, but is {number}."
            raise ValueError(msg)
    buckets, window = (_as_list(name, state[name]) for name in ("buckets", "window"))
    most, least = (num_buckets, 1) if state["step"] >= 0 else (0, 0)
    if len(buckets) != most:
        msg = f"`buckets` must have {most} rows at step {state['step']}, but has {len(buckets)}."
        raise ValueError(msg)
    if min(len(window), 1) != least:
        msg = (
            f"`window` must have {'a row' if least else 'no rows'} at step {state['step']}, but "
            f"has {len(window)}."
        )
        raise ValueError(msg)
    _check_rows("buckets", buckets, (_COUNT,) * 7 + (_COUNT, _MEAN, _SQUARES, _COUNT) * 3)
    bucket = _Kind(f"an integer in [0, {num_buckets})", range(num_buckets).__contains__)
    _check_rows("window", window, (_COUNT, _COUNT, bucket, *(_COUNT,) * 6, *(_VALUE,) * 3))


def _as_list(name: str, rows: Any) -> Any:
    if not isinstance(rows, (list, tuple)):
        msg = f"`{name}` must be a list, but is {rows!r}."
        raise TypeError(msg)
    return rows


def _check_rows(name: str, rows: Sequence[Any], kinds: tuple[_Kind, ...]) -> None:
    for place, row in enumerate(rows):
        if not isinstance(row, (list, tuple)) or len(row) != len(kinds):
            msg = f"`{name}[{place}]` must be a list of {len(kinds)} values, but is {row!r}."
            raise ValueError(msg)
        for column, (value, kind) in enumerate(zip(row, kinds, strict=True)):
            if not kind.holds(value):
                msg = f"`{name}[{place}][{column}]` must be {kind.rule}, but is {value!r}."
                raise ValueError(msg)


class _Kind(NamedTuple):
    rule: str
    holds: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    return type(value) in {int, float} and -sys.float_info.max <= value <= sys.float_info.max


_COUNT = _Kind("an integer of at least 0", lambda value: type(value) is int and value >= 0)
_MEAN = _Kind(
    f"None or in [-{LARGEST}, {LARGEST}]",
    lambda value: value is None or (_is_number(value) and abs(value) <= LARGEST),
)
_SQUARES = _Kind("a number of at least 0", lambda value: _is_number(value) and value >= 0)
_VALUE = _Kind(
    "a number, 'nan', 'inf', '-inf' or None",
    lambda value: value is None or value in ("nan", "inf", "-inf") or _is_number(value),
)
