"""The vectors: rows and collators of all kinds, for a device to make the host's batches."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import evenstride as es

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

INTEGERS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
WIRES = ("bool", *INTEGERS, *FLOATS)
PADDINGS = {"bool": 1, "float16": -1.5, "bfloat16": -1.5, "float32": -1.5, "float64": -1.5}


@dataclass(frozen=True)
class Case:
    """A data set, a collator, and batches of rows."""

    name: str
    dataset: es.RaggedDataset
    collate: es.PadCollator
    batches: list[Any]

    def largest(self) -> tuple[int, int]:
        """Return the samples and padded tokens that no batch exceeds."""
        samples = max(len(batch) for batch in self.batches)
        width = int(self.dataset.lengths.max(initial=1)) + self.collate.pad_to_multiple_of
        return samples, samples * width


def cases(*, quick: bool, seed: int = 0) -> Iterator[Case]:
    """Yield all cases, or those of a short run."""
    rng = np.random.default_rng(seed)
    wires = ("uint8", "uint16", "int32", "int64", "float64") if quick else WIRES
    multiples = (1, 8) if quick else (1, 3, 8)
    for wire, is_full, side, multiple in itertools.product(
        wires, (False, True), ("right", "left"), multiples
    ):
        outs = _outs(wire, is_full=is_full)
        # Rows that are empty, of one value, of a tile less and more one, and of several tiles.
        lengths = rng.integers(0, 90 if quick else 200, 40)
        lengths[:8] = [0, 1, 0, 511, 512, 513, 7, 300 if quick else 1600]
        dataset = _dataset(rng, wire, lengths, is_full=is_full)
        name = f"{wire}, {'all values' if is_full else 'values 0 and 1'}, {side}, times {multiple}"
        collate = _collator(wire, outs, side=side, multiple=multiple, is_full=is_full)
        yield Case(name, dataset, collate, _batches(rng, len(dataset), 2 if quick else 5))


def _outs(wire: str, *, is_full: bool) -> tuple[str, ...]:
    """Return the types that values come out in: those that hold all of them."""
    if wire in FLOATS:
        return (wire,)
    if not is_full:
        return ("bool", *INTEGERS)
    return tuple(out for out in ("bool", *INTEGERS) if np.can_cast(wire, out, "safe"))


def _values(rng: np.random.Generator, wire: str, count: int, *, is_full: bool) -> torch.Tensor:
    """Return values of all bits, or 0 and 1, which every type holds."""
    if not is_full or wire == "bool":
        bits = torch.from_numpy(rng.integers(0, 2, count).astype(np.uint8))
        return bits.to(getattr(torch, wire))
    size = torch.empty(0, dtype=getattr(torch, wire)).element_size()
    raw = torch.from_numpy(np.frombuffer(rng.bytes(count * size), np.uint8).copy())
    return raw.view(getattr(torch, wire))


def _dataset(
    rng: np.random.Generator, wire: str, lengths: np.ndarray, *, is_full: bool
) -> es.RaggedDataset:
    offsets = np.concatenate([[0], lengths.cumsum()])
    total = int(offsets[-1])
    cells = _values(rng, wire, 3 * total, is_full=is_full).reshape(-1, 3)
    other = rng.integers(0, 40, len(lengths)).cumsum()
    return es.RaggedDataset(
        {
            "x": (_values(rng, wire, total, is_full=is_full), offsets),
            "cells": (cells, offsets),
            "other": (
                rng.integers(0, 2**16, int(other[-1]), dtype=np.uint16),
                np.concatenate([[0], other]),
            ),
            "prompt": rng.integers(0, 60, len(lengths), dtype=np.int32),
            "label": rng.standard_normal(len(lengths)),
        }
    )


def _collator(
    wire: str, outs: tuple[str, ...], *, side: str, multiple: int, is_full: bool
) -> es.PadCollator:
    fields: dict[str, es.Field] = {
        f"x as {out}": es.Field(PADDINGS.get(out, 77), getattr(torch, out), source="x")
        for out in outs
    }
    last = getattr(torch, outs[-1])
    # Short, skipped and masked rows, and those of another side, beside whole ones.
    fields["short"] = es.Field(0, last, source="x", max_length=100, start=3)
    fields["prompted"] = es.Field(1, last, source="x", prompt="prompt")
    turned = "left" if side == "right" else "right"
    fields["turned"] = es.Field(1, last, source="x", prompt="prompt", start=1, padding_side=turned)
    fields["cells"] = es.Field(0, last, prompt="prompt")
    fields["other"] = es.Field(-100)
    mask = torch.bool if wire == "int32" else torch.uint8 if is_full else torch.int64
    return es.PadCollator(
        fields,
        position_ids=True,
        lengths=True,
        pad_to_multiple_of=multiple,
        padding_side=side,
        mask_dtype=mask,
    )


def _batches(rng: np.random.Generator, num_rows: int, number: int) -> list[Any]:
    """Return rows as lists and arrays, counted from both ends, some twice."""
    found: list[Any] = [[0, 2], list(range(8))]
    while len(found) < number:
        rows = rng.integers(-num_rows, num_rows, rng.integers(1, num_rows))
        found.append(rows if len(found) % 2 else rows.tolist())
    return found


def difference(expected: Mapping[str, Any], made: Mapping[str, Any]) -> str | None:
    """Say where two batches differ, bit by bit; None if nowhere. Compares on the host."""
    if list(expected) != list(made):
        return f"keys {list(made)} instead of {list(expected)}"
    for key, wanted in expected.items():
        found = made[key].cpu()
        kinds = [(tensor.dtype, tuple(tensor.shape)) for tensor in (found, wanted)]
        if kinds[0] != kinds[1]:
            return f"{key} is {kinds[0]} instead of {kinds[1]}"
        bits, wanted_bits = _bits(found), _bits(wanted)
        if not torch.equal(bits, wanted_bits):
            at = (bits != wanted_bits).nonzero()
            cell = np.unravel_index(int(at[0]) // found.element_size(), found.shape)
            where = [int(axis) for axis in cell]
            return f"{key} differs in {len(at)} bytes, first in the value at {where}"
    return None


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a tensor."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)
