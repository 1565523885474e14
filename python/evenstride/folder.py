"""A data set in a folder: values and offsets of each field in .npy files, and what they mean."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import secrets
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evenstride.columns import RAW_TYPES, Chunk, ColumnArrays, check_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType

    from numpy.typing import NDArray
    from typing_extensions import Self

    from evenstride import _core
    from evenstride.columns import Layout, Opened

_FORMAT = "evenstride ragged"
_VERSION = 1
_DESCRIPTION = "fields.json"
_MAGIC = b"\x93NUMPY\x01\x00"
_ALIGNMENT = 64
_LONGEST_NAME = 64
_LONGEST_DRAFT_NAME = 48
_PIECE_BYTES = 1 << 22
_PIECE_ROWS = 1 << 14


def open_folder(path: str | os.PathLike[str]) -> Opened:
    """Return the fields of a folder, memory-mapped: see `RaggedDataset.open`."""
    folder = Path(path)
    text = (folder / _DESCRIPTION).read_bytes()
    with _parsing(folder):
        description = json.loads(text)
        version = description["format"], description["version"]
    _check_version(folder, *version)
    with _parsing(folder):
        num_rows = description["num_rows"]
        fields = {name: _parsed(**entry) for name, entry in description["fields"].items()}
    if type(num_rows) is not int or num_rows < 0:
        raise _not_whole(folder, f"is said to have {num_rows!r} rows")
    columns = {}
    for name, (dtype, shape, files) in fields.items():
        columns[name] = _mapped_field(folder, name, dtype, shape, files)
        if columns[name].num_rows != num_rows:
            reason = f"`{files[-1]}` has {columns[name].num_rows} rows instead of {num_rows}"
            raise _not_whole(folder, f"its {reason}")
    return columns, None


@contextmanager
def _parsing(folder: Path) -> Iterator[None]:
    try:
        yield
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        reason = f"its `{_DESCRIPTION}` has {type(error).__name__} {error}"
        raise _not_whole(folder, reason) from error


def _check_version(folder: Path, name: Any, version: Any) -> None:
    if name == _FORMAT and type(version) is int and version > _VERSION:
        msg = (
            f"`{folder}` must be a data set of version {_VERSION}, which this evenstride reads, "
            f"but is newer: of version {version}."
        )
        raise ValueError(msg)
    if (name, version) != (_FORMAT, _VERSION):
        raise _not_whole(folder, f"is of the format {name!r}, version {version!r}")


def _parsed(dtype: Any, shape: Any, values: Any, offsets: Any = None) -> tuple[Any, ...]:
    sizes = tuple(shape)
    is_ragged = sizes[:1] == (None,)
    sizes = sizes[is_ragged:]
    if dtype not in RAW_TYPES or any(type(size) is not int or size < 1 for size in sizes):
        msg = f"values of type {dtype!r} and shape {shape!r}"
        raise ValueError(msg)
    files = [values, offsets] if is_ragged else [values]
    for file in files:
        if Path(file).name != file:
            msg = f"a file {file!r}"
            raise ValueError(msg)
    return dtype, sizes, files


def _mapped_field(
    folder: Path, name: str, dtype: str, shape: tuple[int, ...], files: list[str]
) -> ColumnArrays:
    origin = os.fspath(folder / files[0])
    values = _mapped(folder, files[0], RAW_TYPES[dtype], shape)
    if len(files) == 1:
        return ColumnArrays(name, origin, dtype, shape, False, (Chunk(values),))
    offsets = _mapped(folder, files[1], np.dtype(np.int64), ())
    if len(offsets) == 0 or (offsets[0], offsets[-1]) != (0, len(values)):
        reason = f"does not go from 0 to {len(values)}, the cells in `{files[0]}`"
        raise _not_whole(folder, f"its `{files[1]}` {reason}")
    return ColumnArrays(name, origin, dtype, shape, True, (Chunk(values, offsets),))


def _mapped(folder: Path, file: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.lib.format.open_memmap(folder / file, mode="r")
    except OSError:
        raise
    except Exception as error:  # What numpy raises depends on the damage.
        raise _not_whole(folder, f"numpy says of its `{file}`: {error}") from error
    if array.dtype != dtype or array.shape[1:] != shape or not array.flags.c_contiguous:
        reason = f"has cells of {array.dtype} {array.shape[1:]} instead of {dtype} {shape}"
        raise _not_whole(folder, f"its `{file}` {reason}")
    return array


def _not_whole(folder: Path, reason: str) -> ValueError:
    reason = " ".join(reason.split()).rstrip(".")
    return ValueError(f"`{folder}` must be a data set that was saved whole, but {reason}.")


def save_folder(
    path: str | os.PathLike[str],
    arrays: Mapping[str, ColumnArrays],
    columns: Mapping[str, _core.Column],
    rows: NDArray[np.int64],
) -> None:
    """Write these rows of the columns to a folder, in this order, a few of them at a time."""
    with FolderDraft(path, {name: field.layout for name, field in arrays.items()}) as draft:
        for name, column in columns.items():
            for some, lengths in _pieces(column, rows):
                cells = _run(arrays[name], some)
                if cells is None:
                    cells = np.concatenate([column.row(row) for row in some.tolist()])
                draft.append(name, cells, lengths)
                del cells  # Else there would be two pieces at a time.
        draft.num_rows = len(rows)


def _run(arrays: ColumnArrays, rows: NDArray[np.int64]) -> NDArray[Any] | None:
    """View the cells of rows that lie one after the other in a chunk; None if they do not."""
    first = int(rows[0])
    if (np.diff(rows) != 1).any():
        return None
    for chunk in arrays.chunks:
        if first < chunk.num_rows:
            break
        first -= chunk.num_rows
    end = first + len(rows)
    if end > chunk.num_rows or chunk.starts is not None:
        return None
    if chunk.offsets is not None:
        first, end = int(chunk.offsets[first]), int(chunk.offsets[end])
    cells: NDArray[Any] = chunk.values[first:end]
    return cells


def _pieces(
    column: _core.Column, rows: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.int64], NDArray[Any] | None]]:
    """Yield some of the rows at a time, and if they are ragged the length of each."""
    most_cells = _PIECE_BYTES // (column.cell_values * RAW_TYPES[column.dtype].itemsize)
    lengths = column.lengths() if column.is_ragged else None
    begin = 0
    while begin < len(rows):
        # Each row has a cost of its own, which would go without limit if rows were empty.
        some = rows[begin : begin + _PIECE_ROWS]
        cells = np.ones(len(some), np.int64) if lengths is None else lengths[some]
        ends = np.cumsum(cells, dtype=np.int64)
        end = max(1, int(np.searchsorted(ends, most_cells, side="right")))
        yield some[:end], None if lengths is None else cells[:end]
        begin += end


class FolderDraft:
    """A data set that is being written: a folder of its own, renamed once it is whole.

    Entered, it makes the draft beside the place that the folder will have; left by an exception, it
    removes it. A process that is killed leaves a draft, whose name begins with a dot.

    Raises
    ------
    FileExistsError
        If the folder exists, on entry or exit.

    """

    def __init__(self, path: str | os.PathLike[str], fields: Mapping[str, Layout]) -> None:
        check_names(fields)
        self.num_rows = 0
        self._folder = Path(path).absolute()  # Also after a change of the current folder.
        self._fields = fields
        suffix = f"{os.getpid()}.{secrets.token_hex(4)}"
        name = self._folder.name[:_LONGEST_DRAFT_NAME]
        self._draft = self._folder.with_name(f".{name}.{suffix}")
        self._values: dict[str, _ArrayFile] = {}
        self._offsets: dict[str, _ArrayFile] = {}

    def __enter__(self) -> Self:
        """Make the draft."""
        self._refuse_existing()
        try:
            self._draft.mkdir()
        except OSError as error:
            error.filename = str(self._folder)  # Nobody has asked for a draft.
            raise
        try:
            self._create_files()
        except BaseException:
            self._remove()
            raise
        return self

    def _create_files(self) -> None:
        for place, (name, (dtype, shape)) in enumerate(self._fields.items()):
            stem = f"{place}.{re.sub(r'[^A-Za-z0-9_-]', '_', name)[:_LONGEST_NAME]}"
            is_ragged = shape[:1] == (None,)
            path = self._draft / f"{stem}.values.npy"
            self._values[name] = _ArrayFile(path, RAW_TYPES[dtype], shape[is_ragged:])
            if is_ragged:
                path = self._draft / f"{stem}.offsets.npy"
                self._offsets[name] = _ArrayFile(path, np.dtype(np.int64), ())
                self._offsets[name].append(np.zeros(1, np.int64))

    def append(self, name: str, cells: NDArray[Any], lengths: NDArray[Any] | None) -> None:
        """Append the raw values of rows; of a ragged field, with the length of each."""
        values = self._values[name]
        if lengths is not None:
            ends = values.num_cells + np.cumsum(lengths, dtype=np.int64)
            self._offsets[name].append(ends)
        values.append(cells)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Rename the draft, or remove it after an exception."""
        try:
            if kind is None:
                self._finish()
        finally:
            self._remove()

    def _remove(self) -> None:
        try:
            for file in (*self._values.values(), *self._offsets.values()):
                with suppress(OSError):  # What went wrong before it is what is raised.
                    file.close()
        finally:
            shutil.rmtree(self._draft, ignore_errors=True)

    def _finish(self) -> None:
        entries: dict[str, Any] = {}
        for name, (dtype, shape) in self._fields.items():
            entries[name] = {"dtype": dtype, "shape": list(shape)}
            entries[name]["values"] = self._values[name].finish()
            if name in self._offsets:
                entries[name]["offsets"] = self._offsets[name].finish()
        description = {"format": _FORMAT, "version": _VERSION, "num_rows": self.num_rows}
        text = json.dumps({**description, "fields": entries}, indent=2) + "\n"
        with (self._draft / _DESCRIPTION).open("xb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        _sync(self._draft)
        self._refuse_existing()
        self._draft.rename(self._folder)
        _sync(self._folder.parent)

    def _refuse_existing(self) -> None:
        try:
            self._folder.lstat()  # Which also says if the name is too long.
        except FileNotFoundError:
            return
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(self._folder))


