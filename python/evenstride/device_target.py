"""Batches that native code pads in a device's memory, on their way to one consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenstride import _core
from evenstride.blocks import Supply
from evenstride.device_memory import DeviceMemory, index_of
from evenstride.loader_moving import moved

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from evenstride.bound import BoundCollator, Samples

_MEMORIES = ("torch", "ring")


def as_memory(name: str, memory: Any) -> str:
    """Return a kind of memory for outputs; say what is wrong with it if it is not one."""
    if memory not in _MEMORIES:
        msg = f"`{name}` must be 'torch' or 'ring', but is {memory!r}."
        raise ValueError(msg)
    return str(memory)


class Device:
    """One device: the way there, and memory for the outputs of batches.

    Either blocks of torch's, of which `num_ahead` are given beforehand for `num_batches`; or
    `num_blocks` of our own that are used in turn.
    """

    def __init__(
        self,
        device: torch.device,
        block_bytes: int,
        *,
        num_blocks: int = 0,
        num_ahead: int = 0,
        num_batches: int = 0,
    ) -> None:
        index = index_of(device)
        self.memory = DeviceMemory(index, _core.device_stream(index))
        self.supply: Supply | None = None
        if num_blocks > 0:
            self.native = _core.Destination(index, num_blocks=num_blocks, block_bytes=block_bytes)
        else:
            self.supply = Supply(
                self.memory, block_bytes, num_ahead=num_ahead, num_batches=num_batches
            )
            self.native = _core.Destination(index, self.supply.given)

    def submit(self, made: _core.DeviceBatch) -> None:
        """Submit a batch, unless it was submitted to this device."""
        if self.native.has(made) or self.native.submit(made):
            return
        if self.supply is None:
            msg = (
                "Tensors of earlier batches must be let go of when their lease is over, but all "
                f"memory of the ring on {self.memory.device} is in use."
            )
            raise RuntimeError(msg)
        block = self.supply.allocate(made.num_bytes)
        self.native.submit_into(made, block, block.data_ptr(), block.numel())

    def close(self) -> None:
        """Let go of the memory that no batch was made in."""
        if self.supply is not None:
            self.supply.close()


class DeviceTarget:
    """One consumer of a device. One thread at a time uses it."""

    def __init__(self, bound: BoundCollator, device: Device) -> None:
        self._bound = bound
        self._device = device
        self._leased: tuple[_core.DeviceBatch, int] | None = None

    def finished(self, made: _core.DeviceBatch, samples: Callable[[], Samples]) -> dict[str, Any]:
        """Return a batch that the calling thread's current stream waits for.

        In a ring, the lease of the batch before is over with this call. Can be called again if it
        or what follows fails.
        """
        device, memory = self._device, self._device.memory
        stream = memory.current_stream()
        self.release(stream, unless=made)
        device.submit(made)
        if device.supply is None:
            self._leased = (made, stream)
        device.native.hand_over(made, stream)
        if device.supply is None:
            capsules = made.capsules(self._bound.native, *memory.dlpack_device)
            batch = self._bound.tensors(capsules, samples)
        else:
            block: torch.Tensor = made.owner
            memory.hand_over(block)
            places = made.places(self._bound.native)
            batch = self._bound.tensors_in(block.untyped_storage(), places, samples)
        if self._bound.has_lists:
            batch = moved(batch, device=memory.device, pins_memory=False)
        return batch

    def release(
        self, stream: int | None = None, *, unless: _core.DeviceBatch | None = None
    ) -> None:
        """End the lease of the last batch, after what its stream and this one have been given."""
        if self._leased is None or self._leased[0] is unless:
            return
        made, began = self._leased
        now = self._device.memory.current_stream() if stream is None else stream
        self._device.native.release(made, sorted({began, now}))
        self._leased = None

    def forget(self, made: _core.DeviceBatch) -> None:
        """Leave the lease of a batch that is put back to whoever takes it then."""
        if self._leased is not None and self._leased[0] is made:
            self._leased = None
