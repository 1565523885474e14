"""A loader for several consumers, each in a thread of its own."""

from __future__ import annotations

import random
import re
import threading
import time
from itertools import chain

import pytest
import torch

from loader_support import (
    consume,
    consume_all,
    counted,
    in_threads,
    loader_of,
    no_threads,
    plan_of,
    rows,
    wait_until,
)

KINDS = [True, False]


@pytest.mark.parametrize("is_native", KINDS)
@pytest.mark.parametrize("targets", [1, 2, 3, 6])
def test_batch_i_goes_to_target_i_modulo_targets(is_native, targets):
    loader = loader_of(is_native=is_native, targets=targets, depth=3)
    plan = plan_of(loader)
    assert consume_all(loader) == [plan[k::targets] for k in range(targets)]
    assert [len(target) for target in loader.targets] == [
        len(plan[k::targets]) for k in range(targets)
    ]


@pytest.mark.parametrize("is_native", KINDS)
@pytest.mark.parametrize("targets", [1, 2, 3, 6])
def test_out_of_order_each_batch_goes_to_one_target(is_native, targets):
    loader = loader_of(is_native=is_native, targets=targets, in_order=False, num_workers=3)
    taken = consume_all(loader)
    assert counted(chain(*taken)) == counted(plan_of(loader))


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("targets", [2, 6])
def test_passes_follow_each_other_in_all_threads(in_order, targets):
    loader = loader_of(targets=targets, in_order=in_order, depth=2)
    taken = [[[] for _ in range(targets)] for _ in range(6)]

    def run(target):
        for epoch in range(6):
            consume(loader, target, taken[epoch][target])

    assert in_threads(*(lambda k=k: run(k) for k in range(targets))) == []
    for epoch in range(6):
        assert counted(chain(*taken[epoch])) == counted(plan_of(loader, epoch))


@pytest.mark.parametrize("in_order", [True, False])
def test_every_thread_may_set_the_epoch(in_order):
    loader = loader_of(targets=3, in_order=in_order)
    epochs = [4, 2, 3]
    taken = [[[] for _ in range(3)] for _ in epochs]
    together = threading.Barrier(3)

    def run(target):
        for i, epoch in enumerate(epochs):
            together.wait()
            loader._sampler.set_epoch(epoch)
            together.wait()
            consume(loader, target, taken[i][target])

    assert in_threads(*(lambda k=k: run(k) for k in range(3))) == []
    for i, epoch in enumerate(epochs):
        assert counted(chain(*taken[i])) == counted(plan_of(loader, epoch))


@pytest.mark.parametrize("in_order", [True, False])
def test_queues_are_equally_deep_while_consumers_keep_up(in_order):
    loader = loader_of(2000, targets=6, depth=4, in_order=in_order, num_workers=2)
    barrier = threading.Barrier(6)
    apart = []

    def measure():
        wait_until(lambda: sum(loader.queue_depths()) >= 6 * 3)
        depths = loader.queue_depths()
        apart.append(max(depths) - min(depths))

    def run(target):
        batches = iter(loader.targets[target])
        for step in range(20):
            next(batches)
            if barrier.wait() == 0 and step % 4 == 0:
                measure()
            barrier.wait()

    assert in_threads(*(lambda k=k: run(k) for k in range(6))) == []
    assert max(apart) <= 1
    assert len(apart) == 5


def test_out_of_order_a_consumer_that_stands_still_holds_up_no_other():
    loader = loader_of(1000, targets=3, depth=2, in_order=False)
    goes_on = threading.Event()
    taken = [[], [], []]

    def stall():
        batches = iter(loader.targets[0])
        taken[0].append(rows(next(batches)))
        goes_on.wait(30)
        taken[0].extend(map(rows, batches))

    def run(target):
        for _ in range(2):
            consume(loader, target, taken[target])
        if target == 2:
            goes_on.set()

    threads = [stall, lambda: run(1), lambda: run(2)]
    assert in_threads(*threads) == []
    assert len(taken[0]) == 1
    assert counted(chain(*taken)) == counted(plan_of(loader)) + counted(plan_of(loader, 1))


def test_out_of_order_a_consumer_that_comes_late_has_an_empty_part():
    loader = loader_of(targets=2, in_order=False)
    early = []
    for _ in range(3):
        consume(loader, 0, early)
    late = [sum(1 for _ in loader.targets[1]) for _ in range(2)]
    assert counted(early) == sum(
        (counted(plan_of(loader, epoch)) for epoch in range(3)), counted([])
    )
    assert late == [0, 0]
    taken = consume_all(loader)  # Of the last pass, there is nothing left for it either.
    assert counted(taken[0]) == counted(plan_of(loader, 3))
    assert taken[1] == []


def test_in_order_the_next_pass_waits_until_all_have_had_their_share():
    loader = loader_of(targets=2, depth=100)
    first, second = [], []
    thread = threading.Thread(
        target=lambda: (consume(loader, 0, first), consume(loader, 0, second)), daemon=True
    )
    thread.start()
    wait_until(lambda: len(first) == len(loader.targets[0]))
    time.sleep(0.05)
    assert second == []
    assert loader.stats().epoch == 0
    share = []
    consume(loader, 1, share)
    consume(loader, 1, share)
    thread.join(10)
    assert first == plan_of(loader)[0::2]
    assert second == plan_of(loader, 1)[0::2]
    assert share == plan_of(loader)[1::2] + plan_of(loader, 1)[1::2]


