"""Lengths where they lie, as pieces that threads read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenstride.arrow_chunks import ChunkReader
from evenstride.arrow_files import is_parquet, open_parquet, parquet_batches, read_arrow
from evenstride.columns import Chunk
from evenstride.sources_arrow import column_kind, column_lengths, index_rows, lengths_in
from evenstride.sources_megatron import index_path, megatron_lengths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from evenstride.arrow_chunks import Kind
    from evenstride.columns import ColumnArrays
    from evenstride.lengths import LengthArray

__all__ = [
    "LengthSource",
    "Piece",
    "array_source",
    "arrow_source",
    "megatron_source",
    "saved_source",
]

_PIECE_ROWS = 1 << 22
_ARROW_PIECE_ROWS = 1 << 20  # Of which each batch of rows, often a thousand, has a cost of its own.
_BATCH_CELLS = 1 << 21
_BATCH_ROWS = 1 << 16


@dataclass(frozen=True)
class Piece:
    """Lengths that a thread reads at a time, some of them at once."""

    num_rows: int
    read: Callable[[], Iterator[NDArray[Any]]]


@dataclass(frozen=True)
class LengthSource:
    """The lengths in a file or folder: pieces, one after the other.

    Attributes
    ----------
    path : Path
        The file or folder.
    pieces : tuple of Piece
        What is to be read.
    column : str
        Which column it is, in words; empty where there are no columns.
    array : ndarray of int, optional
        All of them, where they lie so already.

    """

    path: Path
    pieces: tuple[Piece, ...]
    column: str = ""
    array: LengthArray | None = None

    @property
    def num_rows(self) -> int:
        """How many lengths there are."""
        return sum(piece.num_rows for piece in self.pieces)


def array_source(path: Path, lengths: LengthArray) -> LengthSource:
    """Return lengths that are an array, in memory or in a file."""
    num_rows = lengths.shape[0] if lengths.ndim > 0 else 1
    pieces = _pieces(num_rows, _PIECE_ROWS, partial(_slice, path, lengths))
    return LengthSource(path, pieces, array=lengths)


def megatron_source(path: Path) -> LengthSource:
    """Return the lengths that an .idx file of Megatron lists.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is not a whole file of this format.

    """
    return replace(array_source(Path(index_path(path)), megatron_lengths(path)), array=None)


def saved_source(path: Path, arrays: ColumnArrays) -> LengthSource:
    """Return the lengths of a ragged field of one chunk, of which only the offsets are read."""
    (chunk,) = arrays.chunks
    pieces = _pieces(arrays.num_rows, _PIECE_ROWS, partial(_offsets_slice, arrays, chunk))
    return LengthSource(path, pieces, f"the lists `{arrays.name}`")


def arrow_source(path: Path, column: str) -> LengthSource:
    """Return the lengths in a Parquet or Arrow file, or in a folder that `save_to_disk` wrote.

    Of a Parquet file, some rows of a row group are decoded at a time: pyarrow has no way to the
    lengths of lists but with their values. Of the others, only the offsets are read.

    Raises
    ------
    ImportError
        If pyarrow is missing.
    TypeError
        If the column holds neither lists nor integers.
    ValueError
        If there is no such column, or the file is not whole. What is wrong with a row is said when
        it is read.

    """
    if not is_parquet(path):
        return _mapped_source(path, column)
    with open_parquet(path) as opened:
        kind = column_kind(opened.schema_arrow, column, str(path))
        found = _ParquetColumn(path, column, kind, opened.metadata)
    pieces: list[Piece] = []
    first_row = 0
    for group in range(found.metadata.num_row_groups):
        num_rows = found.metadata.row_group(group).num_rows
        pieces.append(Piece(num_rows, partial(found.group, group, first_row)))
        first_row += num_rows
    return LengthSource(path, tuple(pieces), _described(column, kind))


def _mapped_source(path: Path, column: str) -> LengthSource:
    table, indices = read_arrow(path, column)
    kind = column_kind(table.schema, column, str(path))
    if indices is not None:
        rows = index_rows(indices, table.num_rows)
        pieces: tuple[Piece, ...] = (Piece(len(rows), partial(_whole, path, column)),)
    else:
        chunks = table.column(table.schema.get_field_index(column))
        found = _ArrowColumn(path, column, kind, chunks)
        pieces = _pieces(table.num_rows, _ARROW_PIECE_ROWS, found.rows)
    return LengthSource(path, pieces, _described(column, kind))


def _described(column: str, kind: Kind) -> str:
    is_list = kind.bounds is not None or bool(kind.shape)
    return f"the {'lists' if is_list else 'integers'} `{column}`"


def _pieces(
    num_rows: int, piece_rows: int, read: Callable[[int, int], Iterator[NDArray[Any]]]
) -> tuple[Piece, ...]:
    bounds = [*range(0, num_rows, piece_rows), num_rows]
    return tuple(Piece(end - begin, partial(read, begin, end)) for begin, end in pairwise(bounds))


def _slice(path: Path, lengths: LengthArray, begin: int, end: int) -> Iterator[NDArray[Any]]:
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu":
        msg = (
            f"`{path}` must hold integers in 1 dimension, but has dtype {lengths.dtype} and shape "
            f"{lengths.shape}."
        )
        raise TypeError(msg)
    yield lengths[begin:end]


def _offsets_slice(
    arrays: ColumnArrays, chunk: Chunk, begin: int, end: int
) -> Iterator[NDArray[Any]]:
    offsets = None if chunk.offsets is None else chunk.offsets[begin : end + 1]
    try:
        yield lengths_in(replace(arrays, chunks=(Chunk(chunk.values, offsets),)))
    except ValueError:
        lengths_in(arrays)  # Which says which row of all it is.
        raise


@dataclass(frozen=True)
class _ParquetColumn:
    path: Path
    name: str
    kind: Kind
    metadata: Any

    def group(self, group: int, first_row: int) -> Iterator[NDArray[Any]]:
        """Yield the lengths in a row group, whose first row is the file's `first_row`."""
        found = self.metadata.row_group(group)
        leaves = (found.column(place) for place in range(found.num_columns))
        cells = sum(leaf.num_values for leaf in leaves if _is_of(self.name, leaf.path_in_schema))
        num_rows = max(1, min(_BATCH_ROWS, _BATCH_CELLS * found.num_rows // max(1, cells)))
        reader = ChunkReader(self.name, str(self.path), self.kind, first_row=first_row)
        with open_parquet(self.path, self.metadata) as opened:
            for array in parquet_batches(self.path, opened, self.name, group, num_rows):
                yield lengths_in(reader.arrays([array]))


def _is_of(column: str, leaf: str) -> bool:
    return leaf == column or leaf.startswith(f"{column}.")


@dataclass(frozen=True)
class _ArrowColumn:
    path: Path
    name: str
    kind: Kind
    chunks: Any

    def rows(self, begin: int, end: int) -> Iterator[NDArray[Any]]:
        """Yield the lengths in the rows [begin, end)."""
        try:
            reader = ChunkReader(self.name, str(self.path), self.kind)
            yield lengths_in(reader.arrays(self.chunks.slice(begin, end - begin).chunks))
        except ValueError:
            column_lengths(self.path, self.name)  # As above.
            raise


def _whole(path: Path, column: str) -> Iterator[NDArray[Any]]:
    yield column_lengths(path, column)
