"""Data sets as plain lists of rows, and files that hold them."""

from __future__ import annotations

import numpy as np
import torch

from evenstride.dataset import RaggedDataset

VALUE_TYPES = [
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "float32", "float64"),
]
MEGATRON_CODES = {
    "uint8": 1,
    "int8": 2,
    "int16": 3,
    "int32": 4,
    "int64": 5,
    "float64": 6,
    "float32": 7,
    "uint16": 8,
}

NO_NUMBERS = "must hold bools, integers, or floats of 16, 32 or 64 bits, but has dtype"


def output_type(dtype):
    """Return the type that values of a type come out in."""
    return torch.int64 if "int" in dtype else getattr(torch, dtype)


def flat(rows, dtype):
    """Return values and offsets of rows of numbers."""
    values = np.array([value for row in rows for value in row], dtype)
    return values, np.cumsum([0, *map(len, rows)])


def dataset(rows, dtype="int32", **fields):
    """Return a data set in memory, with one ragged field and perhaps more."""
    return RaggedDataset({"input_ids": flat(rows, dtype), **fields})


def rows_of(data, name="input_ids"):
    """Return the rows of a field as lists."""
    return [data[i][name].tolist() for i in range(len(data))]


def some_rows(count, *, longest=9, top=127, seed=0):
    """Return rows of numbers that every type holds exactly, a few of them empty."""
    random = np.random.default_rng(seed)
    return [random.integers(0, top, size).tolist() for size in random.integers(0, longest, count)]


def address(array):
    """Return where the memory of an array begins."""
    return array.__array_interface__["data"][0]


def lies_in(array, begin, size):
    """Return whether all of an array is in these bytes."""
    return begin <= address(array) and address(array) + array.nbytes <= begin + size


def megatron_index(rows, dtype, *, lengths=None, pointers=None, documents=None):
    """Return the bytes of an .idx file."""
    lengths = [len(row) for row in rows] if lengths is None else lengths
    size = np.dtype(dtype).itemsize
    if pointers is None:
        pointers = np.cumsum([0, *lengths])[:-1] * size
    documents = range(len(rows) + 1) if documents is None else documents
    return b"".join(
        [
            b"MMIDIDX\x00\x00",
            np.uint64(1).tobytes(),
            np.uint8(MEGATRON_CODES[dtype]).tobytes(),
            np.array([len(rows), len(documents)], "<u8").tobytes(),
            np.array(lengths, "<i4").tobytes(),
            np.array(pointers, "<i8").tobytes(),
            np.array(documents, "<i8").tobytes(),
        ]
    )


def write_megatron(prefix, rows, dtype, **arrays):
    """Write a pair of files in Megatron's format; return the prefix."""
    prefix.with_suffix(".idx").write_bytes(megatron_index(rows, dtype, **arrays))
    prefix.with_suffix(".bin").write_bytes(flat(rows, dtype)[0].tobytes())
    return prefix


def damaged(data, random):
    """Yield the bytes with one to three of them changed, cut off, taken out, put in or zeroed."""
    while True:
        broken = bytearray(data)
        for _ in range(random.integers(1, 4)):
            place = int(random.integers(0, len(broken) + 1))
            match int(random.integers(0, 5)):
                case 0 if place < len(broken):
                    broken[place] ^= 1 << int(random.integers(0, 8))
                case 1:
                    del broken[place:]
                case 2:
                    del broken[place : place + int(random.integers(1, 9))]
                case 3:
                    broken[place:place] = random.bytes(int(random.integers(1, 9)))
                case _:
                    broken[place : place + 8] = bytes(len(broken[place : place + 8]))
        yield bytes(broken)