@pytest.mark.parametrize("is_native", KINDS)
def test_in_order_the_others_go_on_when_one_leaves(is_native):
    loader = loader_of(targets=3, depth=1, is_native=is_native)
    plan = plan_of(loader)
    taken = [[], [], []]
    together = threading.Barrier(3)

    def run(target):
        batches = iter(loader.targets[target])
        for _ in range(2):
            together.wait(10)
            taken[target].append(rows(next(batches)))
        if target != 1:
            taken[target].extend(map(rows, batches))

    assert in_threads(*(lambda k=k: run(k) for k in range(3))) == []
    assert taken == [plan[0::3], plan[1::3][:2], plan[2::3]]
    state = loader.state_dict()
    untaken = [i for i in range(len(plan)) if i % 3 == 1 and i > 4]
    assert state["sampler"]["step"] == untaken[0]
    wanted = set(range(untaken[0], len(plan))) - set(untaken)
    assert state["taken"] == sorted(wanted)
    resumed = loader_of()
    resumed.load_state_dict(state)
    assert [rows(batch) for batch in resumed] == [plan[i] for i in untaken]


def test_a_pass_that_all_left_makes_way_for_the_same_epoch():
    loader = loader_of(targets=2)
    for target in loader.targets:
        next(iter(target))
    assert no_threads()
    assert list(chain(*zip(*consume_all(loader), strict=False)))[:4] == plan_of(loader)[:4]


def test_a_pass_that_only_one_took_part_in_makes_way_when_that_left_it():
    loader = loader_of(targets=2)
    for _ in range(3):
        assert rows(next(iter(loader.targets[0]))) == plan_of(loader)[0]


def test_a_second_iterator_of_a_target_takes_the_place_of_the_first():
    loader = loader_of(targets=2)
    older, other = iter(loader.targets[0]), iter(loader.targets[1])
    first = rows(next(older))
    next(other)
    newer = iter(loader.targets[0])
    taken = []
    thread = threading.Thread(target=lambda: taken.append(rows(next(newer))), daemon=True)
    thread.start()
    message = "This iterator has ended, because another one of its target has begun."
    wait_until(lambda: 0 in loader._pass._left)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=f"^{re.escape(message)}$"):
            next(older)
    assert taken == []
    other.close()
    thread.join(10)
    assert taken == [first]


def test_out_of_order_too_an_older_iterator_of_a_target_takes_no_more():
    loader = loader_of(targets=2, in_order=False)
    older = iter(loader.targets[0])
    taken = [rows(next(older))]
    newer = iter(loader.targets[0])
    first_of_next_pass = rows(next(newer))
    with pytest.raises(RuntimeError, match=r"^This iterator has ended, because another one of"):
        next(older)
    assert taken == [first_of_next_pass] == [plan_of(loader)[0]]
    taken += [rows(batch) for batch in newer]
    assert counted(taken) == counted(plan_of(loader))


def test_several_targets_must_be_named():
    message = (
        "A loader with 3 targets must be iterated over as `loader.targets[k]`, one for each "
        "consumer, but not as `loader`."
    )
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        iter(loader_of(targets=3))


def test_each_target_has_its_device():
    loader = loader_of(targets=["meta", torch.device("cpu")])
    assert [target.device for target in loader.targets] == [torch.device("meta"), None]
    devices = [set(), set()]

    def run(target):
        devices[target].update(batch["row"].device.type for batch in loader.targets[target])

    assert in_threads(lambda: run(0), lambda: run(1)) == []
    assert devices == [{"meta"}, {"cpu"}]


def test_closing_forgets_who_came_late():
    loader = loader_of(targets=2, in_order=False)
    for _ in range(2):
        consume(loader, 0, [])
    loader.close()
    taken = []
    consume(loader, 1, taken)
    assert counted(taken) == counted(plan_of(loader, 2))


def test_threads_may_share_an_iterator(monkeypatch):
    loader = loader_of(1000, depth=2)
    batches, begin = iter(loader), loader._begin
    # So that all of them come to the beginning.
    monkeypatch.setattr(loader, "_begin", lambda last: time.sleep(0.1) or begin(last))
    taken = [[] for _ in range(4)]
    calls = [lambda into=into: into.extend(map(rows, batches)) for into in taken]
    assert in_threads(*calls) == []
    assert counted(chain(*taken)) == counted(plan_of(loader))


@pytest.mark.parametrize("in_order", [True, False])
def test_consumers_that_pause_at_random_get_everything(in_order):
    loader = loader_of(500, targets=4, depth=2, in_order=in_order, num_workers=3)
    pauses = random.Random(0)
    taken = consume_all(loader, pause=lambda: time.sleep(pauses.choice([0, 0, 0.002])))
    assert counted(chain(*taken)) == counted(plan_of(loader))
