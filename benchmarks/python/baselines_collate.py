"""Ways to gather and pad a batch without Evenstride, for comparison.

All of them return int64 ids, padded with 0 on the right to the longest row, and an int64 mask.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Batch = dict[str, torch.Tensor]


class Rows:
    """Ragged rows, as each baseline wants them."""

    def __init__(self, values: NDArray[Any], offsets: NDArray[np.int64]) -> None:
        self.values = values
        self.bounds = offsets.tolist()

    def array(self, row: int) -> NDArray[Any]:
        """Return a view of a row."""
        return self.values[self.bounds[row] : self.bounds[row + 1]]

    def tensor(self, row: int) -> torch.Tensor:
        """Return a row as an int64 tensor."""
        return torch.from_numpy(self.array(row).astype(np.int64))

    def listed(self, row: int) -> list[int]:
        """Return a row as a list."""
        return self.array(row).tolist()


def pad_arrays(rows: Sequence[NDArray[Any]]) -> Batch:
    """Pad with numpy, a row at a time: the fastest that we could write with it."""
    lengths = [len(row) for row in rows]
    ids = np.zeros((len(rows), max(lengths)), np.int64)
    mask = np.zeros_like(ids)
    for i, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        ids[i, :length] = row
        mask[i, :length] = 1
    return {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}


def pad_tensors(rows: Sequence[torch.Tensor]) -> Batch:
    """Pad with ``pad_sequence``."""
    ids = pad_sequence(rows, batch_first=True)
    lengths = torch.tensor([len(row) for row in rows])
    mask = torch.arange(ids.shape[1]) < lengths[:, None]
    return {"input_ids": ids, "attention_mask": mask.to(torch.int64)}


def pad_nested(rows: Sequence[torch.Tensor]) -> Batch:
    """Pad with ``torch.nested``."""
    nested = torch.nested.as_nested_tensor(list(rows), layout=torch.jagged)
    ids = torch.nested.to_padded_tensor(nested, 0)
    lengths = torch.tensor([len(row) for row in rows])
    mask = torch.arange(ids.shape[1]) < lengths[:, None]
    return {"input_ids": ids, "attention_mask": mask.to(torch.int64)}


def fbgemm_padder() -> Any:
    """Return how to pad with FBGEMM, or None where it is not installed."""
    with contextlib.suppress(ImportError, OSError):
        import fbgemm_gpu  # noqa: F401, PLC0415 - It registers torch's operators.

        return _pad_fbgemm
    return None


def _pad_fbgemm(rows: Sequence[torch.Tensor]) -> Batch:
    offsets = torch.tensor([0, *(len(row) for row in rows)]).cumsum(0)
    width = int(offsets.diff().max())
    to_dense = torch.ops.fbgemm.jagged_1d_to_dense
    ids = to_dense(torch.cat(list(rows)), offsets, width, 0)
    mask = torch.arange(width) < offsets.diff()[:, None]
    return {"input_ids": ids, "attention_mask": mask.to(torch.int64)}


def hugging_face_collator() -> Any:
    """Return ``DataCollatorWithPadding`` for lists of ids, or None where it is not installed."""
    with contextlib.suppress(ImportError):
        from tokenizers import Tokenizer, models  # noqa: PLC0415 - Only where it is installed.
        from transformers import (  # noqa: PLC0415
            DataCollatorWithPadding,
            PreTrainedTokenizerFast,
        )

        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=Tokenizer(models.WordLevel({"[PAD]": 0}, unk_token="[PAD]")),  # noqa: S106
            pad_token="[PAD]",  # noqa: S106
        )
        collator = DataCollatorWithPadding(tokenizer)
        return lambda rows: dict(collator([{"input_ids": row} for row in rows]))
    return None
