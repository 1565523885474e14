"""The threads that fill the queues of a loader's pass."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from evenstride import _core
from evenstride.collate import PadCollator
from evenstride.dataset import RaggedDataset

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from evenstride.bound import BoundCollator
    from evenstride.plan import EpochPlan


@dataclass(frozen=True)
class PassBatches:
    """The batches of one rank from a step on, numbered from 0."""

    plan: EpochPlan
    rank: int
    start: int

    def __len__(self) -> int:
        return self.plan.num_steps - self.start

    @property
    def first(self) -> int:
        """The place of the first one in the plan."""
        return self.start * self.plan.num_replicas + self.rank

    @property
    def stride(self) -> int:
        """From each of them to the next in the plan."""
        return self.plan.num_replicas

    def indices(self, number: int) -> list[int]:
        """Return the samples of a batch."""
        indices: list[int] = self.plan[self.first + number * self.stride].tolist()
        return indices

    @property
    def largest(self) -> tuple[int, int]:
        """The most samples and the most padded tokens of one of them."""
        most_samples = self.of_all(np.diff(self.plan.offsets)).max()
        return int(most_samples), int(self.of_all(self.plan.padded_tokens).max())

    def most_bytes(self, bound: BoundCollator) -> int:
        """Return the most bytes of one of them, if no ragged field is longer than the plan's."""
        return bound.native.most_bytes(*self.largest)

    def of_all(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the part of an array with an entry for each batch of the plan."""
        return values[self.first :: self.stride]


class Producers(Protocol):
    """What fills the queues of a pass, until the delivery is closed."""

    def take(self, target: int) -> tuple[int, Any] | None:
        """Wait for the next batch of a target: its number and what was made, or None at the end."""

    def finished(self, target: int, number: int, made: Any) -> tuple[Any, bool]:
        """Return the batch as its consumer gets it, and whether that is where it is wanted.

        If not, it has still to be pinned and moved. Can be called again if what follows fails.
        """

    def count(self, target: int, made: Any) -> None:
        """Count a batch that its consumer has."""

    def put_back(self, target: int, number: int, made: Any) -> None:
        """Undo a take."""

    def join(self, patience_s: float | None) -> None:
        """Wait for all threads to end, at most so long if they may be at anything."""

    @property
    def lent(self) -> int:
        """How many batches' memory is in use."""

    @property
    def slabs(self) -> dict[str, int]:
        """The memory of the batches, as :class:`evenstride._core.Workers` has it."""


class NativeProducers:
    """Native threads that collate the rows of a :class:`RaggedDataset`."""

    def __init__(
        self,
        bound: BoundCollator,
        batches: PassBatches,
        delivery: _core.Delivery,
        *,
        num_workers: int,
        num_idle: int,
        most_idle: int,
        most_bytes: int,
        given: _core.GivenBlocks,
    ) -> None:
        plan = batches.plan
        self._bound = bound
        self._batches = batches
        self._workers = _core.Workers(
            bound.native,
            plan.indices,
            plan.offsets,
            delivery,
            first=batches.first,
            stride=batches.stride,
            num_threads=num_workers,
            least_capacity=most_bytes,
            num_idle=num_idle,
            most_idle=most_idle,
            given=given,
        )

    def take(self, target: int) -> tuple[int, Any] | None:
        """Wait for the next batch of a target: its number and the batch, or None at the end."""
        return self._workers.take(target)

    def finished(self, target: int, number: int, made: Any) -> tuple[Any, bool]:  # noqa: ARG002
        """Return the batch as tensors, which are nowhere but in memory of ours."""
        capsules = self._workers.capsules(made)
        return self._bound.tensors(capsules, lambda: self._batches.indices(number)), False

    def count(self, target: int, made: Any) -> None:  # noqa: ARG002 - It does not matter whose.
        """Count what was cut in a batch that its consumer has."""
        self._workers.count(made)

    def put_back(self, target: int, number: int, made: Any) -> None:
        """Undo a take."""
        self._workers.put_back(target, number, made)

    def join(self, patience_s: float | None) -> None:  # noqa: ARG002 - None of them waits for us.
        """Wait for all threads, each of which ends with the batch that it is making."""
        self._workers.close()

    @property
    def lent(self) -> int:
        """How many batches' memory is in use."""
        return self._workers.lent

    @property
    def slabs(self) -> dict[str, int]:
        """The memory of the batches."""
        return self._workers.slabs


class PythonProducers:
    """Threads that ask any dataset for its samples, and collate them."""

    lent = 0  # None that is ours.

    def __init__(
        self,
        dataset: Any,
        collate: Callable[[Any], Any],
        batches: PassBatches,
        delivery: _core.Delivery,
        *,
        num_workers: int,
    ) -> None:
        self._delivery = delivery
        self._threads: list[threading.Thread] = []
        make = _maker(dataset, collate, batches)
        for number in range(num_workers):
            thread = threading.Thread(
                target=_work, args=(make, delivery), name=f"evenstride-{number}", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:
                if not self._threads:
                    raise
                break  # Fewer do the same.
            self._threads.append(thread)

    def take(self, target: int) -> tuple[int, Any] | None:
        """Wait for the next batch of a target: its number and the batch, or None at the end."""
        return self._delivery.take(target)

    def finished(self, target: int, number: int, made: Any) -> tuple[Any, bool]:  # noqa: ARG002
        """Return the batch, which a thread has finished, wherever that has left it."""
        return made, False

    def count(self, target: int, made: Any) -> None:
        """Count nothing."""

    def put_back(self, target: int, number: int, made: Any) -> None:
        """Undo a take."""
        self._delivery.put_back(target, number, made)

    def join(self, patience_s: float | None) -> None:
        """Wait for all threads, each until it has made its batch, but not longer than told."""
        end_s = None if patience_s is None else time.monotonic() + patience_s
        if threading.current_thread() in self._threads:
            return  # A destructor may run in any thread.
        for thread in self._threads:
            thread.join(None if end_s is None else max(0.0, end_s - time.monotonic()))

    @property
    def slabs(self) -> dict[str, int]:
        """None that is ours."""
        return {"slabs": 0, "lent": 0, "bytes": 0, "allocations": 0}


def gives_plain_batches(dataset: RaggedDataset) -> bool:
    """Return whether a batch is what the columns hold, also in a subclass."""
    return dataset.has_plain_rows and type(dataset).__getitems__ is RaggedDataset.__getitems__


def is_native(dataset: Any, collate: Any) -> bool:
    """Return whether batches are made without Python."""
    return (
        isinstance(dataset, RaggedDataset)
        and gives_plain_batches(dataset)
        and isinstance(collate, PadCollator)
        and type(collate).__call__ is PadCollator.__call__
    )


def _maker(
    dataset: Any, collate: Callable[[Any], Any], batches: PassBatches
) -> Callable[[int], Any]:
    fetch = getattr(dataset, "__getitems__", None)
    if not callable(fetch):

        def fetch(indices: Sequence[int]) -> list[Any]:
            return [dataset[index] for index in indices]

    return lambda number: collate(fetch(batches.indices(number)))


def _work(make: Callable[[int], Any], delivery: _core.Delivery) -> None:
    while (number := delivery.claim()) is not None:
        _deliver(make, number, delivery)


def _deliver(make: Callable[[int], Any], number: int, delivery: _core.Delivery) -> None:
    try:
        batch = make(number)
    except BaseException as error:  # noqa: BLE001 - Raised where the batch is taken.
        delivery.fail(number, _raisable(error))
    else:
        delivery.put(number, batch)


def _raisable(error: BaseException) -> BaseException:
    """Return the error, unless a loop would take it for the end of the pass."""
    if not isinstance(error, StopIteration):
        return error
    msg = "The data set or `collate` raised StopIteration for a batch."
    raised = RuntimeError(msg)
    raised.__cause__ = error
    return raised
