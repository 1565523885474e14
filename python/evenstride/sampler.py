"""The batch sampler for :class:`torch.utils.data.DataLoader`."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any, SupportsIndex

from torch.utils.data import Sampler

from evenstride import framework_loops
from evenstride.cursor import Cursor
from evenstride.epoch_plans import EpochPlans
from evenstride.lengths import as_lengths, pack_lengths, unpack_lengths
from evenstride.options import PlanOptions, as_count, as_num_threads, as_uint64
from evenstride.plan_cache import as_plan_cache
from evenstride.ranks import checked_ranks, resolved_num_replicas, resolved_rank
from evenstride.state import STATE_VERSION, check_state, step_after

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    from evenstride.lengths import Lengths
    from evenstride.plan import EpochPlan
    from evenstride.plan_cache import PlanCache
    from evenstride.step_info import StepInfo


class BucketBatchSampler(framework_loops.MadeOnce, Sampler[list[int]]):
    """Batches of samples of similar length, each bucket spread evenly over the epoch.

    Samples are shuffled anew within length buckets every epoch and packed greedily under a token
    budget; each bucket's batches come at a stride of their own, so that every stretch of the epoch
    has the mix of the whole. Every rank gets equally many batches, and every sample is in just one
    of them. Pass it as ``batch_sampler`` to a ``DataLoader``.

    A batch costs its padded tokens: its samples times its width, which is its longest sample, at
    least 1, rounded up to `pad_to_multiple_of`. The order depends on the lengths, the options, the
    seed and the epoch alone; no global random state is read or changed. From half of an epoch on,
    the next one is planned in the background.

    Parameters
    ----------
    lengths : array_like of int, shape (n_samples,)
        Tokens of each sample, in ``[0, 2**63)``: a list, range, array of any integer type, memmap,
        torch tensor or Arrow column. Not copied where it can be viewed; never change it afterwards.
    token_budget : int
        Most padded tokens of a batch of two samples or more, on each rank. At least 1.
    max_batch_size : int, optional
        Most samples in a batch, at least 1.
    batch_size_multiple : int, default 1
        Batches with more samples than this are cut to a multiple of it, but for the last ones of a
        bucket. Nothing is lost: the rest opens the next batch.
    pad_to_multiple_of : int, default 1
        Widths are rounded up to a multiple of this, at most `token_budget`.
    max_length : int, optional
        Longer samples are too long, whatever the budget. At least 0.
    buckets : int or sequence of int, default 6
        How many buckets, whose edges :func:`optimal_edges` finds, once; or their inner edges, which
        strictly increase from at least 1.
    composition : {"shuffle", "window", "frozen"}, default "shuffle"
        Which samples come together: those next to each other in a fresh permutation of the bucket;
        in runs of it that are sorted by length, which pads far less; or always the same.
    window : int, default 1024
        Samples in such a run, at least 1.
    merge_buckets : int, default 1
        Makes every so many adjacent buckets one, before anything else.
    order : str, default "stride"
        In which order the steps come: "stride", "balanced", "stratified", "mixed", "shuffle" (or
        "weighted"), "anti_repeat", "diversity", "diversity_2", "round_robin", "ascending" or
        "descending".
    jitter : float, default 0.25
        For "stride": by how much of its stride a step may be displaced, in ``[0, 0.5)``.
    accumulation_steps : int, default 1
        Steps in an optimizer step, for "stratified" and "mixed". At least 1.
    shuffle : bool, default True
        False for validation: filled by length, longest first, in that order, the same every epoch.
    seed : int, default 0
        In ``[0, 2**64)``.
    num_replicas, rank : int, optional
        How many ranks there are, and which this is, in ``[0, num_replicas)``. By default those of
        ``torch.distributed`` when the sampler is first used; 1 and 0 without it.
    drop_last : bool, default False
        Leave out what makes no whole step, fewer than `num_replicas` batches of an epoch and others
        in each, instead of making smaller batches.
    too_long : {"error", "drop", "alone"}, default "error"
        What to do with samples above `max_length`, or whose width alone exceeds the budget:
        refuse them, leave them out, or give each a batch of its own.
    empty : {"keep", "drop", "error"}, default "keep"
        What to do with samples of length 0. Kept ones cost one token.
    steps_per_epoch : int, optional
        Exactly this many steps every epoch, spread over the buckets in proportion. By default the
        steps that epoch 0 naturally has, in every epoch.
    num_threads : int, optional
        Threads to plan with; by default up to four, as far as this process has processors.
    plan_cache : path-like or PlanCache, optional
        A folder on a local disk in which the processes of a host share their plans: one makes each
        plan, the others map its file. See :class:`evenstride.plan_cache.PlanCache`.
    progress : callable, optional
        Called with the fraction that is done, in ``[0, 1]``, at most ten times a second while work
        takes longer than a tenth of a second, last with 1.0. What it raises ends the work.
        Each piece of work goes from 0 to 1 by itself: looking at the lengths, settling the steps,
        planning an epoch. A copy keeps it, a pickle does not. Ctrl-C ends the work
        too, with or without a callback.

    Attributes
    ----------
    batch_size : None
        Batches differ in size. Frameworks read it.
    drop_last : bool
        As given.
    options : PlanOptions
        As given, but for the ranks.
    lengths : ndarray of int, shape (n_samples,)
        As given, as an array.

    Raises
    ------
    TypeError
        If an argument is not of its kind.
    ValueError
        If a value is outside its range, a sample breaks a rule, or there would be no step.

    See Also
    --------
    evenstride.plan_epoch : The plan alone, without torch.

    Examples
    --------
    >>> import evenstride as es
    >>> sampler = es.BucketBatchSampler([3, 9, 4, 8, 3, 9], token_budget=18, buckets=[6])
    >>> [sorted(batch) for batch in sampler]
    [[1, 5], [0, 2, 4], [3]]
    >>> sampler.load_state_dict({**sampler.state_dict(), "step": 1})
    >>> [sorted(batch) for batch in sampler]
    [[0, 2, 4], [3]]

    """

    batch_size: None = None
    is_prepared = False  # By `evenstride.accelerate.prepare`.

    def __init__(
        self,
        lengths: Lengths,
        *,
        token_budget: SupportsIndex,
        max_batch_size: SupportsIndex | None = None,
        batch_size_multiple: SupportsIndex = 1,
        pad_to_multiple_of: SupportsIndex = 1,
        max_length: SupportsIndex | None = None,
        buckets: SupportsIndex | Sequence[SupportsIndex] = 6,
        composition: str = "shuffle",
        window: SupportsIndex = 1024,
        merge_buckets: SupportsIndex = 1,
        order: str = "stride",
        jitter: float = 0.25,
        accumulation_steps: SupportsIndex = 1,
        shuffle: bool = True,
        seed: SupportsIndex = 0,
        num_replicas: SupportsIndex | None = None,
        rank: SupportsIndex | None = None,
        drop_last: bool = False,
        too_long: str = "error",
        empty: str = "keep",
        steps_per_epoch: SupportsIndex | None = None,
        num_threads: SupportsIndex | None = None,
        plan_cache: str | os.PathLike[str] | PlanCache | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> None:
        self.options = PlanOptions.of(
            token_budget=token_budget,
            max_batch_size=max_batch_size,
            batch_size_multiple=batch_size_multiple,
            pad_to_multiple_of=pad_to_multiple_of,
            max_length=max_length,
            buckets=buckets,
            composition=composition,
            window=window,
            merge_buckets=merge_buckets,
            order=order,
            jitter=jitter,
            accumulation_steps=accumulation_steps,
            shuffle=shuffle,
            seed=seed,
            drop_last=drop_last,
            too_long=too_long,
            empty=empty,
            steps_per_epoch=steps_per_epoch,
        )
        self.drop_last = self.options.drop_last
        self._given_ranks = checked_ranks(num_replicas, rank)
        self._num_threads = as_num_threads(num_threads)
        self._plan_cache = as_plan_cache(plan_cache)
        self.lengths = as_lengths(lengths)
        self._cursor = Cursor(0, 0, 0)
        self._next: tuple[int, int] | None = None
        self.finished: int | None = None  # The epoch of which a pass was the last to end.
        self._prepare(progress)
        self.options.warn_of_removed(self._plans.planner, stacklevel=2)
        if self._given_ranks[0] is not None:
            self._settled()

    def _prepare(self, progress: Callable[[float], None] | None = None) -> None:
        self._plans = EpochPlans(
            self.lengths, self.options, self._num_threads, self._plan_cache, progress
        )
        self._rank: int | None = None

    def _settled(self) -> EpochPlans:
        """Return the plans, for as many ranks as there are now, or were at first use."""
        if not self._plans.is_settled:
            self._plans.settle(resolved_num_replicas(self._given_ranks[0]))
        return self._plans

    def __len__(self) -> int:
        """Return the number of batches of this rank in an epoch: the same in all of them."""
        return self._settled().num_steps

    def total_steps(self, epochs: SupportsIndex) -> int:
        """Return the number of batches of this rank in so many whole epochs."""
        return as_count("epochs", epochs) * len(self)

    @property
    def epoch(self) -> int:
        """The epoch of the last pass, or of the next one after :meth:`set_epoch`."""
        return self._cursor.epoch

    @property
    def rank(self) -> int:
        """Which rank this is, in ``[0, num_replicas)``."""
        # Not when the sampler is made, which may be before the processes know of each other.
        if self._rank is None:
            self._rank = resolved_rank(self._given_ranks[1], self._settled().num_replicas)
        return self._rank

    @property
    def plan(self) -> EpochPlan:
        """The plan of the current :attr:`epoch`, for all ranks."""
        return self._settled().of(self.epoch)

    def step_info(self, step: SupportsIndex) -> StepInfo:
        """Return what a step of the current epoch holds, on this rank and on all.

        Parameters
        ----------
        step : int
            In ``[0, len(self))``.

        Returns
        -------
        StepInfo
            Bucket, width, samples, tokens and padded tokens of this rank's batch, and the last
            three over all ranks, without communication.

        """
        return self.plan.step_info(step, self.rank)

    def set_epoch(self, epoch: SupportsIndex) -> None:
        """Make the next pass all of `epoch`, in ``[0, 2**64)``.

        A position that was loaded in this very epoch is kept: the loop that a run resumes in calls
        this as always. It changes nothing when Accelerate calls it by itself at the start of a
        pass, with a count of its own.
        """
        epoch = as_uint64("epoch", epoch)
        is_loaded = self._next is not None and self._next[0] == epoch
        if not is_loaded and not framework_loops.is_own_count_of_accelerate():
            self._next = epoch, 0
            self._cursor = Cursor(epoch, 0, 0)
            self._plans.expect(epoch)

    def __iter__(self) -> Iterator[list[int]]:
        """Iterate over the batches of a pass, each a list of sample indices.

        A pass begins at its first ``next``: where a loaded state says, else at the start of the
        epoch that :meth:`set_epoch` asked for, else of the current one if no pass of it has
        finished, else of the next. Until then nothing changes.
        """
        framework_loops.check_use_by_accelerate(self)
        return self._batches()

    @property
    def cursor(self) -> Cursor:
        """The position."""
        return self._cursor

    def next_pass(self) -> tuple[EpochPlan, int, int]:
        """Return the plan, the rank and the first step of the pass that would begin now."""
        epoch, start = self._cursor.epoch, 0
        if self._next is not None:
            epoch, start = self._next
        elif self.finished == epoch:
            epoch = as_uint64("epoch", epoch + 1)
        return self._settled().of(epoch), self.rank, start

    def begin(self, cursor: Cursor) -> None:
        """Begin that pass, whose position `cursor` is."""
        self._cursor = cursor
        self._next = None

    def follow(self, cursor: Cursor, *, is_over: bool = False) -> None:
        """Make `cursor` the position, from which a batch has been handed out: the last, if over."""
        self._cursor = cursor
        if self._next is None:
            self._plans.foresee(cursor.epoch, cursor.step)
        if is_over:
            self.finished = cursor.epoch

    def _batches(self) -> Iterator[list[int]]:
        plan, rank, start = self.next_pass()
        framework_loops.check_place_in_lightning(plan.epoch, start)
        cursor = Cursor(plan.epoch, start, start)
        self.begin(cursor)
        # The last batch apart, since a loop may stop at it, and the first, which comes at once.
        last, half = plan.num_steps - 1, max(start + 1, (plan.num_steps + 1) // 2)
        for begin, end in (start, start + 1), (start + 1, half), (half, last):
            if begin > start and self._next is None:
                self._plans.foresee(plan.epoch, begin)
            for batches in plan.lists(rank, begin, min(end, last)):
                for batch in cursor.hand_out(batches):
                    self._cursor = cursor
                    yield batch
        for batches in plan.lists(rank, last, last + 1):
            for batch in cursor.hand_out(batches):
                self.follow(cursor, is_over=True)
                yield batch

    def state_dict(self, consumed: SupportsIndex | None = None) -> dict[str, Any]:
        """Return the position, as a few plain ints and strings.

        Parameters
        ----------
        consumed : int, optional
            How many batches of the running pass have been trained on, as ``enumerate`` counts them.
            Without it, those handed out are counted, and a ``DataLoader`` with workers asks for
            batches long before it trains on them.

        Returns
        -------
        dict
            For :meth:`load_state_dict`, JSON, and ``torch.load(weights_only=True)``.

        """
        plans = self._settled()
        return {
            "version": STATE_VERSION,
            "epoch": self._cursor.epoch,
            "step": step_after(self._cursor, consumed, plans.num_steps),
            "seed": self.options.seed,
            "num_replicas": plans.num_replicas,
            "steps_per_epoch": plans.num_steps,
            "lengths": plans.fingerprint,
            "options": json.dumps(self.options.to_dict(), sort_keys=True),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next pass go on where `state` was taken: after an epoch, with the next one.

        Raises
        ------
        TypeError, ValueError
            If the state is not whole, or is of another version, other lengths, options or ranks.

        """
        epoch, step = check_state(state, self.state_dict(consumed=0))
        self._cursor = Cursor(epoch, step, step)
        self._next = epoch, step
        self._plans.expect(epoch)
        self.finished = None

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the options and the position; plans are made anew, ranks are resolved anew."""
        state = self.__dict__.copy()
        for name in ("_plans", "_rank"):
            del state[name]
        state["lengths"] = pack_lengths(self.lengths)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore what was pickled."""
        self.__dict__.update(state)
        self.lengths = unpack_lengths(state["lengths"])
        self._prepare()

    def __copy__(self) -> BucketBatchSampler:
        """Copy the position; share the lengths, which never change, and what follows from them."""
        other = type(self).__new__(type(self))
        other.__dict__.update(
            self.__dict__, _cursor=copy.copy(self._cursor), _plans=copy.copy(self._plans)
        )
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> BucketBatchSampler:
        """Copy as ``copy.copy`` does: nothing that is shared ever changes."""
        memo[id(self)] = other = copy.copy(self)
        return other
