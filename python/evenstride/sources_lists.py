"""Fields from rows that are Python lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evenstride.columns import Chunk, ColumnArrays, as_row, check_names, converted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evenstride.columns import Opened

_FIELD = "input_ids"
_END = 2**63


def open_lists(rows: Any, float_type: str) -> Opened:
    """Return the fields of rows: see `RaggedDataset.from_lists`.

    Integers become int64 and the floats of Python `float_type`; other floats stay what they are.
    """
    is_sequence = isinstance(rows, Sequence) and not isinstance(rows, (str, bytes))
    if not is_sequence and not getattr(rows, "shape", ()):
        msg = f"`rows` must be a sequence of dicts or of lists, but is {rows!r}."
        raise TypeError(msg)
    if len(rows) == 0:
        msg = "`rows` must have at least 1 row, which says what the fields are, but has 0."
        raise ValueError(msg)
    first = rows[0]
    if not isinstance(first, Mapping):
        column = _column(_FIELD, rows, float_type)
        if not column.is_ragged:
            msg = f"`rows` must be a sequence of dicts or of lists, but has a row {first!r}."
            raise TypeError(msg)
        return {_FIELD: column}, None
    check_names(first)
    for place, row in enumerate(rows):
        if not isinstance(row, Mapping):
            msg = f"All rows must be dicts, as row 0 is, but row {place} is {row!r}."
            raise TypeError(msg)
        if row.keys() != first.keys():
            msg = f"All rows must have the keys {list(first)}, but row {place} has {list(row)}."
            raise ValueError(msg)
    return {name: _column(name, [row[name] for row in rows], float_type) for name in first}, None


def _column(name: str, rows: Any, float_type: str) -> ColumnArrays:
    read = [_as_row(f"{name}[{place}]", row, float_type) for place, row in enumerate(rows)]
    # An empty list has no numbers that could tell their type or shape.
    known = [row for row in read if _is_telling(row[0])] or read[:1]
    first = known[0][0]
    for place, (array, _) in enumerate(read):
        has_shape = array.shape[1:] == first.shape[1:] or not _is_telling(array)
        if (array.ndim == 0) != (first.ndim == 0) or not has_shape:
            msg = (
                f"`{name}[{place}]` must be {_described(first)}, as other rows are, but is "
                f"{_described(array)}."
            )
            raise ValueError(msg)
    dtype = _common_type(name, {dtype for _, dtype in known})
    values = [converted(*row, dtype) for row in known]
    if first.ndim == 0:
        return ColumnArrays(name, "", dtype, (), False, (Chunk(np.stack(values)),))
    offsets = np.zeros(len(read) + 1, np.int64)
    np.cumsum([len(array) for array, _ in read], out=offsets[1:])
    chunk = Chunk(np.concatenate(values), offsets)
    return ColumnArrays(name, "", dtype, first.shape[1:], True, (chunk,))


def _as_row(described: str, row: Any, float_type: str) -> tuple[NDArray[Any], str]:
    """Return a row, and its type once it is a field of its own."""
    array, dtype = as_row(described, row)
    if dtype == "float64" and not hasattr(row, "dtype"):
        if array.ndim == 1 and all(isinstance(number, int) for number in row):
            # What numpy makes of integers if none of its integer types holds all of them.
            raise _too_large(described, max(row, key=abs))
        array, dtype = converted(array, dtype, float_type), float_type
    elif dtype != "bool" and "int" in dtype:
        if dtype == "uint64" and array.size and array.max() >= _END:
            raise _too_large(described, array.max())
        array, dtype = array.astype(np.int64), "int64"
    return array, dtype


def _is_telling(array: NDArray[Any]) -> bool:
    return array.ndim == 0 or len(array) > 0


def _common_type(name: str, dtypes: set[str]) -> str:
    floats = sorted(dtype for dtype in dtypes if "float" in dtype)
    if len(floats) > 1:
        msg = f"`{name}` must have floats of one type, but has {' and '.join(floats)}."
        raise TypeError(msg)
    if floats:
        return floats[0]
    return "bool" if dtypes == {"bool"} else "int64"


def _described(array: NDArray[Any]) -> str:
    if array.ndim == 0:
        return "a number"
    return f"a list of cells of shape {array.shape[1:]}" if array.ndim > 1 else "a list of numbers"


def _too_large(described: str, value: object) -> ValueError:
    return ValueError(f"`{described}` must hold integers in [-2**63, 2**63), but holds {value}.")
