"""Rows of a :class:`RaggedDataset`, as tensors that are made when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

import numpy as np
import torch

from evenstride.columns import RAW_TYPES
from evenstride.indices import as_row

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evenstride import _core
    from evenstride.dataset import RaggedDataset

_END = 2**63


class RaggedRows(Sequence[dict[str, torch.Tensor]]):
    """Some rows of a :class:`RaggedDataset`, each made when it is asked for.

    Attributes
    ----------
    dataset : RaggedDataset
    indices : list of int or ndarray of int64
        Which rows of `dataset`; negative ones count from the end.

    """

    def __init__(self, dataset: RaggedDataset, indices: list[int] | NDArray[np.int64]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __len__(self) -> int:
        """Return how many rows there are."""
        return len(self.indices)

    @overload
    def __getitem__(self, index: SupportsIndex) -> dict[str, torch.Tensor]: ...

    @overload
    def __getitem__(self, index: slice) -> RaggedRows: ...

    def __getitem__(self, index: Any) -> Any:
        """Return a row, or fewer rows."""
        if isinstance(index, slice):
            return RaggedRows(self.dataset, self.indices[index])
        return self.dataset[self.indices[as_row(index, len(self))]]

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        """Make the rows, one after the other."""
        # Not as a Sequence does, to which an index that is outside would be the end.
        return map(self.dataset.__getitem__, self.indices)

    def __repr__(self) -> str:
        return f"RaggedRows({len(self)} of {self.dataset!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the rows themselves, as tensors: not all of the data set for a few of them."""
        return list, (list(self),)


def row_tensor(column: _core.Column, row: int) -> torch.Tensor:
    """Return a row of a column, copied, in the type in which values come out.

    Raises
    ------
    ValueError
        If an unsigned integer is beyond int64.

    """
    values = column.row(row)
    if column.dtype == "bool":
        tensor = torch.from_numpy(values.view(np.uint8) != 0)
    elif column.dtype == "bfloat16":
        tensor = torch.from_numpy(values.view(np.int16).copy()).view(torch.bfloat16)
    elif RAW_TYPES[column.dtype].kind == "f":
        tensor = torch.from_numpy(values.copy())
    else:
        if column.dtype == "uint64" and values.size and values.max() >= _END:
            msg = (
                f"`{column.name}`, row {row}, must hold integers below 2**63, but holds "
                f"{values.max()}."
            )
            raise ValueError(msg)
        tensor = torch.from_numpy(values.astype(np.int64))
    shape = column.cell_shape
    if column.is_ragged:
        shape = (len(values) // column.cell_values, *shape)
    return tensor.reshape(shape)
