"""What a field may ask for, and what it says of anything else."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from decimal import Decimal
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import torch

from collate_support import ALL_TYPES, FLOAT_TYPES, INTEGER_TYPES, bits, torch_type, whole
from evenstride import Field, PadCollator

FIELD = Field(-100, torch.int32, source="x", padding_side="left", max_length=7, start=2, prompt="n")


def padding(value, dtype):
    """Return what a field of this type pads with, as a tensor of one value."""
    tensor = torch.zeros(1, dtype=torch_type(dtype))
    collate = PadCollator({"x": Field(value, tensor.dtype)}, pad_to_multiple_of=2)
    return collate([{"x": tensor}])["x"][0, 1:]


def test_a_field_has_the_documented_defaults():
    assert dataclasses.asdict(Field()) == {
        "padding_value": 0,
        "dtype": None,
        "source": None,
        "padding_side": None,
        "max_length": None,
        "start": 0,
        "prompt": None,
    }


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_a_field_survives_copies_and_pickles(copied):
    assert copied(FIELD) == FIELD
    assert hash(copied(FIELD)) == hash(FIELD)


def test_a_field_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        FIELD.start = 3


def test_integers_of_numpy_and_torch_are_integers():
    field = Field(np.int8(-3), max_length=np.uint16(4), start=torch.tensor(1))
    assert field == Field(-3, max_length=4, start=1)
    assert {type(value) for value in (field.padding_value, field.max_length, field.start)} == {int}


@pytest.mark.parametrize("dtype", INTEGER_TYPES)
def test_an_integer_pads_exactly_up_to_both_ends_of_its_type(dtype):
    info = torch.iinfo(torch_type(dtype))
    for value in (info.min, info.max, info.max - 1, 0):
        assert padding(value, dtype).tolist() == [value]
    for value in (info.min - 1, info.max + 1):
        message = (
            f"`padding_value` of `x` must be in [{info.min}, {info.max}], the range of {dtype}, "
            f"but is {value}."
        )
        with pytest.raises(ValueError, match=whole(message)):
            padding(value, dtype)


def test_an_integer_that_no_double_holds_pads_exactly():
    for value in (2**53 + 1, -(2**53) - 1, 2**63 - 1):
        assert padding(value, "int64").tolist() == [value]
    assert padding(2**64 - 1, "uint64").tolist() == [2**64 - 1]


@pytest.mark.parametrize("value", [0, 1, False, True, np.True_])
def test_a_bool_pads_with_bools_and_bits(value):
    assert padding(value, "bool").tolist() == [bool(value)]
    assert padding(value, "int8").tolist() == [int(value)]


@pytest.mark.parametrize("value", [-1, 2])
def test_a_bool_pads_with_nothing_else(value):
    message = f"`padding_value` of `x` must be in [0, 1], the range of bool, but is {value}."
    with pytest.raises(ValueError, match=whole(message)):
        padding(value, "bool")


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        *product(FLOAT_TYPES, [0.0, -0.0, 1, -100, 0.1, 1e-9, True, 65504]),
        *product(FLOAT_TYPES, [torch.inf, -torch.inf, torch.nan]),
        *product(["bfloat16", "float32", "float64"], [2**24 + 1, 2**53 + 1, -1e38]),
    ],
)
def test_a_float_pads_as_torch_rounds_it(dtype, value):
    expected = torch.full((1,), float(value), dtype=torch_type(dtype))
    assert torch.equal(bits(padding(value, dtype)), bits(expected))


@pytest.mark.parametrize(
    "value", [np.float32(0.5), Decimal("0.5"), Fraction(1, 2), torch.tensor(0.5)]
)
def test_whatever_is_a_number_pads(value):
    assert padding(value, "float32").tolist() == [0.5]


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        *[("float16", 65520.0), ("float16", -1e5), ("bfloat16", 3.4e38), ("float32", 1e39)],
        *[("float64", 10**400), ("float32", -(10**400))],
    ],
)
def test_a_finite_float_does_not_become_infinite(dtype, value):
    message = f"`padding_value` of `x` must be in the range of {dtype}, but is {value}."
    with pytest.raises(ValueError, match=whole(message)):
        padding(value, dtype)


@pytest.mark.parametrize("dtype", ["bool", *INTEGER_TYPES])
@pytest.mark.parametrize("value", [0.0, 1.5, torch.nan, np.float32(2)])
def test_a_float_pads_no_integers(dtype, value):
    message = f"`padding_value` of `x` must be an integer for {dtype}, but is {float(value)!r}."
    with pytest.raises(TypeError, match=whole(message)):
        padding(value, dtype)


@pytest.mark.parametrize("dtype", ALL_TYPES)
def test_the_default_padding_is_zero_in_every_type(dtype):
    tensor = torch.ones(1, dtype=torch_type(dtype))
    batch = PadCollator({"x": Field()}, pad_to_multiple_of=2)([{"x": tensor}])
    assert batch["x"][0].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"padding_value": None}, "`padding_value` must be a number, but is None."),
        ({"padding_value": "0"}, "`padding_value` must be a number, but is '0'."),
        ({"padding_value": 1j}, "`padding_value` must be a number, but is 1j."),
        ({"padding_value": [0]}, "`padding_value` must be a number, but is [0]."),
        (
            {"padding_value": np.zeros(2)},
            "`padding_value` must be a number, but is array([0., 0.]).",
        ),
        ({"dtype": "int64"}, "`dtype` must be a torch.dtype, but is 'int64'."),
        ({"dtype": np.int64}, "`dtype` must be a torch.dtype, but is <class 'numpy.int64'>."),
        ({"source": 3}, "`source` must be a string, but is 3."),
        ({"prompt": 3}, "`prompt` must be a string, but is 3."),
        ({"prompt": b"n"}, "`prompt` must be a string, but is b'n'."),
        ({"max_length": 2.0}, "`max_length` must be an integer, but is 2.0."),
        ({"start": "1"}, "`start` must be an integer, but is '1'."),
        ({"start": None}, "`start` must be an integer, but is None."),
    ],
)
def test_another_kind_is_named(options, message):
    with pytest.raises(TypeError, match=whole(message)):
        Field(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"dtype": torch.complex64},
            (
                "`dtype` must be one of bool, uint8, uint16, uint32, uint64, int8, int16, int32, "
                "int64, float16, bfloat16, float32, float64, but is torch.complex64."
            ),
        ),
        (
            {"padding_side": "both"},
            "`padding_side` must be 'left' or 'right', but is 'both'.",
        ),
        ({"padding_side": 0}, "`padding_side` must be 'left' or 'right', but is 0."),
        ({"max_length": 0}, "`max_length` must be in [1, 2**63), but is 0."),
        ({"max_length": 2**63}, f"`max_length` must be in [1, 2**63), but is {2**63}."),
        ({"start": -1}, "`start` must be in [0, 2**63), but is -1."),
        ({"start": 2**63}, f"`start` must be in [0, 2**63), but is {2**63}."),
    ],
)
def test_a_value_outside_its_range_is_named(options, message):
    with pytest.raises(ValueError, match=whole(message)):
        Field(**options)
