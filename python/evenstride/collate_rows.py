"""Rows of any dataset, gathered into the columns that native code reads."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import default_collate

from evenstride.columns import as_values, converted
from evenstride.fields import DTYPE_NAMES, TORCH_DTYPES, default_dtype
from evenstride.sources_lists import column_of_rows, has_type, ragged_column, read_row

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from numpy.typing import NDArray

    from evenstride import _core
    from evenstride.sources_lists import Row


def checked_rows(rows: Any) -> list[Mapping[str, Any]]:
    """Return samples as a list; say what is wrong with them if they are not mappings of one kind.

    Raises
    ------
    TypeError
        If a sample is no mapping of names.
    ValueError
        If there is none, or samples have different keys.

    """
    if isinstance(rows, (str, Mapping)) or not isinstance(rows, Iterable):
        msg = f"`rows` must be a sequence of samples, but is a {_kind(rows)}."
        raise TypeError(msg)
    samples: list[Mapping[str, Any]] = list(rows)
    if len(samples) == 0:
        msg = "`rows` must have at least 1 sample, but has 0."
        raise ValueError(msg)
    for i, row in enumerate(samples):
        if not isinstance(row, Mapping):
            msg = f"`rows[{i}]` must be a mapping of names to values, but is a {_kind(row)}."
            raise TypeError(msg)
        if row.keys() != samples[0].keys():
            msg = (
                f"`rows[{i}]` must have the keys of `rows[0]`, {list(samples[0])}, but has "
                f"{list(row)}."
            )
            raise ValueError(msg)
    return samples


def columns_of(
    rows: Sequence[Mapping[str, Any]],
    sources: Mapping[str, str | None],
    named: Container[str],
) -> tuple[dict[str, _core.Column], dict[str, Any]]:
    """Gather rows by key.

    Parameters
    ----------
    rows : sequence of mapping
        At least one sample, all with the same keys.
    sources : mapping of str to str or None
        The keys that become columns, if the rows have them. Python's floats, and its ints too, are
        read as the float that is named, if one is; else floats as torch's default type.
    named : container of str
        Keys that are left out unless they become columns: the batch has others of these names.

    Returns
    -------
    columns : dict of str to Column
        Of those keys, in the order of the rows' own keys.
    others : dict of str to torch.Tensor or list
        Of the other keys: stacked if their shapes are equal, else a list.

    Raises
    ------
    TypeError
        If a value holds no numbers, or its kind or type does not go with those of other rows.
    ValueError
        If the cells of rows differ in shape, or an integer is outside int64 and uint64.

    """
    columns: dict[str, _core.Column] = {}
    others: dict[str, Any] = {}
    for key in rows[0]:
        values = [row[key] for row in rows]
        if key in sources:
            columns[key] = _column_of(key, values, sources[key])
        elif key not in named:
            given = [_tensor_or_same(f"rows[{i}]['{key}']", one) for i, one in enumerate(values)]
            together = stacked_or_listed(given)
            others[key] = _copied(given) if together is given else together
    return columns, others


def stacked_or_listed(values: list[Any]) -> Any:
    """Stack tensors of equal shapes; return others as the list that they are."""
    for value in values:
        if not isinstance(value, torch.Tensor) or value.is_nested:
            return values
        if value.shape != values[0].shape:
            return values
    if not values:
        return values
    if len({(value.dtype, value.layout) for value in values}) > 1:
        return torch.stack(values)
    return default_collate(values)  # Into shared memory, if this is a worker process.


def _kind(value: object) -> str:
    return type(value).__name__


def _column_of(key: str, values: list[Any], float_type: str | None) -> _core.Column:
    def place(row: int) -> str:
        return f"rows[{row}]['{key}']"

    joined = _joined(values, float_type)
    if joined is not None:
        cells, dtype = as_values(place(0), joined)
        return ragged_column(key, cells, dtype, [len(value) for value in values]).column()
    read = [_read(place(row), value, float_type) for row, value in enumerate(values)]
    return column_of_rows(key, read, place).column()


def _joined(values: list[Any], float_type: str | None) -> Any:
    """Return what takes one step for all rows: them one after the other, or None if it would not.

    Rows are lists of ints, or arrays or tensors of one type.
    """
    kind = type(values[0])
    if any(type(value) is not kind for value in values):
        return None
    if kind is list and float_type is None:
        return _joined_integers(values)
    if kind is np.ndarray and _are_alike(values):
        return np.concatenate(values)
    if kind is torch.Tensor and _are_alike(values):
        return torch.cat(values)
    return None


def _joined_integers(values: list[list[Any]]) -> NDArray[np.int64] | None:
    first = next((value[0] for value in values if value), 0)
    if type(first) is not int:
        return None
    try:
        return np.asarray(array("q", chain.from_iterable(values)), np.int64)
    except (TypeError, OverflowError):
        return None


def _are_alike(values: list[Any]) -> bool:
    """Whether arrays or tensors that have a first dimension agree in all but its size."""
    first = values[0]
    return first.ndim > 0 and all(
        value.dtype == first.dtype
        and value.ndim == first.ndim
        and value.shape[1:] == first.shape[1:]
        for value in values
    )


def _read(place: str, value: Any, float_type: str | None) -> Row:
    """Return the cells of a row, and their type: `float_type`, if numbers are Python's."""
    default = DTYPE_NAMES[torch.get_default_dtype()]
    cells, dtype = read_row(place, value, default if float_type is None else float_type)
    if float_type is None or has_type(value):
        return cells, dtype
    return converted(place, cells, dtype, float_type), float_type


def _copied(values: list[Any]) -> list[Any]:
    return [value.clone() if isinstance(value, torch.Tensor) else value for value in values]


def _tensor_or_same(place: str, value: Any) -> Any:
    """Return what holds numbers as a tensor in the type in which values come out.

    It may share the memory of `value`.
    """
    if isinstance(value, torch.Tensor) and value.dtype != torch.uint64:
        dtype = DTYPE_NAMES.get(value.dtype)
        tensor = value.detach()
        return tensor if dtype is None else tensor.to(TORCH_DTYPES[default_dtype(dtype)])
    if isinstance(value, (str, bytes)):
        return value
    try:
        cells, dtype = _read(place, value, None)
    except (TypeError, ValueError):
        return value
    to = default_dtype(dtype)
    cells = converted(place, cells, dtype, to)
    # Torch warns of memory that cannot be written.
    raw = torch.from_numpy(cells if cells.flags.writeable else cells.copy())
    return raw.view(TORCH_DTYPES[to])
