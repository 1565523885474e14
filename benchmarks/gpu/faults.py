"""Faults to plant, each of which leaves out one wait, so that the torture test is seen to fail."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any
from unittest import mock

from evenstride import _core
from evenstride.device_memory import DeviceMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpu.queues import Queues


@contextlib.contextmanager
def no_wait_for_the_batch(queues: Queues) -> Iterator[None]:
    """Let a stream that has nothing to do wait for the batch, instead of its consumer's."""
    real, idle = _core.Destination.hand_over, _idle_stream(queues)

    def hand_over(self: Any, batch: Any, stream: int) -> None:  # noqa: ARG001
        real(self, batch, idle)

    with mock.patch.object(_core.Destination, "hand_over", hand_over):
        yield


@contextlib.contextmanager
def no_word_to_the_allocator(queues: Queues) -> Iterator[None]:  # noqa: ARG001
    """Do not say to torch which stream uses a block."""

    def hand_over(self: Any, block: Any) -> None:  # noqa: ARG001
        return

    with mock.patch.object(DeviceMemory, "hand_over", hand_over):
        yield


@contextlib.contextmanager
def no_wait_for_the_lease(queues: Queues) -> Iterator[None]:
    """End leases where a stream stands that has nothing to do, instead of where consumers stand."""
    real, idle = _core.Destination.release, _idle_stream(queues)

    def release(self: Any, batch: Any, streams: list[int]) -> None:  # noqa: ARG001
        real(self, batch, [idle])

    with mock.patch.object(_core.Destination, "release", release):
        yield


FAULTS: dict[str, tuple[Callable[[Queues], Any], bool]] = {
    "no wait for the batch": (no_wait_for_the_batch, False),
    "no record_stream": (no_word_to_the_allocator, False),
    "no wait for the batch, ring": (no_wait_for_the_batch, True),
    "no wait for the end of a lease": (no_wait_for_the_lease, True),
}
"""What plants each fault, and whether it is one of the ring."""


def _idle_stream(queues: Queues) -> int:
    """Return a handle of a stream that no consumer uses."""
    if not queues.is_cuda:
        return 0
    import torch  # noqa: PLC0415

    stream = torch.cuda.Stream(queues.device)
    _alive.append(stream)
    return int(stream.cuda_stream)


_alive: list[Any] = []
