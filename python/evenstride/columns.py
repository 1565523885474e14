"""The arrays that the fields of a data set lie in, for columns that read them in place."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from evenstride import _core
from evenstride.lengths import pack_lengths, unpack_lengths

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

_INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
RAW_TYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(name) for name in ("bool", *_INTEGERS, "float16", "float32", "float64")
} | {"bfloat16": np.dtype(np.uint16)}
"""The types that values can have, and as what numpy sees them."""

_BFLOAT16_INF = 0x7F80
_END = 2**63
_OFFSET_TYPES = {np.dtype(name) for name in ("int32", "uint32", "int64", "uint64")}


Layout: TypeAlias = "tuple[str, tuple[int | None, ...]]"
"""The type of a field's values, and the shape of its rows, whose first entry is None if ragged."""


@dataclass(frozen=True)
class Chunk:
    """A run of cells, and the bounds of the rows in it: one cell a row if there are none."""

    values: NDArray[Any]
    offsets: NDArray[Any] | None = None
    starts: NDArray[Any] | None = None
    lengths: NDArray[Any] | None = None
    start_bytes: int = 0

    @property
    def num_rows(self) -> int:
        """How many rows it has."""
        if self.offsets is not None:
            return len(self.offsets) - 1
        return len(self.values if self.starts is None else self.starts)

    def pack(self) -> Chunk:
        """Return what to pickle: memmaps as their place in a file, else only cells in use."""
        chunk = self
        values = pack_lengths(self.values)
        if self.offsets is not None and isinstance(values, np.ndarray):
            first, last = int(self.offsets[0]), int(self.offsets[-1])
            chunk = replace(self, offsets=self.offsets - self.offsets[0])
            values = values[first:last]
        return _mapped(chunk, pack_lengths, values)

    def unpack(self) -> Chunk:
        """Return the chunk that was packed."""
        return _mapped(self, unpack_lengths, unpack_lengths(self.values))


def _mapped(chunk: Chunk, function: Any, values: Any) -> Chunk:
    bounds = {name: getattr(chunk, name) for name in ("offsets", "starts", "lengths")}
    given = {name: function(array) for name, array in bounds.items() if array is not None}
    return replace(chunk, values=values, **given)


@dataclass(frozen=True)
class ColumnArrays:
    """What a column refers to: chunks of cells of one type and shape.

    `origin` says in errors where they are from, and may be empty. A field has one value of `shape`
    a row, unless it is ragged: then its rows have any number of cells of `shape`.
    """

    name: str
    origin: str
    dtype: str
    shape: tuple[int, ...]
    is_ragged: bool
    chunks: tuple[Chunk, ...]

    @property
    def layout(self) -> Layout:
        """The type of the values, and the shape of a row."""
        return self.dtype, (None, *self.shape) if self.is_ragged else self.shape

    @property
    def num_rows(self) -> int:
        """How many rows the chunks have."""
        return sum(chunk.num_rows for chunk in self.chunks)

    def column(self) -> _core.Column:
        """Return the column, whose bounds have all been checked.

        Raises
        ------
        ValueError
            If a row is not inside the values.

        """
        column = _core.Column(self.name, self.origin, self.dtype, self.shape, self.is_ragged)
        for chunk in self.chunks:
            if chunk.offsets is not None:
                column.append_offsets(chunk.values, chunk.offsets)
            elif chunk.starts is not None and chunk.lengths is not None:
                column.append_ranges(chunk.values, chunk.starts, chunk.lengths, chunk.start_bytes)
            else:
                column.append_rows(chunk.values)
        return column

    def pack(self) -> ColumnArrays:
        """Return what to pickle."""
        return replace(self, chunks=tuple(chunk.pack() for chunk in self.chunks))

    def unpack(self) -> ColumnArrays:
        """Return the arrays that were packed."""
        return replace(self, chunks=tuple(chunk.unpack() for chunk in self.chunks))


