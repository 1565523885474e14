"""What the keys of a batch are made of, given the columns that there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from evenstride.fields import DTYPE_NAMES, default_dtype, is_float, padding_bits
from evenstride.options import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from evenstride import _core
    from evenstride.collate import PadCollator
    from evenstride.fields import Field

DERIVED = {"attention_mask": "mask", "position_ids": "positions", "lengths": "lengths"}
"""The keys that the rows of another one make, and how native code calls them."""


class Output(NamedTuple):
    """A key of a batch, as :class:`evenstride._core.Collator` takes it."""

    key: str
    source: str  # "values", or how one of DERIVED is called.
    column: _core.Column
    dtype: str
    padding: int = 0  # The bits of the padding value.
    pads_left: bool = False
    start: int = 0
    max_length: int = UNLIMITED
    prompt: _core.Column | None = None

    @property
    def has_width(self) -> bool:
        """Whether it has places for tokens, and not one value a sample."""
        return self.column.is_ragged and self.source != "lengths"


class Outputs(NamedTuple):
    """The keys of a batch that are written, and how the others come about.

    `main` is the one whose rows are the tokens: None if no field is ragged. `listed` are the ragged
    columns that are not padded.
    """

    all: list[Output]
    main: Output | None
    listed: dict[str, _core.Column]


def derived_keys(collate: PadCollator) -> list[str]:
    """Return which of DERIVED are made, or taken from the data: a mask there is taken unasked."""
    return [
        key
        for key in DERIVED
        if key not in collate.fields and (key == "attention_mask" or getattr(collate, key))
    ]


def check_sources(fields: Mapping[str, Field], names: Iterable[str]) -> None:
    """Say which of `fields` is made of, or has prompts in, none of `names`, the data's fields."""
    there = list(names)
    for key, field in fields.items():
        source = field.source_of(key)
        if source not in there:
            msg = (
                f"`fields[{key!r}]` must be made of a field of the data, one of {there}, but is "
                f"made of {source!r}."
            )
            raise ValueError(msg)
        if field.prompt is not None and field.prompt not in there:
            msg = (
                f"`fields[{key!r}].prompt` must name a field of the data, one of {there}, but is "
                f"{field.prompt!r}."
            )
            raise ValueError(msg)


def outputs_of(collate: PadCollator, columns: Mapping[str, _core.Column]) -> Outputs:
    """Return the keys that a collator makes of columns.

    First those that it names, then mask, positions and lengths, then columns that no key is made of
    or called like.

    Raises
    ------
    TypeError, ValueError
        If a column cannot be of a key's type or hold prompts, or none gives the mask its rows.

    """
    named = [_padded(collate, key, field, columns) for key, field in collate.fields.items()]
    main = _main(collate, named, columns)
    outputs = [*named, *_derived(collate, main, columns)]
    taken = {output.key for output in outputs}
    taken.update(field.source_of(key) for key, field in collate.fields.items())
    listed: dict[str, _core.Column] = {}
    for name, column in columns.items():
        if name in taken:
            continue
        if column.is_ragged:
            listed[name] = column
        else:
            outputs.append(Output(name, "values", column, default_dtype(column.dtype)))
    return Outputs(outputs, main, listed)


def max_length_of(collate: PadCollator, field: Field) -> int:
    """Return the most tokens that a row of a field keeps."""
    most = collate.max_length if field.max_length is None else field.max_length
    return UNLIMITED if most is None else most


def main_keys(fields: Mapping[str, Field]) -> dict[str, str]:
    """Return by field of the data which key gives the mask its rows, if that field does.

    It is the key of the field's own name, if possible.
    """
    keys: dict[str, str] = {}
    for key, field in fields.items():
        source = field.source_of(key)
        if key == source or source not in keys:
            keys[source] = key
    return keys


def _padded(
    collate: PadCollator, key: str, field: Field, columns: Mapping[str, _core.Column]
) -> Output:
    column = columns[field.source_of(key)]
    dtype = default_dtype(column.dtype) if field.dtype is None else DTYPE_NAMES[field.dtype]
    _check_conversion(key, column, dtype)
    is_whole = field.max_length is None and field.start == 0 and field.prompt is None
    if not column.is_ragged and not is_whole:
        msg = (
            f"`fields[{key!r}]` must leave out `max_length`, `start` and `prompt`, because the "
            f"rows of '{column.name}' have no length."
        )
        raise ValueError(msg)
    return Output(
        key,
        "values",
        column,
        dtype,
        padding=padding_bits(key, field.padding_value, dtype),
        pads_left=(field.padding_side or collate.padding_side) == "left",
        start=field.start,
        max_length=max_length_of(collate, field),
        prompt=None if field.prompt is None else _prompt_of(key, columns[field.prompt]),
    )


def _prompt_of(key: str, prompt: _core.Column) -> _core.Column:
    if prompt.is_ragged:
        fault = "is ragged"
    elif prompt.cell_shape:
        fault = f"has rows of shape {prompt.cell_shape}"
    elif "int" not in prompt.dtype:
        fault = f"holds {prompt.dtype}"
    else:
        return prompt
    msg = (
        f"`fields[{key!r}].prompt` must name a field of one integer a row, but '{prompt.name}' "
        f"{fault}."
    )
    raise TypeError(msg)


def _check_conversion(key: str, column: _core.Column, dtype: str) -> None:
    if column.dtype == dtype or not (is_float(column.dtype) or is_float(dtype)):
        return
    own = column.dtype if is_float(column.dtype) else "a type of integers or bool"
    msg = (
        f"The type of `{key}` must be {own}, because '{column.name}' holds {column.dtype}, but is "
        f"{dtype}."
    )
    raise TypeError(msg)


def _check_mask(mask: _core.Column, tokens: _core.Column) -> None:
    given, wanted = mask.lengths(), tokens.lengths()
    differ = given != wanted
    if differ.any():
        row = int(differ.argmax())
        msg = (
            f"`attention_mask` must have as many values in row {row} as '{tokens.name}', "
            f"{wanted[row]}, but has {given[row]}."
        )
        raise ValueError(msg)


def _main(
    collate: PadCollator, named: list[Output], columns: Mapping[str, _core.Column]
) -> Output | None:
    """Return the key of the data's first ragged field that has one."""
    keys = main_keys(collate.fields)
    for name, column in columns.items():
        if name in keys and column.is_ragged:
            return next(output for output in named if output.key == keys[name])
    return None


def _derived(
    collate: PadCollator, main: Output | None, columns: Mapping[str, _core.Column]
) -> Iterator[Output]:
    """Yield mask, positions and lengths: the data's own, or those of the main key's rows."""
    most = UNLIMITED if collate.max_length is None else collate.max_length
    cut = (collate.padding_side == "left", 0, most)
    if main is not None:
        cut = (main.pads_left, main.start, main.max_length)
    for key in derived_keys(collate):
        dtype = DTYPE_NAMES[collate.mask_dtype] if key == "attention_mask" else "int64"
        if key in columns:
            _check_conversion(key, columns[key], dtype)
            if key == "attention_mask" and main is not None:
                _check_mask(columns[key], main.column)
            yield Output(key, "values", columns[key], dtype, 0, *cut)
        elif getattr(collate, key):
            if main is None:
                msg = f"`{key}` must come from a ragged field that `fields` names, but none is."
                raise ValueError(msg)
            yield Output(key, DERIVED[key], main.column, dtype, 0, *cut)
