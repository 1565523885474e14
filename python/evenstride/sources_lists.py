"""Fields from rows that are given one by one: Python lists, arrays, tensors or numbers."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from evenstride.columns import Chunk, ColumnArrays, as_row, check_names, converted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evenstride.columns import Opened

Row: TypeAlias = "tuple[NDArray[Any], str]"
"""The cells of a row, and their type."""

_FIELD = "input_ids"


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
    def place(row: int) -> str:
        return f"{name}[{row}]"

    read = [_read(place(number), row, float_type) for number, row in enumerate(rows)]
    return column_of_rows(name, read, place)


def _read(place: str, row: Any, float_type: str) -> Row:
    """Return the cells of a row and their type, once it is a field of its own."""
    cells, dtype = read_row(place, row, float_type)
    to = "int64" if "int" in dtype else dtype
    return converted(place, cells, dtype, to), to


def read_row(place: str, value: Any, float_type: str) -> Row:
    """Return the cells of a row, which have no dimension if it is one number, and their type.

    The floats of Python become `float_type`.

    Raises
    ------
    TypeError
        If the row holds no numbers.
    ValueError
        If a float is beyond the range of its type, or int64 and uint64 have not all integers.

    """
    cells, dtype = as_row(place, value)
    if dtype != "float64" or has_type(value):
        return cells, dtype
    if cells.ndim == 1 and all(isinstance(number, int) for number in value):
        # What numpy makes of integers if none of its integer types holds all of them.
        msg = (
            f"`{place}` must hold integers that int64 or uint64 holds, but holds {min(value)} and "
            f"{max(value)}."
        )
        raise ValueError(msg)
    return converted(place, cells, dtype, float_type), float_type


def has_type(value: Any) -> bool:
    """Whether numbers have a type of their own, unlike those of Python."""
    return hasattr(value, "dtype") or isinstance(value, (array, memoryview))


def column_of_rows(name: str, rows: Sequence[Row], place: Callable[[int], str]) -> ColumnArrays:
    """Return a field of rows, at least one; it is ragged unless they have no dimension.

    An empty row says nothing of type and shape: numpy calls [] float64.

    Parameters
    ----------
    name : str
        Of the field.
    rows : sequence of (ndarray, str)
        Their cells and types. Integers and bools become int64, and either the one type of floats
        that there is, unless all rows have one type.
    place : callable
        What to call a row in errors, given its number.

    Raises
    ------
    TypeError
        If some rows have a dimension and others do not, or they have several types of floats.
    ValueError
        If the cells of rows differ in shape, or a number is beyond the range of their type.

    """
    telling = [row for row in rows if _is_telling(row[0])] or rows[:1]
    expected = telling[0][0]
    for number, (cells, _) in enumerate(rows):
        _check_kind(place, number, cells, expected)
    dtype = _common_dtype(name, {dtype for _, dtype in telling})
    parts = [
        cells if given == dtype else converted(place(number), cells, given, dtype)
        for number, (cells, given) in enumerate(rows)
    ]
    if expected.ndim == 0:
        return ColumnArrays(name, "", dtype, (), False, (Chunk(np.stack(parts)),))
    full = [part for part in parts if len(part)] or parts[:1]
    return ragged_column(name, np.concatenate(full), dtype, [len(part) for part in parts])


def ragged_column(
    name: str, cells: NDArray[Any], dtype: str, lengths: Sequence[int]
) -> ColumnArrays:
    """Return a field of rows of these lengths, whose cells come one after the other."""
    chunk = Chunk(cells, np.cumsum([0, *lengths], dtype=np.int64))
    return ColumnArrays(name, "", dtype, cells.shape[1:], True, (chunk,))


def _is_telling(cells: NDArray[Any]) -> bool:
    return cells.ndim == 0 or len(cells) > 0


def _check_kind(
    place: Callable[[int], str], number: int, cells: NDArray[Any], expected: NDArray[Any]
) -> None:
    """Say what is wrong with a row whose cells are not like those of another row."""
    if (cells.ndim == 0) != (expected.ndim == 0):
        kinds = ("a sequence", "a single value")
        msg = (
            f"`{place(number)}` must be {kinds[expected.ndim == 0]}, as in other rows, but is "
            f"{kinds[cells.ndim == 0]}."
        )
        raise TypeError(msg)
    if cells.shape[1:] != expected.shape[1:] and len(cells):
        msg = (
            f"`{place(number)}` must have cells of shape {expected.shape[1:]}, as other rows have, "
            f"but has cells of shape {cells.shape[1:]}."
        )
        raise ValueError(msg)


def _common_dtype(name: str, dtypes: set[str]) -> str:
    if len(dtypes) == 1:
        return next(iter(dtypes))
    floats = sorted(dtype for dtype in dtypes if "float" in dtype)
    if len(floats) > 1:
        msg = f"The rows of `{name}` must be of one type, but are {' and '.join(floats)}."
        raise TypeError(msg)
    return floats[0] if floats else "int64"
