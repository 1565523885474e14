"""One collator in many threads, across forks, and what it counts there."""

from __future__ import annotations

import gc
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from collate_support import ids_field, same
from data_support import dataset, some_rows
from evenstride import Field, PadCollator
from test_forks import run_in_child

ROWS = some_rows(60, longest=40, seed=4)
DATASETS = [dataset(ROWS), dataset(ROWS[::-1], "uint16"), dataset(ROWS).select(range(0, 60, 2))]
FIELDS = {**ids_field(-1, max_length=20), "next": Field(-100, source="input_ids", start=1)}


def cut(rows, start=0):
    """Count samples and tokens that are cut after 20 tokens."""
    rests = [max(0, len(row) - start - 20) for row in rows]
    return {"samples": sum(rest > 0 for rest in rests), "tokens": sum(rests)}


def as_samples(ds, indices):
    return [ds[i] for i in indices]


def test_threads_share_a_collator():
    """Each binds data sets, takes batches of them in turns, and batches of samples."""
    collate = PadCollator(FIELDS, position_ids=True, max_length=30)
    alone = PadCollator(FIELDS, position_ids=True, max_length=30)
    batches = [list(range(i, min(i + 9, 30))) for i in range(30)]
    expected = [[alone(ds.__getitems__(batch)) for batch in batches] for ds in DATASETS]
    rounds, num_threads = 4, 4
    gate = threading.Barrier(num_threads)

    def work(_):
        gate.wait()
        held = []
        for turn in range(rounds):
            for i, batch in enumerate(batches):
                place = (i + turn) % len(DATASETS)
                ds = DATASETS[place]
                rows = as_samples(ds, batch) if i % 5 == 0 else ds.__getitems__(batch)
                held = [*held[-3:], (collate(rows), expected[place][i])]
                assert all(same(*pair) for pair in held)
        return True

    with ThreadPoolExecutor(num_threads) as threads:
        assert list(threads.map(work, range(num_threads))) == [True] * num_threads
    counted = alone.truncated
    once = {key: {} for key in counted}
    for turn in range(rounds):
        for i, batch in enumerate(batches):
            alone(DATASETS[(i + turn) % len(DATASETS)].__getitems__(batch))
    for key, after in alone.truncated.items():
        once[key] = {unit: after[unit] - counted[key][unit] for unit in after}
    assert collate.truncated == {
        key: {unit: num_threads * count for unit, count in counts.items()}
        for key, counts in once.items()
    }


def test_what_is_cut_is_counted_by_key():
    collate = PadCollator(FIELDS)
    assert collate.truncated == {}
    ds = dataset(ROWS)
    collate(ds[:10])
    assert collate.truncated == {"input_ids": cut(ROWS[:10])}
    collate(as_samples(ds, range(10, 60)))
    assert collate.truncated == {"input_ids": cut(ROWS)}


def test_the_limit_of_the_collator_counts_for_keys_without_one():
    collate = PadCollator({**ids_field(max_length=30), "next": FIELDS["next"]}, max_length=20)
    collate(dataset(ROWS)[:])
    assert collate.truncated["next"] == cut(ROWS, start=1)
    assert collate.truncated["input_ids"]["tokens"] < cut(ROWS)["tokens"]


def test_nothing_is_counted_where_nothing_is_cut():
    collate = PadCollator(ids_field(max_length=40))
    collate(dataset(ROWS)[:])
    collate(as_samples(dataset(ROWS), range(60)))
    assert collate.truncated == {}


def test_a_batch_that_fails_counts_nothing():
    collate = PadCollator(ids_field(max_length=1))
    ds = dataset([[1, 2]])
    with pytest.raises(IndexError, match="must be in"):
        collate(ds.__getitems__([0, 1]))
    assert collate.truncated == {}


def test_counts_outlive_the_data_set():
    collate = PadCollator(FIELDS)
    for times in (1, 2):
        ds = dataset(ROWS)
        collate(ds[:])
        del ds
        gc.collect()
        counts = cut(ROWS)
        assert collate.truncated["input_ids"] == {unit: times * n for unit, n in counts.items()}


def collate_in_child(state, results):
    collate, ds = state
    numbers = [collate(rows)["input_ids"].tolist() for rows in (ds[:5], as_samples(ds, range(5)))]
    fresh = dataset(ROWS[:5])
    results.put([*numbers, collate(fresh[:])["input_ids"].tolist()])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_forked_while_other_threads_collate_does_not_hang():
    ds, collate = dataset(ROWS), PadCollator(ids_field(-1, max_length=20))
    expected = collate(ds[:5])["input_ids"].tolist()
    stop = threading.Event()

    def collate_on():
        while not stop.is_set():
            collate(ds[:])
            collate(as_samples(ds, range(8)))
            collate(dataset(ROWS[:3])[:])

    threads = [threading.Thread(target=collate_on) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            assert run_in_child(collate_in_child, (collate, ds)) == [expected] * 3
    finally:
        stop.set()
        for thread in threads:
            thread.join()
