"""The threads of a pass whose batches are padded on devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenstride import _core
from evenstride.device_target import Device, DeviceTarget

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from evenstride.bound import BoundCollator
    from evenstride.producers import PassBatches


class DeviceProducers:
    """Native threads that stage rows of a :class:`RaggedDataset`, for a device of each target.

    A batch is submitted to its device when it is staged, if it is known which one that is;
    otherwise when it is taken.
    """

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
        in_order: bool,
        uses_ring: bool,
    ) -> None:
        plan = batches.plan
        self._bound = bound
        self._batches = batches
        num_left = len(batches) - delivery.progress()[2]
        goes_ahead = in_order or len(set(devices)) == 1
        most = max(num_left, 1)  # Of no use are more blocks and slabs than batches.
        self._devices = {
            device: Device(
                device,
                batches.most_bytes(bound),
                num_blocks=min(devices.count(device) * (depth + 2), most) if uses_ring else 0,
                # Of each target, those in its queue, and one for the batch after a take.
                num_ahead=min(devices.count(device) * (depth + 1), num_left) if goes_ahead else 0,
                num_batches=num_left,
            )
            for device in sorted(set(devices), key=str)
        }
        self._of_targets = [self._devices[device] for device in devices]
        self._targets = [DeviceTarget(bound, device) for device in self._of_targets]
        most_samples, most_tokens = batches.largest
        self._stager = _core.Stager(
            bound.native,
            self._of_targets[0].native,
            num_slabs=min(len(devices) * (depth + 2), most),
            most_samples=most_samples,
            most_tokens=most_tokens,
        )
        self._workers = _core.DeviceWorkers(
            self._stager,
            plan.indices,
            plan.offsets,
            delivery,
            [device.native for device in self._of_targets],
            first=batches.first,
            stride=batches.stride,
            num_threads=num_workers,
        )

    def take(self, target: int) -> tuple[int, Any] | None:
        """Give memory for each batch that was taken, and wait for the next one of a target."""
        supply = self._of_targets[target].supply
        if supply is not None:
            supply.refill()
        return self._workers.take(target)

    def finished(self, target: int, number: int, made: _core.DeviceBatch) -> tuple[Any, bool]:
        """Return the batch as tensors that the consumer's current stream waits for."""
        return self._targets[target].finished(made, lambda: self._batches.indices(number)), True

    def count(self, target: int, made: _core.DeviceBatch) -> None:
        """Count what was cut in a batch, and the memory that it lies in."""
        made.count(self._bound.native)
        supply = self._of_targets[target].supply
        if supply is not None:
            supply.count(is_in_block=made.is_given)

    def put_back(self, target: int, number: int, made: _core.DeviceBatch) -> None:
        """Undo a take."""
        self._targets[target].forget(made)
        self._workers.put_back(target, number, made)

    def join(self, patience_s: float | None) -> None:  # noqa: ARG002 - None of them waits for us.
        """Wait for all threads, each of which ends with the batch that it is making."""
        self._workers.close()
        for device in self._devices.values():
            device.close()

    @property
    def slabs(self) -> dict[str, int]:
        """The pinned memory of the batches."""
        return self._stager.slabs
