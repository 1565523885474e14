"""Numbers that may still be on their way on a device."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["as_held", "read"]


def as_held(name: str, value: Any) -> Any:
    """Return `value` as a float, or as a tensor on a device that need not be waited for yet.

    Raises
    ------
    TypeError
        If it is no number.
    ValueError
        If it is a tensor of more or fewer elements than one.

    """
    if value is None or type(value) is float:
        return value
    if hasattr(value, "detach"):
        if value.numel() != 1:
            msg = f"`{name}` must have one element, but has shape {tuple(value.shape)}."
            raise ValueError(msg)
        if value.device.type == "cpu":
            return float(value.item())
        # A copy, since a loop may change its loss in place, and a captured graph overwrites it.
        return value.detach().clone()
    try:
        return value.__float__()
    except (AttributeError, TypeError):
        msg = f"`{name}` must be a number or a tensor of one element, but is {value!r}."
        raise TypeError(msg) from None


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
            floats[place] = number
    return floats