Opened: TypeAlias = "tuple[dict[str, ColumnArrays], NDArray[np.int64] | None]"
"""The fields of a source, and which of their rows it has, in order; None for all of them."""


def as_column(name: str, field: Any) -> ColumnArrays:
    """Return the arrays of a field as users give it.

    A tuple of values and offsets, or a list of such tuples, is ragged; anything else is values, one
    a row. Nothing is copied that can be viewed.

    Raises
    ------
    TypeError
        If values or offsets are of another kind.
    ValueError
        If tuples are not pairs, or chunks differ in type or shape.

    """
    pairs = [field] if isinstance(field, tuple) else field
    is_ragged = isinstance(pairs, list) and bool(pairs) and isinstance(pairs[0], tuple)
    if not is_ragged:
        values, dtype = as_values(name, field)
        return ColumnArrays(name, "", dtype, values.shape[1:], False, (Chunk(values),))
    chunks, kinds = [], []
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:  # noqa: PLR2004 - As it says.
            msg = f"`{name}` must be tuples (values, offsets), but has {_shown(pair)}."
            raise TypeError(msg)
        values, dtype = as_values(name, pair[0])
        chunks.append(Chunk(values, as_offsets(name, pair[1])))
        kinds.append((dtype, values.shape[1:]))
        if kinds[-1] != kinds[0]:
            msg = (
                f"All chunks of `{name}` must have cells of one type and shape, but have "
                f"{_described(kinds[0])} and {_described(kinds[-1])}."
            )
            raise ValueError(msg)
    return ColumnArrays(name, "", *kinds[0], True, tuple(chunks))


def _shown(pair: Any) -> str:
    return (
        f"a tuple of {len(pair)}"
        if isinstance(pair, tuple)
        else f"one of type {type(pair).__name__}"
    )


def _described(kind: tuple[str, tuple[int, ...]]) -> str:
    return f"{kind[0]} {kind[1]}"


def as_values(name: str, values: Any) -> tuple[NDArray[Any], str]:
    """View `values` as a C-contiguous array of at least one dimension; return it and its type."""
    array = _as_array(f"`{name}`", values)
    dtype = array.dtype.name
    if dtype == "bfloat16" and array.dtype.itemsize == RAW_TYPES[dtype].itemsize:
        array = array.view(np.uint16)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(values, torch.Tensor) and values.dtype == torch.bfloat16:
        dtype = "bfloat16"
    if dtype not in RAW_TYPES:
        msg = (
            f"`{name}` must hold bools, integers, or floats of 16, 32 or 64 bits, but has dtype "
            f"{array.dtype}."
        )
        raise TypeError(msg)
    if array.ndim == 0:
        msg = f"`{name}` must be an array of at least 1 dimension, but is {array}."
        raise TypeError(msg)
    return np.require(array, RAW_TYPES[dtype], ["C"]), dtype


def as_row(described: str, row: Any) -> tuple[NDArray[Any], str]:
    """View a row that may be one number, which has no dimension; return it and its type."""
    if isinstance(row, (int, float)):
        row = np.asarray(row)
    if getattr(row, "ndim", None) != 0:
        return as_values(described, row)
    array, dtype = as_values(described, row.reshape(1))
    return array.reshape(()), dtype


def as_offsets(name: str, offsets: Any) -> NDArray[Any]:
    """View `offsets` as a 1-dimensional array of 32- or 64-bit integers, at any alignment."""
    array = _as_array(f"The offsets of `{name}`", offsets)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        msg = (
            f"The offsets of `{name}` must be integers in 1 dimension, but have dtype "
            f"{array.dtype} and shape {array.shape}."
        )
        raise TypeError(msg)
    if array.size == 0:
        msg = f"The offsets of `{name}` must be one more than there are rows, but are 0."
        raise ValueError(msg)
    dtype = array.dtype.newbyteorder("=")
    return np.require(array, dtype if dtype in _OFFSET_TYPES else np.int64, ["C"])


