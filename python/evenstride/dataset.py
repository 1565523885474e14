"""The map-style data set for :class:`torch.utils.data.DataLoader` whose rows differ in length."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

import numpy as np
import torch
from torch.utils.data import Dataset

from evenstride.columns import as_column, check_names, check_rows
from evenstride.folder import save_folder
from evenstride.indices import as_row, as_rows, is_single
from evenstride.openers import arrow_opener, open_with, own_columns, path_opener
from evenstride.rows import RaggedRows, row_tensor
from evenstride.sources_arrow import column_of, is_arrow_array, open_arrow
from evenstride.sources_lists import open_lists

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray
    from typing_extensions import Self

    from evenstride import _core
    from evenstride.columns import ColumnArrays, Layout, Opened
    from evenstride.openers import Opener

__all__ = ["RaggedDataset", "RaggedRows"]


def _parts(opened: Opened, opener: Opener | None = None) -> dict[str, Any]:
    """Return the attributes of a data set, whose columns have all been checked."""
    arrays, rows = opened
    columns = {name: array.column() for name, array in arrays.items()}
    check_rows(columns)
    if rows is not None:
        rows.flags.writeable = False  # They are checked once.
    return {"columns": columns, "rows": rows, "_arrays": arrays, "_opener": opener}


class RaggedDataset(Dataset[dict[str, torch.Tensor]]):
    """Rows of different lengths, read where they lie: in arrays, Arrow buffers or mapped files.

    A row is a dict of tensors, one a field. With a :class:`PadCollator`, a ``DataLoader`` makes a
    batch in one native call without making its rows; any other ``collate_fn`` gets the rows.

    ::

        values   7 8 9 | 4 | 5 6        ragged: offsets 0, 3, 4, 6
        label      1   | 0 |  1         one value a row

    Parameters
    ----------
    fields : mapping of str to array_like or tuple
        What each field is made of, all with equally many rows:

        - ``(values, offsets)``: row i is ``values[offsets[i]:offsets[i + 1]]``. `values` has shape
          (n_cells,), or (n_cells, ...) if a token has several values; `offsets` are integers, shape
          (n_rows + 1,), that do not fall and lie in ``[0, n_cells]``.
        - a list of such tuples: chunks, whose rows come one after the other.
        - `values` alone: one value a row, shape (n_rows, ...), such as a label.
        - an Arrow array of numbers or of lists of them.

        Arrays, memmaps, CPU tensors, Arrow arrays or lists of bools, integers or floats; not copied
        unless strides, a foreign byte order or a list ask for it. Never change them afterwards.

    Attributes
    ----------
    fields : dict of str to (str, tuple)
        The type of each field's values, and the shape of a row: ``("uint16", (None,))`` where it
        is ragged, ``("int64", ())`` for a label.

    Raises
    ------
    TypeError
        If values or offsets are of another kind.
    ValueError
        If a row is not inside the values, or fields have different numbers of rows; the message
        names the field, the row and the value.

    Examples
    --------
    >>> import evenstride as es
    >>> values, offsets = [7, 8, 9, 4, 5, 6], [0, 3, 4, 6]
    >>> ds = es.RaggedDataset({"input_ids": (values, offsets), "label": [1, 0, 1]})
    >>> ds[1]
    {'input_ids': tensor([4]), 'label': tensor(0)}
    >>> ds.lengths
    array([3, 1, 2], dtype=int32)
    >>> [row["label"].item() for row in ds[-2:]]
    [0, 1]
    >>> ds.select([2, 2]).lengths
    array([2, 2], dtype=int32)

    """

    columns: dict[str, _core.Column]
    rows: NDArray[np.int64] | None
    _arrays: dict[str, ColumnArrays]
    _lengths: NDArray[np.integer[Any]] | None = None
    _opener: Opener | None

    def __init__(self, fields: Mapping[str, Any]) -> None:
        if not isinstance(fields, Mapping):
            msg = f"`fields` must be a mapping of names to arrays, but is {fields!r}."
            raise TypeError(msg)
        check_names(fields)
        arrays = {
            name: column_of(name, field) if is_arrow_array(field) else as_column(name, field)
            for name, field in fields.items()
        }
        self.__dict__.update(_parts((arrays, None)))

    @classmethod
    def _of(cls, opened: Opened, opener: Opener | None = None) -> Self:
        dataset = cls.__new__(cls)
        dataset.__dict__.update(_parts(opened, opener))
        return dataset

    @classmethod
    def from_arrow(cls, source: Any, columns: Any = None) -> Self:
        """Return the rows of Arrow columns, which are viewed in place.

        Parameters
        ----------
        source : pyarrow.Table, RecordBatch, Array or ChunkedArray, datasets.Dataset, or path-like
            A path is a file in Arrow's file or stream format (.arrow, .feather, .ipc), which is
            memory-mapped; a Parquet file (.parquet, .pq), whose columns are decoded into memory;
            or a folder that Hugging Face's ``save_to_disk`` wrote, memory-mapped. The shuffling and
            selecting of a Hugging Face data set is kept as row numbers, and nothing is flattened.
        columns : str, iterable of str, or mapping of str to str, optional
            Names of the columns to take, or which column each field is made of. By default all
            columns of integers, floats or bools and of lists of them, of whatever kind. For an
            array, the name of the field, by default "input_ids".

        Returns
        -------
        RaggedDataset
            Lists are ragged, but lists of fixed size have one value of that shape a row. Bools,
            which Arrow packs eight to a byte, are unpacked into memory.

        Raises
        ------
        ImportError
            If pyarrow is missing.
        TypeError
            If `source` or a column is of another kind.
        ValueError
            If there is no such column, a null in it, or a row outside its values; or the file is
            not whole.

        Examples
        --------
        >>> import evenstride as es, pyarrow as pa
        >>> table = pa.table({"text": ["a b", "c"], "input_ids": [[7, 8], [9]]})
        >>> es.RaggedDataset.from_arrow(table)[0]
        {'input_ids': tensor([7, 8])}

        """
        columns = own_columns(columns)
        return cls._of(open_arrow(source, columns), arrow_opener(source, columns))

    @classmethod
    def from_megatron(cls, prefix: str | os.PathLike[str]) -> Self:
        """Return the sequences of Megatron's indexed format, memory-mapped, as "input_ids".

        Parameters
        ----------
        prefix : path-like
            Path of the .bin and .idx files, with or without one of these suffixes.

        Returns
        -------
        RaggedDataset

        Raises
        ------
        OSError
            If a file cannot be read.
        ValueError
            If the index is not whole, or a sequence not inside the .bin file; the message names
            the file, the row and the value.

        """
        opener = path_opener("megatron", prefix)
        return cls._of(open_with(opener), opener)

    @classmethod
    def from_lists(cls, rows: Any) -> Self:
        """Return rows that are Python lists, copied.

        Parameters
        ----------
        rows : sequence of dict, or sequence of sequence of int
            Dicts of equal keys to lists, arrays, tensors or numbers; or lists, for one field,
            "input_ids". Integers become int64, the floats of Python torch's default type.

        Returns
        -------
        RaggedDataset

        Raises
        ------
        TypeError, ValueError
            If a row is of another kind than the first, or holds no numbers; the message names it.

        Examples
        --------
        >>> import evenstride as es
        >>> es.RaggedDataset.from_lists([{"input_ids": [7, 8], "score": 0.5}])[0]
        {'input_ids': tensor([7, 8]), 'score': tensor(0.5000)}

        """
        return cls._of(open_lists(rows, str(torch.get_default_dtype()).removeprefix("torch.")))

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Self:
        """Return the data set that :meth:`save` or a ``RaggedWriter`` wrote, memory-mapped.

        Raises
        ------
        OSError
            If a file cannot be read.
        ValueError
            If the folder is not whole, or not of this format.

        """
        opener = path_opener("folder", folder)
        return cls._of(open_with(opener), opener)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write all rows, in order, to a new folder: whole, or not at all.

        Its .npy files can also be read by ``numpy.load`` alone, and ``fields.json`` says what they
        are. Rows are copied a few megabytes at a time.

        Raises
        ------
        OSError
            If the folder exists or cannot be written.

        Examples
        --------
        >>> import evenstride as es, tempfile
        >>> folder = tempfile.mkdtemp() + "/corpus"
        >>> es.RaggedDataset.from_lists([[7, 8, 9], [4]]).save(folder)
        >>> es.RaggedDataset.open(folder).lengths
        array([3, 1], dtype=int32)

        """
        rows = np.arange(len(self)) if self.rows is None else self.rows
        save_folder(folder, self._arrays, self.columns, rows)

    def __len__(self) -> int:
        """Return the number of rows."""
        if self.rows is not None:
            return len(self.rows)
        return check_rows(self.columns)

    @property
    def fields(self) -> dict[str, Layout]:
        """The type of each field's values and the shape of a row, None first if ragged."""
        return {name: arrays.layout for name, arrays in self._arrays.items()}

    @property
    def lengths(self) -> NDArray[np.integer[Any]]:
        """The length of each row in the first ragged field, int32 or int64, read-only.

        If no field is ragged, all rows have the length of the first field that has a shape.
        """
        if self._lengths is None:
            lengths = self._all_lengths()
            self._lengths = lengths if self.rows is None else lengths[self.rows]
            self._lengths.flags.writeable = False
        return self._lengths

    def _all_lengths(self) -> NDArray[np.integer[Any]]:
        for column in self.columns.values():
            if column.is_ragged:
                lengths: NDArray[np.integer[Any]] = column.lengths()
                return lengths
        for column in self.columns.values():
            if column.cell_shape:
                return np.full(column.num_rows, column.cell_shape[0], np.int32)
        msg = f"`lengths` must come from a field that has a shape, but there is {self.fields}."
        raise ValueError(msg)

    @overload
    def __getitem__(self, index: SupportsIndex) -> dict[str, torch.Tensor]: ...

    @overload
    def __getitem__(self, index: Any) -> Any: ...

    def __getitem__(self, index: Any) -> Any:
        """Return a row, or several.

        Parameters
        ----------
        index : int, slice, sequence of int, or mask
            Negative ones count from the end.

        Returns
        -------
        dict of str to torch.Tensor, or RaggedRows
            Integers as int64, bools as bool, floats as they are, copied: ragged fields with shape
            (length, ...), others with the shape of their value, () for a number. For more than one
            integer, a sequence that makes such dicts when asked for one.

        Raises
        ------
        IndexError
            If there is no such row.

        """
        if not is_single(index):
            return RaggedRows(self, as_rows(index, len(self)))
        row = as_row(index, len(self))
        if self.rows is not None:
            row = int(self.rows[row])
        return {name: row_tensor(column, row) for name, column in self.columns.items()}

    @property
    def has_plain_rows(self) -> bool:
        """Whether a row is what the columns hold: no subclass has a ``__getitem__`` of its own."""
        return type(self).__getitem__ is RaggedDataset.__getitem__

    def __getitems__(self, indices: Any) -> Any:
        """Return the rows of a batch, for a ``DataLoader``: rows that are made when asked for.

        A list of integers is not checked before, and a single integer gives a row.
        """
        if not self.has_plain_rows:
            return [self[index] for index in indices]
        return RaggedRows(self, indices) if isinstance(indices, list) else self[indices]

    def select(self, indices: Any) -> Self:
        """Return a data set of some of the rows, which shares their values.

        Parameters
        ----------
        indices : sequence of int, slice, or mask
            In any order, repeated or negative.

        Raises
        ------
        IndexError
            If there is no such row.

        """
        rows = as_rows(indices, len(self))
        selected = copy.copy(self)
        rows = rows if self.rows is None else self.rows[rows]
        rows.flags.writeable = False
        selected.__dict__.update(rows=rows, _lengths=None)
        return selected

    def __repr__(self) -> str:
        return f"{type(self).__name__}(num_rows={len(self)}, fields={self.fields})"

    def __getstate__(self) -> dict[str, Any]:
        """Pickle what was opened as its path, memmaps as their place in a file, else the arrays."""
        state = self.__dict__ | {"_lengths": None}
        num_rows = check_rows(state.pop("columns"))
        if self._opener is None:
            arrays = {name: arrays.pack() for name, arrays in self._arrays.items()}
            return state | {"_arrays": arrays}
        return state | {"_arrays": (num_rows, self.fields)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore what was pickled; everything is checked again."""
        opener, packed = state["_opener"], state["_arrays"]
        if opener is None:
            arrays = {name: array.unpack() for name, array in packed.items()}
        else:
            arrays, _ = open_with(opener)
        self.__dict__.update(state | _parts((arrays, state["rows"]), opener))
        if opener is not None:
            now = check_rows(self.columns), self.fields
            if now != packed:
                msg = (
                    f"The data must be what it was when it was pickled, {packed[0]} rows of "
                    f"{packed[1]}, but is {now[0]} rows of {now[1]}."
                )
                raise ValueError(msg)

    def __copy__(self) -> Self:
        """Share everything but the place where names are set: none of it ever changes."""
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Copy as ``copy.copy`` does."""
        memo[id(self)] = other = copy.copy(self)
        return other
