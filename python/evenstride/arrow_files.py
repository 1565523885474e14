"""Files of Arrow and Parquet, and folders of Hugging Face, as tables."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_PARQUET = {".parquet", ".pq"}
_IPC = {".arrow", ".feather", ".ipc"}
_FILE_MAGIC = b"ARROW1"
_STREAM_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_READ_BYTES = 1 << 20  # Instead of all of a column of a row group at once.
_INDICES_FILES = ("_indices_files", "_indices_data_files")  # Of newer and of older versions.


def import_pyarrow() -> Any:
    """Return pyarrow, or say how to install it."""
    try:
        import pyarrow as pa  # noqa: PLC0415 - An extra.
    except ImportError as error:
        msg = "Arrow data needs pyarrow: install it with `pip install 'evenstride[arrow]'`."
        raise ImportError(msg) from error
    return pa


def is_parquet(file: Path) -> bool:
    """Return whether a path names a Parquet file, whose columns must be decoded."""
    return file.suffix.lower() in _PARQUET and not file.is_dir()


def arrow_schema(file: Path) -> Any:
    """Return the schema of a Parquet or Arrow file or folder. Decodes no column."""
    if is_parquet(file):
        with open_parquet(file) as opened:
            return opened.schema_arrow
    if file.is_dir():
        data_files, _ = _files_of(file)
        if data_files:  # One of them suffices, of thousands.
            return _ipc_schema(data_files[0])
    elif file.suffix.lower() in _IPC:
        return _ipc_schema(file)
    return read_arrow(file)[0].schema


def open_parquet(file: Path, metadata: Any = None) -> Any:
    """Return a ParquetFile, to be closed, whose schema has been read.

    `metadata` is that of the file, where it has been read before.
    """
    import_pyarrow()
    from pyarrow import parquet  # noqa: PLC0415 - An extra.

    with _naming(file):
        opened = parquet.ParquetFile(file, metadata=metadata, buffer_size=_READ_BYTES)
        list(opened.schema_arrow.names)  # Which are decoded only now.
    return opened


def read_parquet(file: Path, opened: Any, columns: list[str], group: int | None = None) -> Any:
    """Return a table of columns of a Parquet file, or of one of its row groups."""
    with _naming(file):
        if group is None:
            return _validated(opened.read(columns=columns))
        return _validated(opened.read_row_group(group, columns=columns))


def parquet_batches(
    file: Path, opened: Any, column: str, group: int, num_rows: int
) -> Iterator[Any]:
    """Yield a column of a row group as arrays of at most so many rows, decoded one by one."""
    options = {"row_groups": [group], "columns": [column], "use_threads": False}
    with _naming(file):
        batches = opened.iter_batches(num_rows, **options)
    while True:
        with _naming(file):
            batch = next(batches, None)
        if batch is None:
            return
        batch.validate()
        yield batch.column(batch.schema.get_field_index(column))


def read_arrow(file: Path, column: str | None = None) -> tuple[Any, Any]:
    """Return the memory-mapped table of an Arrow file or of a folder that `save_to_disk` wrote.

    The second one is the table of its indices mapping, or None. Where one `column` is asked for,
    the table has no other; of a compressed file, that is what is decoded.

    Raises
    ------
    ValueError
        If it is not whole, or something else.

    """
    if file.is_dir():
        return _read_folder(file, column)
    if file.suffix.lower() in _IPC:
        return _read_ipc(file, column), None
    wanted = ", ".join(sorted(_PARQUET | _IPC))
    msg = f"`{file}` must be a folder, or a file whose name ends in one of {wanted}."
    raise ValueError(msg)


def _read_ipc(file: Path, column: str | None = None) -> Any:
    with _opened_ipc(file) as (mapped, opener, options):
        reader = opener(mapped)
        if column is not None:
            places = reader.schema.get_all_field_indices(column)
            mapped.seek(0)
            reader = opener(mapped, options=options(included_fields=places))
        return _validated(reader.read_all())


def _ipc_schema(file: Path) -> Any:
    with _opened_ipc(file) as (mapped, opener, _):
        schema = opener(mapped).schema
        list(schema.names)  # Which are decoded only now.
        return schema


@contextmanager
def _opened_ipc(file: Path) -> Iterator[tuple[Any, Any, Any]]:
    """Yield a mapped file, what reads its kind, and what makes options for that."""
    pyarrow = import_pyarrow()
    with _naming(file):
        with file.open("rb") as opened:
            is_file = opened.read(len(_FILE_MAGIC)) == _FILE_MAGIC
            opened.seek(-min(len(_STREAM_END), file.stat().st_size), os.SEEK_END)
            is_whole = is_file or opened.read() == _STREAM_END
        if not is_whole:  # Else a file cut between two batches would pass for a shorter one.
            msg = "it does not end as a stream does"
            raise pyarrow.ArrowInvalid(msg)
        mapped = pyarrow.memory_map(os.fspath(file))
        opener = pyarrow.ipc.open_file if is_file else pyarrow.ipc.open_stream
        yield mapped, opener, pyarrow.ipc.IpcReadOptions


def _validated(table: Any) -> Any:
    """Return a table after what Arrow can say without reading it: sizes that are no sizes."""
    list(table.schema.names)  # Which are decoded only now.
    table.validate()
    return table


def _read_folder(folder: Path, column: str | None) -> tuple[Any, Any]:
    pyarrow = import_pyarrow()
    data_files, indices_files = _files_of(folder)
    tables = [_read_ipc(file, column) for file in data_files]
    with _naming(folder):
        table = pyarrow.concat_tables(tables)
    if not indices_files:
        return table, None
    return table, pyarrow.concat_tables(_read_ipc(file) for file in indices_files)


def _files_of(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the files of the rows, and of the indices mapping, of a folder of `save_to_disk`."""
    if (folder / "dataset_dict.json").is_file():
        msg = f"`{folder}` must be one split, but is a DatasetDict; pass one of its folders."
        raise ValueError(msg)
    if not (folder / "state.json").is_file():
        msg = f"`{folder}` must be a folder that `save_to_disk` wrote, but has no `state.json`."
        raise ValueError(msg)
    with _naming(folder / "state.json"):
        state = json.loads((folder / "state.json").read_text("utf-8"))
        entries: list[Any] = next((state[key] for key in _INDICES_FILES if state.get(key)), [])
        return (
            [folder / Path(entry["filename"]).name for entry in state["_data_files"]],
            [folder / Path(entry["filename"]).name for entry in entries],
        )


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Say of which file it is that Arrow or JSON cannot read it."""
    pyarrow = import_pyarrow()
    kinds = (pyarrow.ArrowException, OSError, KeyError, TypeError, AttributeError, ValueError)
    try:
        yield
    except kinds as error:
        if isinstance(error, OSError) and error.errno:  # Missing, or not allowed to be read.
            raise
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        msg = f"`{path}` must be a whole file of its format, but cannot be read: {reason}."
        raise ValueError(msg) from error
