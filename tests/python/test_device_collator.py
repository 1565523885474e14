"""`DeviceCollator` over a driver that pretends, against the collator of the host."""

from __future__ import annotations

import copy
import os
import pickle
import re

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import evenstride as es
from collate_support import ALL_TYPES, INTEGER_TYPES, ragged, same, whole
from data_support import dataset, some_rows
from evenstride import _core
from evenstride.cuda import DeviceCollator

PER_BATCH = ["cuMemcpyHtoDAsync", "cuLaunchKernel", "cuEventRecord"]
NEVER = [
    *("cuMemAlloc", "cuMemFree", "cuMemHostRegister", "cuEventCreate", "cuEventSynchronize"),
    *("cuModuleLoadData", "cuStreamCreateWithPriority"),
]


def collator(**options):
    return es.PadCollator({"input_ids": es.Field()}, **options)


def batches_of(rows, *, size=7, seed=0):
    random = np.random.default_rng(seed)
    return [random.integers(0, len(rows), size).tolist() for _ in range(20)]


@st.composite
def problems(draw):
    """Draw a data set, a collator, and rows to collate."""
    dtype = draw(st.sampled_from(ALL_TYPES))
    rows = some_rows(12, longest=draw(st.sampled_from([1, 9, 70])), seed=draw(st.integers(0, 99)))
    if dtype == "bool":
        rows = [[value % 2 for value in row] for row in rows]
    prompts = draw(st.lists(st.integers(0, 12), min_size=12, max_size=12))
    data = es.RaggedDataset(
        {
            "x": ragged(rows, dtype, num_chunks=draw(st.integers(1, 3))),
            "prompt": np.array(prompts, draw(st.sampled_from(["uint8", "int16", "int64"]))),
            "label": np.arange(12.0),
        }
    )
    wide = es.Field(1, source="x", padding_side=draw(st.sampled_from(["left", "right"])))
    start = draw(st.integers(0, 3))
    short = es.Field(
        0, source="x", start=start, prompt="prompt", max_length=draw(st.none() | st.integers(1, 9))
    )
    collate = es.PadCollator(
        {"x": es.Field(), "wide": wide, "short": short},
        position_ids=draw(st.booleans()),
        lengths=draw(st.booleans()),
        pad_to_multiple_of=draw(st.sampled_from([1, 3, 8])),
        padding_side=draw(st.sampled_from(["left", "right"])),
        mask_dtype=draw(st.sampled_from([torch.int64, torch.bool, torch.uint8])),
    )
    return data, collate, draw(st.lists(st.integers(-12, 11), min_size=1, max_size=9))


@pytest.mark.parametrize("memory", ["torch", "ring"])
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(problem=problems())
def test_makes_what_the_host_makes(fake_cuda, memory, problem):
    data, collate, indices = problem
    batch = DeviceCollator(data, collate, device="cuda:0", memory=memory)(indices)
    fake_cuda.finish()
    assert same(batch, collate(data.__getitems__(indices)))


@pytest.mark.parametrize("memory", ["torch", "ring"])
@pytest.mark.parametrize("dtype", INTEGER_TYPES)
def test_every_batch_of_many_is_right(fake_cuda, dtype, memory):
    rows = some_rows(50, longest=40)
    data, collate = dataset(rows, dtype), collator()
    on_device = DeviceCollator(data, collate, device="cuda:0", memory=memory)
    for indices in batches_of(rows):
        batch = on_device(indices)
        fake_cuda.finish()
        assert same(batch, collate(data.__getitems__(indices)))


def test_a_batch_is_one_copy_one_launch_and_one_event(fake_cuda):
    rows = some_rows(50, longest=40)
    on_device = DeviceCollator(
        dataset(rows), collator(), device="cuda:0", max_padded_tokens=7 * 40, max_batch_size=7
    )
    batches = batches_of(rows)

    def run():
        for indices in batches:
            on_device(indices)
            fake_cuda.finish()

    run()
    counts = fake_cuda.calls_of(run, [*PER_BATCH, *NEVER])
    assert counts == {call: len(batches) if call in PER_BATCH else 0 for call in counts}


def test_every_batch_lies_in_one_block_of_one_size(fake_cuda):
    rows = some_rows(50, longest=40)
    on_device = DeviceCollator(
        dataset(rows), collator(), device="cuda:0", max_padded_tokens=7 * 40, max_batch_size=7
    )
    kept = [on_device(indices) for indices in batches_of(rows)]
    storages = [
        {tensor.untyped_storage().data_ptr() for tensor in batch.values()} for batch in kept
    ]
    assert storages == [{address} for address in fake_cuda.handed_over]
    assert len(set(fake_cuda.handed_over)) == len(kept)
    sizes = {batch["input_ids"].untyped_storage().nbytes() for batch in kept}
    assert len(sizes) == 1


