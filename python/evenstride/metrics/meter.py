"""A meter that tells, for each bucket, what training did with it."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any, Literal, SupportsFloat, SupportsIndex, TypeAlias

from evenstride.metrics.figures import BucketFigures, MeterFigures
from evenstride.metrics.held import as_held, as_seconds, read
from evenstride.metrics.record import StepRecord
from evenstride.metrics.saved import check_values
from evenstride.metrics.source import PlanSource
from evenstride.options import as_count, as_integer
from evenstride.state import check_fields, check_same
from evenstride.step_info import as_step

if TYPE_CHECKING:
    import torch

    from evenstride.cursor import Cursor
    from evenstride.metrics.figures import Measure
    from evenstride.plan import EpochPlan
    from evenstride.sampler import BucketBatchSampler

    Number: TypeAlias = SupportsFloat | torch.Tensor

__all__ = ["BatchMeter"]

Scope: TypeAlias = Literal["window", "epoch"]

_STATE_VERSION = 1
_MOST_PENDING = 256
_SCOPES: tuple[Scope, ...] = ("window", "epoch")


class BatchMeter:
    """What was dispatched of each bucket, and how loss, gradients and time differ between them.

    Call :meth:`update` once for each step that this rank has trained on. What a step holds, the
    meter looks up in the plan: its bucket, samples, tokens and padded tokens, of this rank and of
    all, without communication. Figures are kept for the last `window` steps and for the epoch.

    A gradient norm is that of an optimizer step. It counts once for each step of it, so that it
    belongs to their buckets in proportion.

    Parameters
    ----------
    source : BucketBatchSampler or EpochPlan
        Whose steps. A sampler's epochs are followed: the first update in another epoch begins the
        epoch's figures anew, while the window goes on.
    window : int, default 200
        Steps of the rolling figures; at least `accumulation_steps`.
    accumulation_steps : int, optional
        Steps in an optimizer step, counted from the start of the epoch; by default the option of
        `source`.
    rank : int, optional
        With a plan, which rank's batches, in ``[0, num_replicas)``; by default 0.

    Raises
    ------
    TypeError
        If an argument is not of its kind.
    ValueError
        If a value is outside its range, or a rank is given with a sampler.

    Notes
    -----
    Loss and gradient norm may be tensors on a device. A copy is kept there and read only when
    figures are asked for, or after 256 steps, so that an update never waits for the device. A
    sharded norm (``DTensor``) must be made whole before, on all ranks.

    A meter is of one thread: figures and states must not be asked for in another one than the one
    that updates.

    Examples
    --------
    >>> import evenstride as es
    >>> sampler = es.BucketBatchSampler([3, 9, 4, 8, 3, 9], token_budget=18, buckets=[6])
    >>> meter = es.metrics.BatchMeter(sampler)
    >>> for step, batch in enumerate(sampler):
    ...     meter.update(step, loss=len(batch), grad_norm=1.0, seconds=0.5)
    >>> [bucket.loss.mean for bucket in meter.figures("epoch").buckets]
    [3.0, 1.5]
    >>> print(meter.table())
      #  lengths  steps   share  samples  tokens   real  mean  loss  norm  s/step
      0   [0, 6)      1   33.3%        3      10  83.3%  3.333     3     1     0.5
      1  [6, 10)      2   66.7%        3      26 100.0%  8.667   1.5     1     0.5
    all  [0, 10)      3  100.0%        6      36  94.7%      6     2     1     0.5
    <BLANKLINE>
    - of the variance of gradient norms between buckets
    75.0% of the variance of losses between buckets

    """

    def __init__(
        self,
        source: BucketBatchSampler | EpochPlan,
        *,
        window: SupportsIndex = 200,
        accumulation_steps: SupportsIndex | None = None,
        rank: SupportsIndex | None = None,
    ) -> None:
        self._source = PlanSource(source, rank=rank, accumulation_steps=accumulation_steps)
        length, least = as_count("window", window), self._source.accumulation_steps
        if length < least:
            msg = f"`window` must be at least accumulation_steps = {least}, but is {length}."
            raise ValueError(msg)
        self._window: deque[StepRecord] = deque(maxlen=length)
        self._pending: list[StepRecord] = []
        self._buckets: list[BucketFigures] = []
        self._epoch = -1
        self._step = -1
        self._seen: tuple[Cursor, int] | None = None
        self._clock: float | None = None
        self._is_started = False

    @property
    def epoch(self) -> int:
        """The epoch of the last update, which the epoch's figures are of; -1 before the first."""
        return self._epoch

    def start(self) -> None:
        """Start the clock: the next step began now.

        Without it, a step's seconds begin at the update of the one before, and the first one of an
        epoch has none. Call it where something else took time, such as an evaluation.
        """
        self._clock = time.perf_counter()
        self._is_started = True

    def update(
        self,
        step: SupportsIndex | None = None,
        *,
        loss: Number | None = None,
        grad_norm: Number | None = None,
        seconds: float | None = None,
    ) -> None:
        """Count a step that this rank has trained on.

        Parameters
        ----------
        step : int, optional
            Which step of the current epoch, in ``[0, num_steps)``. By default the one after the
            last, and at the first update of a sampler's pass the one where the pass began. One that
            is not after the last begins the epoch's figures anew.
        loss : float or tensor of one element, optional
            Of this rank's batch. Infinite values, NaN and any beyond 1e140 are counted apart, in no
            mean.
        grad_norm : float or tensor of one element, optional
            Of the optimizer step that this step is the last one of, before any clipping.
        seconds : float, optional
            That the step took, at least 0. By default those since the last update, or since
            :meth:`start`.

        Raises
        ------
        TypeError
            If a value is no number.
        ValueError
            If a value is outside its range, or a tensor has not one element, or no value at all.
        IndexError
            If the plan has no such step.

        """
        now = time.perf_counter()
        plan = self._source.plan
        cursor = self._source.cursor
        number = as_step(self._next_step(cursor) if step is None else step, plan.num_steps)
        loss = None if loss is None else as_held("loss", loss)
        grad_norm = None if grad_norm is None else as_held("grad_norm", grad_norm)
        seconds = None if seconds is None else as_seconds(seconds)
        if plan.epoch != self._epoch or number <= self._step:
            self._begin(plan)
        if seconds is None and self._clock is not None:
            seconds = now - self._clock
        self._clock, self._is_started = now, False
        self._step = number
        self._seen = None if cursor is None else (cursor, cursor.step)
        optimizer_step = plan.epoch, number // self._source.accumulation_steps
        counts = self._source.counts(plan, number)
        self._pending.append(StepRecord(optimizer_step, counts, loss, grad_norm, seconds))
        if len(self._pending) >= _MOST_PENDING:
            self._read()

    def add_grad_norm(self, grad_norm: Number) -> None:
        """Give the last update the gradient norm that it was made without.

        Parameters
        ----------
        grad_norm : float or tensor of one element
            As :meth:`update` takes it.

        Raises
        ------
        TypeError, ValueError
            As :meth:`update` does.
        RuntimeError
            If there was no update yet.

        """
        if self._step < 0:
            msg = "`add_grad_norm` must come after an `update`, but there was none."
            raise RuntimeError(msg)
        held = as_held("grad_norm", grad_norm)
        if self._pending:
            self._pending[-1].grad_norm = held
        else:
            self._spread(self._window[-1].optimizer_step, *read([held]))

    def _next_step(self, cursor: Cursor | None) -> int:
        if cursor is None or (self._seen is not None and _is_further(cursor, *self._seen)):
            return self._step + 1
        return cursor.began

    def _begin(self, plan: EpochPlan) -> None:
        self._read()
        self._epoch = plan.epoch
        self._buckets = [BucketFigures() for _ in range(len(plan.edges) - 1)]
        if not self._is_started:
            self._clock = None

    def _read(self) -> None:
        """Count what is pending."""
        losses = read(record.loss for record in self._pending)
        norms = read(record.grad_norm for record in self._pending)
        pending, self._pending = self._pending, []
        for record, loss, norm in zip(pending, losses, norms, strict=True):
            record.loss, record.grad_norm = loss, None
            self._window.append(record)
            _count(self._buckets, record)
            if norm is not None:
                self._spread(record.optimizer_step, norm)

    def _spread(self, optimizer_step: tuple[int, int], norm: float) -> None:
        """Let a norm count for the steps of its optimizer step that have none yet."""
        for record in reversed(self._window):
            if record.optimizer_step != optimizer_step or record.grad_norm is not None:
                return
            record.grad_norm = norm
            self._buckets[record.counts.bucket].grad_norm.add(norm)

    def figures(self, scope: Scope = "window") -> MeterFigures:
        """Return the figures of the last steps, or of the epoch.

        Reads what is still on a device, and so waits for it.

        Parameters
        ----------
        scope : {"window", "epoch"}, default "window"
            Of the last `window` steps, also those of the epoch before, or of the epoch's so far.

        """
        if scope not in _SCOPES:
            msg = f"`scope` must be 'window' or 'epoch', but is {scope!r}."
            raise ValueError(msg)
        self._read()
        edges = self._source.plan.edges.tolist()
        buckets = [BucketFigures() for _ in edges[1:]]
        if scope == "window":
            for record in self._window:
                _count(buckets, record)
                if record.grad_norm is not None:
                    buckets[record.counts.bucket].grad_norm.add(record.grad_norm)
        else:
            for bucket, counted in zip(buckets, self._buckets, strict=False):
                bucket.merge(counted)
        return MeterFigures(tuple(buckets), tuple(edges))

    def between_bucket_share(
        self,
        of: Measure = "grad_norm",
        scope: Scope = "window",
    ) -> float:
        """Return which share of the variance lies between buckets: how hard they jolt training.

        As :meth:`MeterFigures.between_bucket_share`, of the figures of `scope`.
        """
        return self.figures(scope).between_bucket_share(of)

    def scalars(
        self, scope: Scope | None = None, *, prefix: str = "evenstride"
    ) -> dict[str, float]:
        """Return the figures under flat names, for any logger.

        Names are ``prefix/scope/figure`` over all buckets, and ``prefix/scope/bucket_k/figure`` for
        bucket ``k``. Figures are ``steps``, ``padding_efficiency``, ``mean_length``, ``loss``,
        ``grad_norm``, ``seconds_per_step`` and ``tokens_per_second`` (of all ranks); over all
        buckets also ``loss_between_bucket_share`` and ``grad_norm_between_bucket_share``. Where
        there were any, ``loss_nonfinite`` and ``grad_norm_nonfinite`` count infinite values, NaN,
        and values beyond 1e140. What is not known has no name.

        Parameters
        ----------
        scope : {"window", "epoch"}, optional
            By default both.
        prefix : str, default "evenstride"
            What all names begin with.

        Returns
        -------
        dict of str to float
            Finite values.

        """
        scopes = _SCOPES if scope is None else (scope,)
        return {
            name: value
            for one in scopes
            for name, value in self.figures(one).scalars(f"{prefix}/{one}").items()
        }

    def table(self, scope: Scope = "window") -> str:
        """Return the figures as text for people; counts are those of all ranks."""
        return self.figures(scope).table()

    def state_dict(self) -> dict[str, Any]:
        """Return what was counted, as plain numbers and lists, for JSON and ``torch.load``."""
        self._read()
        return {
            "version": _STATE_VERSION,
            "edges": self._source.plan.edges.tolist(),
            "accumulation_steps": self._source.accumulation_steps,
            "rank": self._source.rank,
            "epoch": self._epoch,
            "step": self._step,
            "buckets": [bucket.to_list() for bucket in self._buckets],
            "window": [record.to_list() for record in self._window],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on counting where `state` was taken; begin anew if that was on another rank.

        A checkpoint that one rank writes for all has the figures of that rank alone.

        Raises
        ------
        TypeError, ValueError
            If the state is not whole, or is of other buckets or accumulation steps. Nothing has
            changed then.

        """
        expected = BatchMeter.state_dict(self)
        check_fields(state, expected)
        check_same(state, expected, ("version", "edges", "accumulation_steps"))
        if as_integer("rank", state["rank"]) != expected["rank"]:
            state = {**state, "epoch": -1, "step": -1, "buckets": [], "window": []}
        check_values(state, len(expected["edges"]) - 1)
        self._epoch, self._step = state["epoch"], state["step"]
        self._buckets = [BucketFigures.from_list(values) for values in state["buckets"]]
        self._window.clear()
        self._window.extend(map(StepRecord.from_list, state["window"]))
        self._clock, self._is_started = None, False

    def __getstate__(self) -> dict[str, Any]:
        """Copy and pickle all but the clock, which another process may not have."""
        cursor = self._source.cursor
        is_current = self._seen is not None and self._seen[0] is cursor
        return {**self.__dict__, "_clock": None, "_is_started": False, "_is_current": is_current}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore what was copied, with the position of the sampler that was copied too."""
        is_current = state.pop("_is_current")
        self.__dict__.update(state)
        cursor = self._source.cursor
        if is_current and self._seen is not None and cursor is not None:
            self._seen = cursor, self._seen[1]


def _is_further(cursor: Cursor, seen: Cursor, step: int) -> bool:
    """Whether a cursor is of the pass in which another one was seen at a step.

    Prefetching loaders show one cursor after the other in a pass.
    """
    of_same_pass = (cursor.epoch, cursor.began) == (seen.epoch, seen.began) and cursor.step > step
    return cursor is seen or of_same_pass


def _count(buckets: list[BucketFigures], record: StepRecord) -> None:
    """Count all of a step but its gradient norm."""
    figures = buckets[record.counts.bucket]
    figures.count(record.counts)
    if record.loss is not None:
        figures.loss.add(record.loss)
    if record.seconds is not None:
        figures.seconds.add(record.seconds)
