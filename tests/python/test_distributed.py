"""Whether all ranks plan the same, over real processes."""

from __future__ import annotations

import json

import pytest

import evenstride as es
from framework_support import run_ranks

JOB = """
import json
import os

from torch import distributed

import evenstride as es

distributed.init_process_group("gloo")
RANK = distributed.get_rank()
LENGTHS = [3, 9, 4, 8, 3, 9, 5, 5, 7, 1, 6, 2]


def check(lengths=LENGTHS, epoch=0, step=0, group=None, **options):
    sampler = es.BucketBatchSampler(lengths, **{"token_budget": 9, "buckets": 2, **options})
    sampler.set_epoch(epoch)
    if step:
        sampler.load_state_dict({**sampler.state_dict(), "step": step})
    try:
        es.distributed.check_same_plan(sampler, group)
    except ValueError as error:
        return str(error)


class Unreadable(es.BucketBatchSampler):
    def state_dict(self, consumed=None):
        raise OSError("the disk is gone")


def check_on(rank, make):
    make = make if rank == RANK else es.BucketBatchSampler
    try:
        es.distributed.check_same_plan(make(LENGTHS, token_budget=9))
    except ValueError as error:
        return str(error)


def count_plans():
    sampler = es.BucketBatchSampler(LENGTHS, token_budget=9)
    made = []
    sampler._plans.of = made.append
    es.distributed.check_same_plan(sampler)
    return len(made)


def on(rank, here, elsewhere):
    return here if rank == RANK else elsewhere


found = {
    "equal": check(),
    "loaded": check(epoch=1, step=2),
    "given": check(num_replicas=3, rank=2 - RANK),
    "lengths": check(LENGTHS[: on(1, 11, 12)]),
    "token_budget": check(token_budget=on(0, 10, 9)),
    "buckets": check(buckets=on(2, [4, 7], [4])),
    "seed": check(seed=RANK),
    "steps_per_epoch": check(steps_per_epoch=on(2, 3, None)),
    "epoch": check(epoch=on(2, 5, 4)),
    "step": check(step=on(1, 1, 0)),
    "num_replicas": check(num_replicas=on(0, 3, 4), rank=RANK),
    "same rank": check(num_replicas=3, rank=on(0, 0, 1)),
    "out of range": check(rank=on(1, 3, RANK)),
    "unreadable": check_on(1, Unreadable),
    "no sampler": check_on(2, lambda *_, **__: None),
    "plans": count_plans(),
}
pair = distributed.new_group([0, 2])
if RANK != 1:
    found["pair"] = check(group=pair, num_replicas=2, rank=RANK // 2)
    found["pair that differs"] = check(group=pair, num_replicas=2, rank=RANK // 2, seed=RANK)
print(json.dumps(found))
distributed.destroy_process_group()
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    printed = run_ranks(JOB, tmp_path_factory.mktemp("distributed"), num_ranks=3)
    return [json.loads(text.splitlines()[-1]) for text in printed]


@pytest.mark.parametrize("name", ["equal", "loaded", "given", "pair"])
def test_ranks_that_plan_the_same_pass(found, name):
    assert [one.get(name) for one in found] == [None] * 3


SAME = "must be the same on all ranks, but is"
DIFFERENCES = {
    "lengths": f"`lengths` {SAME} '12:32494fc70c3c2a0b' on ranks 0, 2 and '11:9baa6a06ece84651' on "
    "rank 1.",
    "token_budget": f"`token_budget` {SAME} 10 on rank 0 and 9 on ranks 1, 2.",
    "buckets": f"`buckets` {SAME} [4] on ranks 0, 1 and [4, 7] on rank 2.",
    "seed": f"`seed` {SAME} 0 on rank 0, 1 on rank 1 and 2 on rank 2.",
    "steps_per_epoch": "Rank 2 cannot take part: `steps_per_epoch` must be in [4, 4], but is 3.",
    "epoch": f"`epoch` {SAME} 4 on ranks 0, 1 and 5 on rank 2.",
    "step": f"`step` {SAME} 0 on ranks 0, 2 and 1 on rank 1.",
    "num_replicas": "`num_replicas` must be the number of ranks of the group, 3, but is 3 on rank "
    "0 and 4 on ranks 1, 2.",
    "same rank": "`rank` must be another one in each process of the group, but is 1 in processes "
    "1, 2.",
    "out of range": "Rank 1 cannot take part: `rank` must be in [0, num_replicas = 3), but is 3.",
    "unreadable": "Rank 1 cannot take part: OSError: the disk is gone",
    "no sampler": "Rank 2 cannot take part: TypeError: `sampler` must be a BucketBatchSampler, but "
    "is a NoneType.",
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_every_rank_hears_what_differs(found, name):
    assert [one[name] for one in found] == [DIFFERENCES[name]] * 3


def test_a_group_of_some_processes_is_checked_by_itself(found):
    message = f"`seed` {SAME} 0 on rank 0 and 2 on rank 1."
    assert [one.get("pair that differs") for one in found] == [message, None, message]


def test_no_epoch_is_planned_for_it(found):
    assert [one["plans"] for one in found] == [0] * 3


def test_without_other_processes_nothing_is_checked():
    sampler = es.BucketBatchSampler([3, 4], token_budget=8, num_replicas=5, rank=0)
    es.distributed.check_same_plan(sampler)


def test_without_other_processes_a_sampler_must_be_one_all_the_same():
    message = r"^`sampler` must be a BucketBatchSampler, but is a NoneType\.$"
    with pytest.raises(TypeError, match=message):
        es.distributed.check_same_plan(None)
