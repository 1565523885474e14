"""What a padding collator promises, transcribed on lists; and batches compared bit for bit."""

from __future__ import annotations

import itertools
import re

import numpy as np
import torch

from evenstride import Field

INTEGER_TYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
FLOAT_TYPES = ["float16", "bfloat16", "float32", "float64"]
ALL_TYPES = ["bool", *INTEGER_TYPES, *FLOAT_TYPES]


def whole(message):
    """Return a pattern for pytest that a message must match from end to end."""
    return f"^{re.escape(message)}$"


def torch_type(dtype):
    return getattr(torch, dtype)


def output_type(dtype):
    """Return the type that values of a type come out in."""
    return torch.int64 if dtype in INTEGER_TYPES else torch_type(dtype)


def tensor_of(rows, dtype):
    """Make values of any type, those that numpy lacks too."""
    return torch.tensor(rows, dtype=torch_type(dtype))


def ragged(rows, dtype, cell_shape=(), num_chunks=1):
    """Make the chunks of a ragged field, for RaggedDataset."""
    bounds = np.linspace(0, len(rows), num_chunks + 1).astype(int)
    chunks = []
    for begin, end in itertools.pairwise(bounds):
        cells = [cell for row in rows[begin:end] for cell in row]
        values = tensor_of(cells, dtype).reshape(-1, *cell_shape)
        chunks.append((values, np.cumsum([0, *map(len, rows[begin:end])])))
    return chunks


def cut(row, field, collate):
    """Take the tokens of a row that count."""
    max_length = field.max_length or collate.max_length or len(row)
    return row[field.start :][:max_length]


def full(value, shape):
    """Nest lists of one value."""
    return [full(value, shape[1:]) for _ in range(shape[0])] if shape else value


def padded(rows, padding, *, multiple=1, side="right"):
    """Fill up rows of cells with a cell."""
    width = -(-max(1, *map(len, rows)) // multiple) * multiple
    fill = [[padding] * (width - len(row)) for row in rows]
    return [f + r if side == "left" else r + f for r, f in zip(rows, fill, strict=True)]


def by_definition(rows, collate, main, cell_shapes):
    """Return as lists what `collate` makes of rows; the mask is of the key `main`."""
    multiple = collate.pad_to_multiple_of
    batch = {}
    for key, field in collate.fields.items():
        source = field.source or key
        side = field.padding_side or collate.padding_side
        padding = full(field.padding_value, cell_shapes[source])
        kept = [cut(row[source], field, collate) for row in rows]
        batch[key] = padded(kept, padding, multiple=multiple, side=side)
    field = collate.fields[main]
    side = field.padding_side or collate.padding_side
    lengths = [len(cut(row[field.source or main], field, collate)) for row in rows]
    derived = {
        "attention_mask": padded([[1] * n for n in lengths], 0, multiple=multiple, side=side),
        "position_ids": padded([[*range(n)] for n in lengths], 0, multiple=multiple, side=side),
        "lengths": lengths,
    }
    return batch | {key: value for key, value in derived.items() if getattr(collate, key)}


def bits(tensor):
    """View a tensor as integers, so that NaN equals NaN and 0 is not -0."""
    return tensor.contiguous().view(torch_type(f"int{8 * tensor.element_size()}"))


def same(one, other):
    """Whether tensors, lists or dicts of them are alike: types, shapes, and every bit."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if not isinstance(one, torch.Tensor):
        return one == other
    is_like = isinstance(other, torch.Tensor) and one.dtype == other.dtype
    return is_like and one.shape == other.shape and torch.equal(bits(one), bits(other))


def ids_field(padding_value=0, **options):
    """Make one key, as most tests have it."""
    return {"input_ids": Field(padding_value, **options)}
