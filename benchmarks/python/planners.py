"""What is called to plan an epoch: ours and the baselines, a new epoch with each call."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import evenstride as es
from harness import EDGES, MAX_BATCH_SIZE, TOKEN_BUDGET

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from answers import IntArray

LIMITS: dict[str, Any] = {"token_budget": TOKEN_BUDGET, "max_batch_size": MAX_BATCH_SIZE}

NUMPY = "numpy, jitted fill"
NUMBA = "numba throughout, 2 threads"
NUMBA_ALONE = "numba throughout, 1 thread"


class Planner:
    """A `BucketBatchSampler` that plans one epoch after another."""

    def __init__(self, lengths: IntArray, edges: Sequence[int] = EDGES, **options: Any) -> None:
        options = {"num_threads": 2, "num_replicas": 1, "rank": 0} | options
        self._sampler = es.BucketBatchSampler(lengths, buckets=list(edges), **LIMITS, **options)
        self._epoch = count(1)

    def __call__(self) -> Any:
        self._sampler.set_epoch(next(self._epoch))
        return self._sampler.plan

    @property
    def plan(self) -> Any:
        """The last plan."""
        return self._sampler.plan


def one_call(lengths: IntArray, edges: Sequence[int] = EDGES, **options: Any) -> Callable[[], Any]:
    """Return a call of `plan_epoch` for one epoch after another."""
    options = {"num_threads": 2} | options
    epoch = count(1)
    buckets = list(edges)
    return lambda: es.plan_epoch(lengths, buckets=buckets, epoch=next(epoch), **LIMITS, **options)


def baseline(
    plan: Callable[..., Any], lengths: Any, edges: Sequence[int] = EDGES, **options: Any
) -> Callable[[], Any]:
    """Return a call of one of the baselines for one seed after another."""
    seed = count(1)
    return lambda: plan(lengths, edges, TOKEN_BUDGET, MAX_BATCH_SIZE, next(seed), **options)
