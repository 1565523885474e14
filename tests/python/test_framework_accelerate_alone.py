"""Accelerate on one process: its count of passes, its look ahead, and what resuming reads."""

from __future__ import annotations

import subprocess
import sys
import time
from itertools import islice

import numpy as np
import pytest
from torch.utils.data import DataLoader, Dataset

import evenstride as es

accelerate = pytest.importorskip("accelerate")


@pytest.fixture(autouse=True)
def accelerator(monkeypatch):
    """Return one for the CPU, and remove what it leaves behind: the process has one state."""
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    yield accelerate.Accelerator(cpu=True, gradient_accumulation_steps=4)
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()


def sampler_of_8_steps():
    return es.BucketBatchSampler([7] * 8, token_budget=8)


def loader_over(sampler, **options):
    return DataLoader(range(8), batch_sampler=sampler, collate_fn=list, **options)


def plainly(accelerator, loader):
    return accelerator.prepare(loader)


@pytest.fixture(scope="module")
def full():
    sampler = sampler_of_8_steps()
    return [list(sampler) for _ in range(5)]


both_ways = pytest.mark.parametrize("prepare", [plainly, es.accelerate.prepare])


@both_ways
@pytest.mark.parametrize(("epoch", "step"), [(0, 5), (1, 3), (0, 8), (2, 0)])
def test_a_loaded_epoch_goes_on_whatever_the_loader_counts(accelerator, full, prepare, epoch, step):
    sampler = sampler_of_8_steps()
    loader = prepare(accelerator, loader_over(sampler))
    sampler.load_state_dict({**sampler.state_dict(), "epoch": epoch, "step": step})
    rest = [batch for one in full for batch in one][8 * epoch + step :]
    passes = [list(loader) for _ in range(3)]
    assert [len(one) for one in passes] == [8 - step or 8, 8, 8]
    assert [batch for one in passes for batch in one] == rest[: sum(map(len, passes))]
    assert len(loader) == 8


@both_ways
def test_an_epoch_that_is_asked_for_comes_next(accelerator, full, prepare):
    loader = prepare(accelerator, loader_over(sampler_of_8_steps()))
    next(iter(loader))
    for epoch in (2, 0, 3):
        loader.set_epoch(epoch)
        assert list(loader) == full[epoch]
    next(iter(loader))  # Left early, and Accelerate does not know it.
    loader.set_epoch(1)
    assert list(loader) == full[1]


@both_ways
def test_the_epoch_in_which_a_run_resumes_may_be_named(accelerator, full, prepare):
    sampler = sampler_of_8_steps()
    loader = prepare(accelerator, loader_over(sampler))
    sampler.load_state_dict({**sampler.state_dict(), "epoch": 1, "step": 3})
    for epoch, first in [(1, 3), (2, 0)]:
        loader.set_epoch(epoch)
        assert list(loader) == full[epoch][first:]


def test_the_position_is_that_of_the_loop_and_in_the_plain_way_one_ahead(accelerator):
    for prepare, ahead in [(es.accelerate.prepare, 0), (plainly, 1)]:
        sampler = sampler_of_8_steps()
        loader = prepare(accelerator, loader_over(sampler))
        for consumed, _ in enumerate(loader, 1):
            assert sampler.state_dict()["step"] == min(8, consumed + ahead)
            assert sampler.state_dict(consumed=consumed)["step"] == consumed


@pytest.mark.parametrize("last", [2, 7])
def test_a_state_that_is_loaded_amid_a_loop_stands(accelerator, full, last):
    sampler = sampler_of_8_steps()
    loader = es.accelerate.prepare(accelerator, loader_over(sampler))
    for step, _ in enumerate(loader):
        if step == last:
            sampler.load_state_dict({**sampler.state_dict(), "epoch": 2, "step": 6})
            if step < 7:
                break
    assert sampler.state_dict()["step"] == 6
    assert list(loader) == full[2][6:]


class Counting(Dataset):
    """Rows that count how often they are read."""

    reads = 0

    def __getitem__(self, index):
        self.reads += 1
        return index


def test_a_resumed_run_reads_nothing_before_its_first_new_batch(accelerator):
    lengths = np.full(10_000_000, 600, np.uint16)
    dataset = Counting()

    def first_batch(step):
        sampler = es.BucketBatchSampler(lengths, token_budget=12_000)
        loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=list)
        loader = es.accelerate.prepare(accelerator, loader)
        state = sampler.state_dict()
        dataset.reads = 0
        began_s = time.perf_counter()
        sampler.load_state_dict({**state, "step": step})
        batch = next(iter(loader))
        return batch, dataset.reads, time.perf_counter() - began_s, sampler

    _, _, cold_s, _ = first_batch(0)
    batch, reads, resumed_s, sampler = first_batch(100_000)
    assert reads == 2 * 20  # Accelerate looks one batch ahead.
    assert batch == sampler.plan[100_000].tolist()
    assert resumed_s < 2 * cold_s + 0.5


@pytest.mark.parametrize("in_order", [True, False])
def test_a_native_loader_tells_when_an_epoch_ends(accelerator, in_order):
    rows = es.RaggedDataset.from_lists([[row] * 7 for row in range(10)])
    sampler = es.BucketBatchSampler(rows.lengths, token_budget=8)
    collate = es.PadCollator({"input_ids": es.Field()})
    loader = es.Loader(rows, sampler, collate, in_order=in_order)
    prepared = es.accelerate.prepare(accelerator, loader)
    assert es.accelerate.prepare(accelerator, prepared) is prepared
    assert len(prepared) == 10
    for epoch in (0, 1, 3):
        prepared.set_epoch(epoch)
        seen, syncs = [], []
        for batch in prepared:
            with accelerator.accumulate():
                syncs.append(accelerator.sync_gradients)
            seen.append(batch["input_ids"][0, 0].item())
        assert sorted(seen) == list(range(10))
        if in_order:
            assert seen == [batch[0] for batch in sampler.plan]
        assert [step for step, sync in enumerate(syncs, 1) if sync] == [4, 8, 10]
    *_, state = [prepared.state_dict() for _ in islice(prepared, 3)]
    assert state["sampler"]["step"] + len(state["taken"]) == 3
    # Prepared in the plain way it stays as it is, and an accelerator does not see it end.
    assert accelerator.prepare(loader) is loader


def test_batches_are_moved_to_the_device_unless_told_not_to(accelerator):
    one, other = (loader_over(sampler_of_8_steps()) for _ in range(2))
    for placement, devices in [
        (None, [accelerator.device] * 2),
        ([False, True], [None, accelerator.device]),
    ]:
        prepared = es.accelerate.prepare(accelerator, one, other, device_placement=placement)
        assert [loader.device for loader in prepared] == devices
    message = r"^`device_placement` must have a value for each of the 2 objects, but has 1\.$"
    with pytest.raises(ValueError, match=message):
        es.accelerate.prepare(accelerator, one, other, device_placement=[True])


def test_what_is_no_accelerator_is_refused():
    message = r"^`accelerator` must be an Accelerator, but is a DataLoader\.$"
    with pytest.raises(TypeError, match=message):
        es.accelerate.prepare(loader_over(sampler_of_8_steps()))


def test_without_accelerate_the_submodule_says_how_to_install_it():
    code = (
        "import sys\n"
        "sys.modules['accelerate'] = None\n"
        "import evenstride as es\n"
        "try:\n"
        "    es.accelerate\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == (
        "evenstride.accelerate needs Accelerate: install it with "
        "`pip install 'evenstride[accelerate]'`.\n"
    )