class _ArrayFile:
    """An .npy file that grows; numpy reads it once it is finished."""

    def __init__(self, path: Path, dtype: np.dtype[Any], shape: tuple[int | None, ...]) -> None:
        self.num_cells = 0
        self._name = path.name
        self._descr = dtype.newbyteorder("<").str
        self._shape = shape
        self._cell_bytes = dtype.itemsize * math.prod(size or 0 for size in shape)
        self._header_bytes = len(self._header(2**63, 0))
        self._file = path.open("xb")
        self._file.write(b" " * self._header_bytes)

    def append(self, cells: NDArray[Any]) -> None:
        self._file.write(cells.reshape(-1).view(np.uint8).data)
        self.num_cells += cells.nbytes // self._cell_bytes

    def finish(self) -> str:
        """Write what comes first, wait until all is on the disk, and return the file's name."""
        self._file.seek(0)
        self._file.write(self._header(self.num_cells, self._header_bytes))
        self._file.flush()
        os.fsync(self._file.fileno())
        self.close()
        return self._name

    def close(self) -> None:
        self._file.close()

    def _header(self, num_cells: int, num_bytes: int) -> bytes:
        shape = (num_cells, *self._shape)
        text = repr({"descr": self._descr, "fortran_order": False, "shape": shape}).encode()
        start = len(_MAGIC) + 2
        end = max(num_bytes, -(-(start + len(text) + 1) // _ALIGNMENT) * _ALIGNMENT)
        padded = text.ljust(end - start - 1) + b"\n"
        return _MAGIC + len(padded).to_bytes(2, "little") + padded


def _sync(folder: Path) -> None:
    """Make the entries of a folder last, where a folder can be opened at all."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
