"""What a padding collator makes of one field of the data."""

from __future__ import annotations

import math
import operator
from dataclasses import KW_ONLY, dataclass
from typing import Any, SupportsFloat

import numpy as np
import torch

from evenstride.options import as_count, as_integer

_INTEGERS = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")
_NAMES = ("bool", *_INTEGERS, "float16", "bfloat16", "float32", "float64")
TORCH_DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in _NAMES}
DTYPE_NAMES = {dtype: name for name, dtype in TORCH_DTYPES.items()}
_SIDES = ("left", "right")
_END = 2**63


@dataclass(frozen=True)
class Field:
    """How one key of a batch is made.

    Parameters
    ----------
    padding_value : int, float or bool, default 0
        What stands where a row has no token: an integer in the range of the output's type, or a
        number that is rounded to it where it is a float.
    dtype : torch.dtype, optional
        Type of the output. By default int64 for integers, and the data's own type for others.
        Integers and bools become any of these whose range holds them; floats keep their type.
    source : str, optional
        The field of the data that it is made of. By default the one of the same name.
    padding_side : {"left", "right"}, optional
        By default that of the collator.
    max_length : int, optional
        Most tokens of a row, in ``[1, 2**63)``; what is beyond is cut off, and counted. By default
        that of the collator.
    start : int, default 0
        How many tokens to skip at the beginning of every row, in ``[0, 2**63)``.
    prompt : str, optional
        The field of the data, of one integer a row, that says how many of the row's first tokens
        are its prompt: at least 0, counted from the row's own beginning, however many are skipped.
        The padding value stands in their place; if there are more than the row has, in place of all
        of it. They count as tokens all the same: widths, masks, positions and lengths do not
        change.

    Raises
    ------
    TypeError
        If an argument is not of its kind.
    ValueError
        If a value is outside its range.

    Examples
    --------
    Labels that are the next tokens:

    >>> import evenstride as es
    >>> collate = es.PadCollator({
    ...     "input_ids": es.Field(),
    ...     "labels": es.Field(padding_value=-100, source="input_ids", start=1),
    ... })
    >>> collate([{"input_ids": [5, 6, 7]}, {"input_ids": [8, 9]}])["labels"]
    tensor([[   6,    7],
            [   9, -100]])

    Labels that leave out the prompt, whose length is a field of the data:

    >>> collate = es.PadCollator({
    ...     "input_ids": es.Field(),
    ...     "labels": es.Field(padding_value=-100, source="input_ids", prompt="prompt_length"),
    ... })
    >>> rows = [{"input_ids": [5, 6, 7], "prompt_length": 2},
    ...         {"input_ids": [8, 9], "prompt_length": 0}]
    >>> collate(rows)["labels"]
    tensor([[-100, -100,    7],
            [   8,    9, -100]])

    """

    padding_value: float = 0
    dtype: torch.dtype | None = None
    _: KW_ONLY
    source: str | None = None
    padding_side: str | None = None
    max_length: int | None = None
    start: int = 0
    prompt: str | None = None

    def __post_init__(self) -> None:
        self.__dict__.update(padding_value=_as_number("padding_value", self.padding_value))
        if self.dtype is not None:
            dtype_name("dtype", self.dtype)
        for option in ("source", "prompt"):
            name = getattr(self, option)
            if not isinstance(name, (str, type(None))):
                msg = f"`{option}` must be a string, but is {name!r}."
                raise TypeError(msg)
        if self.padding_side is not None:
            check_side(self.padding_side)
        if self.max_length is not None:
            self.__dict__.update(max_length=as_count("max_length", self.max_length))
        start = as_integer("start", self.start)
        if not 0 <= start < _END:
            msg = f"`start` must be in [0, 2**63), but is {start}."
            raise ValueError(msg)
        self.__dict__.update(start=start)

    def source_of(self, key: str) -> str:
        """Return the field of the data that `key`, which this field describes, is made of."""
        return key if self.source is None else self.source


def check_side(padding_side: str) -> None:
    """Say what is wrong with a side, if it is not one."""
    if padding_side not in _SIDES:
        msg = f"`padding_side` must be 'left' or 'right', but is {padding_side!r}."
        raise ValueError(msg)


def dtype_name(option: str, dtype: torch.dtype) -> str:
    """Return the name of a type that outputs can have; say what is wrong with it else."""
    if not isinstance(dtype, torch.dtype):
        msg = f"`{option}` must be a torch.dtype, but is {dtype!r}."
        raise TypeError(msg)
    if dtype not in DTYPE_NAMES:
        msg = f"`{option}` must be one of {', '.join(_NAMES)}, but is {dtype}."
        raise ValueError(msg)
    return DTYPE_NAMES[dtype]


def default_dtype(name: str) -> str:
    """Return the type in which values of a type come out unless another is asked for."""
    return "int64" if name in _INTEGERS else name


def is_float(name: str) -> bool:
    """Return whether a type is one of floats."""
    return "float" in name


def padding_bits(key: str, value: float, dtype: str) -> int:
    """Return the bits of a padding value in a type, as an integer in ``[0, 2**64)``.

    Raises
    ------
    TypeError
        If the type holds integers or bools, and the value is neither.
    ValueError
        If the value is outside the type's range.

    """
    if is_float(dtype):
        return _float_bits(key, value, dtype)
    if isinstance(value, float):
        msg = f"`padding_value` of `{key}` must be an integer for {dtype}, but is {value!r}."
        raise TypeError(msg)
    least, most = (0, 1) if dtype == "bool" else _range(dtype)
    if not least <= value <= most:
        msg = (
            f"`padding_value` of `{key}` must be in [{least}, {most}], the range of {dtype}, but "
            f"is {value}."
        )
        raise ValueError(msg)
    return value % 2**64


def _as_number(option: str, value: Any) -> float:
    """Return a bool, an int or a float of Python."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    try:
        return operator.index(value)
    except TypeError:
        pass
    try:
        if isinstance(value, SupportsFloat):
            return float(value)
    except (TypeError, ValueError):  # An array or a tensor of several values.
        pass
    msg = f"`{option}` must be a number, but is {value!r}."
    raise TypeError(msg)


def _range(dtype: str) -> tuple[int, int]:
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def _float_bits(key: str, value: float, dtype: str) -> int:
    try:
        tensor = torch.tensor(float(value), dtype=torch.float64, device="cpu")
        tensor = tensor.to(TORCH_DTYPES[dtype])
        is_outside = math.isfinite(value) and not bool(torch.isfinite(tensor))
    except OverflowError:
        is_outside = True
    if is_outside:
        msg = f"`padding_value` of `{key}` must be in the range of {dtype}, but is {value}."
        raise ValueError(msg)
    signed = f"int{8 * tensor.element_size()}"
    return int(tensor.view(TORCH_DTYPES[signed])) % 2**64
