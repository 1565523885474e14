"""The lengths of a training set, from whatever kind of data set a ``Trainer`` is given."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.data import IterableDataset

from evenstride.collate import PadCollator
from evenstride.dataset import RaggedDataset
from evenstride.lengths import as_lengths
from evenstride.loader_checks import as_ragged
from evenstride.producers import is_native
from evenstride.sources_arrow import column_lengths

if TYPE_CHECKING:
    from evenstride.lengths import LengthArray


def sample_lengths(dataset: Any, collate: Any, *, column: str, field: str) -> LengthArray:
    """Return the tokens of each sample once `collate` has cut it.

    Those of a RaggedDataset are known. Of a Hugging Face data set a column is read, without an
    object of Python for a row; of any other, all samples are.

    Parameters
    ----------
    dataset : map-style data set
        Its samples are mappings, if it is neither of those.
    collate : callable
        A PadCollator with a ``max_length`` cuts.
    column : str
        The column of a Hugging Face data set that holds lengths, if it has such a column.
    field : str
        What lengths are counted of, if there is none.

    Raises
    ------
    TypeError
        If the data set cannot be read in any order, or has no such field.

    """
    is_map_style = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
    if not is_map_style or isinstance(dataset, IterableDataset):
        msg = (
            "`train_dataset` must be a map-style data set with a length, whose samples can be read "
            f"in any order, but is of type {type(dataset).__name__}."
        )
        raise TypeError(msg)
    dataset = as_ragged(dataset)
    if is_native(dataset, collate):
        lengths: LengthArray = collate.bound_to(dataset).lengths()
        return lengths
    lengths = _whole_lengths(dataset, column, field)
    if isinstance(collate, PadCollator) and collate.max_length is not None:
        return np.minimum(lengths, collate.max_length)
    return lengths


def _whole_lengths(dataset: Any, column: str, field: str) -> LengthArray:
    if isinstance(dataset, RaggedDataset) and dataset.has_plain_rows:
        return dataset.lengths
    datasets = sys.modules.get("datasets")
    if datasets is not None and isinstance(dataset, datasets.Dataset):
        if column in dataset.column_names:
            return column_lengths(dataset, column)
        # Where rows are made on the fly, no column is what they will be.
        if field in dataset.column_names and dataset.format["type"] != "custom":
            return column_lengths(dataset, field)
    return as_lengths([_length(dataset[i], i, field) for i in range(len(dataset))])


def _length(sample: Any, index: int, field: str) -> int:
    try:
        return len(sample[field])
    except (IndexError, KeyError, TypeError):
        msg = (
            f"`train_dataset[{index}]` must be a mapping with {field!r}, of which the length is "
            f"taken, but is of type {type(sample).__name__}; pass `lengths=` to give them."
        )
        raise TypeError(msg) from None
