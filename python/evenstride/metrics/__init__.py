"""What each bucket does to training: meters, loggers, and weights of tokens."""

from __future__ import annotations

from evenstride.metrics.figures import BucketFigures, MeterFigures
from evenstride.metrics.meter import BatchMeter
from evenstride.metrics.moments import Moments, between_share

__all__ = [
    "BatchMeter",
    "BucketFigures",
    "MeterFigures",
    "Moments",
    "between_share",
]
