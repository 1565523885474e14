"""Numbers that may still be on their way on a device."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["as_held", "as_seconds", "read"]


def as_held(name: str, value: Any) -> Any:
    """Return `value` as a float, or as a tensor on a device that need not be waited for yet.

    Raises
    ------
    TypeError
        If it is no number.
    ValueError
        If it is a tensor or an array of more or fewer elements than one, has no value, or is
        outside the range of floats.

    """
    if type(value) is float:
        return value
    number = value
    if hasattr(value, "shape"):
        if math.prod(value.shape) != 1:
            msg = f"`{name}` must have one element, but has shape {tuple(value.shape)}."
            raise ValueError(msg)
        place = getattr(getattr(value, "device", "cpu"), "type", "cpu")
        if place == "meta":
            msg = f"`{name}` must have a value, but is a tensor on the device 'meta'."
            raise ValueError(msg)
        if place != "cpu":
            if value.is_complex():
                raise _not_a_number(name, value)
            # A copy, since a loop may change its loss in place, and a captured graph overwrites it.
            return value.detach().clone()
        number = value.item()
    try:
        return number.__float__()
    except (AttributeError, TypeError):
        raise _not_a_number(name, value) from None
    except OverflowError:
        msg = f"`{name}` must be in (-2**1024, 2**1024), but is {value!r}."
        raise ValueError(msg) from None


def _not_a_number(name: str, value: Any) -> TypeError:
    return TypeError(f"`{name}` must be a real number or a tensor of one, but is {value!r}.")


def as_seconds(seconds: Any) -> float:
    """Return `seconds` as a float in ``[0, inf)``; say what is wrong with it else."""
    try:
        number: float = seconds.__float__()
    except (AttributeError, TypeError):
        msg = f"`seconds` must be a number, but is {seconds!r}."
        raise TypeError(msg) from None
    except OverflowError:
        number = math.inf
    if not 0 <= number < math.inf:
        msg = f"`seconds` must be in [0, inf), but is {seconds!r}."
        raise ValueError(msg)
    return number


def read(values: Iterable[Any]) -> list[Any]:
    """Return held values as floats, with one transfer for each device and type. None stays."""
    floats = list(values)
    places = defaultdict(list)
    for place, value in enumerate(floats):
        if hasattr(value, "detach"):
            places[value.device, value.dtype].append(place)
    for together in places.values():
        import torch  # noqa: PLC0415 - Only who has tensors needs it.

        tensors = [floats[place].reshape(()) for place in together]
        for place, number in zip(together, torch.stack(tensors).cpu().tolist(), strict=True):
            floats[place] = float(number)
    return floats
