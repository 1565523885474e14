"""What makes PyTorch Lightning's loops at home here. Needs ``evenstride[lightning]``."""

from __future__ import annotations

from evenstride.lightning.meter import BatchMeterCallback

__all__ = ["BatchMeterCallback"]
