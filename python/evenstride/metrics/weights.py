"""How much each step's loss must weigh, so that every token weighs the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from evenstride.metrics.source import PlanSource
from evenstride.step_info import as_step

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from evenstride.plan import EpochPlan
    from evenstride.sampler import BucketBatchSampler

__all__ = ["TokenWeights"]

_REDUCTIONS = ("mean", "sum")


class TokenWeights:
    """Factors for losses that make an optimizer step the token mean over all of its batches.

    Ranks that average their gradients weigh batches alike, however many tokens they have, and so do
    the steps of an optimizer step. A token in a batch of few tokens then weighs more than one in a
    batch of many. Multiply each step's loss by :meth:`scale`, and it does not: the gradient is that
    of one big batch. The counts of all ranks come from the plan, so that nothing is communicated.

    Parameters
    ----------
    source : BucketBatchSampler or EpochPlan
        Whose steps. A sampler's epochs are followed.
    reduction : {"mean", "sum"}, default "mean"
        How the loss of a batch is made of those of its tokens.
    counts : array_like of int, shape (n_samples,), optional
        Tokens of each sample that its loss has a term for, at least 0; by default its length. Pass
        them where labels are shifted (a row of ``n`` tokens predicts ``n - 1``), or leave out
        prompts or masked tokens. With a plan, which does not know of samples that it has left out,
        there may be more.
    accumulation_steps : int, optional
        Steps in an optimizer step, counted from the start of the epoch, at whose end one may have
        fewer; by default the option of `source`.
    rank : int, optional
        With a plan, which rank's batches, in ``[0, num_replicas)``; by default 0.

    Raises
    ------
    TypeError
        If an argument is not of its kind.
    ValueError
        If a value is outside its range, or there is not one count a sample.

    Notes
    -----
    Let rank ``r`` of ``W`` have ``n[j, r]`` tokens with losses ``l`` in step ``j`` of an optimizer
    step, and ``N`` be the sum of ``n`` over its steps and ranks. Wanted is the gradient of the sum
    of all ``l`` over ``N``. The loop sums the gradients of its steps, and ranks average them: it
    gets the gradient of ``sum over j, r of L[j, r] / W``. So ``L[j, r]`` must be ``W / N`` times
    the sum of the batch's ``l``, which is ``W * n[j, r] / N`` times their mean.

    A loop that divides its losses by the accumulation steps must multiply them by as much again.
    With ``reduction="mean"``, a batch without a single such token has a loss of NaN in torch, which
    no factor repairs; take "sum" there.

    Examples
    --------
    Two ranks have 1 token and 5 in a step: 6 in all.

    >>> import evenstride as es
    >>> plan = es.plan_epoch([5, 1], token_budget=5, buckets=1, num_replicas=2, seed=0)
    >>> ranks = [es.metrics.TokenWeights(plan, rank=rank) for rank in range(2)]
    >>> [plan.step_info(0, rank).tokens for rank in range(2)]
    [1, 5]
    >>> [round(weights.scale(0), 4) for weights in ranks]
    [0.3333, 1.6667]

    """

    def __init__(
        self,
        source: BucketBatchSampler | EpochPlan,
        *,
        reduction: str = "mean",
        counts: ArrayLike | None = None,
        accumulation_steps: SupportsIndex | None = None,
        rank: SupportsIndex | None = None,
    ) -> None:
        self._source = PlanSource(source, rank=rank, accumulation_steps=accumulation_steps)
        if reduction not in _REDUCTIONS:
            msg = f"`reduction` must be 'mean' or 'sum', but is {reduction!r}."
            raise ValueError(msg)
        self._is_mean = reduction == "mean"
        self._counts = None if counts is None else _as_counts(counts, self._source)
        self._optimizer_step: tuple[int, int] | None = None
        self._tokens: NDArray[np.float64] = np.zeros((0, 0))

    def scale(self, step: SupportsIndex) -> float:
        """Return the factor for this rank's loss in a step.

        Parameters
        ----------
        step : int
            Which step of the current epoch, in ``[0, num_steps)``.

        Returns
        -------
        float
            At least 0, and 0 if the whole optimizer step has no token that counts.

        """
        plan = self._source.plan
        number = as_step(step, plan.num_steps)
        of_optimizer_step, place = divmod(number, self._source.accumulation_steps)
        if self._optimizer_step != (plan.epoch, of_optimizer_step):
            self._tokens = self._tokens_of(plan, number - place)
            self._optimizer_step = plan.epoch, of_optimizer_step
        total = float(self._tokens.sum())
        if total == 0:
            return 0.0
        mine = float(self._tokens[place, self._source.rank]) if self._is_mean else 1
        return plan.num_replicas * mine / total

    def _tokens_of(self, plan: EpochPlan, start: int) -> NDArray[np.float64]:
        """Return the tokens that count in each batch of an optimizer step, by step and rank.

        As floats, of which sums do not overflow; below 2**53 tokens they are exact.
        """
        stop = min(start + self._source.accumulation_steps, plan.num_steps)
        batches = slice(start * plan.num_replicas, stop * plan.num_replicas)
        if self._counts is None:
            tokens = plan.tokens_of(batches).astype(np.float64)
        else:
            bounds = plan.offsets[batches.start : batches.stop + 1]
            counts = self._counts[plan.indices[bounds[0] : bounds[-1]]]
            tokens = np.add.reduceat(counts, bounds[:-1] - bounds[0])
        return tokens.reshape(stop - start, plan.num_replicas)


def _as_counts(counts: ArrayLike, source: PlanSource) -> NDArray[np.float64]:
    array: NDArray[Any] = np.asarray(counts)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        msg = (
            "`counts` must be one integer for each sample, but has shape "
            f"{array.shape} and dtype {array.dtype}."
        )
        raise TypeError(msg)
    num_samples, num_others = source.num_samples, len(array) - source.num_samples
    if num_others < 0 or (num_others > 0 and source.knows_num_samples):
        msg = f"`counts` must have a value for each of {num_samples} samples, but has {len(array)}."
        raise ValueError(msg)
    if array.min() < 0:
        place = int(array.argmin())
        msg = f"`counts[{place}]` must be at least 0, but is {array[place]}."
        raise ValueError(msg)
    return array.astype(np.float64)
