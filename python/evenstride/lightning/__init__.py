"""Loaders and a data module for PyTorch Lightning. Needs ``evenstride[lightning]``."""

from __future__ import annotations

from evenstride.lightning.data_module import BucketDataModule
from evenstride.lightning.trainer_loader import TrainerLoader

__all__ = ["BucketDataModule", "TrainerLoader"]
