"""Columns of Arrow as arrays that view their buffers, with nothing trusted but the types."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from evenstride.columns import RAW_TYPES, Chunk, ColumnArrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

_VALUE_TYPES = {name: name for name in RAW_TYPES if name[:3] in {"boo", "int", "uin"}}
_VALUE_TYPES |= {"halffloat": "float16", "float": "float32", "double": "float64"}
_BITS = 1 << 23  # A piece of a bitmap that is unpacked at a time.


@dataclass(frozen=True)
class Kind:
    """How the rows of an Arrow type lie in its buffers."""

    dtype: str
    shape: tuple[int, ...]
    bounds: np.dtype[Any] | None  # Of the offsets; None where a row is one value of `shape`.
    is_view: bool

    @property
    def cell_bytes(self) -> int:
        """Bytes of a cell, once bools are unpacked."""
        return math.prod(self.shape) * RAW_TYPES[self.dtype].itemsize


def kind_of(type_: Any) -> Kind | None:
    """Return how an Arrow type lies in memory; None for one that is no field of a data set."""
    import pyarrow.types as is_a  # noqa: PLC0415 - An extra, which whoever has a type has.

    bounds: np.dtype[Any] | None = None
    is_view = False
    if is_a.is_list(type_) or is_a.is_list_view(type_):
        bounds = np.dtype(np.int32)
    elif is_a.is_large_list(type_) or is_a.is_large_list_view(type_):
        bounds = np.dtype(np.int64)
    if bounds is not None:
        is_view = is_a.is_list_view(type_) or is_a.is_large_list_view(type_)
        type_ = type_.value_type
    shape: tuple[int, ...] = ()
    while is_a.is_fixed_size_list(type_):
        shape += (type_.list_size,)
        type_ = type_.value_type
    dtype = _VALUE_TYPES.get(str(type_))
    return None if dtype is None else Kind(dtype, shape, bounds, is_view)


class ChunkReader:
    """Reads the chunks of one column, as arrays that view Arrow's buffers; bools are unpacked.

    Bounds are not checked here, but by the column; nothing is read by them before.

    Raises
    ------
    ValueError
        If a row or a value in it is null, or a buffer is too small; the message names the row.

    """

    def __init__(self, name: str, origin: str, kind: Kind, *, first_row: int = 0) -> None:
        self._name = name
        self._origin = origin
        self._described = f"`{name}` of `{origin}`" if origin else f"`{name}`"
        self._kind = kind
        self._rows = first_row  # And then those of all chunks so far.

    def arrays(self, chunks: list[Any]) -> ColumnArrays:
        """Return the next chunks of the column, all of its kind."""
        kind = self._kind
        read = tuple(self._read(chunk) for chunk in chunks if len(chunk) > 0)
        is_ragged = kind.bounds is not None
        return ColumnArrays(self._name, self._origin, kind.dtype, kind.shape, is_ragged, read)

    def _read(self, array: Any) -> Chunk:
        self._refuse_nulls(_nulls(array, 0, len(array), self._described), "is null")
        if self._kind.bounds is None:
            self._refuse_nulls(_null_cells(array, 0, len(array), self._described), "has a null")
            chunk = Chunk(self._cells(array, 0, len(array)))
        elif self._kind.is_view:
            chunk = self._list_views(array)
        else:
            chunk = self._lists(array)
        self._rows += len(array)
        return chunk

    def _lists(self, array: Any) -> Chunk:
        offsets = self._bounds(array, 1, len(array) + 1)
        child = array.values
        begin, end = _within(len(child), int(offsets[0]), int(offsets[-1]))
        nulls = _null_cells(child, begin, end, self._described)
        if nulls is not None:
            row = int(np.searchsorted(offsets, begin + nulls.argmax(), side="right")) - 1
            self._refuse(row, "has a null")
        if self._kind.dtype == "bool":
            return Chunk(self._cells(child, begin, end), offsets - offsets.dtype.type(begin))
        return Chunk(self._cells(child, 0, len(child)), offsets)

    def _list_views(self, array: Any) -> Chunk:
        starts, sizes = (self._bounds(array, place, len(array)) for place in (1, 2))
        child = array.values
        begin, end = 0, len(child)
        used = sizes > 0
        if used.any():
            ends = starts[used].astype(np.int64) + sizes[used]
            begin, end = _within(len(child), int(starts[used].min()), int(ends.max()))
        nulls = _null_cells(child, begin, end, self._described)
        if nulls is not None:
            before = np.concatenate([[0], np.cumsum(nulls)])
            first = np.clip(starts.astype(np.int64) - begin, 0, len(nulls))
            last = np.clip(first + sizes, first, len(nulls))
            self._refuse_nulls(before[last] > before[first], "has a null")
        if self._kind.dtype == "bool":
            starts = np.where(used, starts - starts.dtype.type(begin), 0)
            values = self._cells(child, begin, end)
        else:
            values = self._cells(child, 0, len(child))
        return Chunk(values, starts=starts, lengths=sizes, start_bytes=self._kind.cell_bytes)

    def _bounds(self, array: Any, place: int, count: int) -> NDArray[Any]:
        dtype = np.dtype(self._kind.bounds)
        return _view(array.buffers()[place], dtype, array.offset, count, self._described)

    def _cells(self, array: Any, begin: int, end: int) -> NDArray[Any]:
        """View the cells [begin, end) of an array of values or of lists of fixed size."""
        count = end - begin
        for size in self._kind.shape:
            begin, end = (array.offset + begin) * size, (array.offset + end) * size
            array = array.values
        buffer = array.buffers()[1]
        begin, length = array.offset + begin, end - begin
        if self._kind.dtype == "bool":
            values = _unpacked(buffer, begin, length, self._described)
        else:
            dtype = RAW_TYPES[self._kind.dtype]
            values = _view(buffer, dtype, begin, length, self._described)
        return values.reshape(count, *self._kind.shape)

    def _refuse_nulls(self, nulls: NDArray[np.bool_] | None, what: str) -> None:
        if nulls is not None and nulls.any():
            self._refuse(int(nulls.argmax()), what)

    def _refuse(self, row: int, what: str) -> None:
        msg = f"{self._described} must have no nulls, but row {self._rows + row} {what}."
        raise ValueError(msg)


def _within(size: int, begin: int, end: int) -> tuple[int, int]:
    begin = min(max(begin, 0), size)
    return begin, min(max(end, begin), size)


def _null_cells(array: Any, begin: int, end: int, described: str) -> NDArray[np.bool_] | None:
    """Return which of the cells [begin, end) are null or have one, or None if there are none."""
    found = _nulls(array, begin, end, described)
    size = getattr(array.type, "list_size", None)
    if size:
        bounds = (array.offset + begin) * size, (array.offset + end) * size
        inside = _null_cells(array.values, *bounds, described)
        if inside is not None:
            cells: NDArray[np.bool_] = np.any(inside.reshape(-1, size), axis=1)
            found = cells if found is None else np.logical_or(found, cells)
    return found


def _nulls(array: Any, begin: int, end: int, described: str) -> NDArray[np.bool_] | None:
    bitmap = array.buffers()[0]
    begin, end = array.offset + begin, array.offset + end
    if bitmap is None or all(
        _unpacked(bitmap, place, min(_BITS, end - place), described).all()
        for place in range(begin, end, _BITS)
    ):
        return None
    return ~_unpacked(bitmap, begin, end - begin, described)


def _unpacked(buffer: Any, begin: int, count: int, described: str) -> NDArray[np.bool_]:
    first = begin // 8
    packed = _view(buffer, np.dtype(np.uint8), first, -(-(begin + count) // 8) - first, described)
    bits = np.unpackbits(packed, bitorder="little")
    return bits[begin - 8 * first :][:count].view(np.bool_)


def _view(
    buffer: Any, dtype: np.dtype[Any], begin: int, count: int, described: str
) -> NDArray[Any]:
    array = np.frombuffer(b"" if buffer is None else buffer, np.uint8)
    first, last = begin * dtype.itemsize, (begin + count) * dtype.itemsize
    if last > len(array):
        msg = f"{described} must have a buffer of at least {last} bytes, but it has {len(array)}."
        raise ValueError(msg)
    return array[first:last].view(dtype)
