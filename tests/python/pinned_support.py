"""Plain memory in place of pinned, which needs a CUDA device, and what was asked for."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import torch

from evenstride import start_producers
from evenstride.blocks import PinnedBlocks

_ALIGNMENT = 64


class PlainBlocks:
    """Stands in for what `PinnedBlocks` and `Tensor.pin_memory` allocate."""

    def __init__(self):
        self.sizes = []  # In bytes, of blocks, in the order in which they were asked for.
        self.devices = set()  # Where a context may begin.
        self.num_copied = 0  # Tensors that torch has pinned.
        self.fails = False
        self._memories = []

    def allocate(self, num_bytes):
        if self.fails:
            raise MemoryError
        memory = np.empty(num_bytes + _ALIGNMENT, np.uint8)
        start = -memory.ctypes.data % _ALIGNMENT
        block = memory[start : start + num_bytes]
        self._memories.append(weakref.ref(block))
        return torch.from_numpy(block)  # Keeps `block` as long as any tensor lies in it.

    def pin(self, tensor):
        if self.has(tensor):
            return tensor
        pinned = self.allocate(tensor.nbytes).view(tensor.dtype).view(tensor.shape)
        self.num_copied += 1
        return pinned.copy_(tensor)

    @property
    def num_alive(self):
        """How many blocks are in use, by us or in tensors."""
        gc.collect()
        return len(self._alive())

    def has(self, tensor):
        """Whether a tensor is in memory that was allocated here."""
        begin, end = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
        ranges = [(block.ctypes.data, block.ctypes.data + block.size) for block in self._alive()]
        return any(first <= begin and end <= last for first, last in ranges)

    def _alive(self):
        memories = [memory() for memory in self._memories]
        return [memory for memory in memories if memory is not None]

    def put_in_place(self, patch):
        """Let a loader believe that there is a CUDA device, and that this is its memory."""

        def allocate(pinned_blocks, num_bytes):
            self.devices.add(pinned_blocks._device)
            block = self.allocate(num_bytes)
            self.sizes.append(num_bytes)
            return block

        def pin_memory(tensor):
            return self.pin(tensor)

        patch.setattr(torch.cuda, "is_available", lambda: True)
        patch.setattr(torch.cuda, "device_count", lambda: 4)
        patch.setattr(start_producers, "why_not", lambda _: "this is about pinned memory")
        patch.setattr(PinnedBlocks, "allocate", allocate)
        patch.setattr(torch.Tensor, "pin_memory", pin_memory)


def block_of(batch):
    """Return the memory that all tensors of a batch lie in, by its address."""
    (address,) = {tensor.untyped_storage().data_ptr() for tensor in batch.values()}
    return address
