"""Streams of a device, which work is put on at random; on a CPU, streams that do nothing."""

from __future__ import annotations

import functools
import random
from typing import TYPE_CHECKING, Any

import torch

from evenstride import _core
from evenstride.device_memory import index_of

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

CYCLES_TO_TIME = 20_000_000


@functools.cache
def cycles_per_ms(device: torch.device) -> float:
    """Return how many cycles of a device's clock are a millisecond."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for mark in (None, None, begin, end):  # A device that had nothing to do has a slow clock.
        if mark is not None:
            mark.record()
        torch.cuda._sleep(CYCLES_TO_TIME)  # noqa: SLF001 - The one delay that torch has.
    torch.cuda.synchronize(device)
    return CYCLES_TO_TIME / begin.elapsed_time(end)


class Queues:
    """Consumers' streams of a device, the default one first, and the stream of the batches."""

    def __init__(self, device: torch.device, number: int, seed: int) -> None:
        self.device = device
        self.is_cuda = device.type == "cuda"
        self._torch: Any = torch.cuda if self.is_cuda else torch.cpu
        self.random = random.Random(seed)  # noqa: S311
        if self.is_cuda:
            first = torch.cuda.default_stream(device)
            self.streams: list[Any] = [
                first,
                *(torch.cuda.Stream(device, priority=-(n % 2)) for n in range(number - 1)),
            ]
            handle = _core.device_stream(index_of(device))
            self.lane: Any = torch.cuda.ExternalStream(handle, device=device)
            self._cycles_per_ms = cycles_per_ms(device)
        else:
            self.streams = [torch.cpu.Stream() for _ in range(number)]
            self.lane, self._cycles_per_ms = torch.cpu.Stream(), 0.0

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        """Make a stream the current one for a block."""
        return self._torch.stream(stream)

    def current(self) -> Any:
        """Return the calling thread's current stream."""
        return self._torch.current_stream(self.device)

    def any_stream(self) -> Any:
        """Return one of the consumers' streams."""
        return self.random.choice(self.streams)

    def delay(self, stream: Any, milliseconds: float) -> None:
        """Let a stream do nothing for a while."""
        if self.is_cuda:
            with self.on(stream):
                torch.cuda._sleep(int(milliseconds * self._cycles_per_ms))  # noqa: SLF001

    def keep_for(self, tensor: torch.Tensor, stream: Any) -> None:
        """Tell torch that a stream uses a tensor, which may die before it has."""
        if self.is_cuda:
            tensor.record_stream(stream)

    def synchronize(self) -> None:
        """Wait for all streams."""
        self._torch.synchronize(self.device)
