"""Memory of torch's for batches: a block a batch, taken from its allocator and given back to it.

So torch's own rules hold for the tensors of a batch: a copy to a device that still reads a block
keeps it from being handed out again, also when the last tensor has died.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol, TypeAlias

import torch

from evenstride import _core
from evenstride.loader_moving import on_device

if TYPE_CHECKING:
    from collections.abc import Iterable

Place: TypeAlias = tuple[int, list[int], list[int]]
"""Of a tensor in a block: the place of its first value, shape and strides, all in values."""


class Blocks(Protocol):
    """Where blocks come from."""

    def allocate(self, num_bytes: int) -> torch.Tensor:
        """Return a new block: so many bytes, at a multiple of 64."""


class PinnedBlocks:
    """Blocks of the host's memory that devices copy from without a detour.

    To pin memory is to begin a context on a device, unless there is one: on `device` if that is of
    CUDA, else on the current one.
    """

    def __init__(self, device: torch.device | None) -> None:
        self._device = device

    def allocate(self, num_bytes: int) -> torch.Tensor:
        """Return a new block."""
        with on_device(self._device):
            return torch.empty(num_bytes, dtype=torch.uint8, device="cpu", pin_memory=True)


class Supply:
    """Blocks for the batches of a pass, given to its workers before they make them.

    At most `num_ahead` blocks wait or hold a batch that is not taken; for each that is taken, a new
    one is given, until there is one for each batch that is left. All are of one size, so that
    torch's allocator has them ready. Thread-safe.
    """

    def __init__(self, blocks: Blocks, num_bytes: int, *, num_ahead: int, num_batches: int) -> None:
        self._blocks = blocks
        self.given = _core.GivenBlocks()
        self._num_bytes = num_bytes
        self._later = iter(range(num_batches - num_ahead))
        self._owed = deque([None] * num_ahead)
        self.refill()

    def allocate(self, num_bytes: int) -> torch.Tensor:
        """Return a block for a batch that has none, as large as the largest so far."""
        self._num_bytes = max(num_bytes, self._num_bytes)
        return self._blocks.allocate(self._num_bytes)

    def count(self, *, is_in_block: bool) -> None:
        """Count a batch that was taken: if it lies in a block, a new one is owed to a later one."""
        if next(self._later, None) is not None and is_in_block:
            self._owed.append(None)

    def refill(self) -> None:
        """Give the blocks that are owed. What cannot be allocated stays owed."""
        while self._owed:
            block = self._blocks.allocate(self._num_bytes)
            try:
                self._owed.pop()
            except IndexError:
                return  # Another thread came first.
            self.given.put(block, block.data_ptr(), self._num_bytes)

    def close(self) -> None:
        """Let go of the blocks that no batch was made in."""
        self.given.close()


def tensors_in(
    storage: torch.UntypedStorage, dtypes: Iterable[torch.dtype], places: Iterable[Place]
) -> list[torch.Tensor]:
    """Return tensors in some memory, which lives as long as any of them.

    Unlike views of one tensor they are strangers to each other for autograd: to change one in place
    does not invalidate what was saved of another.
    """
    device = storage.device
    return [
        torch.empty(0, dtype=dtype, device=device).set_(storage, *place)
        for dtype, place in zip(dtypes, places, strict=True)
    ]
