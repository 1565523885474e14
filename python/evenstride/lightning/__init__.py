"""Loaders, a data module and a callback for PyTorch Lightning. Needs ``evenstride[lightning]``."""

from __future__ import annotations

from evenstride.lightning.data_module import BucketDataModule
from evenstride.lightning.meter import BatchMeterCallback
from evenstride.lightning.trainer_loader import TrainerLoader

__all__ = ["BatchMeterCallback", "BucketDataModule", "TrainerLoader"]
