"""What the consumers of a loader iterate over."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from evenstride.loader_moving import moved

if TYPE_CHECKING:
    import torch

    from evenstride.passes import Pass


class Admitting(Protocol):
    """What a loader is to its targets."""

    @property
    def num_targets(self) -> int:
        """How many consumers there are."""

    @property
    def pins_memory(self) -> bool:
        """Whether batches are in pinned memory before they are moved."""

    def __len__(self) -> int: ...

    def admit(self, iterator: Batches) -> Pass | None:
        """Return the pass that an iterator takes from; None if its part of it is empty."""


class Target:
    """What one consumer of a loader iterates over, in a thread of its own.

    Attributes
    ----------
    number : int
        Which of the targets it is.
    device : torch.device or None
        Where its batches are moved; None if they stay in the host's memory.

    """

    def __init__(self, loader: Admitting, number: int, device: torch.device | None) -> None:
        self._loader = loader
        self.number = number
        self.device = device

    def __len__(self) -> int:
        """Return how many batches of an epoch are for this target while all keep up."""
        return len(range(self.number, len(self._loader), self._loader.num_targets))

    def __iter__(self) -> Batches:
        """Iterate over the batches of a pass that are for this target."""
        return Batches(self._loader, self.number, self.device)

    def __repr__(self) -> str:
        return f"<Target {self.number} of {self._loader!r}>"


class Batches:
    """An iterator over the batches of a target in one pass, which it joins at its first ``next``.

    Interrupted while it waits, it goes on where it was; if a batch cannot be moved to its device,
    say, the next ``next`` tries it again.
    """

    def __init__(self, loader: Admitting, target: int, device: torch.device | None) -> None:
        self._loader = loader
        self._moved = None
        if loader.pins_memory or device is not None:
            self._moved = partial(moved, device=device, pins_memory=loader.pins_memory)
        self.target = target
        self.running: Pass | None = None
        self.has_ended = False

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Any:
        """Wait for the next batch.

        Raises
        ------
        RuntimeError
            If the loader was closed amid the pass, this process was forked since it began, or
            another iterator of the same target, of several, has begun.

        """
        running = self.running or self._loader.admit(self)
        if running is None or self.has_ended:
            raise StopIteration
        try:
            taken = running.take(self.target)
        except BaseException:
            if running.has_failed:
                self._leave(running, is_early=False)
            raise
        if taken is None:
            self._leave(running, is_early=False)
            raise StopIteration
        try:
            batch, is_placed = running.finished(self.target, taken)
            if self._moved is not None and not is_placed:
                batch = self._moved(batch)
        except BaseException:
            running.put_back(self.target, taken)
            raise
        running.count(self.target, taken)
        return batch

    def _leave(self, running: Pass, *, is_early: bool) -> None:
        self.has_ended = True
        running.leave(self.target, is_early=is_early)

    def close(self) -> None:
        """Take no more. The pass ends with its last iterator."""
        if self.running is not None and not self.has_ended:
            self._leave(self.running, is_early=not self.running.is_handed_out)
        self.has_ended = True

    def __del__(self) -> None:
        """End with the loop that was left."""
        self.close()
