"""The threads of a loader's pass whose batches are padded on devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from evenstride import _core
from evenstride.device_target import Device, DeviceTarget

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from evenstride.bound import BoundCollator
    from evenstride.producers import PassBatches


class DeviceProducers:
    """Native threads that stage the rows of a :class:`RaggedDataset` for a device of each target."""

    lent = 0  # Torch's memory, or a ring that does not grow.

    def __init__(
        self,
        bound: BoundCollator,
        batches: PassBatches,
        delivery: _core.Delivery,
        devices: Sequence[torch.device],
        *,
        num_workers: int,
        depth: int,
        uses_ring: bool,
    ) -> None:
        plan = batches.plan
        most_samples = int(batches.of_all(np.diff(plan.offsets)).max())
        most_tokens = int(batches.of_all(plan.padded_tokens).max())
        self._bound = bound
        self._batches = batches
        block_bytes = bound.native.most_bytes(most_samples, most_tokens)
        self._devices = {
            device: Device(
                device,
                block_bytes,
                num_blocks=devices.count(device) * (depth + 2) if uses_ring else 0,
            )
            for device in set(devices)
        }
        of_targets = [self._devices[device] for device in devices]
        self._targets = [DeviceTarget(bound, device) for device in of_targets]
        self._stager = _core.Stager(
            bound.native,
            of_targets[0].native,
            num_slabs=len(devices) * (depth + 2),
            most_samples=most_samples,
            most_tokens=most_tokens,
        )
        if not uses_ring:
            for device in of_targets:
                for _ in range(min(depth, len(batches))):
                    device.give()
        self._workers = _core.DeviceWorkers(
            self._stager,
            plan.indices,
            plan.offsets,
            delivery,
            [device.native for device in of_targets],
            first=batches.first,
            stride=batches.stride,
            num_threads=num_workers,
        )

    def take(self, target: int) -> tuple[int, Any] | None:
        """Wait for the next batch of a target: its number and the batch, or None at the end."""
        return self._workers.take(target)

    def finished(self, number: int, made: _core.DeviceBatch, target: int) -> dict[str, Any]:
        """Return the batch as tensors that the consumer's current stream waits for."""
        batch = self._targets[target].finished(made, lambda: self._batches.indices(number))
        self._replenish(target)
        return batch

    def count(self, made: _core.DeviceBatch) -> None:
        """Count what was cut in a batch that its consumer has."""
        self._bound.native.count(made)

    def put_back(self, target: int, number: int, made: _core.DeviceBatch) -> None:
        """Undo a take."""
        self._workers.put_back(target, number, made)

    def join(self, patience_s: float | None) -> None:  # noqa: ARG002 - None of them waits for us.
        """Wait for all threads, each of which ends with the batch that it is making."""
        self._workers.close()
        for device in self._devices.values():
            device.native.close()

    @property
    def slabs(self) -> dict[str, int]:
        """The pinned memory of the batches."""
        return self._stager.slabs
