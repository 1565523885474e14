"""Lengths as users have them, viewed as the arrays that the core reads."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Lengths: TypeAlias = Any
    """A sequence, array, memmap, torch tensor or Arrow column of integers, shape (n_samples,)."""

    LengthArray: TypeAlias = NDArray[np.integer[Any]]


def as_lengths(lengths: Lengths) -> LengthArray:
    """View `lengths` as a 1-dimensional, contiguous array of integers.

    Arrays, memmaps, CPU tensors and Arrow columns of one chunk are not copied; what cannot be
    viewed (a list, a tensor on a device, strides, a foreign byte order) is copied once.

    Raises
    ------
    TypeError
        If they are not integers, or not 1-dimensional.
    ValueError
        If an Arrow column has nulls, or a masked array masks.

    """
    array = _as_array(lengths)
    if array.ndim != 1:
        fault = f"it has shape {array.shape}"
        raise _not_lengths(fault)
    if array.size == 0 and not isinstance(lengths, np.ndarray):
        array = array.astype(np.int64)  # An empty list has no integers that could tell its type.
    if array.dtype.kind in "OSU":
        fault = f"it has dtype {array.dtype}"
        raise _not_lengths(fault)
    if array.dtype.kind not in "iu":
        msg = f"`lengths` must hold integers, but has dtype {array.dtype}."
        raise TypeError(msg)
    if not array.flags.aligned or not array.dtype.isnative or not array.flags.c_contiguous:
        array = np.require(array, array.dtype.newbyteorder("="), ["C", "ALIGNED"])
    return array


def _as_array(lengths: Lengths) -> NDArray[Any]:
    if isinstance(lengths, np.ma.MaskedArray) and np.ma.is_masked(lengths):
        mask = np.ma.getmaskarray(lengths)
        msg = f"`lengths[{mask.argmax()}]` must not be masked; {mask.sum()} lengths are."
        raise ValueError(msg)
    if isinstance(lengths, np.ndarray):
        return lengths
    if isinstance(lengths, range):
        return np.arange(lengths.start, lengths.stop, lengths.step)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(lengths, torch.Tensor):
        return np.asarray(lengths.detach().cpu().numpy())
    pyarrow = sys.modules.get("pyarrow")
    if pyarrow is not None and isinstance(lengths, (pyarrow.Array, pyarrow.ChunkedArray)):
        return _from_arrow(lengths)
    # Said before numpy reads all rows of what is a data set, or has tokens in the place of lengths.
    if isinstance(lengths, (str, bytes, Mapping)) or hasattr(lengths, "lengths"):
        fault = f"it has type {type(lengths).__name__}"
        raise _not_lengths(fault)
    first = _first(lengths)
    if _has_length(first):
        fault = f"`lengths[0]` has type {type(first).__name__}"
        raise _not_lengths(fault)
    try:
        return np.asarray(lengths)
    except (TypeError, ValueError, OverflowError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        fault = f"numpy says: {reason}"
        raise _not_lengths(fault) from error


def _not_lengths(fault: str) -> TypeError:
    return TypeError(
        f"`lengths` must be the number of tokens of each sample, e.g. `ds.lengths`, but {fault}."
    )


def _first(values: Any) -> Any:
    try:
        return next(iter(values), None)
    except TypeError:
        return None


def _has_length(value: Any) -> bool:
    try:
        len(value)
    except TypeError:
        return False
    return True


def _from_arrow(column: Any) -> NDArray[Any]:
    if column.null_count > 0:
        row = column.is_null().to_pylist().index(True)
        msg = f"`lengths[{row}]` must not be null; the column has {column.null_count} nulls."
        raise ValueError(msg)
    if hasattr(column, "combine_chunks"):
        chunks = column.chunks
        column = chunks[0] if len(chunks) == 1 else column.combine_chunks()
    return np.asarray(column.to_numpy(zero_copy_only=False))


def pack_lengths(array: LengthArray) -> LengthArray | tuple[Any, ...]:
    """Return what to pickle for `array`: a memmap's file and place in it, else the array itself."""
    root: Any = array
    while isinstance(root, np.memmap) and isinstance(root.base, np.ndarray):
        root = root.base
    # One that is copied when it is written to may no longer be what its file is.
    is_file = isinstance(root, np.memmap) and root.filename is not None and root.mode != "c"
    if not is_file or not array.flags.c_contiguous:
        return np.asarray(array)
    offset = root.offset + array.ctypes.data - root.ctypes.data
    return str(root.filename), array.dtype.str, offset, array.shape


def unpack_lengths(packed: LengthArray | tuple[Any, ...]) -> LengthArray:
    """Return the array that :func:`pack_lengths` was given."""
    if isinstance(packed, np.ndarray):
        return packed
    filename, dtype, offset, shape = packed
    return np.memmap(filename, dtype, "r", offset, shape)
