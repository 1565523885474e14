"""Batches that native code pads in a device's memory, on their way to one consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenstride import _core
from evenstride.device_memory import DeviceMemory, index_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from evenstride.bound import BoundCollator, Samples

_MEMORIES = ("torch", "ring")


def check_memory(name: str, memory: str) -> None:
    """Say what is wrong with a kind of memory, if it is not one."""
    if memory not in _MEMORIES:
        msg = f"`{name}` must be 'torch' or 'ring', but is {memory!r}."
        raise ValueError(msg)


class Device:
    """One device: the way there, and memory for the outputs of batches.

    `num_blocks` of our own that are used in turn, or, if it is 0, blocks that torch allocates for
    each batch.
    """

    def __init__(self, device: torch.device, block_bytes: int, *, num_blocks: int = 0) -> None:
        index = index_of(device)
        self.native = _core.Destination(index, num_blocks=num_blocks, block_bytes=block_bytes)
        self.memory = DeviceMemory(torch.device("cuda", index), self.native.stream)
        self.uses_ring = num_blocks > 0
        self._block_bytes = block_bytes

    def give(self, num_bytes: int = 0) -> None:
        """Let torch allocate a block for a batch that is yet to come."""
        self._block_bytes = max(self._block_bytes, 1 << (num_bytes - 1).bit_length())
        block = self.memory.allocate(self._block_bytes)
        self.native.give(block.data_ptr(), block.numel(), block)

    def submit(self, made: _core.DeviceBatch) -> None:
        """Submit a batch, unless it was submitted to this device."""
        if made.is_submitted_to(self.native):
            return
        while not self.native.submit(made):  # Others may take what is given.
            if self.uses_ring:
                msg = (
                    "A batch must be given up before so many others are taken: all memory for "
                    f"batches on {self.memory.device} is leased."
                )
                raise RuntimeError(msg)
            self.give(made.bytes)


class DeviceTarget:
    """One consumer of a device."""

    def __init__(self, bound: BoundCollator, device: Device) -> None:
        self._bound = bound
        self._device = device
        self._leased: tuple[_core.DeviceBatch, int] | None = None

    def finished(self, made: _core.DeviceBatch, samples: Callable[[], Samples]) -> dict[str, Any]:
        """Return a batch that the calling thread's current stream waits for.

        In a ring, the lease of the batch before is over with this call. Can be called again if what
        follows fails.
        """
        device, memory = self._device, self._device.memory
        stream = memory.current_stream()
        self.release(stream)
        device.submit(made)
        device.native.hand_over(made, stream)
        if device.uses_ring:
            self._leased = (made, stream)
            capsules = made.capsules(self._bound.native, *memory.dlpack_device)
            return self._bound.tensors(capsules, samples, memory.device)
        block: torch.Tensor = made.owner
        memory.hand_over(block)
        return self._bound.views(block, made.arrays(self._bound.native), samples, memory.device)

    def release(self, stream: int | None = None) -> None:
        """End the lease of the last batch, after what its stream and this one have been given."""
        if self._leased is not None:
            made, began = self._leased
            now = self._device.memory.current_stream() if stream is None else stream
            self._leased = None
            self._device.native.release(made, sorted({began, now}))
