"""Arrays in a file of the safetensors format, written atomically and read in place.

The format is eight bytes with the length of a JSON header, the header, and the arrays: see the
documentation of safetensors, whose readers can open these files too.
"""

from __future__ import annotations

import json
import operator
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evenstride.drafts import draft_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

_NAMES = {"I16": "<i2", "I32": "<i4", "U32": "<u4", "I64": "<i8", "U64": "<u8"}
_ALIGNMENT = 8
_SHORTEST_HEADER = len("{}")


def write_arrays(
    path: str | os.PathLike[str], arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]
) -> None:
    """Write `arrays` and `metadata` to `path`, which holds all of it or is not touched."""
    # Widest items first, so that each array is aligned without gaps, which the format forbids.
    ordered = sorted(arrays.items(), key=lambda item: -item[1].dtype.itemsize)
    types = {np.dtype(code): name for name, code in _NAMES.items()}
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name, array in ordered:
        begin, end = end, end + array.nbytes
        header[name] = {
            "dtype": types[array.dtype.newbyteorder("<")],
            "shape": list(array.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    with draft_of(path) as draft, draft.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, array in ordered:
            array.astype(array.dtype.newbyteorder("<"), copy=False).tofile(file)
        file.flush()
        os.fsync(file.fileno())


def read_arrays(path: str | os.PathLike[str]) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Return the arrays, memory-mapped and read-only, and the metadata of a file.

    Raises
    ------
    ValueError
        If the file is not whole, or not of this format.

    """
    path = Path(path)
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not _SHORTEST_HEADER <= length <= size - 8:
            raise not_whole(path, f"its header cannot be {length} of {size} bytes")
        header = file.read(length)
    data = np.empty(0, np.uint8)
    if size > 8 + length:
        data = np.memmap(path, np.uint8, "r", offset=8 + length)
    try:
        fields: dict[str, Any] = json.loads(header)
        metadata = dict(fields.pop("__metadata__").items())
        arrays = {name: _view(data, **field) for name, field in fields.items()}
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise not_whole(path, f"its header has {type(error).__name__} {error}") from error
    return arrays, metadata


def _view(data: NDArray[np.uint8], dtype: str, shape: Any, data_offsets: Any) -> NDArray[Any]:
    (items,) = map(operator.index, shape)
    begin, end = map(operator.index, data_offsets)
    array = np.dtype(_NAMES[dtype])
    if not 0 <= begin <= end <= len(data) or items * array.itemsize != end - begin:
        msg = f"{items} items in bytes {begin} to {end} of {len(data)}"
        raise ValueError(msg)
    return data[begin:end].view(array)


def not_whole(path: str | os.PathLike[str], reason: str) -> ValueError:
    """Return the error that says why a file cannot be read."""
    return ValueError(f"`{os.fspath(path)}` must be a plan that was saved whole, but {reason}.")
