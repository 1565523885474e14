"""The data set, and how its samples become batches: what the model sees, and what it is to say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from evenstride import Field, PadCollator, RaggedDataset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["IGNORED", "as_dataset", "new_collator"]

IGNORED = -100  # The target of padding, as `torch.nn.functional.cross_entropy` knows it.

_BEGIN = 0  # What comes before the first byte. No source file has a byte of 0.


def as_dataset(samples: Sequence[NDArray[np.uint8]]) -> RaggedDataset:
    """Return a data set of inputs and targets: the target of each place is the byte that comes.

    Parameters
    ----------
    samples : sequence of ndarray of uint8
        At least one, each of at least one byte.

    """
    offsets = np.cumsum([0, *map(len, samples)])
    targets = np.concatenate(samples)
    inputs = np.roll(targets, 1)  # The byte before each place.
    inputs[offsets[:-1]] = _BEGIN
    return RaggedDataset({"inputs": (inputs, offsets), "targets": (targets, offsets)})


def new_collator() -> PadCollator:
    """Return what makes batches of such a data set: "inputs" and "targets", int64.

    Rows are padded on the right. A causal model sees nothing to the right of a place, so that the
    padding is invisible to real tokens without an attention mask; its targets are `IGNORED`.
    """
    fields = {"inputs": Field(padding_value=_BEGIN), "targets": Field(padding_value=IGNORED)}
    return PadCollator(fields, attention_mask=False)
