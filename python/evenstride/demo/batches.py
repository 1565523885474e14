"""Padding: from samples of many lengths to the tensors of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

__all__ = ["IGNORED", "pad_batch"]

IGNORED = -100  # The target of padding, as `torch.nn.functional.cross_entropy` knows it.

_BEGIN = 0  # What comes before the first byte. No source file has a byte of 0.


def pad_batch(samples: Sequence[NDArray[np.uint8]]) -> tuple[Tensor, Tensor]:
    """Return inputs and targets of a batch: the target of each place is the byte that comes there.

    Rows are padded on the right. A causal model sees nothing to the right of a place, so that the
    padding is invisible to real tokens without an attention mask; its targets are `IGNORED`.

    Parameters
    ----------
    samples : sequence of ndarray of uint8
        At least one, each of at least one byte.

    Returns
    -------
    inputs, targets : Tensor of int64, shape (n_samples, longest)

    """
    shape = len(samples), max(map(len, samples))
    inputs = torch.full(shape, _BEGIN)
    targets = torch.full(shape, IGNORED)
    for row, sample in enumerate(samples):
        tokens = torch.from_numpy(sample.astype("int64"))
        inputs[row, 1 : len(tokens)] = tokens[:-1]
        targets[row, : len(tokens)] = tokens
    return inputs, targets
