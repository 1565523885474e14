"""What the callbacks of frameworks share."""

from __future__ import annotations

from typing import Any

from evenstride.sampler import BucketBatchSampler

__all__ = ["sampler_to_meter"]


def sampler_to_meter(loader: Any) -> BucketBatchSampler:
    """Return the sampler of a training loader; say what is there instead else."""
    sampler = getattr(loader, "batch_sampler", None)
    if not isinstance(sampler, BucketBatchSampler):
        msg = (
            "The training loader must have a BucketBatchSampler as its `batch_sampler`, but has a "
            f"{type(sampler).__name__}."
        )
        raise TypeError(msg)
    return sampler
