"""Lengths from the files and folders that people keep them in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from evenstride.read_columns import chosen_column, chosen_field, format_of
from evenstride.read_text import listed, read_text
from evenstride.sources_arrow import arrow_lengths
from evenstride.sources_megatron import megatron_lengths

if TYPE_CHECKING:
    import os

    from evenstride.lengths import LengthArray

__all__ = ["read_lengths"]


def read_lengths(
    path: str | os.PathLike[str],
    *,
    key: str | None = None,
    column: str | None = None,
    counts: bool = False,
) -> LengthArray:
    r"""Return the lengths that a file or folder holds, or those of the rows in it. Needs no torch.

    Parameters
    ----------
    path : path-like
        A ``.npy`` file, which is memory-mapped, or an ``.npz`` file; a Parquet or Arrow file
        (``.parquet``, ``.pq``, ``.arrow``, ``.feather``, ``.ipc``), or a folder that Hugging Face's
        ``save_to_disk`` wrote; a folder that ``RaggedDataset.save`` wrote; an ``.idx`` file of
        Megatron, or the prefix of one; or, whatever else its suffix, text: one integer a line, or
        columns with or without a header. ``"-"`` is text from the standard input. Empty lines and
        lines that begin with ``#`` are skipped. JSON is not read; convert it to Parquet.
    key : str, optional
        Which array of an ``.npz`` file. Needed if it has several.
    column : str, optional
        Which column of a text file: its name in the header, or its number from 0. By default the
        only one, or the one named "length" or "lengths". Which column of a Parquet or Arrow file:
        one of lists, whose lengths are meant, or one of integers, which are lengths. By default the
        only one of lists, else the one named "input_ids", "length" or "lengths". Which field of a
        saved folder: by default the first that is ragged.
    counts : bool, default False
        A text file is a histogram: the column "count" or "counts", else the one after the lengths,
        says how many samples have the length. The lengths come in the order of the lines.

    Returns
    -------
    ndarray of int, shape (n_samples,)

    Raises
    ------
    ImportError
        If pyarrow is missing for a Parquet or Arrow file.
    OSError
        If the file cannot be read.
    ValueError
        If it does not hold what it should; the message names the line or row.

    Warns
    -----
    UserWarning
        If a text file looks like a histogram, and `counts` is False.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "histogram.csv")
    >>> _ = path.write_text("length,count\n40,2\n41,3\n")
    >>> read_lengths(path, counts=True).tolist()
    [40, 40, 41, 41, 41]

    """
    file = Path(path)
    kind = format_of(file)
    if key is not None and kind != "npz":
        msg = f"`key` must be left out for `{file}`, which is no .npz file."
        raise ValueError(msg)
    if column is not None and kind not in {"text", "arrow", "saved"}:
        msg = f"`column` must be left out for `{file}`, which has no columns."
        raise ValueError(msg)
    if counts and kind != "text":
        msg = f"`counts` must be left out for `{file}`, which is no text file."
        raise ValueError(msg)
    match kind:
        case "npy":
            return _from_npy(file)
        case "npz":
            return _from_npz(file, key)
        case "arrow":
            return arrow_lengths(file, chosen_column(file, column).name)
        case "saved":
            return chosen_field(file, column).column().lengths()
        case "megatron":
            return megatron_lengths(file)
    return read_text(file, column, counts=counts)


def _from_npy(file: Path) -> LengthArray:
    try:
        array: LengthArray = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # What numpy raises depends on the damage.
        raise _unreadable(file) from error
    return array


def _from_npz(file: Path, key: str | None) -> LengthArray:
    try:
        with np.load(file, allow_pickle=False) as arrays:
            keys = list(arrays)
            if key is None and len(keys) == 1:
                key = keys[0]
            if key in keys:
                array: LengthArray = arrays[key]
                return array
    except (OSError, MemoryError):
        raise
    except Exception as error:  # As above.
        raise _unreadable(file) from error
    msg = f"`key` must be one of {listed(keys)} for `{file}`, but is {key!r}."
    raise ValueError(msg)


def _unreadable(file: Path) -> ValueError:
    kind = file.suffix.lower()
    return ValueError(f"`{file}` must be an {kind} file of numbers, but numpy cannot read it so.")
