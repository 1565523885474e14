"""The lengths of a training set, from whatever kind of data set a ``Trainer`` is given."""

from __future__ import annotations

import sys
from collections.abc import Mapping
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
    from collections.abc import Callable

    from evenstride.lengths import LengthArray


class SampleLengths:
    """Finds the lengths of data sets, and keeps the last: a data set is read once, not each time.

    Those of a RaggedDataset are known. Of a Hugging Face data set a column is read, without an
    object of Python for a row; of any other, all samples are.

    Parameters
    ----------
    column : str
        The column of a Hugging Face data set that holds lengths, if it has such a column.
    field : str
        What lengths are counted of, if there is none.

    """

    def __init__(self, *, column: str, field: str) -> None:
        self._column = column
        self._field = field
        self._last: tuple[Any, int, Any, LengthArray] | None = None

    def of(self, dataset: Any, collate: Any, given: Any = None) -> LengthArray:
        """Return the tokens of each sample once `collate` has cut it.

        Parameters
        ----------
        dataset : map-style data set
            Its samples are mappings, if it is of neither kind that is known.
        collate : callable
            A PadCollator with a ``max_length`` cuts.
        given : array_like of int, shape (n_samples,), or callable, optional
            What counts instead: the lengths, or what returns those of a data set.

        Raises
        ------
        TypeError
            If the data set cannot be read in any order, or has no such field.

        """
        is_map_style = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
        if not is_map_style or isinstance(dataset, IterableDataset):
            msg = (
                "`train_dataset` must be a map-style data set with a length, whose samples can be "
                f"read in any order, but is of type {type(dataset).__name__}."
            )
            raise TypeError(msg)
        if given is not None:
            return self._once(dataset, given) if callable(given) else as_lengths(given)
        rows = as_ragged(dataset)
        if is_native(rows, collate):
            lengths: LengthArray = collate.bound_to(rows).lengths()
            return lengths
        lengths = self._once(dataset, self._whole_lengths)
        if isinstance(collate, PadCollator) and collate.max_length is not None:
            return np.minimum(lengths, collate.max_length)
        return lengths

    def _once(self, dataset: Any, read: Callable[[Any], Any]) -> LengthArray:
        last = self._last
        if last is None or last[0] is not dataset or last[1:3] != (len(dataset), read):
            last = self._last = dataset, len(dataset), read, as_lengths(read(dataset))
        return last[3]

    def _whole_lengths(self, dataset: Any) -> LengthArray:
        dataset = as_ragged(dataset)
        if isinstance(dataset, RaggedDataset) and dataset.has_plain_rows:
            return dataset.lengths
        datasets = sys.modules.get("datasets")
        if datasets is not None and isinstance(dataset, datasets.Dataset):
            if self._column in dataset.column_names:
                return column_lengths(dataset, self._column)
            # Where rows are made on the fly, no column is what they will be.
            if self._field in dataset.column_names and dataset.format["type"] != "custom":
                return column_lengths(dataset, self._field)
        return as_lengths([_length(dataset[i], i, self._field) for i in range(len(dataset))])


def _length(sample: Any, index: int, field: str) -> int:
    try:
        return len(sample[field])
    except (IndexError, KeyError, TypeError):
        found = f"is of type {type(sample).__name__}"
        if isinstance(sample, Mapping) and field not in sample:
            found = f"has only {', '.join(map(repr, sample))}"
        msg = (
            f"`train_dataset[{index}]` must be a mapping with {field!r}, of which the length is "
            f"taken, but {found}; pass `lengths=` to give them."
        )
        raise TypeError(msg) from None
