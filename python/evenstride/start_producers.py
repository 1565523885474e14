"""Which threads make the batches of a pass, by what the loader was given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from evenstride import _core
from evenstride.blocks import PinnedBlocks
from evenstride.device_memory import index_of, say_fallback, why_not
from evenstride.producers import NativeProducers, PythonProducers, is_native
from evenstride.producers_device import DeviceProducers
from evenstride.producers_pinned import PinnedProducers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenstride.producers import PassBatches, Producers

_MOST_READY = 256


@dataclass(frozen=True)
class QueueOptions:
    """What the queues of a loader are like."""

    devices: Sequence[torch.device | None]  # Of each target; None where batches stay.
    depth: int
    num_workers: int
    in_order: bool
    pins_memory: bool
    device_memory: str

    @property
    def num_targets(self) -> int:
        """How many consumers there are."""
        return len(self.devices)

    @property
    def num_current(self) -> int:
        """How many batches there are when each consumer has one and asks for the next."""
        return self.num_targets * (self.depth + 2)


def start_producers(
    dataset: Any,
    collate: Any,
    batches: PassBatches,
    delivery: _core.Delivery,
    options: QueueOptions,
) -> Producers:
    """Start the threads that fill the queues of a pass."""
    num_workers = options.num_workers
    if not is_native(dataset, collate):
        return PythonProducers(dataset, collate, batches, delivery, num_workers=num_workers)
    bound = collate.bound_to(dataset)
    devices = _with_kernel(options.devices)
    if devices:
        return DeviceProducers(
            bound,
            batches,
            delivery,
            devices,
            num_workers=num_workers,
            depth=options.depth,
            in_order=options.in_order,
            uses_ring=options.device_memory == "ring",
        )
    num_ready = min(options.num_current, len(batches), _MOST_READY)
    most_idle = min(2 * options.num_current, len(batches))
    if options.pins_memory:
        return PinnedProducers(
            bound,
            batches,
            delivery,
            num_workers=num_workers,
            num_ahead=num_ready,
            most_idle=most_idle,
            blocks=PinnedBlocks(_first_cuda(options.devices)),
            devices=options.devices,
        )
    return NativeProducers(
        bound,
        batches,
        delivery,
        num_workers=num_workers,
        num_idle=num_ready,
        most_idle=most_idle,
        most_bytes=batches.most_bytes(bound),
        given=_core.GivenBlocks(),  # None, so that every batch is made in the pool.
    )


def _with_kernel(devices: Sequence[torch.device | None]) -> list[torch.device]:
    """Return the devices if the kernel serves all of them; else nothing, and say why not."""
    wanted = [device for device in devices if device is not None]
    for device in wanted:
        if (reason := why_not(device)) is not None:
            say_fallback(device, reason)
            return []
    if 0 < len(wanted) < len(devices):
        say_fallback(wanted[0], "another target stays on the host")
        return []
    return [torch.device("cuda", index_of(device)) for device in wanted]


def _first_cuda(devices: Sequence[torch.device | None]) -> torch.device | None:
    return next((one for one in devices if one is not None and one.type == "cuda"), None)
