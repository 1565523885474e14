"""Native threads that make batches in pinned memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenstride.blocks import Supply
from evenstride.producers import NativeProducers

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from evenstride import _core
    from evenstride.blocks import Blocks
    from evenstride.bound import BoundCollator
    from evenstride.producers import PassBatches


class PinnedProducers(NativeProducers):
    """Native threads that collate into blocks which the consumers give beforehand.

    A batch is made in memory of the pool, and copied to a block when it is taken, where none is at
    hand: when it is larger than others, or consumers lag behind.
    """

    def __init__(
        self,
        bound: BoundCollator,
        batches: PassBatches,
        delivery: _core.Delivery,
        *,
        num_workers: int,
        num_ahead: int,
        most_idle: int,
        blocks: Blocks,
        devices: Sequence[torch.device | None],
    ) -> None:
        most_bytes = batches.most_bytes(bound)
        num_left = len(batches) - delivery.progress()[2]
        num_ahead = min(num_ahead, num_left)
        self._supply = Supply(blocks, most_bytes, num_ahead=num_ahead, num_batches=num_left)
        # Lists of tensors are not in the block, and a device wants a copy of it.
        self._are_placed = [device is None and not bound.has_lists for device in devices]
        super().__init__(
            bound,
            batches,
            delivery,
            num_workers=num_workers,
            num_idle=0,
            most_idle=most_idle,
            most_bytes=most_bytes,
            given=self._supply.given,
        )

    def take(self, target: int) -> tuple[int, Any] | None:
        """Give a block for each batch that was taken, and wait for the next one of a target."""
        self._supply.refill()
        return super().take(target)

    def finished(self, target: int, number: int, made: Any) -> tuple[Any, bool]:
        """Return the batch as tensors in one block."""
        block = made.owner
        if block is None:
            block = self._supply.allocate(made.num_bytes)
            made.copy_to(block.data_ptr())
        batch = self._bound.tensors_in(
            block.untyped_storage(),
            self._workers.places(made),
            lambda: self._batches.indices(number),
        )
        return batch, self._are_placed[target]

    def count(self, target: int, made: Any) -> None:
        """Count what was cut in a batch, and the block that it lies in."""
        super().count(target, made)
        self._supply.count(is_in_block=made.owner is not None)

    def join(self, patience_s: float | None) -> None:
        """Wait for all threads, and let go of the blocks that they have not used."""
        super().join(patience_s)
        self._supply.close()
