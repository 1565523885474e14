"""What a file or folder of the user is, and which column in it is meant. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from evenstride.arrow_chunks import kind_of
from evenstride.arrow_files import arrow_schema
from evenstride.folder import open_folder
from evenstride.read_text import json_error, listed

if TYPE_CHECKING:
    from pathlib import Path

    from evenstride.columns import ColumnArrays

__all__ = [
    "ArrowColumn",
    "Format",
    "chosen_column",
    "chosen_field",
    "column_in",
    "format_of",
    "is_known_folder",
]

Format: TypeAlias = Literal["npy", "npz", "arrow", "saved", "megatron", "text"]

_BY_SUFFIX: dict[str, Format] = {
    ".npy": "npy",
    ".npz": "npz",
    **dict.fromkeys((".parquet", ".pq", ".arrow", ".feather", ".ipc"), "arrow"),
    **dict.fromkeys((".idx", ".bin"), "megatron"),
}
_JSON = tuple(
    kind + packed
    for kind in (".json", ".jsonl", ".ndjson")
    for packed in ("", ".gz", ".bz2", ".xz", ".zst")
)
_SAVED = "fields.json"
_HUGGING_FACE = ("state.json", "dataset_dict.json")
_NAMES = ("input_ids", "length", "lengths")


@dataclass(frozen=True)
class ArrowColumn:
    """A column of lists, or of integers, which can only be lengths."""

    name: str
    is_list: bool


def format_of(file: Path) -> Format:
    """Return what a path names, by its suffix and by what lies there.

    Raises
    ------
    ValueError
        If it is a folder that nobody knows, or JSON.

    """
    if str(file) == "-":
        return "text"
    if file.is_dir():
        if (file / _SAVED).is_file():
            return "saved"
        if any((file / name).is_file() for name in _HUGGING_FACE):
            return "arrow"
        msg = (
            f"`{file}` must be a folder that `RaggedDataset.save` or Hugging Face's `save_to_disk` "
            "wrote, but has neither `fields.json` nor `state.json`."
        )
        raise ValueError(msg)
    if not file.exists() and file.with_name(f"{file.name}.idx").is_file():
        return "megatron"
    if file.name.lower().endswith(_JSON):
        raise json_error(str(file))
    return _BY_SUFFIX.get(file.suffix.lower(), "text")


def is_known_folder(folder: Path) -> bool:
    """Return whether a folder is a data set as a whole, and not just where files lie."""
    return any((folder / name).is_file() for name in (_SAVED, *_HUGGING_FACE))


def chosen_column(file: Path, column: str | None) -> ArrowColumn:
    """Return which column of a Parquet or Arrow file, or of a Hugging Face folder, is meant.

    Without `column` that is the only one of lists, else the one with a well-known name.

    Raises
    ------
    ImportError
        If pyarrow is missing.
    OSError
        If the file cannot be read.
    ValueError
        If there is no such column, or it is not clear which one is meant.

    """
    file.stat()  # Arrow would not say as plainly that it is missing.
    return column_in(arrow_schema(file), str(file), column)


def column_in(schema: Any, origin: str, column: str | None) -> ArrowColumn:
    """Return which column of a schema is meant, as :func:`chosen_column`.

    Raises
    ------
    ValueError
        If there is no such column, or it is not clear which one is meant.

    """
    columns = {}
    for field in schema:
        kind = kind_of(field.type)
        if kind is not None:
            is_list = kind.bounds is not None or bool(kind.shape)
            if is_list or np.dtype(kind.dtype).kind in "iu":
                columns[field.name] = ArrowColumn(field.name, is_list)
    if not columns:
        msg = (
            f"`{origin}` must have a column of integers or of lists of numbers, but has "
            f"{listed(schema.names)}."
        )
        raise ValueError(msg)
    if column is None:
        lists = [name for name, found in columns.items() if found.is_list]
        named = [name for name in _NAMES if name in columns]
        column = lists[0] if len(lists) == 1 else next(iter(named), None)
    if column not in columns:
        msg = f"`column` must be one of {listed([*columns])} for `{origin}`, but is {column!r}."
        raise ValueError(msg)
    return columns[column]


def chosen_field(file: Path, column: str | None) -> ColumnArrays:
    """Return which ragged field of a saved folder is meant: by default the first.

    Raises
    ------
    OSError
        If a file cannot be read.
    ValueError
        If there is no such field, or the folder is not whole.

    """
    fields, _ = open_folder(file)
    ragged = {name: arrays for name, arrays in fields.items() if arrays.is_ragged}
    if not ragged:
        msg = f"`{file}` must have a ragged field, but has {listed([*fields])}."
        raise ValueError(msg)
    name = next(iter(ragged)) if column is None else column
    if name not in ragged:
        msg = f"`column` must be one of {listed([*ragged])} for `{file}`, but is {column!r}."
        raise ValueError(msg)
    return ragged[name]
