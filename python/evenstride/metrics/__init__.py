"""What each bucket does to training: meters, loggers, and weights of tokens."""

from __future__ import annotations

from evenstride.metrics.figures import BucketFigures, MeterFigures
from evenstride.metrics.meter import BatchMeter
from evenstride.metrics.moments import Moments, between_share
from evenstride.metrics.weights import TokenWeights
from evenstride.metrics.writers import log_to_tensorboard, log_to_wandb

__all__ = [
    "BatchMeter",
    "BucketFigures",
    "MeterFigures",
    "Moments",
    "TokenWeights",
    "between_share",
    "log_to_tensorboard",
    "log_to_wandb",
]
