"""Length-aware batches at native speed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenstride._core import __version__
from evenstride.edges import optimal_edges
from evenstride.plan import EpochPlan
from evenstride.planner import plan_epoch
from evenstride.stats import PlanStats

if TYPE_CHECKING:
    from evenstride.collate import Field, PadCollator
    from evenstride.dataset import RaggedDataset
    from evenstride.loader import Loader
    from evenstride.sampler import BucketBatchSampler

__all__ = [
    "BucketBatchSampler",
    "EpochPlan",
    "Field",
    "Loader",
    "PadCollator",
    "PlanStats",
    "RaggedDataset",
    "__version__",
    "optimal_edges",
    "plan_epoch",
]

# Names whose modules import torch, which takes a hundred times as long as all the rest.
_LAZY = {
    "BucketBatchSampler": "evenstride.sampler",
    "Field": "evenstride.collate",
    "Loader": "evenstride.loader",
    "PadCollator": "evenstride.collate",
    "RaggedDataset": "evenstride.dataset",
}

_SUBMODULES = (
    "accelerate",
    "cuda",
    "distributed",
    "lightning",
    "metrics",
    "plan_cache",
    "transformers",
)


def __getattr__(name: str) -> object:
    if name in _LAZY or name in _SUBMODULES:
        import importlib  # noqa: PLC0415 - Only for the names that are here on use.

        if name in _SUBMODULES:
            return importlib.import_module(f"evenstride.{name}")
        value = getattr(importlib.import_module(_LAZY[name]), name)
        globals()[name] = value
        return value
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted(__all__)
