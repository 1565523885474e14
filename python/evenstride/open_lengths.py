"""Opens what holds lengths, of all forms, and watches that it stays what it was."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from evenstride.gather_lengths import changed
from evenstride.length_sources import (
    LengthSource,
    array_source,
    arrow_source,
    megatron_source,
    saved_source,
)
from evenstride.read_columns import chosen_column, chosen_field, format_of
from evenstride.read_text import listed, read_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from evenstride.lengths import LengthArray

__all__ = ["check_unchanged", "open_lengths", "stamps_of"]

Stamps: TypeAlias = "dict[Path, tuple[int, int, int]]"


def open_lengths(
    files: Sequence[Path], *, key: str | None, column: str | None, counts: bool, num_threads: int
) -> list[LengthSource]:
    """Return the lengths in all files, which are still to be read: see `read_lengths`.

    Raises
    ------
    ImportError, OSError, TypeError, ValueError
        If one is not what it should be, or they have their lengths in different columns.

    """
    opened = partial(_opened, key=key, column=column, counts=counts)
    if len(files) == 1:
        return [opened(files[0])]
    with ThreadPoolExecutor(num_threads) as pool:
        sources = list(pool.map(opened, files))
    named = [source for source in sources if source.column]
    for source in named[1:]:
        if source.column != named[0].column:
            msg = (
                f"All files must have their lengths in one column, but `{named[0].path}` has them "
                f"in {named[0].column}, and `{source.path}` in {source.column}."
            )
            raise ValueError(msg)
    return sources


def _opened(file: Path, *, key: str | None, column: str | None, counts: bool) -> LengthSource:
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
            return array_source(file, _from_npy(file))
        case "npz":
            return array_source(file, _from_npz(file, key))
        case "arrow":
            return arrow_source(file, chosen_column(file, column).name)
        case "saved":
            return saved_source(file, chosen_field(file, column))
        case "megatron":
            return megatron_source(file)
    return array_source(file, read_text(file, column, counts=counts))


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


def stamps_of(paths: Iterable[Path]) -> Stamps:
    """Return what tells whether ordinary files, or those in folders, have changed since."""
    stamps = {}
    for path in paths:
        for file in path.iterdir() if path.is_dir() else [path]:
            if file.is_file():
                stamps[file] = _stamp(file)
    return stamps


def _stamp(file: Path) -> tuple[int, int, int]:
    status = file.stat()
    return status.st_size, status.st_mtime_ns, status.st_ino


def check_unchanged(stamps: Stamps) -> None:
    """Say which file is no longer what it was.

    Raises
    ------
    OSError
        If one is no longer there.
    ValueError
        If one has changed.

    """
    for file, stamp in stamps.items():
        if _stamp(file) != stamp:
            raise changed(file)
