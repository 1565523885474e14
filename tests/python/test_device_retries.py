"""Batches for devices that are interrupted on their way, and taken again."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest
import torch

import evenstride as es
from collate_support import same, whole
from data_support import dataset, some_rows
from evenstride.bound import BoundCollator
from evenstride.cuda import DeviceCollator
from loader_support import (
    collator,
    consume,
    counted,
    in_threads,
    loader_of,
    plan_of,
    rows,
    wait_until,
)

MEMORIES = ["torch", "ring"]
ALL_KEPT = (
    "Tensors of earlier batches must be let go of when their lease is over, but all memory of the "
    "ring on cpu is in use."
)


@pytest.fixture
def failing(monkeypatch):
    """Return a list; while there is something in it, the end of a batch raises what it pops."""
    errors = []
    finished = BoundCollator._completed

    def fail_or_finish(self, batch, samples):
        if errors:
            raise errors.pop()
        return finished(self, batch, samples)

    monkeypatch.setattr(BoundCollator, "_completed", fail_or_finish)
    return errors


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("depth", [1, 4])
def test_a_batch_whose_end_fails_comes_again(fake_cuda, failing, memory, depth):
    loader = loader_of(device="cuda:0", device_memory=memory, depth=depth)
    batches, taken = iter(loader), []
    for number in range(len(loader)):
        if number % 3 == 1:
            failing.append(KeyboardInterrupt())
            with pytest.raises(KeyboardInterrupt):
                next(batches)
        batch = next(batches)
        fake_cuda.finish()
        taken.append(rows(batch))
        del batch
    assert taken == plan_of(loader)
    assert next(batches, None) is None


def test_a_batch_that_comes_again_is_not_overwritten_within_its_lease(fake_cuda, failing):
    loader = loader_of(targets=["cuda:0"] * 2, device_memory="ring", depth=1, in_order=False)
    batches = iter(loader.targets[0])
    failing.append(MemoryError())
    with pytest.raises(MemoryError):
        next(batches)
    batch = next(batches)
    fake_cuda.finish()
    before = rows(batch)
    others = iter(loader.targets[1])
    for _ in range(6):
        next(others)
    fake_cuda.finish()
    assert rows(batch) == before
    assert before in plan_of(loader)


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_batch_that_fails_on_one_device_may_be_taken_by_another(fake_cuda, failing, memory):
    loader = loader_of(targets=["cuda:0", "cuda:1"], in_order=False, device_memory=memory)
    first, second = iter(loader.targets[0]), iter(loader.targets[1])
    taken = []
    for _ in range(4):
        failing.append(MemoryError())
        with pytest.raises(MemoryError):
            next(first)
        batch = next(second)
        fake_cuda.finish()
        taken.append(rows(batch))
    del batch
    for batch in second:
        fake_cuda.finish()
        taken.append(rows(batch))
    assert counted(taken) == counted(plan_of(loader))


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_collator_goes_on_after_failures(fake_cuda, failing, memory):
    data, collate = dataset(some_rows(20)), collator()
    on_device = DeviceCollator(data, collate, device="cuda:0", memory=memory, depth=1)
    for number in range(8):
        failing.append(MemoryError())
        with pytest.raises(MemoryError):
            on_device([number])
        batch = on_device([number])
        fake_cuda.finish()
        assert same(batch, collate(data.__getitems__([number])))
        del batch


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_loader_may_be_closed_amid_a_batch(fake_cuda, memory):
    for _ in range(5):
        loader = loader_of(400, device="cuda:0", device_memory=memory, depth=1)
        began = threading.Event()

        def run(loader=loader, began=began):
            for _ in loader:
                began.set()

        def close(loader=loader, began=began):
            began.wait()
            loader.close()

        errors = in_threads(run, close)
        assert [str(error) for error in errors if not isinstance(error, RuntimeError)] == []
        fake_cuda.finish()


def test_most_batches_are_submitted_before_they_are_asked_for(fake_cuda, monkeypatch):
    from evenstride.producers_device import DeviceProducers  # noqa: PLC0415

    early = []
    count = DeviceProducers.count

    def counting(self, target, made):
        early.append(made.is_given)
        count(self, target, made)

    monkeypatch.setattr(DeviceProducers, "count", counting)
    for depth in [2, 8]:
        early.clear()
        loader = loader_of(2_000, device="cuda:0", depth=depth)
        for batch in loader:
            fake_cuda.finish()
            wait_until(lambda loader=loader: loader.queue_depths()[0] > 0 or len(early) > 100)
            rows(batch)
        assert sum(early[-100:]) > 90


@pytest.mark.parametrize("in_order", [True, False])
def test_targets_of_one_ring_do_not_hold_each_other_up(fake_cuda, in_order):
    loader = loader_of(
        600, targets=["cuda:0"] * 3, device_memory="ring", depth=2, in_order=in_order
    )
    taken = [[] for _ in range(3)]
    calls = [lambda k=k: consume(loader, k, taken[k]) for k in range(3)]
    assert in_threads(*calls) == []
    assert counted(itertools.chain(*taken)) == counted(plan_of(loader))
    fake_cuda.finish()


def test_kept_tensors_use_up_a_ring(fake_cuda):
    data = dataset([[1, 2], [3, 4]])
    on_device = DeviceCollator(data, collator(), device="cuda:0", memory="ring", depth=1)
    kept = [on_device([0])["input_ids"] for _ in range(3)]
    with pytest.raises(RuntimeError, match=whole(ALL_KEPT)):
        on_device([1])
    fake_cuda.finish()
    assert [tensor.tolist() for tensor in kept] == [[[1, 2]]] * 3
    kept.pop()
    assert on_device([1])["input_ids"].tolist() == [[3, 4]]


@pytest.mark.parametrize("memory", MEMORIES)
def test_largest_batches_are_those_that_were_said(fake_cuda, memory):
    data = dataset([[1, 2, 3], [4], [5]])
    on_device = DeviceCollator(
        data, collator(), device="cuda:0", memory=memory, max_batch_size=2, max_padded_tokens=3
    )
    message = "A batch must have at most `max_batch_size` = 2 samples, but has 3."
    with pytest.raises(ValueError, match=whole(message)):
        on_device([0, 1, 2])
    message = "A batch must have at most `max_padded_tokens` = 3 padded tokens, but has 6."
    with pytest.raises(ValueError, match=whole(message)):
        on_device(np.array([0, 1]))
    batch = on_device([1, 2])
    fake_cuda.finish()
    assert batch["input_ids"].tolist() == [[4], [5]]


def test_a_lease_ends_with_its_block_also_where_that_raises(fake_cuda):
    data = dataset([[1, 2], [3, 4]])
    on_device = DeviceCollator(data, collator(), device="cuda:0", memory="ring", depth=1)

    def use():
        with on_device.lease([0]) as batch:
            assert batch["input_ids"].shape == (1, 2)
            message = "of the block"
            raise KeyError(message)

    def run():
        with pytest.raises(KeyError):
            use()

    assert fake_cuda.calls_of(run, ["cuEventRecord"]) == {"cuEventRecord": 2}


def test_a_forked_process_cannot_use_the_parents_loader(fake_cuda):
    import os  # noqa: PLC0415

    loader = loader_of(device="cuda:0")
    batches = iter(loader)
    next(batches)
    fake_cuda.finish()
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            next(batches)
        except RuntimeError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert "forked" in pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    assert isinstance(next(batches)["input_ids"], torch.Tensor)
    fake_cuda.finish()
    assert isinstance(es.cuda.is_built(), bool)
