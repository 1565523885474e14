"""One pass of a loader over its batches: who takes from it, and how far it has come."""

from __future__ import annotations

import atexit
import itertools
import os
import threading
import time
import warnings
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import numpy as np

from evenstride import _core
from evenstride.cursor import Cursor
from evenstride.framework_loops import check_place_in_lightning
from evenstride.loader_stats import LoaderStats
from evenstride.producers import PassBatches
from evenstride.start_producers import start_producers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from evenstride.sampler import BucketBatchSampler
    from evenstride.start_producers import QueueOptions

T = TypeVar("T")
Position: TypeAlias = tuple[int, list[int]]
"""The first step that is not taken, and the later ones that are."""

_PATIENCE_S = 0.5
_LOOK_S = 0.005
_LONGEST_EXIT_S = 1.0


class PassCursor(Cursor):
    """The position of a pass whose batches come out of queues."""

    __slots__ = ("position",)

    def __init__(self, epoch: int, began: int, position: Callable[[], Position]) -> None:
        super().__init__(epoch, began, began)
        self.position = position

    @property
    def step(self) -> int:
        """Batches before this one are taken."""
        return self.position()[0]


class LoadedCursor(PassCursor):
    """The position of a state, where a pass may begin."""

    __slots__ = ("taken",)

    def __init__(self, epoch: int, step: int, taken: list[int]) -> None:
        super().__init__(epoch, step, lambda: (step, taken))
        self.taken = taken


class WeakBag(Generic[T]):
    """Objects that leave when they die. Each call is one step to other threads, and to forks."""

    def __init__(self) -> None:
        self._references: set[weakref.ref[T]] = set()

    def add(self, item: T) -> None:
        """Add an object."""
        self._references.add(weakref.ref(item, self._references.discard))

    def __iter__(self) -> Iterator[T]:
        for reference in list(self._references):
            item = reference()
            if item is not None:
                yield item


class Exit:
    """The end of the interpreter, before which every thread must have come back to it."""

    def __init__(self) -> None:
        self.has_begun = False

    def begin(self) -> None:
        """End all passes of this process."""
        self.has_begun = True
        end_s = time.monotonic() + _LONGEST_EXIT_S
        running = [one for one in _running if one.is_here()]
        for one in running:
            one.signal_end()
        for one in running:
            one.end(max(0.0, end_s - time.monotonic()))
            one.await_consumers(end_s)

    def hold_daemon(self) -> None:
        """Hold a daemon thread, which has no more to do, instead of letting it print an error."""
        if self.has_begun and threading.current_thread().daemon:
            threading.Event().wait()


_running: WeakBag[Pass] = WeakBag()
_exit = Exit()
atexit.register(_exit.begin)


