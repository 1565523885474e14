"""Planning one epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, SupportsIndex

import numpy as np

from evenstride.lengths import as_lengths
from evenstride.options import PlanOptions, as_count, as_num_threads, as_uint64
from evenstride.plan import EpochPlan
from evenstride.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from evenstride import _core
    from evenstride.lengths import LengthArray, Lengths
    from evenstride.plan import IndexArray, PlanArrays


def plan_epoch(
    lengths: Lengths,
    *,
    epoch: SupportsIndex = 0,
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
    num_replicas: SupportsIndex | None = 1,
    drop_last: bool = False,
    too_long: str = "error",
    empty: str = "keep",
    steps_per_epoch: SupportsIndex | None = None,
    num_threads: SupportsIndex | None = None,
    progress: Callable[[float], None] | None = None,
) -> EpochPlan:
    """Plan every batch of one epoch, for all ranks.

    The plan depends on the lengths, the options, the seed and the epoch alone: not on the number of
    threads, the platform, or any global random state. It needs no torch.

    Parameters
    ----------
    lengths : array_like of int, shape (n_samples,)
        Tokens of each sample, in ``[0, 2**63)``. Arrays and memmaps are read in place.
    epoch : int, default 0
        Which epoch, in ``[0, 2**64)``.
    token_budget, max_batch_size, batch_size_multiple, pad_to_multiple_of, max_length
        See :class:`BucketBatchSampler`, as for all that follow.
    buckets, composition, window, merge_buckets, order, jitter, accumulation_steps, shuffle, seed
        How samples come together, and in which order.
    num_replicas : int or None, default 1
        Batches of each step; None is 1.
    drop_last, too_long, empty
        What may be left out.
    steps_per_epoch : int, optional
        Exactly this many steps. Without it there are as many as the epoch naturally has, which
        differs a little from epoch to epoch; :class:`BucketBatchSampler` settles on one number.
    num_threads : int, optional
        Threads to plan with; by default up to four, as far as this process has processors.
    progress : callable, optional
        Called with the fraction that is done, in ``[0, 1]``, at most ten times a second while work
        takes longer than a tenth of a second, last with 1.0. What it raises ends the work.
        Ctrl-C ends it too, with or without a callback.

    Returns
    -------
    EpochPlan

    Raises
    ------
    TypeError
        If an argument is not of its kind.
    ValueError
        If a value is outside its range, a sample breaks a rule, or there would be no step.

    Examples
    --------
    >>> import evenstride as es
    >>> plan = es.plan_epoch([5, 1, 4, 2], token_budget=8, buckets=[3])
    >>> [sorted(batch.tolist()) for batch in plan]
    [[0], [1, 3], [2]]

    """
    options = PlanOptions.of(
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
    array = as_lengths(lengths)
    epoch = as_uint64("epoch", epoch)
    num_replicas = 1 if num_replicas is None else as_count("num_replicas", num_replicas)
    with Progress(progress) as told:
        planner = options.planner(array, as_num_threads(num_threads), told.part(0.0, 0.2))
        options.warn_of_removed(planner, stacklevel=2)
        return make_plan(
            planner,
            array,
            options,
            epoch=epoch,
            num_replicas=num_replicas,
            progress=told.part(0.2, 1.0),
        )


def make_plan(
    planner: _core.Planner,
    lengths: LengthArray,
    options: PlanOptions,
    *,
    epoch: int,
    num_replicas: int,
    settlement: _core.Settlement | None = None,
    progress: Callable[[float], None] | None = None,
    arrays: PlanArrays | None = None,
) -> EpochPlan:
    """Return the plan of an epoch, of itself or as it was settled; of its arrays if they are made.

    `arrays` are those that the planner returned.
    """
    if arrays is None:
        arrays = planner.plan(
            epoch,
            num_replicas=num_replicas,
            drop_last=options.drop_last,
            steps_per_epoch=options.steps_per_epoch,
            settlement=settlement,
            progress=progress,
        )
    if len(lengths) <= 2**31:
        # Signed, since torch indexes with no unsigned type of this width.
        arrays["indices"] = _as_signed(arrays["indices"])
    # The longest length that there can be has an edge above it that only this type holds.
    arrays["edges"] = np.array(planner.edges, np.int64 if planner.edges[-1] < 2**63 else np.uint64)
    arrays["edges"].flags.writeable = False
    facts = {
        "num_replicas": num_replicas,
        "epoch": epoch,
        "removed": planner.removed,
        "options": options.to_dict(),
    }
    return EpochPlan(arrays, facts, lengths)


def _as_signed(array: IndexArray) -> IndexArray:
    return array.view(np.int32) if array.dtype == np.uint32 else array
