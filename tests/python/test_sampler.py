"""The sampler: passes, epochs, DataLoaders, copies."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
import warnings
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from torch.utils.data import DataLoader, Dataset, Sampler, SequentialSampler

import evenstride as es
from support import ORDERS, admitted, batches_of, check_plan, lognormal, problems, same_plans

LENGTHS = lognormal(600)
OPTIONS = {"token_budget": 8192, "buckets": [300, 900]}


def sampler_of(**options):
    return es.BucketBatchSampler(LENGTHS, **{**OPTIONS, **options})


def epochs_of(count, **options):
    sampler = sampler_of(**options)
    epochs = []
    for epoch in range(count):
        sampler.set_epoch(epoch)
        epochs.append(list(sampler))
    return epochs


class Rows(Dataset):
    def __len__(self):
        return len(LENGTHS)

    def __getitem__(self, index):
        return index


def loader_of(sampler, **options):
    return DataLoader(Rows(), batch_sampler=sampler, collate_fn=list, **options)


def test_it_is_a_sampler_of_lists_of_int():
    sampler = sampler_of()
    assert isinstance(sampler, Sampler)
    for batch in sampler:
        assert type(batch) is list
        assert {type(index) for index in batch} == {int}


def test_each_batch_is_a_list_of_its_own():
    sampler = sampler_of()
    first = next(iter(sampler))
    wanted = list(first)
    first.clear()
    assert next(iter(sampler)) == wanted


def test_len_is_an_exact_int_and_the_same_in_every_epoch():
    for options in ({}, {"num_replicas": 3, "rank": 2}, {"steps_per_epoch": 90}):
        sampler = sampler_of(**options)
        assert type(len(sampler)) is int
        assert [len(list(sampler)) for _ in range(5)] == [len(sampler)] * 5
        assert sampler.total_steps(7) == 7 * len(sampler)
        assert type(sampler.total_steps(7)) is int
    assert len(sampler) == 90


def test_batch_size_and_drop_last_are_there_for_frameworks():
    assert sampler_of().batch_size is None
    assert sampler_of().drop_last is False
    assert sampler_of(drop_last=True).drop_last is True


def test_ranks_share_every_epoch_without_overlap():
    ranks = [epochs_of(3, num_replicas=3, rank=rank) for rank in range(3)]
    for epoch in range(3):
        indices = sorted(i for rank in ranks for batch in rank[epoch] for i in batch)
        assert indices == list(range(len(LENGTHS)))
        assert len({len(rank[epoch]) for rank in ranks}) == 1


def test_a_pass_is_what_the_plan_says():
    sampler = sampler_of(num_replicas=2, rank=1)
    for epoch in (0, 3):
        sampler.set_epoch(epoch)
        assert list(sampler) == batches_of(sampler.plan)[1::2]
        assert sampler.plan.epoch == sampler.epoch == epoch


@given(problems(drop_last=False))
def test_every_epoch_of_a_sampler_keeps_every_promise_of_a_plan(problem):
    lengths, options = problem
    assume(admitted(lengths, options))
    if options["order"] == "mixed":
        options["too_long"] = "drop"
        assume(admitted(lengths, options))
    epoch = options.pop("epoch") % 1000
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sampler = es.BucketBatchSampler(lengths, **options, rank=0)
    steps = len(sampler)
    for number in (0, 1, epoch):
        sampler.set_epoch(number)
        assert sampler.plan.num_steps == len(list(sampler)) == steps
        check_plan(sampler.plan, lengths, options)


@given(problems(orders=["stride"], drop_last=False))
def test_every_epoch_of_a_sampler_repeats_as_many_samples_as_the_first(problem):
    lengths, options = problem
    assume(admitted(lengths, options))
    del options["epoch"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sampler = es.BucketBatchSampler(lengths, **options, rank=0)
    repeats = set()
    for epoch in range(4):
        sampler.set_epoch(epoch)
        repeats.add(len(sampler.plan.repeats))
    assert len(repeats) == 1


@pytest.mark.parametrize("order", [*ORDERS, "mixed"])
def test_a_constant_number_of_steps_costs_next_to_no_padding(order):
    lengths = lognormal(30_000)
    options = {"token_budget": 16_384, "order": order, "num_replicas": 4}
    sampler = es.BucketBatchSampler(lengths, **options, rank=0)
    settled, natural = [], []
    for epoch in range(1, 6):
        sampler.set_epoch(epoch)
        settled.append(sampler.plan.stats().padding_efficiency)
        natural.append(es.plan_epoch(lengths, **options, epoch=epoch).stats().padding_efficiency)
        assert sampler.plan.num_steps == len(sampler)
    assert abs(np.mean(settled) - np.mean(natural)) < 0.003


def test_epochs_follow_one_another_without_set_epoch():
    sampler = sampler_of()
    assert [list(sampler) for _ in range(3)] == epochs_of(3)


def test_set_epoch_starts_the_whole_of_that_epoch():
    epochs = epochs_of(6)
    sampler = sampler_of()
    for epoch in (5, 0, 0, 3):
        sampler.set_epoch(epoch)
        assert sampler.epoch == epoch
        assert list(sampler) == epochs[epoch]
    assert list(sampler) == epochs[4]


def test_set_epoch_in_the_middle_of_a_pass_starts_anew():
    epochs = epochs_of(2)
    sampler = sampler_of()
    next(iter(sampler))
    sampler.set_epoch(0)
    assert list(sampler) == epochs[0]
    next(iter(sampler))
    sampler.set_epoch(1)
    assert list(sampler) == epochs[1]


def test_an_abandoned_pass_is_begun_again():
    epochs = epochs_of(2)
    sampler = sampler_of()
    list(islice(sampler, 3))
    assert sampler.epoch == 0
    assert list(sampler) == epochs[0]
    assert list(sampler) == epochs[1]


def test_iter_has_no_side_effects():
    epochs = epochs_of(2)
    sampler = sampler_of()
    unused = [iter(sampler) for _ in range(5)]
    assert sampler.epoch == 0
    assert list(sampler) == epochs[0]
    iter(sampler)
    assert sampler.epoch == 0
    assert sampler.plan.epoch == 0
    assert list(sampler) == epochs[1]
    assert list(unused[0]) == epochs_of(3)[2]  # It begins when it is first asked.


def test_two_live_iterators_do_not_disturb_each_other():
    epochs = epochs_of(1)
    sampler = sampler_of()
    one, other = iter(sampler), iter(sampler)
    mixed = [(next(one), next(other)) for _ in range(len(sampler))]
    assert [batch for batch, _ in mixed] == [batch for _, batch in mixed] == epochs[0]


def test_len_needs_no_pass_and_a_pass_changes_no_len():
    sampler = sampler_of()
    steps = len(sampler)
    iterator = iter(sampler)
    next(iterator)
    assert len(sampler) == steps
    sampler.load_state_dict({**sampler.state_dict(), "step": 4})
    assert len(sampler) == steps


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_data_loader_yields_the_epochs(workers, persistent):
    if persistent and not workers:
        pytest.skip("needs workers")
    sampler = sampler_of(num_replicas=2, rank=1)
    loader = loader_of(sampler, num_workers=workers, persistent_workers=persistent)
    assert len(loader) == len(sampler)
    with warnings.catch_warnings():
        # Python warns of forks of processes with threads, which torch's loader makes.
        warnings.simplefilter("ignore", DeprecationWarning)
        assert [list(loader) for _ in range(3)] == epochs_of(3, num_replicas=2, rank=1)


def test_step_info_is_that_of_the_rank():
    sampler = sampler_of(num_replicas=2, rank=1)
    sampler.set_epoch(1)
    for step, batch in enumerate(sampler):
        info = sampler.step_info(step)
        assert info == sampler.plan.step_info(step, 1)
        assert info.samples == len(batch)
        assert info.tokens == LENGTHS[batch].sum()
        assert info.global_samples >= info.samples
    for outside in (len(sampler), -1):
        with pytest.raises(IndexError, match=rf"`step` must be in .*, but is {outside}\."):
            sampler.step_info(outside)


def pickled(sampler):
    return pickle.loads(pickle.dumps(sampler))


@pytest.mark.parametrize("duplicate", [pickled, copy.deepcopy, copy.copy])
@pytest.mark.parametrize("moment", ["new", "in a pass", "after a pass", "loaded", "set"])
def test_a_copy_goes_on_where_the_original_is(duplicate, moment):
    sampler = sampler_of(num_replicas=2, rank=1, order="balanced")
    if moment == "in a pass":
        list(islice(sampler, 3))
    elif moment == "after a pass":
        list(sampler)
    elif moment == "loaded":
        sampler.load_state_dict({**sampler.state_dict(), "epoch": 2, "step": 4})
    elif moment == "set":
        sampler.set_epoch(9)
    other = duplicate(sampler)
    assert other.state_dict() == sampler.state_dict()
    assert other.epoch == sampler.epoch
    assert same_plans(other.plan, sampler.plan)
    assert [list(other), list(other)] == [list(sampler), list(sampler)]


def test_a_copy_and_its_original_do_not_disturb_each_other():
    sampler = sampler_of()
    iterator = iter(sampler)
    next(iterator)
    other = copy.deepcopy(sampler)
    list(other)
    list(other)
    assert sampler.state_dict()["epoch"] == 0
    assert sampler.state_dict()["step"] == 1
    assert [*list(iterator)] == epochs_of(1)[0][1:]


def test_a_memmap_that_was_changed_in_memory_is_pickled_with_its_changes(tmp_path):
    np.arange(9, dtype=np.uint16).tofile(tmp_path / "lengths")
    lengths = np.memmap(tmp_path / "lengths", np.uint16, "c")
    lengths[0] = 5
    sampler = es.BucketBatchSampler(lengths, token_budget=9)
    assert pickle.loads(pickle.dumps(sampler)).lengths.tolist() == lengths.tolist()


@pytest.mark.parametrize("part", [slice(None), slice(50, 900)])
def test_a_memmap_is_pickled_as_its_path(tmp_path, part):
    np.save(tmp_path / "lengths.npy", np.tile(LENGTHS, 1000))
    lengths = np.load(tmp_path / "lengths.npy", mmap_mode="r")[part]
    sampler = es.BucketBatchSampler(lengths, **OPTIONS)
    data = pickle.dumps(sampler)
    assert len(data) < 4096
    assert list(islice(pickle.loads(data), 50)) == list(islice(sampler, 50))


def test_lengths_are_not_copied():
    lengths = np.tile(LENGTHS, 10)
    sampler = es.BucketBatchSampler(lengths, **OPTIONS)
    assert np.shares_memory(sampler.lengths, lengths)
    assert np.shares_memory(copy.deepcopy(sampler).lengths, lengths)


def test_a_sampler_can_be_saved_by_torch():
    sampler = sampler_of()
    list(islice(sampler, 3))
    file = io.BytesIO()
    torch.save(sampler, file)
    file.seek(0)
    assert list(torch.load(file, weights_only=False)) == list(sampler)


def test_another_process_has_the_same_batches():
    code = (
        "import evenstride as es\n"
        f"sampler = es.BucketBatchSampler({LENGTHS.tolist()}, **{OPTIONS!r}, seed=5)\n"
        "print(list(sampler))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(epochs_of(1, seed=5)[0])


def test_removed_tokens_above_one_in_a_hundred_are_warned_of():
    with pytest.warns(UserWarning, match="are in no epoch") as caught:
        es.BucketBatchSampler([5000, 10, 10], token_budget=100, too_long="drop")
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        es.BucketBatchSampler([101] + [100] * 150, token_budget=100, too_long="drop")


class Around(es.BucketBatchSampler):
    """A sampler that is made of another one, as scripts have them."""

    def __init__(self, base, lengths=LENGTHS, *, drop_last=False, **_):
        super().__init__(lengths, drop_last=drop_last, **OPTIONS)
        self.base = base


def test_a_subclass_may_take_a_sampler():
    base = SequentialSampler(LENGTHS)
    for made in (Around(base), Around(base, LENGTHS), Around(base, batch_size=8, drop_last=False)):
        assert list(made) == list(sampler_of())
    with pytest.raises(
        TypeError, match=r"^`lengths` must be the number of tokens of each sample, "
    ):
        es.BucketBatchSampler(base, **OPTIONS)


@pytest.mark.parametrize("kind", [es.BucketBatchSampler, Around])
def test_what_lightning_makes_anew_is_refused(kind):
    message = r"^`lengths` must be the tokens of each sample, but is a SequentialSampler: if Light"
    with pytest.raises(TypeError, match=message):
        kind(SequentialSampler(LENGTHS), batch_size=None, drop_last=False)
