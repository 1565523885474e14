"""Which files people mean who name a folder or a pattern."""

from __future__ import annotations

import glob
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from evenstride.read_columns import is_known_folder
from evenstride.read_text import listed

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Paths", "are_paths", "find_files"]

Paths: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"
"""A path or several: of files, folders, or patterns such as ``corpus/*.parquet``."""

# A folder has files of one of these kinds; what comes after the first line may lie beside them.
_KINDS = (
    ({".parquet", ".pq"}, {".arrow", ".feather", ".ipc"}, {".idx"}),
    ({".npy"}, {".npz"}),
    ({".txt", ".csv", ".tsv"},),
)
_CACHED = "cache-"  # What datasets calls the result of `map`, beside what it was made from.


def are_paths(source: Any) -> bool:
    """Return whether this is a path, or a list or tuple of paths."""
    return isinstance(source, (str, os.PathLike, list, tuple))


def find_files(paths: Paths) -> list[Path]:
    """Return the files that are meant, in order: those of a folder or a pattern sorted by name.

    What only looks like a folder, such as one that ``save_to_disk`` wrote, is one file here.

    Raises
    ------
    ValueError
        If there is no file, or a folder has files of several kinds.

    """
    several = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    files = [file for path in several for file in _files_of(path)]
    if not files:
        msg = "`source` must be at least 1 path, but is 0."
        raise ValueError(msg)
    return files


def _files_of(path: str | os.PathLike[str]) -> list[Path]:
    file = Path(path)
    if file.is_dir() and not is_known_folder(file):
        return _inside(file)
    if file.exists() or not glob.has_magic(os.fspath(path)):
        return [file]
    found = [Path(name) for name in glob.glob(os.fspath(path), recursive=True)]  # noqa: PTH207
    if not found:
        msg = f"`{path}` must match at least 1 file, but matches 0."
        raise ValueError(msg)
    return sorted(found, key=Path.as_posix)


def _inside(folder: Path) -> list[Path]:
    below = {}
    for file in folder.rglob("*"):
        inside = file.relative_to(folder)
        if file.is_file() and not any(part.startswith((".", "_")) for part in inside.parts):
            below[inside.as_posix()] = file
    files = [below[name] for name in sorted(below)]
    for kinds in _KINDS:
        found = [[f for f in files if f.suffix.lower() in kind] for kind in kinds]
        found = [some for some in found if some]
        if len(found) > 1:
            names = listed([some[0].name for some in found])
            msg = (
                f"`{folder}` must have files of one kind, but has {names}; name those that are "
                "meant, for example with a pattern."
            )
            raise ValueError(msg)
        if found:
            _refuse_cache(folder, found[0])
            return found[0]
    msg = (
        f"`{folder}` must be a folder that `RaggedDataset.save` or Hugging Face's `save_to_disk` "
        "wrote, or have Parquet, Arrow, .idx, .npy or text files in it, but has neither."
    )
    raise ValueError(msg)


def _refuse_cache(folder: Path, files: list[Path]) -> None:
    cached = [file for file in files if file.name.startswith(_CACHED)]
    if cached and len(cached) < len(files):
        other = next(file for file in files if file not in cached)
        msg = (
            f"`{folder}` must not have what datasets was given beside what it made of it, but has "
            f"{listed([other.name, cached[0].name])}; name those that are meant, for example with "
            "a pattern."
        )
        raise ValueError(msg)
