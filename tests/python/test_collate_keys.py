"""Which keys a batch has: named ones, those made of others, and the rest of the data."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate

from collate_support import ids_field, same, whole
from data_support import dataset, flat
from evenstride import Field, PadCollator, RaggedDataset

ROWS = [[7, 8, 9], [4], [5, 6]]
MASK = [[0, 1, 1], [1], [1, 0]]


def lists(batch):
    return {key: value.tolist() for key, value in batch.items()}


def test_a_mask_in_the_data_must_be_as_long_as_its_tokens():
    collate = PadCollator(ids_field())
    ds = dataset(ROWS, attention_mask=flat([[1, 1, 1], [1], [1]], "int8"))
    message = r"^`attention_mask` must have as many values in row 2 as 'input_ids', 2, but has 1\.$"
    with pytest.raises(ValueError, match=message):
        collate(ds[:])


def test_rows_that_were_selected_cannot_be_changed():
    ds = dataset(ROWS).select([2, 0])
    with pytest.raises(ValueError, match="read-only"):
        ds.rows[0] = 10**9


def test_a_byte_that_is_no_bool_is_refused():
    values = np.array([0, 1, 2], np.uint8).view(bool)
    ds = RaggedDataset({"input_ids": (values, np.array([0, 2, 3]))})
    with pytest.raises(ValueError, match=r"^`input_ids`, row 1: holds 2, which does not fit into"):
        PadCollator({"input_ids": Field()})(ds[:])


def both_ways(collate, **fields):
    """Return the batch of all rows of a data set, which must be that of its samples."""
    ds = dataset(ROWS, **fields)
    batch = collate(ds[:])
    assert same(batch, collate([ds[i] for i in range(len(ds))]))
    return batch


def test_one_value_a_row_is_stacked_without_a_field():
    frames = np.arange(12, dtype=np.float64).reshape(3, 2, 2)
    fields = {"label": np.array([3, 1, 2], np.uint8), "frame": frames, "ok": np.eye(3, 1, 0, bool)}
    batch = both_ways(PadCollator(ids_field()), **fields)
    assert same(batch["label"], torch.tensor([3, 1, 2]))
    assert same(batch["frame"], torch.from_numpy(frames))
    assert same(batch["ok"], torch.tensor([[True], [False], [False]]))


def test_one_value_a_row_is_stacked_in_the_type_of_its_field():
    collate = PadCollator({**ids_field(), "y": Field(dtype=torch.int16, source="label")})
    batch = both_ways(collate, label=np.array([3, 1, 2]))
    assert list(batch) == ["input_ids", "y", "attention_mask"]
    assert same(batch["y"], torch.tensor([3, 1, 2], dtype=torch.int16))


def test_ragged_fields_without_a_field_are_lists_of_tensors():
    batch = both_ways(PadCollator(ids_field()), other=flat(ROWS, "uint16"))
    assert same(batch["other"], [torch.tensor(row) for row in ROWS])


def test_ragged_fields_without_a_field_are_stacked_where_shapes_are_equal():
    batch = both_ways(PadCollator(ids_field()), other=flat([[1, 2], [3, 4], [5, 6]], "float16"))
    assert same(batch["other"], torch.tensor([[1, 2], [3, 4], [5, 6]], dtype=torch.float16))


def test_unnamed_rows_are_those_of_the_samples():
    ds = dataset(ROWS, other=flat(ROWS, "int8"))
    for chosen, samples in ((ds, [2, -3, 2, 1]), (ds.select([2, 0, 1]), [0, 1, -3, -1])):
        batch = PadCollator(ids_field())(chosen.__getitems__(samples))
        assert [row.tolist() for row in batch["other"]] == [ROWS[i] for i in (2, 0, 2, 1)]


def test_what_holds_no_numbers_is_a_list():
    masked = np.ma.masked_array([1, 2], [False, True])
    values = ("a", b"1", None, {"id": 1}, ["a", "b"], [[1], [2, 3]], [-1, 2**63], masked)
    for value in values:
        batch = PadCollator(ids_field())([{"input_ids": [1], "x": value}] * 2)
        assert isinstance(batch["x"], list)
        assert all(one is value for one in batch["x"])


@pytest.mark.parametrize("sizes", [(3, 2), (2, 2)])
@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_what_has_no_field_is_copied(sizes, dtype):
    arrays = [np.ones(size, dtype) for size in sizes]
    tensors = [torch.from_numpy(one.copy()) for one in arrays]
    arrays[0].flags.writeable = False
    for values in (arrays, tensors):
        batch = PadCollator(ids_field())([{"input_ids": [1], "x": one} for one in values])
        for tensor in batch["x"]:
            tensor.fill_(-1)
        assert all((one == 1).all() for one in values)


def test_numbers_without_a_field_come_out_in_the_types_of_a_data_set():
    values = [np.int8(1), torch.tensor(2, dtype=torch.uint16), 3, np.array(4, ">i4"), True]
    rows = [{"input_ids": [1], "x": value} for value in values]
    assert same(PadCollator(ids_field())(rows)["x"], torch.tensor([1, 2, 3, 4, 1]))


@pytest.mark.parametrize(
    "values",
    [
        *([1, 2], [True, False], [[1, 2], [3, 4]]),
        [np.float32(0.5), np.float32(1)],
        [np.ones((2, 3), np.float64), np.zeros((2, 3))],
        [torch.ones(2, 3).bfloat16(), torch.zeros(2, 3).bfloat16()],
        [torch.ones(2, dtype=torch.complex64), torch.zeros(2, dtype=torch.complex64)],
        ["a", "b"],
    ],
)
def test_keys_without_a_field_are_what_torch_makes_of_them(values):
    batch = PadCollator(ids_field())([{"input_ids": [1], "x": value} for value in values])
    expected = default_collate(values)
    if isinstance(values[0], list):  # Which torch collates place by place.
        expected = torch.tensor(values)
    assert same(batch["x"], expected) if batch["x"][0] != "a" else batch["x"] == expected


def test_numbers_without_a_field_that_no_int64_holds_are_refused():
    rows = [{"input_ids": [1], "x": np.uint64(value)} for value in (1, 2**63)]
    for value in (rows[1]["x"], torch.tensor(2**63, dtype=torch.uint64)):
        rows[1]["x"] = value
        message = f"`rows[1]['x']` must hold integers below 2**63, but holds {2**63}."
        with pytest.raises(ValueError, match=whole(message)):
            PadCollator(ids_field())(rows)


def test_tensors_without_a_field_carry_no_gradient():
    weight = torch.ones(2, requires_grad=True)
    batch = PadCollator(ids_field())([{"input_ids": [1], "x": weight * 2}] * 2)
    assert not batch["x"].requires_grad


@pytest.mark.parametrize("is_added", [True, False])
@pytest.mark.parametrize("dtype", ["int64", "int8", "bool", "uint16"])
def test_a_mask_in_the_data_wins_and_is_padded_with_zero(is_added, dtype):
    collate = PadCollator(ids_field(-1), attention_mask=is_added, padding_side="left")
    batch = both_ways(collate, attention_mask=flat(MASK, dtype))
    expected = torch.tensor([[0, 1, 1], [0, 0, 1], [0, 1, 0]])
    assert same(batch["attention_mask"], expected)


def test_a_mask_in_the_data_is_cut_like_the_tokens():
    collate = PadCollator(
        ids_field(start=1, max_length=1, padding_side="left"), mask_dtype=torch.bool, max_length=9
    )
    batch = both_ways(collate, attention_mask=flat(MASK, "int8"))
    assert batch["input_ids"].tolist() == [[8], [0], [6]]
    assert same(batch["attention_mask"], torch.tensor([[True], [False], [False]]))


def test_a_mask_in_the_data_may_have_a_field_of_its_own():
    collate = PadCollator({**ids_field(), "attention_mask": Field(2, torch.int8)})
    batch = both_ways(collate, attention_mask=flat(MASK, "int64"))
    expected = torch.tensor([[0, 1, 1], [1, 2, 2], [1, 0, 2]], dtype=torch.int8)
    assert same(batch["attention_mask"], expected)


def test_a_mask_of_floats_needs_a_field():
    message = (
        "The type of `attention_mask` must be float32, because 'attention_mask' holds float32, but "
        "is int64."
    )
    with pytest.raises(TypeError, match=whole(message)):
        both_ways(PadCollator(ids_field()), attention_mask=flat(MASK, "float32"))


def test_positions_and_lengths_in_the_data_win():
    collate = PadCollator(ids_field(), position_ids=True, lengths=True, attention_mask=False)
    fields = {
        "position_ids": flat([[4, 5, 6], [7], [8, 9]], "int32"),
        "lengths": np.array([30, 10, 20], np.int8),
    }
    assert lists(both_ways(collate, **fields)) == {
        "input_ids": [[7, 8, 9], [4, 0, 0], [5, 6, 0]],
        "position_ids": [[4, 5, 6], [7, 0, 0], [8, 9, 0]],
        "lengths": [30, 10, 20],
    }


def test_positions_in_the_data_that_nobody_asks_for_are_a_field_like_others():
    batch = both_ways(PadCollator(ids_field()), position_ids=flat(ROWS, "int32"))
    assert same(batch["position_ids"], [torch.tensor(row) for row in ROWS])


def test_positions_in_the_data_that_only_another_key_is_made_of_are_no_key():
    fields = {**ids_field(), "places": Field(source="position_ids"), "n": Field(source="lengths")}
    data = {"position_ids": flat(ROWS, "int32"), "lengths": np.array([30, 10, 20])}
    batch = both_ways(PadCollator(fields), **data)
    assert list(batch) == ["input_ids", "places", "n", "attention_mask"]


def test_the_mask_is_of_the_first_ragged_field_that_is_named():
    rows = [{"label": 1, "text": [1, 2, 3], "a": [1, 2], "b": [1]}]
    mask = {}
    for names in ("ab", "ba", "b"):
        collate = PadCollator({name: Field() for name in ("label", *names)})
        mask[names] = collate(rows)["attention_mask"].tolist()
    assert mask == {"ab": [[1, 1]], "ba": [[1, 1]], "b": [[1]]}


def test_the_mask_is_of_a_field_itself_rather_than_of_what_is_made_of_it():
    shifted = Field(-100, source="input_ids", start=1, padding_side="left")
    collate = PadCollator({"labels": shifted, "input_ids": Field()}, lengths=True)
    batch = both_ways(collate)
    assert lists(batch) == {
        "labels": [[8, 9], [-100, -100], [-100, 6]],
        "input_ids": [[7, 8, 9], [4, 0, 0], [5, 6, 0]],
        "attention_mask": [[1, 1, 1], [1, 0, 0], [1, 1, 0]],
        "lengths": [3, 1, 2],
    }


SHIFTED = {**ids_field(), "labels": Field(-100, source="input_ids", start=1)}
OTHER = [[100, 101, 102], [103], [104, 105]]


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        (SHIFTED, "labels"),
        ({"label": Field(source="input_ids"), **ids_field()}, "label"),
        ({"x": Field(source="input_ids"), "input_ids": Field(source="y")}, "input_ids"),
        ({**ids_field(), "attention_mask": Field(source="input_ids")}, "attention_mask"),
        ({**ids_field(), "lengths": Field(source="input_ids")}, "lengths"),
    ],
)
@pytest.mark.parametrize("values", [flat(OTHER, "int32"), np.arange(3, dtype=np.uint8)])
def test_a_key_wins_over_an_unnamed_field_of_the_data_of_the_same_name(fields, name, values):
    collate = PadCollator(fields, lengths=True)
    data = {"y": flat(OTHER, "int16")}
    batch = both_ways(collate, **{**data, name: values} if name != "input_ids" else data)
    assert same(batch, both_ways(collate, **data))


def test_a_key_is_made_of_its_source_rather_than_of_the_field_of_its_name():
    collate = PadCollator({"input_ids": Field(source="tokens")})
    data = {"tokens": [[5, 6, 7], [8]], "input_ids": [[1], [2]]}
    expected = {"input_ids": [[5, 6, 7], [8, 0, 0]], "attention_mask": [[1, 1, 1], [1, 0, 0]]}
    ds = RaggedDataset({name: flat(rows, "int32") for name, rows in data.items()})
    assert lists(collate(ds[:])) == expected
    assert lists(collate([ds[0], ds[1]])) == expected


def test_keys_may_be_made_of_each_others_fields():
    collate = PadCollator({"input_ids": Field(source="x"), "x": Field(source="input_ids")})
    batch = both_ways(collate, x=flat(OTHER, "int32"))
    assert batch["input_ids"][0].tolist() == OTHER[0]
    assert batch["x"][0].tolist() == ROWS[0]


@pytest.mark.parametrize("value", ["text", None, [[1], [2, 3]], np.uint64(2**63)])
def test_what_has_the_name_of_a_key_that_is_made_of_another_field_is_not_read(value):
    collate = PadCollator({**SHIFTED, "attention_mask": Field(source="input_ids")})
    row = {"input_ids": [1, 2]}
    unread = {"labels": value, "attention_mask": value}
    assert same(collate([{**row, **unread}]), collate([row]))


def test_nothing_is_added_that_is_not_asked_for():
    assert list(both_ways(PadCollator(ids_field(), attention_mask=False))) == ["input_ids"]


def test_a_field_that_the_data_has_not_is_named():
    collate = PadCollator({**ids_field(), "labels": Field(source="targets")})
    message = (
        "`fields['labels']` must be made of a field of the data, one of ['input_ids', 'label'], "
        "but is made of 'targets'."
    )
    with pytest.raises(ValueError, match=whole(message)):
        collate(dataset(ROWS, label=np.arange(3))[:])
    with pytest.raises(ValueError, match=whole(message)):
        collate([{"input_ids": [1], "label": 0}])


def test_a_mask_needs_a_ragged_field():
    ds = RaggedDataset({"label": np.arange(3)})
    message = "`attention_mask` must come from a ragged field that `fields` names, but none is."
    with pytest.raises(ValueError, match=whole(message)):
        PadCollator({"label": Field()})(ds[:])
    batch = PadCollator({"label": Field()}, attention_mask=False)(ds[:])
    assert lists(batch) == {"label": [0, 1, 2]}


@pytest.mark.parametrize("options", [{"start": 1}, {"max_length": 5}, {"prompt": "label"}])
def test_a_field_of_single_values_cannot_be_cut(options):
    collate = PadCollator({**ids_field(), "label": Field(**options)})
    message = (
        "`fields['label']` must leave out `max_length`, `start` and `prompt`, because the rows of "
        "'label' have no length."
    )
    with pytest.raises(ValueError, match=whole(message)):
        collate([{"input_ids": [1], "label": 0}])


@pytest.mark.parametrize(
    ("fields", "options", "message"),
    [
        (["input_ids"], {}, "`fields` must be a mapping of names to Field, but is ['input_ids']."),
        ({"x": 0}, {}, "`fields['x']` must be a Field, but is 0."),
        ({3: Field()}, {}, "The names of fields must be strings, but one is 3."),
        (ids_field(), {"attention_mask": 1}, "`attention_mask` must be True or False, but is 1."),
        (ids_field(), {"lengths": [3]}, "`lengths` must be True or False, but is [3]."),
        (ids_field(), {"position_ids": None}, "`position_ids` must be True or False, but is None."),
        (
            ids_field(),
            {"pad_to_multiple_of": None},
            "`pad_to_multiple_of` must be an integer, but is None.",
        ),
        (ids_field(), {"max_length": 1.5}, "`max_length` must be an integer, but is 1.5."),
        (
            ids_field(),
            {"mask_dtype": bool},
            "`mask_dtype` must be a torch.dtype, but is <class 'bool'>.",
        ),
    ],
)
def test_an_option_of_another_kind_is_named(fields, options, message):
    with pytest.raises(TypeError, match=whole(message)):
        PadCollator(fields, **options)


@pytest.mark.parametrize(
    ("fields", "options", "message"),
    [
        ({}, {}, "`fields` must name at least 1 field, but names 0."),
        (
            ids_field(),
            {"pad_to_multiple_of": 0},
            "`pad_to_multiple_of` must be in [1, 2**63), but is 0.",
        ),
        (
            ids_field(),
            {"pad_to_multiple_of": 2**31},
            f"`pad_to_multiple_of` must be in [1, 2**31), but is {2**31}.",
        ),
        (
            ids_field(),
            {"padding_side": "Right"},
            "`padding_side` must be 'left' or 'right', but is 'Right'.",
        ),
        (ids_field(), {"max_length": 0}, "`max_length` must be in [1, 2**63), but is 0."),
        (
            ids_field(),
            {"mask_dtype": torch.int32},
            "`mask_dtype` must be torch.int64, bool or uint8, but is int32.",
        ),
    ],
)
def test_an_option_outside_its_range_is_named(fields, options, message):
    with pytest.raises(ValueError, match=whole(message)):
        PadCollator(fields, **options)


def test_options_cannot_be_changed_but_replaced():
    collate = PadCollator(ids_field(), pad_to_multiple_of=np.int32(8))
    collate(dataset(ROWS)[:])
    with pytest.raises(dataclasses.FrozenInstanceError):
        collate.pad_to_multiple_of = 4
    other = dataclasses.replace(collate, padding_side="left")
    assert (other.pad_to_multiple_of, other.padding_side) == (8, "left")
    assert other(dataset(ROWS)[:1])["input_ids"].tolist() == [[0] * 5 + [7, 8, 9]]
