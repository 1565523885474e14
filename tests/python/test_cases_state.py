"""Small inputs with known right answers: where a run that was stopped goes on."""

from __future__ import annotations

import json
from itertools import islice

import pytest
from torch.utils.data import DataLoader

import evenstride as es


def sampler_of_8_steps():
    return es.BucketBatchSampler([7] * 8, token_budget=8)


FULL = dict.fromkeys(range(4))


@pytest.fixture(scope="module")
def full():
    sampler = sampler_of_8_steps()
    return [list(sampler) for _ in range(4)]


def state_at(epoch, step):
    sampler = sampler_of_8_steps()
    sampler.set_epoch(epoch)
    list(islice(sampler, step))
    return json.loads(json.dumps(sampler.state_dict()))


def resumed_at(epoch, step):
    sampler = sampler_of_8_steps()
    sampler.load_state_dict(state_at(epoch, step))
    return sampler


def test_unused_iterators_change_nothing_after_loading(full):
    sampler = resumed_at(0, 3)
    iter(sampler)
    assert list(sampler) == full[0][3:]


def test_two_live_iterators_do_not_disturb_each_other(full):
    sampler = sampler_of_8_steps()
    one, other = iter(sampler), iter(sampler)
    taken = [next(one), next(one), next(other), next(one), next(other)]
    assert taken == [full[0][i] for i in (0, 1, 0, 2, 1)]


def test_what_was_consumed_is_saved_and_not_what_was_prefetched():
    sampler = es.BucketBatchSampler([7] * 20, token_budget=8)
    whole = list(sampler)
    sampler.set_epoch(0)
    loader = DataLoader(
        range(20), batch_sampler=sampler, collate_fn=list, num_workers=2, prefetch_factor=4
    )
    for trained, _ in enumerate(loader, 1):
        if trained == 7:
            assert sampler.state_dict()["step"] > 7
            state = sampler.state_dict(consumed=7)
            break
    resumed = es.BucketBatchSampler([7] * 20, token_budget=8)
    resumed.load_state_dict(state)
    assert list(resumed) == whole[7:]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:'set_vital' is deprecated")
def test_a_stateful_data_loader_resumes_at_the_first_batch_not_trained_on(workers):
    stateful = pytest.importorskip("torchdata.stateful_dataloader")

    def loader():
        return stateful.StatefulDataLoader(
            list(range(20)),
            batch_sampler=es.BucketBatchSampler([7] * 20, token_budget=8),
            collate_fn=list,
            num_workers=workers,
            **({"prefetch_factor": 4} if workers else {}),
        )

    whole = list(es.BucketBatchSampler([7] * 20, token_budget=8))
    first = loader()
    assert list(islice(first, 7)) == whole[:7]
    resumed = loader()
    resumed.load_state_dict(first.state_dict())
    assert list(resumed) == whole[7:]
    following = es.BucketBatchSampler([7] * 20, token_budget=8)
    following.set_epoch(1)
    assert list(resumed) == list(following)


def test_a_run_stopped_in_epoch_1_goes_on_there_and_then_with_epoch_2(full):
    sampler = resumed_at(1, 3)
    assert [list(sampler), list(sampler)] == [full[1][3:], full[2]]
    sampler = resumed_at(1, 3)
    sampler.set_epoch(1)
    assert list(sampler) == full[1][3:]
    sampler = resumed_at(1, 3)
    sampler.set_epoch(2)
    assert list(sampler) == full[2]


def test_a_resumed_epoch_is_short_and_all_later_ones_are_whole(full):
    sampler = resumed_at(0, 5)
    assert [len(list(sampler)) for _ in range(3)] == [3, 8, 8]
    assert len(sampler) == 8


def test_a_state_after_the_last_batch_goes_on_with_the_next_epoch(full):
    sampler = resumed_at(0, 8)
    assert list(sampler) == full[1]
    sampler = resumed_at(0, 8)
    sampler.set_epoch(1)
    assert list(sampler) == full[1]


def test_the_end_of_an_epoch_and_the_start_of_the_next_are_the_same_point(full):
    for epoch, step in [(0, 8), (1, 0)]:
        sampler = sampler_of_8_steps()
        sampler.load_state_dict({**state_at(0, 0), "epoch": epoch, "step": step})
        assert list(sampler) == full[1]


def test_another_number_of_ranks_is_an_error_that_names_both():
    one = es.BucketBatchSampler([7] * 8, token_budget=8, num_replicas=1, rank=0)
    two = es.BucketBatchSampler([7] * 8, token_budget=8, num_replicas=2, rank=0)
    with pytest.raises(ValueError, match=r"`num_replicas` .* was 1 there and is 2 here\.$"):
        two.load_state_dict(one.state_dict())


def test_another_budget_or_length_is_an_error_and_the_next_epoch_is_always_possible():
    lengths = [700] * 8
    state = es.BucketBatchSampler(lengths, token_budget=1536).state_dict()
    with pytest.raises(ValueError, match=r"`token_budget` .* was 1536 there and is 1500 here\.$"):
        es.BucketBatchSampler(lengths, token_budget=1500).load_state_dict(state)
    with pytest.raises(ValueError, match="`lengths` must be the same"):
        es.BucketBatchSampler([700] * 7 + [701], token_budget=1536).load_state_dict(state)
    fresh = es.BucketBatchSampler(lengths, token_budget=1500)
    fresh.set_epoch(state["epoch"] + 1)
    next(iter(fresh))
    assert fresh.epoch == 1
