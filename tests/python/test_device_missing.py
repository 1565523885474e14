"""What happens where there is no kernel, no driver, or no such device."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import warnings

import pytest
import torch

import evenstride as es
from collate_support import same, whole
from data_support import dataset
from evenstride import _core, device_memory, loader_targets, start_producers
from evenstride.cuda import DeviceCollator, is_built
from loader_support import collator, loader_of, ragged, rows

ROWS = [[1, 2, 3], [4], [5, 6]]
NO_DRIVER = (
    "There is no CUDA driver on this machine: `libcuda.so.1` cannot be loaded; install the driver "
    "of the device."
)


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch):
    monkeypatch.setattr(device_memory, "_said", set())


def run(code, **environment):
    """Run Python in a process of its own; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
        env=environment or None,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_is_built_where_a_compiler_was_found():
    assert is_built() == (_core.cuda_compiler is not None)


@pytest.mark.parametrize("device", ["cpu", torch.device("cpu")])
def test_another_device_takes_the_way_over_the_host_and_says_so_once(device):
    data, collate = dataset(ROWS), collator()
    message = (
        "Batches for cpu are collated on the host and copied, because the kernel is for CUDA "
        "devices only."
    )
    with pytest.warns(UserWarning, match=whole(message)):
        on_device = DeviceCollator(data, collate, device=device)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DeviceCollator(data, collate, device=device)
        for indices in [[0, 1], [-1], range(3), torch.tensor([2, 0])]:
            expected = collate(data.__getitems__([int(i) for i in indices]))
            assert same(on_device(indices), expected)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda patch: patch.setattr(torch.version, "hip", "6.0"),
            "this torch is for ROCm, and the kernel for CUDA",
        ),
        (
            lambda patch: patch.setattr(_core, "cuda_compiler", None),
            "evenstride was built without a CUDA compiler",
        ),
        (
            lambda patch: patch.setattr(_core, "kernel_error", lambda _: "it is too old."),
            "it is too old",
        ),
    ],
)
def test_a_loader_says_why_it_takes_the_way_over_the_host(monkeypatch, change, reason):
    monkeypatch.setattr(_core, "cuda_compiler", "13.0.88")
    change(monkeypatch)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    moves = []

    def moved(batch, *, device, pins_memory):
        moves.append((device, pins_memory))
        return batch

    monkeypatch.setattr(loader_targets, "moved", moved)
    loader = loader_of(device="cuda:0")
    message = f"Batches for cuda:0 are collated on the host and copied, because {reason}."
    with pytest.warns(UserWarning, match=whole(message)):
        taken = [rows(batch) for batch in loader]
    assert moves == [(torch.device("cuda:0"), False)] * len(taken)


def test_a_device_that_torch_lacks_is_an_error_that_says_what_is_missing():
    message = (
        "`device` must be a device that this torch has, but is cuda. It is built without CUDA."
    )
    with pytest.raises(ValueError, match=whole(message)):
        DeviceCollator(dataset(ROWS), collator())


def test_a_missing_driver_is_named():
    code = """
    import torch
    torch.version.cuda = "13.0"
    import evenstride as es
    from evenstride.cuda import DeviceCollator
    data = es.RaggedDataset.from_lists([[1]])
    try:
        DeviceCollator(data, es.PadCollator({"input_ids": es.Field()}))
    except ValueError as error:
        print(error)
    """
    expected = f"`device` must be a device that this torch has, but is cuda. {NO_DRIVER}"
    assert run(code).strip() == expected


def test_a_missing_driver_is_named_after_a_fork_too():
    code = """
    import os
    from evenstride import _core
    print(_core.driver_error(), flush=True)
    if os.fork() == 0:
        print(_core.driver_error(), flush=True)
        os._exit(0)
    os.wait()
    """
    assert run(code).splitlines() == [NO_DRIVER] * 2


def test_nothing_of_cuda_is_loaded_before_a_device_is_asked_for():
    code = """
    import evenstride as es
    import evenstride.cuda
    data = es.RaggedDataset.from_lists([[1], [2, 3]])
    sampler = es.BucketBatchSampler(data.lengths, token_budget=4, buckets=1)
    loader = es.Loader(data, sampler, es.PadCollator({"input_ids": es.Field()}))
    list(loader)
    print("libcuda" in open("/proc/self/maps").read())
    """
    assert run(code).strip() == "False"


def test_rows_that_python_makes_are_refused():
    class Doubled(es.RaggedDataset):
        def __getitem__(self, index):
            return super().__getitem__(index)

    message = (
        "`dataset` must be a RaggedDataset and `collate` a PadCollator, whose methods are their "
        "own, but they are a Doubled and a PadCollator."
    )
    with pytest.raises(TypeError, match=whole(message)):
        DeviceCollator(Doubled({"input_ids": ([1], [0, 1])}), collator(), device="cpu")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth": 0}, "`depth` must be in [1, 2**63), but is 0."),
        ({"max_padded_tokens": 0}, "`max_padded_tokens` must be in [1, 2**63), but is 0."),
        ({"max_batch_size": -1}, "`max_batch_size` must be in [1, 2**63), but is -1."),
        ({"memory": "own"}, "`memory` must be 'torch' or 'ring', but is 'own'."),
        ({"device": "gpu"}, "`device` must be a device that torch knows, but is 'gpu'."),
    ],
)
def test_says_which_option_is_wrong(options, message):
    with pytest.raises(ValueError, match=whole(message)):
        DeviceCollator(ragged(3), collator(), **options)


def test_kernels_are_for_all_targets_or_none(monkeypatch):
    monkeypatch.setattr(start_producers, "why_not", lambda _: None)
    cuda = torch.device("cuda", 1)
    message = (
        "Batches for cuda:1 are collated on the host and copied, because another target stays on "
        "the host."
    )
    with pytest.warns(UserWarning, match=whole(message)):
        assert start_producers._with_kernel([cuda, None]) == []
    assert start_producers._with_kernel([None, None]) == []
    assert start_producers._with_kernel([cuda, cuda]) == [cuda, cuda]
