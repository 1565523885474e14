"""What compiling alone proves of the kernel: the code that each compiler makes for each device."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from kernel_code_support import (
    DEVICES,
    build_kernel,
    codes_in,
    compile_file,
    compilers,
    run,
    tool,
)

KERNELS = Path(__file__).parent / "kernels"

# Kinds of rows by the store of one value: masks, positions, four types of values, and those that
# are signed where they widen.
KINDS = {"STG.E.U8": 6, "STG.E.U16": 7, "STG.E": 8, "STG.E.64": 9}

# As many bytes as the values of one store have.
LOADS = {
    "uint16_to_int64": {"LDG.E"},
    "int32_to_int64": {"LDG.E.64"},
    "int64_to_int64": {"LDG.E.128"},
    "float32_to_float32": {"LDG.E.128"},
    "mask_of_int64": set(),
    "positions_of_int64": set(),
    "mask_of_bool": set(),
}

FAULTS = {
    "generic_access": {"generic access"},
    "long_division": {"call"},
    "many_registers": {"registers"},
    "spill": {"local memory"},
    "narrow_store": set(),
    "faultless": set(),
}

pytestmark = [pytest.mark.compiles, pytest.mark.timeout(600)]


@pytest.fixture(scope="module", params=sorted(compilers()) or [None])
def version(request):
    return request.param


@pytest.fixture(scope="module")
def fatbin(version):
    return build_kernel(version) / "csrc" / "kernel" / "cuda" / "pad_kernel.fatbin"


@pytest.fixture(scope="module")
def kernel(fatbin, tmp_path_factory):
    codes = codes_in(fatbin, tmp_path_factory.mktemp("kernel"))
    assert {name for name, _ in codes} == {"evenstride_pad"}
    return {device: code for (_, device), code in codes.items()}


@pytest.fixture(scope="module")
def codes(version, tmp_path_factory):
    """Return the code of the kernels that a file beside this one has."""

    def of(stem):
        folder = tmp_path_factory.mktemp(stem)
        compile_file(version, KERNELS / f"{stem}.cu", folder / "all.fatbin")
        return codes_in(folder / "all.fatbin", folder)

    return of


def test_the_kernel_has_code_for_every_device_and_for_later_ones(kernel, fatbin):
    assert sorted(kernel) == DEVICES
    later = re.findall(r"sm_(\d+)\.ptx", run(tool("cuobjdump"), "--list-ptx", fatbin))
    assert later == [str(DEVICES[-1])]


def test_the_kernel_spills_nothing_calls_nothing_and_knows_its_memory(kernel):
    assert {device: code.faults() for device, code in kernel.items()} == {
        device: set() for device in DEVICES
    }


def test_the_kernel_stores_one_by_one_only_beside_the_wide_stores_of_a_row(kernel):
    for device, code in kernel.items():
        narrow = Counter(code.narrow_stores())
        assert narrow <= Counter(KINDS), device
        assert len(code.opcodes("STG")) - narrow.total() >= sum(KINDS.values()), device


def test_the_middle_of_a_tile_has_no_narrow_store_and_no_narrow_load(codes):
    found = codes("stores")
    assert {name for name, _ in found} == set(LOADS)
    assert {device for _, device in found} == set(DEVICES)
    for (name, device), code in found.items():
        assert code.opcodes("STG"), (name, device)
        assert code.narrow_stores() == [], (name, device)
        assert code.faults() == set(), (name, device)
        assert set(code.opcodes("LDG")) == LOADS[name], (name, device)


def test_the_checks_find_each_fault_and_no_other(codes):
    found = codes("faults")
    assert {key: code.faults() for key, code in found.items()} == {
        (name, device): faults for name, faults in FAULTS.items() for device in DEVICES
    }
    for device in DEVICES:
        assert found["narrow_store", device].narrow_stores(), device
        assert found["faultless", device].narrow_stores() == [], device
