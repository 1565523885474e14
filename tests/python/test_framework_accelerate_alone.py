"""Accelerate on one process: its count of passes, its look ahead, and what resuming reads."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from functools import partial
from itertools import islice

import numpy as np
import pytest
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler

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


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("left_at", [1, 6, 7, 8])
def test_only_a_pass_that_the_loop_has_finished_is_over(accelerator, full, num_workers, left_at):
    sampler = sampler_of_8_steps()
    loader = es.accelerate.prepare(accelerator, loader_over(sampler, num_workers=num_workers))
    for _ in range(2):
        assert list(islice(loader, left_at)) == full[0][:left_at]
        assert (sampler.epoch, sampler.state_dict()["step"]) == (0, left_at)
        if left_at == 8:
            break
    assert next(iter(loader)) == full[left_at == 8][0]


def test_a_state_that_is_loaded_when_workers_have_all_batches_stands(accelerator, full):
    sampler = sampler_of_8_steps()
    loader = es.accelerate.prepare(accelerator, loader_over(sampler, num_workers=2))
    for step, _ in enumerate(loader):
        if step == 5:
            sampler.load_state_dict({**sampler.state_dict(), "epoch": 2, "step": 6})
    assert (sampler.epoch, sampler.state_dict()["step"]) == (2, 6)
    assert list(loader) == full[2][6:]


def test_a_pass_has_one_cursor_so_that_a_meter_tells_passes_apart(accelerator):
    sampler = sampler_of_8_steps()
    loader = es.accelerate.prepare(accelerator, loader_over(sampler))
    meter = es.metrics.BatchMeter(sampler)
    cursors = []
    for _ in range(2):
        for step, _ in enumerate(loader, 1):
            meter.update()
            cursors.append(sampler.cursor)
            assert (sampler.cursor.step, meter.figures("epoch").total.steps) == (step, step)
    assert len(set(map(id, cursors))) == 2
    assert [cursor.epoch for cursor in cursors] == [0] * 8 + [1] * 8


class Rows(IterableDataset):
    """Rows of an epoch of its own choice, whoever asks for them."""

    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        self.sampler.set_epoch(2)
        for batch in self.sampler:
            yield from batch


def test_what_a_data_set_asks_of_a_sampler_is_heard_although_accelerate_asks_it(accelerator, full):
    loader = plainly(accelerator, DataLoader(Rows(sampler_of_8_steps()), batch_size=1))
    for _ in range(2):
        assert [row.tolist() for row in loader] == full[2]


class Wrapped(Sampler):
    """A batch sampler around another, as scripts have them."""

    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        yield from self.sampler

    def set_epoch(self, epoch):
        self.sampler.set_epoch(epoch)

    def __len__(self):
        return len(self.sampler)


def test_a_count_of_accelerate_is_not_heard_through_a_wrapper_either(accelerator, full):
    sampler = sampler_of_8_steps()
    loader = plainly(accelerator, loader_over(Wrapped(sampler)))
    sampler.load_state_dict({**sampler.state_dict(), "epoch": 1, "step": 3})
    assert [list(loader) for _ in range(2)] == [full[1][3:], full[2]]


class OwnBatches:
    """Batches for which a sampler is but a source."""

    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        yield from self.sampler


def test_batches_are_shared_out_twice_through_a_wrapper_but_not_by_what_only_reads_them():
    sampler = es.BucketBatchSampler([7] * 8, token_budget=8, num_replicas=2, rank=0)
    share = partial(accelerate.data_loader.BatchSamplerShard, even_batches=False)
    with pytest.raises(RuntimeError, match=r"^A loader whose BucketBatchSampler has the batches"):
        list(share(Wrapped(sampler), 2, 0))
    assert list(share(OwnBatches(sampler), 2, 0)) == list(sampler.plan.batches(0))[::2]


def skipping(loader, number):
    return accelerate.skip_first_batches(loader, number)


def test_batches_are_skipped_by_accelerate_or_by_a_state_but_not_by_both(accelerator, full):
    sampler = sampler_of_8_steps()
    loader = plainly(accelerator, loader_over(sampler))
    assert list(skipping(loader, 3)) == full[0][3:]
    sampler.load_state_dict({**sampler.state_dict(), "epoch": 2, "step": 4})
    message = (
        "`skip_first_batches` must be left out where the sampler has loaded a state, which begins "
        "at step 4 by itself, but it would skip 4 more."
    )
    with pytest.raises(RuntimeError, match=f"^{re.escape(message)}$"):
        list(skipping(loader, 4))
    assert list(skipping(loader, 0)) == full[2][4:]


def native_loader_over(sampler, **options):
    return es.Loader(range(8), sampler, list, **options)


@pytest.mark.parametrize("new_loader", [loader_over, native_loader_over])
@pytest.mark.parametrize("skipped", [0, 3])
def test_a_prepared_loader_skips_by_a_state_alone(accelerator, full, new_loader, skipped):
    sampler = sampler_of_8_steps()
    loader = es.accelerate.prepare(accelerator, new_loader(sampler))
    message = (
        "`skip_first_batches` must be left out where `evenstride.accelerate.prepare` has made the "
        "loader, whose sampler would not know any more where the loop is: "
        f"`sampler.load_state_dict({{**sampler.state_dict(), 'step': {skipped}}})` begins after "
        f"{skipped} batches of the epoch."
    )
    with pytest.raises(RuntimeError, match=f"^{re.escape(message)}$"):
        list(skipping(loader, skipped))
    sampler.load_state_dict({**sampler.state_dict(), "step": skipped})
    assert list(loader) == full[0][skipped:]


@both_ways
def test_a_version_of_accelerate_without_its_internals_is_left_alone(
    accelerator, full, prepare, monkeypatch
):
    loader = prepare(accelerator, loader_over(sampler_of_8_steps()))
    for name in ("BatchSamplerShard", "DataLoaderDispatcher", "SkipBatchSampler"):
        monkeypatch.delattr(accelerate.data_loader, name)
    assert list(loader) == full[0]


def test_generators_are_not_made_the_same_on_all_ranks_however_it_is_said(full):
    kinds = [accelerate.utils.RNGType.GENERATOR, accelerate.utils.RNGType.TORCH]
    for rng_types in (kinds, [kind.value for kind in kinds]):
        accelerator = accelerate.Accelerator(cpu=True, rng_types=rng_types)
        loader = es.accelerate.prepare(accelerator, loader_over(sampler_of_8_steps()))
        assert loader.rng_types == rng_types[1:]
        assert list(loader) == full[0]


@pytest.mark.parametrize("order", ["stratified", "mixed"])
def test_orders_that_depend_on_optimizer_steps_must_know_how_long_they_are(accelerator, order):
    def prepare(**options):
        sampler = es.BucketBatchSampler([7] * 8, token_budget=8, **options)
        return es.accelerate.prepare(accelerator, loader_over(sampler))

    message = (
        f"`accumulation_steps` of a sampler whose `order` is '{order}' must be the Accelerator's "
        "`gradient_accumulation_steps`, 4, but is 1."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        prepare(order=order)
    for options in ({"accumulation_steps": 4}, {"shuffle": False}):
        assert len(prepare(order=order, **options)) == 8


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


def test_a_native_loader_tells_when_an_epoch_ends(accelerator):
    rows = es.RaggedDataset.from_lists([[row] * 7 for row in range(10)])
    sampler = es.BucketBatchSampler(rows.lengths, token_budget=8)
    collate = es.PadCollator({"input_ids": es.Field()})
    loader = es.Loader(rows, sampler, collate)
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
        assert seen == [batch[0] for batch in sampler.plan]
        assert [step for step, sync in enumerate(syncs, 1) if sync] == [4, 8, 10]
    *_, state = [prepared.state_dict() for _ in islice(prepared, 3)]
    assert state["sampler"]["step"] + len(state["taken"]) == 3
    # Prepared in the plain way it stays as it is, and an accelerator does not see it end.
    assert accelerator.prepare(loader) is loader


@pytest.mark.parametrize("new_loader", [loader_over, native_loader_over])
def test_a_loader_out_of_order_is_refused(accelerator, new_loader):
    loader = new_loader(sampler_of_8_steps(), num_workers=2, in_order=False)
    message = (
        f"`in_order` of a {type(loader).__name__} must be True, but is False: its sampler could "
        "not tell where the loop is."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        es.accelerate.prepare(accelerator, loader)


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


@pytest.mark.parametrize(
    ("placement", "fault"),
    [
        (True, "device_placement` must be a sequence of bool, but is True."),
        ("x", "device_placement` must be a sequence of bool, but is 'x'."),
        ([None], "device_placement[0]` must be True or False, but is None."),
    ],
)
def test_a_placement_of_another_kind_is_refused(accelerator, placement, fault):
    with pytest.raises(TypeError, match=f"^`{re.escape(fault)}$"):
        es.accelerate.prepare(
            accelerator, loader_over(sampler_of_8_steps()), device_placement=placement
        )


def test_that_there_is_nothing_to_prepare_is_said(accelerator):
    message = r"^`objects` must have at least 1 object, but has 0\.$"
    with pytest.raises(ValueError, match=message):
        es.accelerate.prepare(accelerator)


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
