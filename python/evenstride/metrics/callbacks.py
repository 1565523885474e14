"""What the callbacks of frameworks share."""

from __future__ import annotations

from typing import Any, ClassVar

from evenstride.metrics import BatchMeter
from evenstride.sampler import BucketBatchSampler

__all__ = ["MeterCallback"]


class MeterCallback:
    """Has a meter from the start of training on.

    Attributes
    ----------
    meter : BatchMeter or None
        Of the sampler that training takes its batches from.

    """

    _first_hook: ClassVar[str]

    def __init__(self, window: int | None, prefix: str) -> None:
        self.meter: BatchMeter | None = None
        self._options = {} if window is None else {"window": window}
        self._prefix = prefix

    def _begin(
        self, loader: Any, accumulation_steps: int, saved: dict[str, Any] | None
    ) -> BucketBatchSampler:
        """Meter a training loader from now on, after what a checkpoint has; return its sampler."""
        sampler = getattr(loader, "batch_sampler", None)
        if not isinstance(sampler, BucketBatchSampler):
            msg = (
                "The training loader must have a BucketBatchSampler as its `batch_sampler`, but "
                f"has a {type(sampler).__name__}."
            )
            raise TypeError(msg)
        self.meter = BatchMeter(sampler, accumulation_steps=accumulation_steps, **self._options)
        if saved is not None:
            self.meter.load_state_dict(saved)
        return sampler

    @property
    def _running(self) -> BatchMeter:
        if self.meter is None:
            msg = f"`{self._first_hook}` must have been called, but was not."
            raise RuntimeError(msg)
        return self.meter