def test_outputs_do_not_count_each_other_s_changes(fake_cuda):
    batch = DeviceCollator(dataset([[1, 2]]), collator(), device="cuda:0")([0])
    fake_cuda.finish()
    weights = torch.ones(3, requires_grad=True)
    loss = weights[batch["input_ids"]].sum()
    batch["attention_mask"].zero_()
    loss.backward()
    assert weights.grad.tolist() == [0, 1, 1]


def test_a_batch_beyond_the_largest_is_refused(fake_cuda):
    on_device = DeviceCollator(
        dataset([[1], [1, 2, 3]]), collator(), device="cuda:0", max_padded_tokens=5
    )
    message = "A batch must have at most `max_padded_tokens` = 5 padded tokens, but has 6."
    with pytest.raises(ValueError, match=whole(message)):
        on_device([0, 1])
    assert on_device([1])["input_ids"].shape == (1, 3)


def test_a_lease_ends_with_its_block(fake_cuda):
    data, collate = dataset(some_rows(50, longest=9)), collator()
    on_device = DeviceCollator(data, collate, device="cuda:0", memory="ring", depth=1)
    for indices in batches_of(range(50)):
        with on_device.lease(indices) as batch:
            fake_cuda.finish()
            assert same(batch, collate(data.__getitems__(indices)))
        del batch


def test_a_tensor_that_outlives_its_lease_is_not_overwritten(fake_cuda):
    data = dataset([[1, 2], [3, 4]])
    on_device = DeviceCollator(data, collator(), device="cuda:0", memory="ring", depth=1)
    kept = on_device([0])["input_ids"]
    for _ in range(9):
        assert on_device([1])["input_ids"].data_ptr() != kept.data_ptr()
    fake_cuda.finish()
    assert kept.tolist() == [[1, 2]]


def test_the_stream_that_is_current_waits_and_no_other(fake_cuda):
    on_device = DeviceCollator(dataset([[1, 2]]), collator(), device="cuda:0")
    streams = [fake_cuda.stream(), fake_cuda.stream()]
    for count in range(1, 4):
        fake_cuda.current_stream = streams[0]
        on_device([0])
        assert [fake_cuda.waits_of(stream) for stream in streams] == [count, 0]


def test_a_lease_ends_after_the_stream_it_began_on_and_the_one_it_ends_on(fake_cuda):
    on_device = DeviceCollator(dataset([[1, 2]]), collator(), device="cuda:0", memory="ring")
    began, ended = fake_cuda.stream(), fake_cuda.stream()
    fake_cuda.current_stream = began
    on_device([0])
    fake_cuda.current_stream = ended
    on_device([0])
    assert [fake_cuda.records_of(stream) for stream in (began, ended)] == [1, 1]
    on_device([0])
    assert [fake_cuda.records_of(stream) for stream in (began, ended)] == [1, 2]


def test_a_block_that_was_left_waits_for_its_last_reader(fake_cuda):
    on_device = DeviceCollator(
        dataset([[1, 2]]), collator(), device="cuda:0", memory="ring", depth=1
    )
    ours = _core.device_stream(0)
    before = fake_cuda.waits_of(ours)
    for _ in range(8):
        on_device([0])
    assert fake_cuda.waits_of(ours) - before == 8 - 3  # All but the first of each block.


def test_only_the_device_that_is_asked_for_is_used(fake_cuda):
    streams = [_core.device_stream(0), _core.device_stream(1)]
    before = [fake_cuda.records_of(stream) for stream in streams]
    DeviceCollator(dataset([[1, 2]]), collator(), device="cuda:1")([0])
    after = [fake_cuda.records_of(stream) for stream in streams]
    assert np.subtract(after, before).tolist() == [0, 1]


def test_an_unknown_device_is_named(fake_cuda):
    with pytest.raises(ValueError, match=re.escape("[0, 2), but is 7")):
        DeviceCollator(dataset([[1, 2]]), collator(), device="cuda:7")


def test_a_forked_process_says_what_to_do(fake_cuda):
    on_device = DeviceCollator(dataset([[1, 2]]), collator(), device="cuda:0")
    on_device([0])
    fake_cuda.finish()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            on_device([0])
        except RuntimeError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        message = pipe.read()
    os.waitpid(child, 0)
    assert message == (
        "CUDA cannot be used in a process that was forked from one that uses it; start the process "
        'with the "spawn" method, or use the device only in the process that made it.'
    )


@pytest.mark.parametrize("act", [pickle.dumps, copy.copy, copy.deepcopy])
def test_cannot_be_copied(fake_cuda, act):
    on_device = DeviceCollator(dataset([[1, 2]]), collator(), device="cuda:0")
    message = (
        "A `DeviceCollator` has memory of a device, and cannot be copied or pickled: make one "
        "where it is needed, of its data set and collator, which can."
    )
    with pytest.raises(TypeError, match=whole(message)):
        act(on_device)
