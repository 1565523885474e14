"""Planning in processes that were forked, and from several threads."""

from __future__ import annotations

import multiprocessing
import os
import threading
import warnings

import numpy as np
import pytest

import evenstride as es
from support import lognormal, same_plans

LENGTHS = np.tile(lognormal(60_000), 5)
OPTIONS = {"token_budget": 16_384, "num_threads": 2}

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def plan_in_child(sampler, results):
    plan = es.plan_epoch(LENGTHS, **OPTIONS, epoch=1)
    results.put((plan.indices[:1000].tolist(), next(iter(sampler)), len(sampler)))


def run_in_child(target, *arguments):
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    with warnings.catch_warnings():
        # Python warns of forks of processes with threads, which is what is tested.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = context.Process(target=target, args=(*arguments, results))
        child.start()
    try:
        return results.get(timeout=60)
    finally:
        child.join(timeout=10)
        child.kill()


def test_a_forked_child_plans_after_its_parent_did_with_threads():
    wanted = es.plan_epoch(LENGTHS, **OPTIONS, epoch=1).indices[:1000].tolist()
    sampler = es.BucketBatchSampler(LENGTHS, **OPTIONS)
    list(sampler)
    sampler.set_epoch(4)
    indices, batch, steps = run_in_child(plan_in_child, sampler)
    assert indices == wanted
    assert batch == next(iter(sampler))
    assert steps == len(sampler)


def fork_again(_, results):
    results.put(run_in_child(plan_in_child, es.BucketBatchSampler(LENGTHS, **OPTIONS)))


def test_a_child_of_a_child_plans_too():
    es.plan_epoch(LENGTHS, **OPTIONS)
    indices, _, _ = run_in_child(fork_again, None)
    assert indices == es.plan_epoch(LENGTHS, **OPTIONS, epoch=1).indices[:1000].tolist()


def test_a_child_forked_while_another_thread_plans_does_not_hang():
    stop = threading.Event()

    def plan_on():
        while not stop.is_set():
            es.plan_epoch(LENGTHS, **OPTIONS)

    thread = threading.Thread(target=plan_on)
    thread.start()
    try:
        for _ in range(3):
            indices, _, _ = run_in_child(
                plan_in_child, es.BucketBatchSampler([3, 4], token_budget=4)
            )
            assert len(indices) == 1000
    finally:
        stop.set()
        thread.join()


def test_threads_that_share_a_sampler_get_whole_passes():
    sampler = es.BucketBatchSampler(LENGTHS, **OPTIONS)
    wanted = [batch.tolist() for batch in es.plan_epoch(LENGTHS, **OPTIONS)]
    passes = []
    threads = [threading.Thread(target=lambda: passes.append(list(sampler))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everything = [sorted(i for batch in one for i in batch) for one in passes]
    assert len(everything) == 4
    assert all(indices == list(range(len(LENGTHS))) for indices in everything)
    assert wanted in passes or any(len(one) == len(sampler) for one in passes)


def test_threads_that_plan_at_once_get_the_same_plan():
    plans = []
    threads = [
        threading.Thread(target=lambda: plans.append(es.plan_epoch(LENGTHS, **OPTIONS)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(plans) == 4
    assert all(same_plans(plans[0], plan) for plan in plans)


def plan_whatever_the_fork_interrupted(sampler, results):
    sampler.set_epoch(3)
    results.put(sampler.plan.indices[:1000].tolist())


def test_a_child_forked_while_another_thread_plans_does_not_wait_for_it():
    sampler = es.BucketBatchSampler(LENGTHS, **OPTIONS)
    other = es.BucketBatchSampler(LENGTHS, **OPTIONS)
    other.set_epoch(3)
    wanted = other.plan.indices[:1000].tolist()
    is_over = threading.Event()

    def keep_planning():
        while not is_over.is_set():
            sampler._plans.planner.plan(1, num_replicas=1, drop_last=False)

    thread = threading.Thread(target=keep_planning)
    thread.start()
    try:
        for _ in range(4):
            assert run_in_child(plan_whatever_the_fork_interrupted, sampler) == wanted
    finally:
        is_over.set()
        thread.join()
