"""Batches of similar length in the ``Trainer`` of Hugging Face."""

from __future__ import annotations

try:
    import transformers as _transformers  # noqa: F401 - The package of that name, not this one.
except ImportError as error:
    _msg = (
        "`evenstride.transformers` needs transformers: install it with "
        "`pip install 'evenstride[transformers]'`."
    )
    raise ImportError(_msg) from error

from evenstride.transformers.meter import BatchMeterCallback
from evenstride.transformers.trainer import BucketBatchMixin, with_buckets

__all__ = ["BatchMeterCallback", "BucketBatchMixin", "with_buckets"]
