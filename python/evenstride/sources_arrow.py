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
    msg = (
        "`source` must be a pyarrow Table, RecordBatch, array, a path, or a Hugging Face Dataset, "
        f"but is of type {type(source).__name__}."
    )
    raise TypeError(msg)


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
    rows = None if indices is None else _rows(indices, table.num_rows)
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


def arrow_lengths(path: str | os.PathLike[str], column: str) -> LengthArray:
    """Return the lengths in a Parquet or Arrow file, or in a folder that `save_to_disk` wrote.

    Of a Parquet file, a row group is decoded at a time.

    Parameters
    ----------
    path : path-like
        The file or folder.
    column : str
        A column of lists, whose lengths are meant, or of integers, which are lengths.

    Returns
    -------
    ndarray of int, shape (n_samples,)

    Raises
    ------
    ImportError
        If pyarrow is missing.
    TypeError
        If the column holds something else.
    ValueError
        If there is no such column, or the file is not whole.

    Examples
    --------
    >>> import pyarrow as pa, pyarrow.parquet, tempfile
    >>> path = tempfile.mkdtemp() + "/corpus.parquet"
    >>> pa.parquet.write_table(pa.table({"input_ids": [[7, 8], [9]]}), path)
    >>> arrow_lengths(path, "input_ids").tolist()
    [2, 1]

    """
    file = Path(path)
    if not is_parquet(file):
        return column_lengths(os.fspath(file), column)
    with open_parquet(file) as opened:
        (place,) = _chosen(opened.schema_arrow, column, os.fspath(file)).values()
        reader = ChunkReader(column, os.fspath(file), _kind(opened.schema_arrow, place))
        parts: list[NDArray[Any]] = [np.empty(0, np.int32)]
        for group in range(opened.num_row_groups):
            table = read_parquet(file, opened, [column], group)
            parts.append(_lengths_in(reader.arrays(table.column(0).chunks)))
    return np.concatenate(parts)


def column_lengths(source: Any, column: str) -> LengthArray:
    """Return the lengths in a column of anything that holds Arrow columns, as `arrow_lengths`."""
    found, rows = open_arrow(source, column)
    lengths = _lengths_in(found[column])
    return lengths if rows is None else lengths[rows]


def _lengths_in(arrays: ColumnArrays) -> NDArray[Any]:
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
    return _rows(dataset._indices.table, dataset.data.num_rows)  # noqa: SLF001


def _as_int64(values: NDArray[Any]) -> NDArray[np.int64]:
    if values.dtype.kind not in "iu":
        msg = f"`indices` must hold integers, but have dtype {values.dtype}."
        raise TypeError(msg)
    # What does not fit is negative in the view, and so outside the rows.
    is_alike = values.dtype.itemsize == np.dtype(np.int64).itemsize and values.flags.aligned
    return values.view(np.int64) if is_alike else np.require(values, np.int64, ["C", "A"])


def _rows(table: Any, num_rows: int) -> NDArray[np.int64]:
    arrays = _fields(table, "indices", "")["indices"]
    values = [_as_int64(chunk.values) for chunk in arrays.chunks]
    rows = values[0] if len(values) == 1 else np.concatenate([np.empty(0, np.int64), *values])
    outside = (rows < 0) | (rows >= num_rows)
    if outside.any():
        place = int(outside.argmax())
        msg = f"`indices[{place}]` must be in [0, {num_rows}), but is {rows[place]}."
        raise ValueError(msg)
    return rows


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