def _as_array(described: str, values: Any) -> NDArray[Any]:
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        msg = f"{described} must not be masked, but {np.ma.getmaskarray(values).sum()} values are."
        raise ValueError(msg)
    if isinstance(values, np.ndarray):
        return values
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(values, torch.Tensor):
        tensor = values.detach().cpu()
        if tensor.dtype == torch.bfloat16:
            tensor = tensor.view(torch.int16)
        try:
            return np.asarray(tensor.numpy())
        except TypeError as error:  # Sparse, or of a type that numpy has not.
            msg = f"{described} must be a dense tensor of numbers, but torch says: {error}"
            raise TypeError(msg) from error
    pyarrow = sys.modules.get("pyarrow")
    if pyarrow is not None and isinstance(values, (pyarrow.Array, pyarrow.ChunkedArray)):
        if values.null_count > 0:
            place = values.is_null().to_pylist().index(True)
            msg = f"{described} must have no nulls, but value {place} is null."
            raise ValueError(msg)
        return np.asarray(values.to_numpy(**_zero_copy(pyarrow, values)))
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, OverflowError) as error:
        msg = f"{described} must be an array of numbers, but numpy says: {error}"
        raise TypeError(msg) from error
    return array.astype(np.int64) if array.size == 0 else array


def _zero_copy(pyarrow: Any, values: Any) -> dict[str, bool]:
    return {} if isinstance(values, pyarrow.ChunkedArray) else {"zero_copy_only": False}


def converted(place: str, values: NDArray[Any], dtype: str, to: str) -> NDArray[Any]:
    """Return raw values of one type as those of another, floats to the nearest.

    Raises
    ------
    ValueError
        If a number is beyond the range of a type of floats, or of int64; the message says that it
        is at `place`. The other types of integers are not checked.

    """
    if dtype == to:
        return values
    if dtype == "uint64" and to == "int64" and values.size and values.max() >= _END:
        msg = f"`{place}` must hold integers below 2**63, but holds {values.max()}."
        raise ValueError(msg)
    if dtype == "bfloat16":
        values = (values.astype(np.uint32) << 16).view(np.float32)
    if "float" not in to:
        return values.astype(RAW_TYPES[to])
    with np.errstate(over="ignore"):
        result = _as_bfloat16(values) if to == "bfloat16" else values.astype(RAW_TYPES[to])
    is_infinite = (result & 0x7FFF) == _BFLOAT16_INF if to == "bfloat16" else np.isinf(result)
    lost = is_infinite & np.isfinite(values)
    if lost.any():
        msg = f"`{place}` must be in the range of {to}, but holds {values[lost][0]}."
        raise ValueError(msg)
    return result


def _as_bfloat16(values: NDArray[Any]) -> NDArray[np.uint16]:
    bits = values.astype(np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16  # To nearest, ties to even.
    quiet = (bits >> 16) | 0x40  # What is no number must not be rounded to infinity.
    return np.where(np.isnan(values), quiet, rounded).astype(np.uint16)


def check_rows(columns: Mapping[str, _core.Column]) -> int:
    """Return the number of rows, or say which fields differ in it."""
    if not columns:
        msg = "A data set must have at least 1 field, but has 0."
        raise ValueError(msg)
    first, *others = columns.items()
    for name, column in others:
        if column.num_rows != first[1].num_rows:
            msg = (
                f"All fields must have equally many rows, but `{first[0]}` has "
                f"{first[1].num_rows} and `{name}` has {column.num_rows}."
            )
            raise ValueError(msg)
    return int(first[1].num_rows)


def check_names(names: Iterable[Any]) -> None:
    """Say which name of a field is not a string, or none that UTF-8 has."""
    for name in names:
        if not isinstance(name, str):
            msg = f"The names of fields must be strings, but one is {name!r}."
            raise TypeError(msg)
        if any("\ud800" <= letter <= "\udfff" for letter in name):
            msg = f"The names of fields must be text without surrogates, but one is {name!r}."
            raise ValueError(msg)
