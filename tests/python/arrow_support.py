"""Arrow arrays and files of every kind. Skips the tests where pyarrow is missing."""

from __future__ import annotations

import numpy as np
import pytest

from data_support import lies_in

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

NO_COLUMN = "must hold integers, floats or bools, or lists of them, but is of type"

ROWS = [[1, 0, 1], [], [1], [0, 0], [], [1, 1, 1, 0]]
TYPES = {
    "bool": pa.bool_(),
    **{name: getattr(pa, name)() for name in ("int8", "uint8", "int16", "uint16", "int32")},
    **{name: getattr(pa, name)() for name in ("uint32", "int64", "uint64", "float16")},
    **{name: getattr(pa, name)() for name in ("float32", "float64")},
}
LISTS = {
    "list": pa.list_,
    "large_list": pa.large_list,
    "list_view": pa.list_view,
    "large_list_view": pa.large_list_view,
}


def numbers(rows, dtype):
    """Return rows as Arrow converts them without being asked twice."""
    kinds = {"bool": bool, "float16": np.float16}
    kind = kinds.get(dtype, float if "float" in dtype else int)
    return [[kind(value) for value in row] for row in rows]


def array_of(rows, dtype="int32", kind="list"):
    return pa.array(numbers(rows, dtype), LISTS[kind](TYPES[dtype]))


def buffers_of(column):
    return [buffer for chunk in column.chunks for buffer in chunk.buffers() if buffer is not None]


def is_in_a_buffer(row, column):
    return any(lies_in(row, buffer.address, buffer.size) for buffer in buffers_of(column))


def table_of(rows=ROWS, chunks=3):
    """Return a table of several chunks, whose rows say which one they are."""
    table = pa.table({"input_ids": array_of(rows, "uint16"), "label": range(len(rows))})
    return pa.concat_tables(table.slice(i, 1 if i < chunks - 1 else None) for i in range(chunks))


def write_file(table, path):
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)


def write_stream(table, path):
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table)


WRITERS = {
    "file.arrow": write_file,
    "stream.arrow": write_stream,
    "a.IPC": write_file,
    "b.feather": write_stream,
    "c.parquet": lambda table, path: pq.write_table(table, path, row_group_size=2),
    "d.PQ": pq.write_table,
}
