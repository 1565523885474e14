"""Padding collators: batches of samples as rectangles of tokens."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Mapping
from dataclasses import KW_ONLY
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from evenstride.bound import BoundCollator
from evenstride.collate_rows import checked_rows, columns_of
from evenstride.columns import check_names
from evenstride.fields import DTYPE_NAMES, Field, check_side, dtype_name
from evenstride.options import as_count
from evenstride.outputs import DERIVED, check_sources, derived_keys
from evenstride.rows import RaggedRows
from evenstride.truncation import Truncation

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from evenstride.dataset import RaggedDataset

__all__ = ["Field", "PadCollator"]

_MASK_DTYPES = (torch.int64, torch.bool, torch.uint8)
_MOST_MULTIPLE = 2**31


@dataclasses.dataclass(frozen=True, eq=False)
class PadCollator:
    """Pads the samples of a batch to rectangles: the ``collate_fn`` of a ``DataLoader``.

    With a :class:`RaggedDataset`, a batch is one native call that reads the rows where they lie and
    writes every cell of every output once, without the GIL, into memory that is used again when the
    last tensor of an earlier batch has died. In a worker process of a ``DataLoader`` it is memory
    that is shared with the main process, one block a batch. Any other data set whose samples are
    dicts of lists, arrays or tensors works too. Threads may share a collator.

    Parameters
    ----------
    fields : mapping of str to Field
        The keys of a batch that are padded, and how; at least one. Each becomes a tensor of shape
        ``(n_samples, width, ...)``; its width is that of its longest row, at least 1. A field of
        the data with one fixed-shape value a row is stacked. Fields of the data that no key is made
        of are stacked if their shapes are equal, and else kept as lists of tensors; but one that
        has the name of a key of this mapping is left out, because that key wins.
    attention_mask : bool, default True
        Add "attention_mask": 1 where there is a token and 0 in the padding, of the first field in
        the data that is ragged and named here. One that the data has is padded with 0, cut like
        that field, and wins.
    position_ids, lengths : bool, default False
        Likewise: the place of each token in its row, and 0 in the padding; the tokens of each row,
        shape ``(n_samples,)``. Both int64.
    pad_to_multiple_of : int, default 1
        Widths are rounded up to a multiple of this, in ``[1, 2**31)``.
    padding_side : {"right", "left"}, default "right"
        Where padding goes.
    max_length : int, optional
        Most tokens of a row, in ``[1, 2**63)``. What is beyond is cut off, and counted in
        :attr:`truncated`.
    mask_dtype : torch.dtype, default torch.int64
        Type of the attention mask: int64, bool or uint8.

    Attributes
    ----------
    truncated : dict
        How many samples and tokens `max_length` has cut in this process, by key:
        ``{"input_ids": {"samples": 2, "tokens": 19}}``.

    Raises
    ------
    TypeError
        If an argument is not of its kind, or values cannot be of an output's type.
    ValueError
        If a value is outside its range, a field is missing, or rows do not fit together.

    Examples
    --------
    >>> import evenstride as es
    >>> collate = es.PadCollator({"input_ids": es.Field(padding_value=0)}, pad_to_multiple_of=4)
    >>> batch = collate([{"input_ids": [5, 6, 7], "label": 1}, {"input_ids": [8], "label": 0}])
    >>> batch["input_ids"]
    tensor([[5, 6, 7, 0],
            [8, 0, 0, 0]])
    >>> batch["attention_mask"]
    tensor([[1, 1, 1, 0],
            [1, 0, 0, 0]])
    >>> batch["label"]
    tensor([1, 0])

    """

    fields: Mapping[str, Field]
    _: KW_ONLY
    attention_mask: bool = True
    position_ids: bool = False
    lengths: bool = False
    pad_to_multiple_of: int = 1
    padding_side: str = "right"
    max_length: int | None = None
    mask_dtype: torch.dtype = torch.int64

    # Not an option: what becomes a column, as `collate_rows.columns_of` takes it.
    sources: Mapping[str, str | None] = dataclasses.field(init=False, repr=False)
    # By the id of a data set, with what notes its death.
    _bounds: dict[int, tuple[weakref.ref[RaggedDataset], BoundCollator]] = dataclasses.field(
        init=False, repr=False, default_factory=dict
    )
    _truncation: Truncation = dataclasses.field(init=False, repr=False, default_factory=Truncation)

    def __post_init__(self) -> None:
        fields = _checked_fields(self.fields)
        for option in DERIVED:
            wanted = getattr(self, option)
            if not isinstance(wanted, (bool, np.bool_)):
                msg = f"`{option}` must be True or False, but is {wanted!r}."
                raise TypeError(msg)
        multiple = as_count("pad_to_multiple_of", self.pad_to_multiple_of)
        if multiple >= _MOST_MULTIPLE:
            msg = f"`pad_to_multiple_of` must be in [1, 2**31), but is {multiple}."
            raise ValueError(msg)
        check_side(self.padding_side)
        max_length = None if self.max_length is None else as_count("max_length", self.max_length)
        name = dtype_name("mask_dtype", self.mask_dtype)
        if self.mask_dtype not in _MASK_DTYPES:
            msg = f"`mask_dtype` must be torch.int64, bool or uint8, but is {name}."
            raise ValueError(msg)
        self.__dict__.update(
            fields=fields,
            pad_to_multiple_of=multiple,
            max_length=max_length,
            sources=_sources(fields, derived_keys(self)),
        )

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return a batch.

        Parameters
        ----------
        rows : sequence of mapping
            What ``dataset.__getitems__`` of a :class:`RaggedDataset` returns, or samples: mappings
            of equal keys to lists, arrays, tensors or numbers. Of these, fields that are named and
            have a dimension are ragged.

        Returns
        -------
        dict of str to torch.Tensor
            Lists of tensors where a field without a :class:`Field` has rows of different shapes.

        """
        if isinstance(rows, RaggedRows) and rows.dataset.has_plain_rows:
            return self.bound_to(rows.dataset).batch(rows.indices)
        rows = checked_rows(rows)
        check_sources(self.fields, rows[0])
        columns, others = columns_of(rows, self.sources, self.fields)
        bound = BoundCollator(self, columns)
        batch = bound.batch(range(len(rows)))
        self._truncation.add(bound.truncated)
        return {**batch, **others}

    def bound_to(self, dataset: RaggedDataset) -> BoundCollator:
        """Return what makes batches of this data set, made once and as long as that lives."""
        entry = self._bounds.get(id(dataset))
        if entry is None:
            check_sources(self.fields, dataset.columns)
            bound = BoundCollator(self, dataset.columns, dataset.rows)
            # Called before the id can be that of another one.
            forget = partial(_forget, weakref.ref(self), id(dataset))
            # Of threads that come here at once, all take what the first has made.
            entry = self._bounds.setdefault(id(dataset), (weakref.ref(dataset, forget), bound))
        return entry[1]

    @property
    def truncated(self) -> dict[str, dict[str, int]]:
        """Samples and tokens that `max_length` has cut, by key, in this process."""
        bounds = [bound.truncated for _, bound in self._bounds.copy().values()]
        return self._truncation.plus(bounds)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the options; data sets are bound anew, and counts begin at 0."""
        return {**self.__dict__, "_bounds": {}, "_truncation": Truncation()}


def _forget(collate: weakref.ref[PadCollator], dataset_id: int, _: object) -> None:
    """Let go of the columns of a data set that has died, but keep its counts."""
    alive = collate()
    if alive is not None:
        _, bound = alive._bounds.pop(dataset_id)  # noqa: SLF001 - A part of the class.
        alive._truncation.add(bound.truncated)  # noqa: SLF001


def _checked_fields(fields: Any) -> dict[str, Field]:
    if not isinstance(fields, Mapping):
        msg = f"`fields` must be a mapping of names to Field, but is {fields!r}."
        raise TypeError(msg)
    check_names(fields)
    for key, field in fields.items():
        if not isinstance(field, Field):
            msg = f"`fields[{key!r}]` must be a Field, but is {field!r}."
            raise TypeError(msg)
    if not fields:
        msg = "`fields` must name at least 1 field, but names 0."
        raise ValueError(msg)
    return dict(fields)


def _sources(fields: Mapping[str, Field], derived: Iterable[str]) -> dict[str, str | None]:
    """Return what becomes columns, and the float that Python's numbers in it are, if not torch's.

    A list of numbers has no type of its own: all floats of a batch may happen to be whole.
    """
    wanted: dict[str, set[torch.dtype | None]] = {key: set() for key in derived}
    for key, field in fields.items():
        wanted.setdefault(field.source_of(key), set()).add(field.dtype)
        if field.prompt is not None:
            wanted.setdefault(field.prompt, set()).add(None)  # Numbers as they are.
    return {source: _only_float(dtypes) for source, dtypes in wanted.items()}


def _only_float(dtypes: set[torch.dtype | None]) -> str | None:
    if len(dtypes) != 1:
        return None
    (dtype,) = dtypes
    return DTYPE_NAMES[dtype] if dtype is not None and dtype.is_floating_point else None
