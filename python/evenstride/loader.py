"""The loader: threads that make the batches of a sampler ahead of the loop that takes them."""

from __future__ import annotations

import os
import threading
import time
import warnings
from typing import TYPE_CHECKING, Any, SupportsIndex

import torch

from evenstride.device_target import as_memory
from evenstride.loader_checks import (
    as_limited,
    as_ragged,
    as_targets,
    check_agreement,
    check_loader_state,
)
from evenstride.loader_stats import LoaderStats
from evenstride.loader_targets import Batches, Target
from evenstride.options import as_bool
from evenstride.passes import LoadedCursor, Pass, WeakBag, position
from evenstride.producers import is_native
from evenstride.start_producers import QueueOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from evenstride.collate import PadCollator
    from evenstride.sampler import BucketBatchSampler

__all__ = ["Loader"]

_MOST_WORKERS = 256
_MOST_DEPTH = 2**20
_LOOK_S = 0.005


class Loader:
    """Batches of a data set in the order of a sampler, made ahead by threads of this process.

    With a :class:`RaggedDataset` and a :class:`PadCollator` the threads are native: they read the
    rows where they lie and collate them into memory that is used again when the last tensor of an
    earlier batch has died, without Python and without copies between processes. With any other
    map-style data set, or another ``collate_fn``, they are threads of Python, which ask for samples
    at the same time.

    A pass follows the rules of the sampler: it begins at its first ``next``, where a loaded state
    says, else at the start of the epoch. Leaving the loop ends the pass and its threads.

    Parameters
    ----------
    dataset : RaggedDataset, or any map-style dataset
        A ``torch.utils.data.Subset`` of a :class:`RaggedDataset` is read natively too.
    sampler : BucketBatchSampler
        Made of as many lengths as the data set has samples. With a :class:`PadCollator` they must
        be the tokens as the mask counts them, after `start` and `max_length`; for data sets whose
        rows native code does not read, only lengths that `max_length` rules out are refused. With
        another function they may be any.
    collate : PadCollator or callable
        Makes a batch of samples.
    num_workers : int, default 2
        Threads that make batches, in ``[1, 256]``.
    depth : int, default 8
        Batches that are ready or being made for each target, at most, in ``[1, 2**20]``.
    targets : int or sequence of torch.device, default 1
        How many consumers there are, or the device of each. With more than one, each takes its
        batches from ``loader.targets[k]``, in a thread of its own. Its n-th loop is its part of the
        n-th pass, which begins when all have had their part of the one before. Call
        ``sampler.set_epoch`` in between, in one thread.
    device : torch.device, optional
        Where batches are wanted: made there by a kernel if native threads make them and it is a
        CUDA device, see :class:`evenstride.cuda.DeviceCollator`; else moved there when they are
        taken. By default they stay in the host's memory.
    in_order : bool, default True
        Hand out batches in the plan's order, batch ``i`` to target ``i % targets``. If False,
        whatever is ready goes to whoever waits, so that no consumer that stands still holds up
        another; targets then get about equally many batches while all keep up.
    pin_memory : bool, default False
        Have batches in pinned memory. Where threads are native, they make each in a block of
        torch's of its own, which is not used again before copies out of it are done, also those of
        ``.to(device, non_blocking=True)``; else torch copies each tensor when a batch is taken.
        Without a CUDA device nothing happens, with one warning.
    device_memory : {"torch", "ring"}, default "torch"
        Where batches lie that a kernel makes: in memory that torch allocates for each, to which
        torch's own rules apply; or in ``depth + 2`` blocks for each target that are used in turn.
        In a ring the next batch ends the lease of the one before: its tensors must not be used any
        more. Blocks whose tensors are kept are not used again; when all are, the next batch is a
        RuntimeError.

    Attributes
    ----------
    targets : tuple of Target
        What each consumer iterates over.

    Raises
    ------
    TypeError
        If an argument is not of its kind.
    ValueError
        If a value is outside its range, or data set, sampler and collator disagree about the number
        of samples or, with a :class:`PadCollator`, about lengths or ``pad_to_multiple_of``.

    Warns
    -----
    UserWarning
        Once for each reason, if batches for a device are collated on the host. And once, if the
        consumer keeps so many batches that there is twice the memory that the queues need. More is
        allocated; no batch waits for a tensor to die.

    Examples
    --------
    >>> import evenstride as es
    >>> ds = es.RaggedDataset.from_lists([[7, 8, 9], [4], [5, 6], [1, 2, 3]])
    >>> sampler = es.BucketBatchSampler(ds.lengths, token_budget=6, buckets=1, shuffle=False)
    >>> loader = es.Loader(ds, sampler, es.PadCollator({"input_ids": es.Field()}))
    >>> for batch in loader:
    ...     print(batch["input_ids"].tolist())
    [[7, 8, 9], [1, 2, 3]]
    [[5, 6], [4, 0]]

    """

    def __init__(
        self,
        dataset: Any,
        sampler: BucketBatchSampler,
        collate: PadCollator | Callable[[Any], Any],
        *,
        num_workers: SupportsIndex = 2,
        depth: SupportsIndex = 8,
        targets: SupportsIndex | Sequence[torch.device | str | int] = 1,
        device: torch.device | str | int | None = None,
        in_order: bool = True,
        pin_memory: bool = False,
        device_memory: str = "torch",
    ) -> None:
        self._dataset = as_ragged(dataset)
        self._sampler = sampler
        self._collate = collate
        self._options = QueueOptions(
            devices=as_targets(targets, device),
            depth=as_limited("depth", depth, _MOST_DEPTH),
            num_workers=as_limited("num_workers", num_workers, _MOST_WORKERS),
            in_order=as_bool("in_order", in_order),
            pins_memory=as_bool("pin_memory", pin_memory) and _can_pin(),
            device_memory=as_memory("device_memory", device_memory),
        )
        check_agreement(self._dataset, sampler, collate)
        self._pass: Pass | None = None  # The one that began last.
        self._passes: WeakBag[Pass] = WeakBag()
        self._missed = [0] * self.num_targets
        self.renew_lock()
        _loaders.add(self)

    @property
    def sampler(self) -> BucketBatchSampler:
        """As given. Frameworks call its ``set_epoch``."""
        return self._sampler

    @property
    def batch_sampler(self) -> BucketBatchSampler:
        """The same, by the name that it has in a ``DataLoader``."""
        return self._sampler

    @property
    def in_order(self) -> bool:
        """Whether batches are handed out in the plan's order."""
        return self._options.in_order

    @property
    def num_targets(self) -> int:
        """How many consumers there are."""
        return self._options.num_targets

    @property
    def pins_memory(self) -> bool:
        """Whether batches are in pinned memory before they are moved."""
        return self._options.pins_memory

    @property
    def targets(self) -> tuple[Target, ...]:
        """What each consumer iterates over."""
        return tuple(
            Target(self, number, device) for number, device in enumerate(self._options.devices)
        )

    def __len__(self) -> int:
        """Return the number of batches of this rank in an epoch, over all targets."""
        return len(self._sampler)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the batches of a pass. With several targets, iterate over each of those."""
        if self.num_targets > 1:
            msg = (
                f"A loader with {self.num_targets} targets must be iterated over as "
                "`loader.targets[k]`, one for each consumer, but not as `loader`."
            )
            raise TypeError(msg)
        return iter(self.targets[0])

    def admit(self, iterator: Batches) -> Pass | None:
        """Return the pass that an iterator takes from, which it has not done before.

        With one target it is a pass of its own. Of several targets, the n-th iterator of each takes
        part in the n-th pass: None if others have taken all of it. The next one begins when there
        is nothing left of the last, or when all that took part have left it.
        """
        while iterator.running is None and not iterator.has_ended:
            with self._lock:
                must_wait = not self._try_to_admit(iterator)
                last = self._pass
            if must_wait and last is not None:
                last.supersede(iterator.target)
                # A destructor, which may run in any thread amid any line, could not wake this one.
                time.sleep(_LOOK_S)
        return iterator.running

    def _try_to_admit(self, iterator: Batches) -> bool:
        """Let an iterator take part in its pass, or end; return False if it cannot begin yet."""
        target, last = iterator.target, self._pass
        if iterator.running is not None or iterator.has_ended:
            return True  # Another thread came first.
        if self._missed[target] > 0:
            self._missed[target] -= 1
            iterator.has_ended = True
            return True
        if last is not None:
            last.check_process()
        if last is not None and self.num_targets > 1:
            if last.admit(target):
                iterator.running = last
                return True
            if not last.is_over:
                return False
        self._pass = iterator.running = self._begin(last)
        self._pass.admit(target)
        return True

    def _begin(self, last: Pass | None) -> Pass:
        running = Pass(
            self._dataset,
            self._sampler,
            self._collate,
            self._options,
            may_warn=last is None or last.may_warn,
        )
        if last is not None:
            for late in last.missing:
                self._missed[late] += 1
        self._passes.add(running)
        return running

    def queue_depths(self) -> list[int]:
        """Return how many batches are ready for each target."""
        last = self._pass
        return [0] * self.num_targets if last is None else last.delivery.queue_depths()

    def stats(self) -> LoaderStats:
        """Return what the last pass has done so far: rates, waits, and counts."""
        last = self._pass
        return LoaderStats() if last is None else last.stats()

    def state_dict(self) -> dict[str, Any]:
        """Return the position: the first batch that no consumer has taken, and later ones taken.

        Returns
        -------
        dict
            ``"sampler"``, the state of the sampler there, and ``"taken"``, the steps beyond it that
            consumers have: none with one target in order, else fewer than ``targets * depth +
            num_workers`` unless a target has left its loop. For :meth:`load_state_dict`, JSON, and
            ``torch.load(weights_only=True)``.

        """
        with self._lock:
            cursor = self._sampler.cursor
            step, taken = position(cursor)
            state = {**self._sampler.state_dict(), "epoch": cursor.epoch, "step": step}
        return {"sampler": state, "taken": list(taken)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next pass go on where `state` was taken. Ends a pass that is running.

        Raises
        ------
        TypeError, ValueError
            If the state is not whole, or is of another version, other lengths, options or ranks.
            Nothing has changed then.

        """
        epoch, step, taken = check_loader_state(state, self._sampler)
        with self._lock:
            running = self._end_passes()
            self._sampler.load_state_dict(state["sampler"])
            self._sampler.follow(LoadedCursor(epoch, step, taken))
        _await_end(running)

    def close(self) -> None:
        """End what is running, and wait for its threads.

        Iterators that were amid a pass fail from now on. The next one begins a new pass.
        """
        with self._lock:
            running = self._end_passes()
        _await_end(running)

    def _end_passes(self) -> list[Pass]:
        """Let all threads end. Not here wait for them, as one of them could ask for the lock.

        From now on none of their consumers undoes what is done to the sampler's position.
        """
        running = [one for one in self._passes if one.is_here()]
        for one in running:
            one.signal_end()
        for one in running:
            one.await_followers()
        self._missed = [0] * self.num_targets
        return running

    def __enter__(self) -> Loader:  # noqa: PYI034 - `Self` is newer than Python 3.10.
        """Return the loader, which is closed at the end of the block."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        kind = "native" if is_native(self._dataset, self._collate) else "Python"
        return (
            f"<Loader of {len(self)} batches for {self.num_targets} targets by "
            f"{self._options.num_workers} {kind} threads>"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        msg = (
            "A `Loader` has threads, and cannot be copied or pickled: make one where it is needed, "
            "of its data set, sampler and collator, which can."
        )
        raise TypeError(msg)

    def renew_lock(self) -> None:
        """Let a forked process have a lock that nobody holds."""
        self._lock = threading.RLock()  # A destructor may come back to this loader.


_loaders: WeakBag[Loader] = WeakBag()


def _renew_locks() -> None:
    for loader in _loaders:
        loader.renew_lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)


def _await_end(running: list[Pass]) -> None:
    for one in running:
        one.end(patience_s=None)


def _can_pin() -> bool:
    if torch.cuda.is_available():
        return True
    msg = "`pin_memory=True` has no effect: there is no CUDA device."
    warnings.warn(msg, stacklevel=3)
    return False
