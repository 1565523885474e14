"""Indices as users give them, as row numbers."""

from __future__ import annotations

import operator
import sys
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def is_single(index: Any) -> bool:
    """Return whether this is one integer, rather than several."""
    return hasattr(index, "__index__") and not getattr(index, "shape", ())


def as_row(index: SupportsIndex, num_rows: int) -> int:
    """Return the number of a row, which counts from the end if `index` is negative."""
    row = operator.index(index)
    if not -num_rows <= row < num_rows:
        raise _outside(num_rows, "index", row)
    return row + num_rows if row < 0 else row


def as_rows(indices: Any, num_rows: int) -> NDArray[np.int64]:
    """Return the numbers of the rows that a slice, mask, or sequence of integers picks.

    Raises
    ------
    IndexError
        If one is outside ``[-num_rows, num_rows)``, or a mask has not one entry a row.
    TypeError
        If it is something else.

    """
    if isinstance(indices, slice):
        return np.arange(*indices.indices(num_rows))
    if isinstance(indices, range):
        array = np.arange(indices.start, indices.stop, indices.step)
    else:
        array = _as_array(indices)
    if array.dtype == np.bool_:
        if len(array) != num_rows:
            msg = f"A mask must have an entry for each of {num_rows} rows, but has {len(array)}."
            raise IndexError(msg)
        return np.flatnonzero(array)
    is_outside = (array >= num_rows) | (array < -num_rows)
    if is_outside.any():
        place = int(is_outside.argmax())
        raise _outside(num_rows, f"indices[{place}]", int(array[place]))
    rows = array.astype(np.int64)  # A copy: what is given may change.
    rows[rows < 0] += num_rows
    return rows


def _as_array(indices: Any) -> NDArray[Any]:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(indices, torch.Tensor):
        indices = indices.detach().cpu().numpy()
    try:
        array = np.asarray(indices)
    except (TypeError, ValueError, OverflowError):
        array = np.empty((), object)
    if array.shape == (0,) and not isinstance(indices, np.ndarray):
        array = array.astype(np.int64)  # An empty list has no integers that could tell its type.
    if array.ndim != 1 or array.dtype.kind not in "biu":
        msg = (
            "An index must be an integer, a slice, or a 1-dimensional sequence of integers or "
            f"bools, but is {indices!r}."
        )
        raise TypeError(msg)
    return array


def _outside(num_rows: int, name: str, row: int) -> IndexError:
    return IndexError(f"`{name}` must be in [-{num_rows}, {num_rows}), but is {row}.")
