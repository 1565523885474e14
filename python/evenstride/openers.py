"""What a data set was opened from, so that a pickle of it can be opened again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from evenstride.folder import open_folder
from evenstride.sources_arrow import is_hugging_face, is_mapped, open_arrow, open_hugging_face
from evenstride.sources_megatron import open_megatron

if TYPE_CHECKING:
    from evenstride.columns import Opened

Opener: TypeAlias = "tuple[str, tuple[Any, ...]]"
"""What names a function that opens a source, and its arguments."""

_FUNCTIONS: dict[str, Callable[..., Opened]] = {
    "arrow": open_arrow,
    "folder": open_folder,
    "hugging_face": open_hugging_face,
    "megatron": open_megatron,
}


def open_with(opener: Opener) -> Opened:
    """Return what an opener opens."""
    name, arguments = opener
    return _FUNCTIONS[name](*arguments)


def path_opener(name: str, path: str | os.PathLike[str]) -> Opener:
    """Return what opens a path, whatever the working directory will be."""
    return name, (os.fspath(Path(path).absolute()),)


def arrow_opener(source: Any, columns: Any) -> Opener | None:
    """Return what opens a source of Arrow columns, or None if it is nothing but memory."""
    if isinstance(source, (str, os.PathLike)):
        name, (path,) = path_opener("arrow", source)
        return name, (path, columns)
    if is_hugging_face(source) and is_mapped(source.data):
        return "hugging_face", (source.data, columns)
    return None


def own_columns(columns: Any) -> Any:
    """Return what says which columns to take, copied, as it may change or be an iterator."""
    if isinstance(columns, Mapping):
        return dict(columns)
    is_several = isinstance(columns, Iterable) and not isinstance(columns, str)
    return list(columns) if is_several else columns
