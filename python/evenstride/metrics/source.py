"""What steps hold, quickly: of a sampler's current epoch, or of one plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, SupportsIndex

import numpy as np

from evenstride.options import as_count
from evenstride.plan import EpochPlan
from evenstride.step_info import as_rank

if TYPE_CHECKING:
    from evenstride.cursor import Cursor
    from evenstride.sampler import BucketBatchSampler

__all__ = ["PlanSource", "StepCounts"]

_STEPS_AT_ONCE = 512


class StepCounts(NamedTuple):
    """The bucket of a rank's batch in a step, and what is in the batches of the rank and of all."""

    bucket: int
    samples: int
    tokens: int
    padded_tokens: int
    global_samples: int
    global_tokens: int
    global_padded_tokens: int


class PlanSource:
    """Where a meter looks up what was dispatched: a plan, or a sampler that changes its plan.

    Parameters
    ----------
    source : BucketBatchSampler or EpochPlan
        Whose steps.
    rank : int, optional
        Of a plan, in ``[0, num_replicas)``; 0 by default. A sampler knows its own.
    accumulation_steps : int, optional
        Steps in an optimizer step, at least 1; by default the option of the plan.

    """

    def __init__(
        self,
        source: BucketBatchSampler | EpochPlan,
        *,
        rank: SupportsIndex | None = None,
        accumulation_steps: SupportsIndex | None = None,
    ) -> None:
        self._sampler: BucketBatchSampler | None = None
        if isinstance(source, EpochPlan):
            self._plan = source
            self._rank = as_rank(0 if rank is None else rank, source.num_replicas)
            planned: int = source.options["accumulation_steps"]
        elif hasattr(source, "cursor") and not isinstance(source, type):
            if rank is not None:
                msg = f"`rank` must be left out with a sampler, which has its own, but is {rank!r}."
                raise ValueError(msg)
            self._sampler = source
            planned = source.options.accumulation_steps
        else:
            msg = f"`source` must be a BucketBatchSampler or an EpochPlan, but is {source!r}."
            raise TypeError(msg)
        self.accumulation_steps = (
            planned
            if accumulation_steps is None
            else as_count("accumulation_steps", accumulation_steps)
        )
        self._block: tuple[int, int] | None = None
        self._counts: list[StepCounts] = []

    @property
    def plan(self) -> EpochPlan:
        """The plan, of a sampler that of its current epoch."""
        return self._plan if self._sampler is None else self._sampler.plan

    @property
    def rank(self) -> int:
        """The rank whose batches these are."""
        return self._rank if self._sampler is None else self._sampler.rank

    @property
    def num_samples(self) -> int:
        """How many samples there are, of a plan the least that there can be."""
        if self._sampler is None:
            return int(self._plan.indices.max()) + 1
        return len(self._sampler.lengths)

    @property
    def knows_num_samples(self) -> bool:
        """Whether there are just so many: a plan does not know of samples that were left out."""
        return self._sampler is not None

    @property
    def cursor(self) -> Cursor | None:
        """The position of the pass that a sampler is in."""
        return None if self._sampler is None else self._sampler.cursor

    def counts(self, plan: EpochPlan, step: int) -> StepCounts:
        """Return what a step of a plan holds. Fast for steps one after the other."""
        block = plan.epoch, step // _STEPS_AT_ONCE
        if self._block != block:
            self._counts = _counts(plan, self.rank, block[1] * _STEPS_AT_ONCE)
            self._block = block
        return self._counts[step % _STEPS_AT_ONCE]


def _counts(plan: EpochPlan, rank: int, start: int) -> list[StepCounts]:
    stop = min(start + _STEPS_AT_ONCE, plan.num_steps)
    batches = slice(start * plan.num_replicas, stop * plan.num_replicas)
    samples = np.diff(plan.offsets[batches.start : batches.stop + 1])
    amounts = np.stack(
        (samples, plan.tokens_of(batches).astype(np.int64), samples * plan.widths[batches])
    ).reshape(3, stop - start, plan.num_replicas)
    buckets = plan.buckets[batches][rank :: plan.num_replicas]
    # Of all ranks together, there may be more tokens than int64 holds.
    exact = object if int(amounts.max()) * plan.num_replicas >= 2**63 else np.int64
    columns = (buckets, *amounts[:, :, rank], *amounts.sum(axis=2, dtype=exact))
    return [StepCounts(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]
