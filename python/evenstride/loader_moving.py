"""Batches on their way to the memory where they are used."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


def moved(batch: Any, *, device: torch.device | None, pins_memory: bool) -> Any:
    """Return a batch in pinned memory, if asked for, or on a device.

    Type, keys and nesting stay. What is no tensor stays as it is, unless it has a method
    ``pin_memory`` or ``to`` of its own.
    """
    with on_device(device):
        if pins_memory:
            batch = mapped(batch, "pin_memory")
        if device is not None:
            # Only for CUDA does torch wait for a copy from memory that is not pinned.
            batch = mapped(batch, "to", device, non_blocking=device.type == "cuda")
    return batch


def on_device(device: torch.device | None) -> AbstractContextManager[Any]:
    """Return a context in which that device is the current one, if it is of CUDA.

    Pinning would otherwise begin a context on the first device, whichever is asked for.
    """
    if device is None or device.type != "cuda":
        return contextlib.nullcontext()
    return torch.cuda.device(device)


def mapped(batch: Any, method: str, *args: Any, **options: Any) -> Any:
    """Call a method of every tensor of a batch, and of every other object that has it."""

    def of(item: Any) -> Any:
        return mapped(item, method, *args, **options)

    own = getattr(batch, method, None)
    if callable(own):
        return own(*args, **options)
    if isinstance(batch, Mapping):
        return _mapping_like(batch, {key: of(value) for key, value in batch.items()})
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*map(of, batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(map(of, batch))
    return batch


def _mapping_like(batch: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    if type(batch) is dict:
        return items
    try:
        other: Any = copy.copy(batch)
        other.update(items)
    except (AttributeError, TypeError):
        return items  # It cannot be changed.
    return other
