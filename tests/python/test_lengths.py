"""Lengths in every form that users have them in."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pytest
import torch

import evenstride as es
from support import lognormal, same_plans

VALUES = lognormal(3000, longest=250).tolist()
OPTIONS = {"token_budget": 2048, "num_replicas": 2}


def memory_mapped(folder, dtype):
    path = folder / "lengths.npy"
    np.save(path, np.array(VALUES, dtype))
    return np.load(path, mmap_mode="r")


def read_only(values):
    array = np.array(values)
    array.flags.writeable = False
    return array


def unaligned(values):
    packed = np.zeros(len(values), np.dtype([("tag", "u1"), ("length", "<i8")], align=False))
    packed["length"] = values
    return packed["length"]


def on_odd_address(values):
    buffer = np.zeros(len(values) * 4 + 1, np.uint8)
    view = buffer[1:].view(np.int32)
    view[:] = values
    return view


FORMS = {
    "tuple": tuple,
    **{
        name: lambda values, name=name: np.array(values, name)
        for name in ("uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
    },
    "big-endian": lambda values: np.array(values, ">i4"),
    "every second": lambda values: np.repeat(np.array(values), 2)[::2],
    "backwards": lambda values: np.array(values[::-1])[::-1],
    "read-only": read_only,
    "unaligned": unaligned,
    "on an odd address": on_odd_address,
    "list of numpy integers": lambda values: list(np.array(values, np.int16)),
    "torch uint8": lambda values: torch.tensor(values, dtype=torch.uint8),
    "torch int32": lambda values: torch.tensor(values, dtype=torch.int32),
    "torch int64": torch.tensor,
    "torch strided": lambda values: torch.tensor(values).repeat_interleave(2)[::2],
    "torch parameter": lambda values: torch.nn.Parameter(torch.tensor(values), requires_grad=False),
    "Arrow int64": pa.array,
    "Arrow uint16": lambda values: pa.array(values, pa.uint16()),
    "Arrow slice": lambda values: pa.array([9, *values, 9], pa.int32()).slice(1, len(values)),
    "Arrow chunks": lambda values: pa.chunked_array(
        [values[:100], values[100:1000], values[1000:]]
    ),
    "Arrow column": lambda values: pa.table({"n": values}).column("n"),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_form_of_the_lengths_changes_nothing(form):
    lengths = FORMS[form](VALUES)
    plan = es.plan_epoch(lengths, **OPTIONS)
    assert same_plans(plan, es.plan_epoch(VALUES, **OPTIONS))
    assert plan.step_info(3, 1) == es.plan_epoch(VALUES, **OPTIONS).step_info(3, 1)
    assert plan.stats() == es.plan_epoch(VALUES, **OPTIONS).stats()
    assert es.optimal_edges(lengths, 4, token_budget=2048) == es.optimal_edges(
        VALUES, 4, token_budget=2048
    )


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32", "int64"])
def test_a_memory_mapped_file_is_as_good_as_memory(tmp_path, dtype):
    lengths = memory_mapped(tmp_path, dtype)
    assert same_plans(es.plan_epoch(lengths, **OPTIONS), es.plan_epoch(VALUES, **OPTIONS))


@pytest.mark.parametrize(
    "lengths", [range(1, 300), range(300, 0, -3), range(0, 200, 7)], ids=["up", "down", "strided"]
)
def test_a_range_is_as_good_as_a_list(lengths):
    assert same_plans(es.plan_epoch(lengths, **OPTIONS), es.plan_epoch(list(lengths), **OPTIONS))


def test_lengths_are_never_changed():
    lengths = np.array(VALUES)
    es.plan_epoch(lengths, **OPTIONS)
    es.plan_epoch(lengths, **OPTIONS, composition="window")
    assert lengths.tolist() == VALUES


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([1.0, 2.0], "`lengths` must hold integers, but has dtype float64."),
        ([1, float("nan")], "`lengths` must hold integers, but has dtype float64."),
        ([True, False], "`lengths` must hold integers, but has dtype bool."),
        (np.array([1 + 0j]), "`lengths` must hold integers, but has dtype complex128."),
        (np.array([], float), "`lengths` must hold integers, but has dtype float64."),
        (torch.tensor([1.5]), "`lengths` must hold integers, but has dtype float32."),
        (torch.tensor([True]), "`lengths` must hold integers, but has dtype bool."),
        (pa.array([1.5]), "`lengths` must hold integers, but has dtype float64."),
        (np.zeros(2, "m8[s]"), "`lengths` must hold integers, but has dtype timedelta64[s]."),
    ],
    ids=str,
)
def test_other_numbers_are_refused_by_name(lengths, message):
    for call in (es.plan_epoch, lambda lengths, **o: es.optimal_edges(lengths, 3, **o)):
        with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
            call(lengths, token_budget=8)


def assert_refused(lengths, fault):
    message = (
        f"`lengths` must be the number of tokens of each sample, e.g. `ds.lengths`, but {fault}."
    )
    for call in (es.plan_epoch, es.BucketBatchSampler):
        with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
            call(lengths, token_budget=8)


ROWS = [{"input_ids": [1, 2], "label": 0}, {"input_ids": [3], "label": 1}]


@pytest.mark.parametrize(
    ("lengths", "fault"),
    [
        ([[1, 1], [1]], "`lengths[0]` has type list"),
        ([[1, 1], [1, 1]], "`lengths[0]` has type list"),
        ([np.array([1, 2]), np.array([3])], "`lengths[0]` has type ndarray"),
        ([torch.tensor([1, 2])], "`lengths[0]` has type Tensor"),
        (["a text", "another"], "`lengths[0]` has type str"),
        (ROWS, "`lengths[0]` has type dict"),
        (es.RaggedDataset.from_lists(ROWS), "it has type RaggedDataset"),
        ({"input_ids": [[1, 2], [3]]}, "it has type dict"),
        ("1 2 3", "it has type str"),
        (b"123", "it has type bytes"),
        (np.ones((2, 1), int), "it has shape (2, 1)"),
        (torch.tensor([[1]]), "it has shape (1, 1)"),
        (5, "it has shape ()"),
        (None, "it has shape ()"),
        (np.array([[1, 1], [1], None], object), "it has dtype object"),
        (pa.array([[1, 1], [1]]), "it has dtype object"),
        ([1, None], "it has dtype object"),
        ([1, "2"], "it has dtype <U21"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_is_no_lengths_is_told_what_lengths_are(lengths, fault):
    assert_refused(lengths, fault)


def test_a_data_set_of_hugging_face_is_told_what_lengths_are():
    rows = pytest.importorskip("datasets").Dataset.from_list(ROWS)
    assert_refused(rows, "`lengths[0]` has type dict")
    assert_refused(rows["input_ids"], "`lengths[0]` has type list")
    assert_refused({"train": rows}, "it has type dict")


def test_the_rows_of_a_data_set_are_not_read_to_refuse_it():
    class Rows:
        def __init__(self):
            self.read = 0

        def __len__(self):
            return 1000

        def __getitem__(self, index):
            self.read += 1
            return {"input_ids": [index]}

    rows = Rows()
    with pytest.raises(TypeError, match=r"but `lengths\[0\]` has type dict\.$"):
        es.plan_epoch(rows, token_budget=8)
    assert rows.read == 1


@pytest.mark.parametrize(
    "lengths",
    [None, "123", b"123", [[1, 1], [1]], {1: 2}, {3, 4}, object(), [2**70]],
    ids=lambda value: type(value).__name__,
)
def test_what_holds_no_integers_is_a_type_error(lengths):
    with pytest.raises(TypeError, match=r"^`lengths` must .*\.$"):
        es.plan_epoch(lengths, token_budget=8)


def test_nulls_of_an_arrow_column_are_refused_with_their_row():
    column = pa.chunked_array([[1, 2], [3, None, None]])
    message = "`lengths[3]` must not be null; the column has 2 nulls."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        es.plan_epoch(column, token_budget=8)


@pytest.mark.parametrize(
    ("lengths", "place", "value"),
    [
        ([3, -1], 1, "-1"),
        (np.array([-5, 3], np.int8), 0, "-5"),
        (np.array([3, 4, 2**63], np.uint64), 2, str(2**63)),
        (np.array([3, 2**64 - 1, 2**64 - 1], np.uint64), 1, str(2**64 - 1)),
        (np.array([1, -(2**63)]), 1, str(-(2**63))),
        (torch.tensor([3, 3, -7]), 2, "-7"),
    ],
)
def test_values_outside_63_bits_are_refused_with_their_place(lengths, place, value):
    message = f"`lengths[{place}]` must be in [0, 2**63), but is {value}."
    for too_long in ("error", "drop", "alone"):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            es.plan_epoch(lengths, token_budget=2**40, too_long=too_long)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        es.optimal_edges(lengths, 2, token_budget=2**40)
