"""Fields from Arrow: tables, arrays, files, and Hugging Face data sets."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evenstride.arrow_chunks import ChunkReader, kind_of
from evenstride.arrow_files import (
    import_pyarrow,
    is_parquet,
    open_parquet,
    read_arrow,
    read_parquet,
)
from evenstride.columns import check_names

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evenstride.arrow_chunks import Kind
    from evenstride.columns import ColumnArrays, Opened
    from evenstride.lengths import LengthArray

_DEFAULT_FIELD = "input_ids"
_MOST_SHOWN = 20


def open_arrow(source: Any, columns: Any = None) -> Opened:
    """Return the fields of anything that holds Arrow columns: see `RaggedDataset.from_arrow`."""
    if isinstance(source, (str, os.PathLike)):
        return open_arrow_path(os.fspath(source), columns)
    pyarrow = import_pyarrow()
    if isinstance(source, pyarrow.RecordBatch):
        source = pyarrow.Table.from_batches([source])
    if is_arrow_array(source):
        name = _DEFAULT_FIELD if columns is None else columns
        if not isinstance(name, str):
            msg = f"`columns` must be the name of the one column that an array is, but is {name!r}."
            raise TypeError(msg)
        return {name: column_of(name, source)}, None
    if isinstance(source, pyarrow.Table):
        return _fields(source, columns, ""), None
    if is_hugging_face(source):
        return open_hugging_face(source.data, columns)[0], _mapping(source)
    raise _no_arrow(source)


def schema_of(source: Any) -> Any:
    """Return the schema of what :func:`open_arrow` takes and is no path.

    Raises
    ------
    ImportError
        If pyarrow is missing.
    TypeError
        If it holds no Arrow columns.

    """
    pyarrow = import_pyarrow()
    if is_arrow_array(source):
        return pyarrow.schema([(_DEFAULT_FIELD, source.type)])
    if isinstance(source, (pyarrow.Table, pyarrow.RecordBatch)):
        return source.schema
    if is_hugging_face(source):
        return source.data.table.schema
    raise _no_arrow(source)


def open_arrow_path(path: str, columns: Any = None) -> Opened:
    """Return the fields of a Parquet or Arrow file, or of a folder that `save_to_disk` wrote."""
    file = Path(path)
    if is_parquet(file):
        with open_parquet(file) as opened:
            names = opened.schema_arrow.names
            # Chosen before anything is decoded, of which there may be far more.
            chosen = _chosen(opened.schema_arrow, columns, path)
            wanted = {names[place] for place in chosen.values()}
            table = read_parquet(file, opened, sorted(wanted, key=names.index))
        return _fields(table, columns, path), None
    table, indices = read_arrow(file)
    rows = None if indices is None else index_rows(indices, table.num_rows)
    return _fields(table, columns, path), rows


def open_hugging_face(table: Any, columns: Any = None) -> Opened:
    """Return the fields of the table of a Hugging Face data set, without an indices mapping."""
    return _fields(table.table, columns, ""), None


def column_of(name: str, array: Any) -> ColumnArrays:
    """Return a pyarrow Array or ChunkedArray as a field."""
    chunks = array.chunks if hasattr(array, "chunks") else [array]
    return ChunkReader(name, "", _readable(name, array.type)).arrays(chunks)


def is_arrow_array(source: Any) -> bool:
    """Return whether this is a pyarrow Array or ChunkedArray."""
    pyarrow = sys.modules.get("pyarrow")
    return pyarrow is not None and isinstance(source, (pyarrow.Array, pyarrow.ChunkedArray))


def is_hugging_face(source: Any) -> bool:
    """Return whether this is a Hugging Face Dataset; refuse what that library has besides."""
    datasets = sys.modules.get("datasets")
    if datasets is None:
        return False
    if isinstance(source, (datasets.DatasetDict, datasets.IterableDatasetDict)):
        msg = f"`source` must be one split, but is a {type(source).__name__} of {_listed(source)}."
        raise TypeError(msg)
    if isinstance(source, datasets.IterableDataset):
        msg = (
            "`source` must be a Dataset, whose rows can be read in any order, but is an "
            "IterableDataset."
        )
        raise TypeError(msg)
    return isinstance(source, datasets.Dataset)


def is_mapped(table: Any) -> bool:
    """Return whether the table of a Hugging Face data set is pickled as paths alone."""
    blocks = getattr(table, "blocks", [[table]])
    return all(type(block).__name__ == "MemoryMappedTable" for row in blocks for block in row)


def column_lengths(source: Any, column: str) -> LengthArray:
    """Return the lengths in a column of anything that holds Arrow columns.

    Raises
    ------
    ImportError
        If pyarrow is missing.
    TypeError
        If the column holds neither lists nor integers.
    ValueError
        If there is no such column, a null in it, or a row outside its values; or the file is not
        whole.

    """
    found, rows = open_arrow(source, column)
    lengths = lengths_in(found[column])
    return lengths if rows is None else lengths[rows]


def lengths_in(arrays: ColumnArrays) -> NDArray[Any]:
    """Return the lengths of lists, or the integers that are lengths.

    Raises
    ------
    TypeError
        If these are neither.
    ValueError
        If a row is not inside the values.

    """
    if arrays.is_ragged:
        lengths: NDArray[Any] = arrays.column().lengths()
        return lengths
    if arrays.shape:
        return np.full(arrays.num_rows, arrays.shape[0], np.int32)
    if np.dtype(arrays.dtype).kind not in "iu":
        msg = f"`{arrays.name}` must hold lists or integers, but holds {arrays.dtype}."
        raise TypeError(msg)
    values = [chunk.values for chunk in arrays.chunks]
    return values[0] if len(values) == 1 else np.concatenate([*values, np.empty(0, np.int32)])


def _fields(table: Any, columns: Any, origin: str) -> dict[str, ColumnArrays]:
    found = {}
    for name, place in _chosen(table.schema, columns, origin).items():
        reader = ChunkReader(name, origin, _kind(table.schema, place))
        found[name] = reader.arrays(table.column(place).chunks)
    return found


def _kind(schema: Any, place: int) -> Kind:
    field = schema.field(place)
    return _readable(field.name, field.type)


def column_kind(schema: Any, column: str, origin: str) -> Kind:
    """Return how the rows of one column lie in memory.

    Raises
    ------
    TypeError
        If it is no field of a data set.
    ValueError
        If there is not just one of that name.

    """
    (place,) = _chosen(schema, column, origin).values()
    return _kind(schema, place)


def index_rows(table: Any, num_rows: int) -> NDArray[np.int64]:
    """Return the rows that an indices mapping of Hugging Face lists, all in [0, num_rows).

    Raises
    ------
    TypeError
        If these are no integers.
    ValueError
        If one is outside.

    """
    arrays = _fields(table, "indices", "")["indices"]
    values = [_as_int64(chunk.values) for chunk in arrays.chunks]
    rows = values[0] if len(values) == 1 else np.concatenate([np.empty(0, np.int64), *values])
    outside = (rows < 0) | (rows >= num_rows)
    if outside.any():
        place = int(outside.argmax())
        msg = f"`indices[{place}]` must be in [0, {num_rows}), but is {rows[place]}."
        raise ValueError(msg)
    return rows


def _chosen(schema: Any, columns: Any, origin: str) -> dict[str, int]:
    """Return the place in the schema of the column that each field is made from."""
    if columns is None:
        columns = [field.name for field in schema if kind_of(field.type) is not None]
        if not columns:
            msg = (
                f"`{origin or 'source'}` must have a column of integers, floats or bools, or of "
                f"lists of them, but has {_listed(schema.names) or 'none'}."
            )
            raise ValueError(msg)
    if isinstance(columns, str):
        columns = [columns]
    if not isinstance(columns, Iterable):
        msg = f"`columns` must be a name, names, or a mapping of fields to names, not {columns!r}."
        raise TypeError(msg)
    names = columns if isinstance(columns, Mapping) else {name: name for name in columns}
    check_names([*names, *names.values()])
    places = {}
    for field, name in names.items():
        found = schema.get_all_field_indices(name)
        if len(found) != 1:
            amount = "no column" if not found else "more than one column"
            msg = (
                f"`columns` must be among {_listed(schema.names)}, but there is {amount} named "
                f"{name!r}."
            )
            raise ValueError(msg)
        places[field] = found[0]
    return places


def _mapping(dataset: Any) -> NDArray[np.int64] | None:
    if dataset._indices is None:  # noqa: SLF001 - There is no public name for it.
        return None
    return index_rows(dataset._indices.table, dataset.data.num_rows)  # noqa: SLF001


def _no_arrow(source: Any) -> TypeError:
    return TypeError(
        "`source` must be a pyarrow Table, RecordBatch, array, a path, or a Hugging Face Dataset, "
        f"but is of type {type(source).__name__}."
    )


def _as_int64(values: NDArray[Any]) -> NDArray[np.int64]:
    if values.dtype.kind not in "iu":
        msg = f"`indices` must hold integers, but have dtype {values.dtype}."
        raise TypeError(msg)
    # What does not fit is negative in the view, and so outside the rows.
    is_alike = values.dtype.itemsize == np.dtype(np.int64).itemsize and values.flags.aligned
    return values.view(np.int64) if is_alike else np.require(values, np.int64, ["C", "A"])


def _readable(name: str, type_: Any) -> Kind:
    kind = kind_of(type_)
    if kind is None:
        msg = (
            f"`{name}` must hold integers, floats or bools, or lists of them, but is of type "
            f"{type_}."
        )
        raise TypeError(msg)
    return kind


def _listed(names: Iterable[str]) -> str:
    shown = [repr(name) for name in names]
    return ", ".join(shown if len(shown) <= _MOST_SHOWN else [*shown[:_MOST_SHOWN], "..."])
