"""The plans of a sampler: made when they are asked for, all of them into equally many steps."""

from __future__ import annotations

import time
from functools import cached_property
from typing import TYPE_CHECKING

from evenstride import _core
from evenstride.ahead import FEWEST_SAMPLES, Ahead
from evenstride.plan import EpochPlan
from evenstride.plan_cache import SharedPlans
from evenstride.planner import make_plan
from evenstride.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenstride.lengths import LengthArray
    from evenstride.options import PlanOptions
    from evenstride.plan_cache import PlanCache

_LAST_EPOCH = 2**64 - 1


class EpochPlans:
    """The epochs of one set of lengths; the last one that was asked for is kept.

    While a pass is running, the next one is made in the background: see :meth:`foresee`.
    """

    def __init__(
        self,
        lengths: LengthArray,
        options: PlanOptions,
        num_threads: int,
        plan_cache: PlanCache | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> None:
        self._lengths = lengths
        self._options = options
        self._num_threads = num_threads
        self._plan_cache = plan_cache
        self._shared: SharedPlans | None = None
        self._settled: tuple[int, _core.Settlement] | None = None
        self._kept: EpochPlan | None = None
        self._last: EpochPlan | None = None  # The one before, which is about to be freed.
        self._ahead: Ahead | None = None
        self._leaving: Ahead | None = None  # Given up, and may not have ended yet.
        self._has_made = False  # Whether this process made the plan that is kept.
        self._seconds = 0.0  # That it last took to make a plan.
        self._progress = progress
        with Progress(progress) as told:
            self.planner = options.planner(lengths, num_threads, told.part(0.0, 1.0))

    @property
    def is_settled(self) -> bool:
        """Whether it is known for how many ranks they are."""
        return self._settled is not None

    def settle(self, num_replicas: int) -> None:
        """Settle for how many ranks the plans are, and so how many steps they all have."""
        if self._plan_cache is None:
            settlement = self._made_settlement(num_replicas)
        else:
            self._shared = SharedPlans(
                self._plan_cache, self.planner, self.fingerprint, self._options, num_replicas
            )
            settlement = self._shared.settlement(lambda: self._made_settlement(num_replicas))
        self._settled = num_replicas, settlement

    def _made_settlement(self, num_replicas: int) -> _core.Settlement:
        with Progress(self._progress) as told:
            return self.planner.settle(
                num_replicas=num_replicas,
                drop_last=self._options.drop_last,
                steps_per_epoch=self._options.steps_per_epoch,
                progress=told.part(0.0, 1.0),
            )

    @property
    def num_replicas(self) -> int:
        """Batches of each step."""
        return self._settlement[0]

    @property
    def num_steps(self) -> int:
        """Steps of every epoch."""
        return self._settlement[1].steps

    @property
    def _settlement(self) -> tuple[int, _core.Settlement]:
        if self._settled is None:
            msg = "`settle` must be called first."
            raise RuntimeError(msg)
        return self._settled

    def of(self, epoch: int) -> EpochPlan:
        """Return the plan of an epoch, and keep it instead of the last one."""
        kept = self._kept
        if kept is not None and kept.epoch == epoch:
            return kept
        self.expect(epoch)
        if kept is not None and not self._options.shuffle and self._shared is None:
            self._kept = kept = _of_another_epoch(kept, epoch)
            return kept
        # Not with another one that is kept: whoever is amid a pass of it has it still. To free it
        # takes longer than to take one that is made.
        self._last, self._kept = kept, None
        kept = None
        self._has_made = False
        if self._shared is None:
            plan = self._made(epoch)
        else:
            plan = self._shared.plan(epoch, lambda: self._made(epoch))
            self._give_up_ahead()
        self._kept = plan
        return plan

    def foresee(self, epoch: int, step: int) -> None:
        """Begin to plan the epoch after `epoch` when a pass of that goes on to a step.

        Not before half of the epoch, so that there are two plans for half of the time only. With a
        cache, of all processes only the one that made the plan of `epoch` plans the next one.
        """
        self._last = None
        if (
            self._ahead is None
            and self._kept is not None
            and self._kept.epoch == epoch < _LAST_EPOCH
            and 2 * step >= self.num_steps
            and len(self._lengths) >= FEWEST_SAMPLES
            and self._options.shuffle
            and Ahead.may_begin
            and (self._shared is None or self._has_made)
        ):
            self._leaving = None
            num_replicas, settlement = self._settlement
            work = self.planner.plan_ahead(
                epoch + 1,
                num_replicas=num_replicas,
                drop_last=self._options.drop_last,
                steps_per_epoch=self._options.steps_per_epoch,
                settlement=settlement,
            )
            if work is not None:
                self._ahead = Ahead(epoch + 1, work)

    def expect(self, epoch: int) -> None:
        """Give up what is planned ahead, unless it is this epoch."""
        if self._ahead is not None and self._ahead.epoch != epoch:
            self._give_up_ahead()

    def _give_up_ahead(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.stop()

    def _made(self, epoch: int) -> EpochPlan:
        num_replicas, settlement = self._settlement
        ahead, self._ahead = self._ahead, None
        with Progress(self._progress) as told:
            tell = told.part(0.0, 1.0)
            arrays = None if ahead is None else ahead.arrays(self._seconds, tell)
            self._leaving = ahead
            if arrays is None:
                self._last = None  # So that there are never three.
            began_s = time.monotonic()
            plan = make_plan(
                self.planner,
                self._lengths,
                self._options,
                epoch=epoch,
                num_replicas=num_replicas,
                settlement=settlement,
                progress=tell,
                arrays=arrays,
            )
        if arrays is None:
            self._seconds = time.monotonic() - began_s
        self._has_made = True
        return plan

    def __copy__(self) -> EpochPlans:
        """Share all but what is planned ahead, which one alone can take."""
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__, _last=None, _ahead=None, _leaving=None)
        return other

    @cached_property
    def fingerprint(self) -> str:
        """The lengths in short: how many there are, and a hash of their values."""
        number = _core.fingerprint(self._lengths, num_threads=self._num_threads)
        return f"{len(self._lengths)}:{number:016x}"


def _of_another_epoch(plan: EpochPlan, epoch: int) -> EpochPlan:
    other = EpochPlan.__new__(EpochPlan)
    other.__dict__.update(plan.__dict__, epoch=epoch)
    return other
