"""Writes a data set row by row, without holding it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from evenstride.columns import RAW_TYPES, as_row, check_names, converted
from evenstride.folder import FolderDraft
from evenstride.options import as_count

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable
    from types import TracebackType

    from numpy.typing import NDArray
    from typing_extensions import Self

    from evenstride.columns import Layout

__all__ = ["RaggedWriter"]

_BUFFERED_BYTES = 1 << 22
_RAGGED = (None,)


class RaggedWriter:
    """Writes rows to a folder for :meth:`evenstride.RaggedDataset.open`, as they come.

    A context manager, to be entered once, for one thread. The folder appears when the block is
    left, whole; if an exception leaves it, there is none. Rows are held by the few megabytes. A
    process that is killed leaves a folder beside it whose name begins with a dot.

    Parameters
    ----------
    folder : path-like
        Must not exist, unlike the folder that it is in.
    fields : mapping of str to str or tuple
        The type of each field's values and the shape of a row, with None first where rows differ in
        length: ``("float32", (None, 80))`` for frames of 80 values, ``("int64", ())`` for a label.
        A type alone, such as ``"uint16"``, means rows of any number of values, ``(None,)``. Types
        are bool, int8 to int64, uint8 to uint64, float16, float32, float64 and bfloat16.

    Attributes
    ----------
    num_rows : int
        How many rows have been appended.

    Raises
    ------
    FileExistsError
        If the folder exists.
    TypeError, ValueError
        If a field is not described so, or a row does not fit its description. Such a row is not
        written, not even in part.

    Examples
    --------
    >>> import evenstride as es, tempfile
    >>> from evenstride.writer import RaggedWriter
    >>> folder = tempfile.mkdtemp() + "/corpus"
    >>> with RaggedWriter(folder, {"input_ids": "uint16", "label": ("int64", ())}) as writer:
    ...     writer.append({"input_ids": [7, 8, 9], "label": 1})
    ...     writer.extend({"input_ids": [length] * length, "label": 0} for length in (2, 5))
    >>> es.RaggedDataset.open(folder).lengths
    array([3, 2, 5], dtype=int32)

    """

    def __init__(self, folder: str | os.PathLike[str], fields: Any) -> None:
        if not isinstance(fields, Mapping) or not fields:
            msg = f"`fields` must map at least 1 name to the type of its values, but is {fields!r}."
            raise TypeError(msg)
        check_names(fields)
        self._fields = {name: _layout(name, field) for name, field in fields.items()}
        self._draft = FolderDraft(folder, self._fields)
        self._is_open = False
        self._has_failed = False
        self._clear()

    def _clear(self) -> None:
        self._rows: dict[str, list[NDArray[Any]]] = {name: [] for name in self._fields}
        self._bytes = 0

    @property
    def num_rows(self) -> int:
        """How many rows have been appended."""
        return self._draft.num_rows

    def __enter__(self) -> Self:
        """Begin to write."""
        if self._is_open or self._draft.num_rows:
            msg = "A RaggedWriter must be entered once; make another one."
            raise ValueError(msg)
        self._draft.__enter__()
        self._is_open = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Make the folder appear, or remove what was written after an exception."""
        self._is_open = False
        try:
            if kind is None and self._has_failed:
                msg = "A folder must be written whole, but writing to its files has failed."
                raise ValueError(msg)  # noqa: TRY301 - Left as by any other failure.
            if kind is None:
                self._flush()
        except BaseException as failure:
            self._draft.__exit__(type(failure), failure, None)
            raise
        self._draft.__exit__(kind, error, traceback)

    def append(self, row: Any) -> None:
        """Write a row: for each field an array, tensor or list, or a number if it has no shape."""
        if self._has_failed:
            msg = "Rows must not be written any more, because writing to the files has failed."
            raise ValueError(msg)
        if not self._is_open:
            msg = "Rows must be written inside the `with` block of a RaggedWriter."
            raise ValueError(msg)
        if not isinstance(row, Mapping) or row.keys() != self._fields.keys():
            found = list(row) if isinstance(row, Mapping) else row
            msg = (
                f"A row must have the fields {list(self._fields)}, but row {self.num_rows} has "
                f"{found}."
            )
            raise ValueError(msg)
        arrays = {
            name: _as_row(f"{name}[{self.num_rows}]", row[name], *layout)
            for name, layout in self._fields.items()
        }
        for name, array in arrays.items():
            self._rows[name].append(array)
            self._bytes += array.nbytes
        self._draft.num_rows += 1
        # Each array has a cost of its own, which would go without limit if rows were empty.
        if self._bytes + 100 * len(self._rows[name]) > _BUFFERED_BYTES:
            self._flush()

    def extend(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write rows, one after the other."""
        for row in rows:
            self.append(row)

    def _flush(self) -> None:
        rows = self._rows
        self._clear()
        self._has_failed = True  # Unless all goes well: what failed amid a row cannot be mended.
        for name, (_, shape) in self._fields.items():
            if rows[name]:
                is_ragged = shape[:1] == _RAGGED
                lengths = np.array([len(row) for row in rows[name]]) if is_ragged else None
                cells = np.concatenate([row.reshape(-1) for row in rows[name]])
                self._draft.append(name, cells, lengths)
        self._has_failed = False


def _layout(name: str, field: Any) -> Layout:
    pair = field if isinstance(field, tuple) else (field, _RAGGED)
    if len(pair) != 2 or not isinstance(pair[1], (tuple, list)):  # noqa: PLR2004 - Type and shape.
        msg = f"`{name}` must be described by a type or a tuple (type, shape), but is by {field!r}."
        raise TypeError(msg)
    dtype = pair[0] if isinstance(pair[0], str) else _name_of(pair[0])
    if dtype not in RAW_TYPES:
        msg = f"`{name}` must have one of the types {', '.join(RAW_TYPES)}, but has {dtype!r}."
        raise ValueError(msg)
    is_ragged = tuple(pair[1][:1]) == _RAGGED
    sizes = tuple(as_count(f"shape of {name}", size) for size in pair[1][is_ragged:])
    return dtype, (*_RAGGED, *sizes) if is_ragged else sizes


def _name_of(dtype: Any) -> str:
    """Return the name of a type of numpy or torch."""
    name = getattr(dtype, "name", getattr(dtype, "__name__", None))
    return str(dtype).removeprefix("torch.") if name is None else name


def _as_row(described: str, row: Any, dtype: str, shape: tuple[int | None, ...]) -> NDArray[Any]:
    array, given = as_row(described, row)
    if array.shape == (0,) and shape[:1] == _RAGGED:  # An empty list has no shape or type.
        return np.empty(0, RAW_TYPES[dtype])
    is_alike = (wanted in {None, size} for wanted, size in zip(shape, array.shape, strict=False))
    if len(array.shape) != len(shape) or not all(is_alike):
        msg = f"`{described}` must have shape {shape}, but has {array.shape}."
        raise ValueError(msg)
    if _rank(given) > _rank(dtype):
        msg = f"`{described}` must hold what {dtype} can hold, but holds {given}."
        raise TypeError(msg)
    if "int" in dtype and given != "bool" and array.size:
        bounds = np.iinfo(dtype)
        for value in (int(array.min()), int(array.max())):
            if not bounds.min <= value <= bounds.max:
                msg = (
                    f"`{described}` must be in [{bounds.min}, {bounds.max}], as {dtype} is, but "
                    f"holds {value}."
                )
                raise ValueError(msg)
    return np.array(converted(described, array, given, dtype))


def _rank(dtype: str) -> int:
    return 2 if "float" in dtype else int(dtype != "bool")