class Pass:
    """The queues of a pass, which begins when it is made, where the sampler says.

    Nothing of it is locked, because an iterator may be left in a destructor, which may run in any
    thread amid any line.
    """

    _current_process = staticmethod(os.getpid)  # A destructor may run when the module is gone.

    def __init__(
        self,
        dataset: Any,
        sampler: BucketBatchSampler,
        collate: Any,
        options: QueueOptions,
        *,
        may_warn: bool,
    ) -> None:
        if _exit.has_begun:
            _exit.hold_daemon()
            msg = "A pass must begin before the interpreter ends, but it is ending."
            raise RuntimeError(msg)
        self._batches = batches = PassBatches(*sampler.next_pass())
        check_place_in_lightning(batches.plan.epoch, batches.start)
        at = sampler.cursor
        taken = [step - batches.start for step in at.taken] if isinstance(at, LoadedCursor) else []
        self._sampler = sampler
        self._process = self._current_process()
        self._num_targets = options.num_targets
        self._loaded = taken
        self._numbers = itertools.count(len(taken) + 1)
        self._joined: set[int] = set()
        self._left: set[int] = set()
        self._superseded: set[int] = set()
        self._is_abandoned = False
        self._inside: set[int] = set()  # Threads that wait for a batch.
        self._following: set[int] = set()  # Threads that set the sampler's position.
        self.is_closed = self.is_handed_out = self.has_failed = False
        self.may_warn = may_warn
        self._began_s = time.perf_counter()
        self._ended_s: float | None = None
        self.delivery = _core.Delivery(
            num_batches=len(batches),
            taken=taken,
            num_targets=options.num_targets,
            depth=options.depth,
            num_producers=options.num_workers,
            in_order=options.in_order,
        )
        self._most_lent = 2 * options.num_current
        self._producers = start_producers(dataset, collate, batches, self.delivery, options)
        position = partial(_position, self.delivery, batches.start)
        self.cursor = PassCursor(batches.plan.epoch, batches.start, position)
        sampler.begin(self.cursor)
        _running.add(self)
        if _exit.has_begun:
            self.end()

    def admit(self, target: int) -> bool:
        """Let a target take part, unless it has done so before, or the pass is closed."""
        if self.is_closed or target in self._joined:
            return False
        self._joined.add(target)
        return True

    def leave(self, target: int, *, is_early: bool) -> None:
        """Let a target take no more; end the pass with the last one."""
        if self.is_closed or not self.is_here():
            return
        self._left.add(target)
        self._is_abandoned |= is_early
        if len(self._left) == self._num_targets:
            self.end()
        else:
            self.delivery.leave(target)

    def supersede(self, target: int) -> None:
        """Let an older iterator of a target, if it is still there, take no more."""
        if target in self._joined - self._left:
            self._superseded.add(target)
            self.leave(target, is_early=True)

    @property
    def missing(self) -> set[int]:
        """The targets that came too late to take anything from this pass, whose part is empty."""
        return set(range(self._num_targets)) - self._joined if self.is_handed_out else set()

    @property
    def is_over(self) -> bool:
        """Whether the next pass can begin: nobody takes from this one, or there is nothing left."""
        nobody_takes = self._is_abandoned and self._left >= self._joined
        return self.is_closed or self.is_handed_out or self.has_failed or nobody_takes

    def take(self, target: int) -> tuple[int, Any] | None:
        """Wait for the next batch of a target: its number and what was made, or None at the end.

        It is handed over once :meth:`count` was called, and until then can be put back.

        Raises
        ------
        RuntimeError
            If the pass was ended amid it, or this process was forked since.

        """
        self.check_process()
        if self.may_warn and self._producers.lent > self._most_lent:
            self._warn()  # Before a batch is in hand, because a warning may be an error.
        thread = threading.get_ident()
        self._inside.add(thread)
        try:
            taken = self._producers.take(target)
        except BaseException:
            self.has_failed = self.delivery.has_failed()  # Or it was a signal.
            if self.is_closed:
                self._keep_position()  # A batch that came with the signal was put back.
            raise
        finally:
            self._inside.discard(thread)
        if taken is None:
            self._check_end(target)
        return taken

    def finished(self, target: int, taken: tuple[int, Any]) -> tuple[Any, bool]:
        """Return a batch that was taken, and whether it is in the memory where it is wanted."""
        return self._producers.finished(target, *taken)

    def count(self, target: int, taken: tuple[int, Any]) -> None:
        """Count a batch that its consumer has."""
        self._producers.count(target, taken[1])
        self._follow(is_last=next(self._numbers) == len(self._batches))

    def put_back(self, target: int, taken: tuple[int, Any]) -> None:
        """Undo a take."""
        if self.is_here():
            self._producers.put_back(target, *taken)
            if self.is_closed:
                self._keep_position()

    def _follow(self, *, is_last: bool) -> None:
        thread = threading.get_ident()
        try:
            self._following.add(thread)
            # Once it is closed, what came after it stands: a loaded state, an epoch, another pass.
            if not self.is_closed or self._sampler.cursor is self.cursor:
                self._sampler.follow(self.cursor, is_over=is_last)
        finally:
            self._following.discard(thread)
        if is_last:
            self._ended_s = time.perf_counter()
            self.is_handed_out = True

    def _check_end(self, target: int) -> None:
        """Raise RuntimeError if a target gets no more before the end of its part."""
        if self.delivery.progress()[2] == len(self._batches):
            if not self.is_handed_out:  # An interrupt came right after the last batch.
                self._follow(is_last=True)
        elif target in self._superseded:
            msg = "This iterator has ended, because another one of its target has begun."
            raise RuntimeError(msg)
        elif self.is_closed:
            _exit.hold_daemon()
            msg = "This iterator has ended, because its loader was closed."
            raise RuntimeError(msg)

    def _warn(self) -> None:
        self.may_warn = False
        msg = (
            f"The loader's batches take the memory of {self._producers.lent} by now, more than "
            f"twice what its queues need, because tensors of earlier ones are in use; copy what "
            "you keep."
        )
        warnings.warn(msg, stacklevel=4)

    def stats(self) -> LoaderStats:
        """Return what it has done so far."""
        plan, of_all = self._batches.plan, self._batches.of_all
        first, later, _ = self.delivery.progress()
        numbers = np.setdiff1d(np.r_[np.arange(first), later].astype(np.int64), self._loaded)
        producers_s, consumers_s = self.delivery.waits()
        ended_s = self._ended_s or time.perf_counter()
        buckets = np.bincount(of_all(plan.buckets)[numbers], minlength=len(plan.edges) - 1)
        return LoaderStats(
            epoch=plan.epoch,
            batches=len(numbers),
            samples=int(of_all(np.diff(plan.offsets))[numbers].sum()),
            tokens=int(of_all(plan.tokens)[numbers].sum()),
            padded_tokens=int(of_all(plan.padded_tokens)[numbers].sum()),
            seconds=ended_s - self._began_s,
            producers_waited_s=producers_s,
            consumers_waited_s=consumers_s,
            batches_by_bucket=tuple(buckets.tolist()),
            **{f"memory_{name}": number for name, number in self._producers.slabs.items()},
        )

    def is_here(self) -> bool:
        """Whether its threads are in this process, and not in one that this was forked from."""
        return self._process == self._current_process()

    def check_process(self) -> None:
        """Raise RuntimeError in a process that was forked amid the pass."""
        if not self.is_here() and not self.is_closed:
            msg = (
                "A loader must be used in the process in which its pass began, but this process "
                "was forked from it; make a new loader here."
            )
            raise RuntimeError(msg)

    def signal_end(self) -> None:
        """Let the threads end, each with the batch that it is making. Drop what is not taken."""
        self.is_closed = True
        self.delivery.close()
        self._ended_s = self._ended_s or time.perf_counter()
        self._keep_position()

    def _keep_position(self) -> None:
        """Let a process that is forked from now on read the position too."""
        position = _position(self.delivery, self._batches.start)
        self.cursor.position = lambda: position

    def end(self, patience_s: float | None = _PATIENCE_S) -> None:
        """End the pass, and wait for its threads, though not for long if a batch takes long."""
        self.signal_end()
        self._producers.join(patience_s)

    def await_followers(self) -> None:
        """Wait until no other thread is about to set the position, now that the pass is closed."""
        end_s = time.monotonic() + _PATIENCE_S
        while self._following - {threading.get_ident()} and time.monotonic() < end_s:
            time.sleep(_LOOK_S)

    def await_consumers(self, end_s: float) -> None:
        """Wait until no thread waits for a batch any more."""
        while self._inside and time.monotonic() < end_s:
            time.sleep(_LOOK_S)

    def __del__(self) -> None:
        """Let the threads end if nobody can take from it any more."""
        if hasattr(self, "delivery"):
            self.delivery.close()


def _position(delivery: _core.Delivery, start: int) -> Position:
    first, later, _ = delivery.progress()
    return start + first, [start + number for number in later]


def position(cursor: Cursor) -> Position:
    """Return the position that a cursor of a sampler stands for."""
    return cursor.position() if isinstance(cursor, PassCursor) else (cursor.step, [])
