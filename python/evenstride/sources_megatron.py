"""Token sequences in Megatron's indexed format: values in a .bin file, their places in an .idx."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evenstride.columns import RAW_TYPES, Chunk, ColumnArrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evenstride.columns import Opened

_MAGIC = b"MMIDIDX\x00\x00"
_VERSION = 1
_HEADER = np.dtype(
    [("magic", "S9"), ("version", "<u8"), ("code", "u1"), ("rows", "<u8"), ("documents", "<u8")]
)
_TYPES = {
    1: "uint8",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "float64",
    7: "float32",
    8: "uint16",
}
_FIELD = "input_ids"


@dataclass(frozen=True)
class _Index:
    path: str
    dtype: str
    lengths: NDArray[np.int32]
    pointers: NDArray[np.int64]


def open_megatron(prefix: str | os.PathLike[str]) -> Opened:
    """Return the field of a pair of files: see `RaggedDataset.from_megatron`."""
    path = _without_suffix(prefix)
    index = _read_index(index_path(path))
    size = RAW_TYPES[index.dtype].itemsize
    values = _mapped(path + ".bin")
    values = values[: len(values) // size * size].view(RAW_TYPES[index.dtype])
    chunk = Chunk(values, starts=index.pointers, lengths=index.lengths, start_bytes=1)
    return {_FIELD: ColumnArrays(_FIELD, index.path, index.dtype, (), True, (chunk,))}, None


def megatron_lengths(path: str | os.PathLike[str]) -> NDArray[np.int32]:
    r"""Return the lengths that an .idx file lists, memory-mapped, unaligned and unchecked.

    Reads no .bin file.

    Parameters
    ----------
    path : path-like
        Path of the file, with or without its suffix.

    Returns
    -------
    ndarray of int32, shape (n_samples,)

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is not a whole file of this format.

    Examples
    --------
    >>> import numpy as np, pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "corpus.idx")
    >>> header = b"MMIDIDX\0\0" + np.uint64(1).tobytes() + b"\x04" + np.uint64([2, 1]).tobytes()
    >>> arrays = np.int32([3, 5]), np.int64([0, 12]), np.int64([0])
    >>> _ = path.write_bytes(header + b"".join(array.tobytes() for array in arrays))
    >>> megatron_lengths(path).tolist()
    [3, 5]

    """
    return _read_index(index_path(path)).lengths


def index_path(path: str | os.PathLike[str]) -> str:
    """Return the path of the .idx file of a path with or without its suffix."""
    return _without_suffix(path) + ".idx"


def _without_suffix(path: str | os.PathLike[str]) -> str:
    path = os.fspath(path)
    return path[: -len(".bin")] if path.endswith((".bin", ".idx")) else path


def _read_index(path: str) -> _Index:
    data = _mapped(path)
    if len(data) < _HEADER.itemsize or data[: len(_MAGIC)].tobytes() != _MAGIC:
        raise _no_index(path, "does not begin as one")
    header = data[: _HEADER.itemsize].view(_HEADER)[0]
    if header["version"] != _VERSION:
        raise _no_index(path, f"has version {header['version']} instead of {_VERSION}")
    if int(header["code"]) not in _TYPES:
        raise _no_index(path, f"has code {header['code']} of a type, of which there are 1 to 8")
    rows, documents = int(header["rows"]), int(header["documents"])
    lengths_end = _HEADER.itemsize + 4 * rows
    pointers_end = lengths_end + 8 * rows
    size = pointers_end + 8 * documents
    if size != len(data):
        counts = f"{rows} rows and {documents} documents"
        raise _no_index(path, f"has {len(data)} bytes instead of {size} for {counts}")
    return _Index(
        path,
        _TYPES[int(header["code"])],
        data[_HEADER.itemsize : lengths_end].view("<i4"),
        data[lengths_end:pointers_end].view("<i8"),
    )


def _no_index(path: str, reason: str) -> ValueError:
    return ValueError(f"`{path}` must be an index of Megatron that is whole, but {reason}.")


def _mapped(path: str) -> NDArray[Any]:
    if Path(path).stat().st_size == 0:  # Which cannot be mapped.
        return np.empty(0, np.uint8)
    return np.memmap(path, np.uint8, "r")
