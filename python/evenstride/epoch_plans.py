"""The plans of a sampler: made when they are asked for, all of them into equally many steps."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from evenstride import _core
from evenstride.plan_cache import SharedPlans
from evenstride.planner import make_plan
from evenstride.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenstride.lengths import LengthArray
    from evenstride.options import PlanOptions
    from evenstride.plan import EpochPlan
    from evenstride.plan_cache import PlanCache


class EpochPlans:
    """The epochs of one set of lengths; the last one that was asked for is kept."""

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
        """Return the plan of an epoch."""
        if self._kept is None or self._kept.epoch != epoch:
            if self._shared is None:
                self._kept = self._made(epoch)
            else:
                self._kept = self._shared.plan(epoch, lambda: self._made(epoch))
        return self._kept

    def _made(self, epoch: int) -> EpochPlan:
        num_replicas, settlement = self._settlement
        with Progress(self._progress) as told:
            return make_plan(
                self.planner,
                self._lengths,
                self._options,
                epoch=epoch,
                num_replicas=num_replicas,
                settlement=settlement,
                progress=told.part(0.0, 1.0),
            )

    @cached_property
    def fingerprint(self) -> str:
        """The lengths in short: how many there are, and a hash of their values."""
        number = _core.fingerprint(self._lengths, num_threads=self._num_threads)
        return f"{len(self._lengths)}:{number:016x}"
