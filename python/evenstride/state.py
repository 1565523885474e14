"""What a saved position must agree with."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from evenstride.options import as_integer, as_uint64

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import SupportsIndex

    from evenstride.cursor import Cursor

STATE_VERSION = 1


def step_after(cursor: Cursor, consumed: SupportsIndex | None, steps: int) -> int:
    """Return the step that follows `consumed` batches of a pass; by default, those handed out."""
    if consumed is None:
        return cursor.step
    left, taken = steps - cursor.began, as_integer("consumed", consumed)
    if not 0 <= taken <= left:
        msg = f"`consumed` must be in [0, {left}], the batches of the pass, but is {taken}."
        raise ValueError(msg)
    return cursor.began + taken


def check_state(state: dict[str, Any], expected: dict[str, Any]) -> tuple[int, int]:
    """Return the epoch and the step of `state`; the end of an epoch is the start of the next.

    Raises
    ------
    TypeError, ValueError
        With the field and its value, if the state is not whole; with both values, if it is not of
        the same lengths, options and ranks as `expected`.

    """
    check_fields(state, expected)
    # In this order, since a change of lengths or options changes the number of steps too.
    check_same(state, expected, ("version", "lengths", "num_replicas"))
    found, wanted = _options(state), _options(expected)
    check_same(found, wanted, sorted(wanted.keys() | found.keys()))
    check_same(state, expected, ("seed", "steps_per_epoch"))
    step, steps = as_integer("step", state["step"]), expected["steps_per_epoch"]
    if not 0 <= step <= steps:
        msg = f"`step` must be in [0, steps_per_epoch = {steps}], but is {step}."
        raise ValueError(msg)
    epoch = as_uint64("epoch", state["epoch"])
    return (as_uint64("epoch", epoch + 1), 0) if step == steps else (epoch, step)


def check_fields(state: Any, names: Iterable[str]) -> None:
    """Say what is wrong if `state` is not a dict with all of these fields."""
    if not isinstance(state, dict):
        msg = f"`state` must be a dict, but is {state!r}."
        raise TypeError(msg)
    for name in names:
        if name not in state:
            msg = f"`state` must have the field {name!r}, but has only {sorted(state)}."
            raise ValueError(msg)


def _options(state: dict[str, Any]) -> dict[str, Any]:
    text = state["options"]
    if not isinstance(text, str):
        msg = f"`options` must be a string, but is {text!r}."
        raise TypeError(msg)
    try:
        return dict(json.loads(text).items())
    except (AttributeError, RecursionError, ValueError):
        msg = f"`options` must be a JSON object, but is {text!r}."
        raise ValueError(msg) from None


def check_same(found: dict[str, Any], wanted: dict[str, Any], names: Iterable[str]) -> None:
    """Say which of these fields differs, if one does, with both values."""
    for name in names:
        if found.get(name) != wanted.get(name):
            msg = (
                f"`{name}` must be the same as when the state was saved, but was "
                f"{found.get(name)!r} there and is {wanted.get(name)!r} here."
            )
            raise ValueError(msg)
