"""What Accelerate does with the batches of a sampler, where it is in use.

Nothing tells a batch sampler that a loader was prepared over it: Accelerate wraps it, and keeps a
count of passes of its own. Only the methods of its that are running when the sampler is called show
what it is called for.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from evenstride.sampler import BucketBatchSampler

_MODULE = "accelerate.data_loader"


def check_pass(sampler: BucketBatchSampler) -> None:
    """Say what Accelerate, which asks for a pass, would do to its batches that is wrong.

    Raises
    ------
    RuntimeError
        If it would share out the batches of one rank, or skip others than the first of an epoch.

    """
    for _, asking in _running_methods():
        module = sys.modules[_MODULE]
        if isinstance(asking, (module.BatchSamplerShard, module.DataLoaderDispatcher)):
            num_replicas = sampler.next_pass()[0].num_replicas
            if num_replicas > 1:
                msg = (
                    "A loader whose BucketBatchSampler has the batches of one rank of "
                    f"{num_replicas} must be prepared by `evenstride.accelerate.prepare("
                    "accelerator, ...)`, because `accelerator.prepare(...)` would share them out "
                    "a second time."
                )
                raise RuntimeError(msg)
        elif isinstance(asking, module.SkipBatchSampler) and asking.skip_batches > 0:
            start = sampler.next_pass()[2]
            if start > 0:
                msg = (
                    f"`skip_first_batches` must be left out where the sampler has loaded a state, "
                    f"which begins at step {start} by itself, but it would skip "
                    f"{asking.skip_batches} more."
                )
                raise RuntimeError(msg)


def is_counting() -> bool:
    """Return whether a loader of Accelerate only says which pass of its own begins."""
    return any(name == "__iter__" for name, _ in _running_methods())


def _running_methods() -> Iterator[tuple[str, Any]]:
    """Yield the methods of Accelerate's loaders that wait for the caller, the innermost first."""
    if _MODULE not in sys.modules:
        return
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - As `inspect` does it, but quickly.
    while frame is not None:
        # Reading the variables of other frames would keep alive what they hold.
        if frame.f_globals.get("__name__") == _MODULE:
            yield frame.f_code.co_name, frame.f_locals.get("self")
        frame = frame.f_back
