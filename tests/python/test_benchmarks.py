"""`benchmarks/python`: what the checks of plans refuse, what peaks measure, and short runs."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

import evenstride as es
from support import REAL, real_lengths

BENCHMARKS = Path(__file__).parents[2] / "benchmarks" / "python"
EDGES = REAL["buckets"]

pytestmark = pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK), reason="This system keeps no peak of memory."
)


@pytest.fixture(autouse=True)
def on_path(monkeypatch):
    """Let modules of the benchmarks be imported."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def run_here(script, *arguments):
    """Run a script of the benchmarks in this process; return its status and what it printed."""
    module = importlib.import_module(script.removesuffix(".py"))
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setattr(sys, "argv", [script, *map(str, arguments)])
        status = module.main()
    return status, printed.getvalue()


@pytest.fixture
def without_processes(monkeypatch):
    """Let what the benchmarks would do in fresh processes be done here, which is faster."""

    def in_this_process(script, *arguments):
        return json.loads(run_here(script, *arguments)[1].splitlines()[-1])

    for name in ("bench_scale", "bench_first_batch"):
        monkeypatch.setattr(importlib.import_module(name), "in_process", in_this_process)


# ---- What plans must be ----


@pytest.fixture(scope="module")
def lengths():
    return real_lengths()[:50_000].astype(np.uint16)


@pytest.fixture(scope="module")
def plan(lengths):
    return es.plan_epoch(lengths, **REAL)


def check(plan, lengths, **options):
    return importlib.import_module("answers").check("it", plan, lengths, EDGES, **options)


def test_a_plan_passes_and_its_padding_efficiency_comes_back(lengths, plan):
    flat = plan.indices, plan.offsets
    efficiency = check(flat, lengths, like=flat, spread=0.001)
    assert efficiency == pytest.approx(plan.stats().padding_efficiency)


def test_a_plan_that_lacks_a_sample_is_refused(lengths, plan):
    indices = plan.indices.copy()
    batch = plan.offsets[0]
    indices[batch] = indices[batch + 1]
    with pytest.raises(AssertionError, match="a sample is missing"):
        check((indices, plan.offsets), lengths)


@pytest.mark.parametrize(
    ("option", "message"),
    [("token_budget", "a batch is over the budget"), ("max_batch_size", "too many samples")],
)
def test_a_plan_within_other_limits_is_refused(lengths, option, message):
    plan = es.plan_epoch(lengths, **(REAL | {option: 2 * REAL[option]}))
    with pytest.raises(AssertionError, match=message):
        check((plan.indices, plan.offsets), lengths)


def test_a_plan_whose_batches_span_buckets_is_refused(lengths):
    plan = es.plan_epoch(lengths, **(REAL | {"buckets": 1}))
    with pytest.raises(AssertionError, match="a batch spans two buckets"):
        check((plan.indices, plan.offsets), lengths)


def test_a_plan_in_order_of_length_is_not_spread(lengths):
    plan = es.plan_epoch(lengths, order="ascending", **REAL)
    flat = plan.indices, plan.offsets
    check(flat, lengths)
    with pytest.raises(AssertionError, match="a quarter is off by"):
        check(flat, lengths, spread=0.001)


def test_a_plan_of_other_batches_is_not_alike(lengths, plan):
    window = es.plan_epoch(lengths, composition="window", **REAL)
    with pytest.raises(AssertionError, match="not"):
        check((window.indices, window.offsets), lengths, like=(plan.indices, plan.offsets))


def test_digests_differ_where_anything_does(lengths, plan):
    digest = importlib.import_module("answers").digest
    assert digest(plan) == digest(es.plan_epoch(lengths, num_threads=2, **REAL))
    assert digest(plan) != digest(es.plan_epoch(lengths, seed=1, **REAL))


# ---- Lengths and memory ----


def test_drawn_lengths_follow_the_histogram(tmp_path):
    fresh = importlib.import_module("fresh")
    fresh.write_lengths(tmp_path / "lengths.npy", 1_200_000)
    lengths = fresh.mapped_lengths(tmp_path / "lengths.npy")
    real = real_lengths()
    assert lengths.dtype == np.uint16
    assert np.mean(lengths) == pytest.approx(np.mean(real), rel=0.005)
    assert np.quantile(lengths, [0.1, 0.5, 0.9]) == pytest.approx(
        np.quantile(real, [0.1, 0.5, 0.9]), rel=0.01
    )


def test_a_peak_is_seen_though_its_memory_is_given_back():
    peak = importlib.import_module("fresh").Peak()
    np.ones(64 << 20, np.uint8).sum()
    assert 63 << 20 < peak.bytes() < 96 << 20


# ---- Short runs ----


def tables_of(path):
    document = json.loads(path.read_text(encoding="utf-8"))
    text = importlib.import_module("tables").titled_tables(document)
    assert "*" in text
    return {table["title"]: table["rows"] for table in document["tables"]}


def test_planning_at_scale_makes_a_row_of_each_kind(tmp_path, without_processes, monkeypatch):
    bench = importlib.import_module("bench_scale")
    monkeypatch.setattr(bench, "MOST_WITH_RIVALS", 0)
    monkeypatch.setattr(bench, "SIZE_OF_RISING_THREADS", 60_000)
    out = tmp_path / "scale.json"
    status, _ = run_here("bench_scale.py", "--quick", "--samples", 60_000, "--json", out)
    assert status == 0
    kinds = [row[:3] for row in tables_of(out)["One plan"]]
    assert kinds == [
        ["60,000", composition, threads]
        for composition in ("shuffle", "window")
        for threads in ("1", "2", "4")
    ]


def test_what_is_missed_at_full_size_is_said():
    bench = importlib.import_module("bench_scale")
    timing = {"p10": 1.0, "p90": 1.0, "runs": 1}
    record = {
        "samples": 100_000_000,
        "composition": "shuffle",
        "threads": 2,
        "batches": 5_000_000,
        "plan": {"median": 1.1 * bench.copies_to_reach(), **timing},
        "copy": {"median": 1.0, **timing},
        "first_peak": 1_330_000_000,
        "later_peak": 1_330_000_000,
    }
    assert len(bench.table_of_plans([record]).missed) == 1
    assert len(bench.table_of_plans([record | {"first_peak": 1_340_000_000}]).missed) == 2
    assert bench.table_of_plans([record | {"threads": 1}]).missed == []


def test_instructions_are_not_counted_where_there_is_no_valgrind(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert importlib.import_module("bench_scale").count_instructions(tmp_path) is None


def test_first_batches_are_timed_in_each_way(tmp_path, without_processes, monkeypatch):
    monkeypatch.setattr(importlib.import_module("first_batch_child"), "LEAST_SECONDS_OF_PASS", 0.1)
    out = tmp_path / "first_batch.json"
    status, _ = run_here("bench_first_batch.py", "--quick", "--samples", 60_000, "--json", out)
    assert status == 0
    (row,) = tables_of(out)["Time to the first batch"]
    assert row[0] == "60,000"
    assert all(cell.endswith(("ms", "s", "reached", "missed")) for cell in row[1:])


def test_a_fresh_process_answers_in_json(tmp_path):
    fresh = importlib.import_module("fresh")
    rates = fresh.in_process("scale_child.py", "rates", "--items", 1_000)
    assert set(rates) == {"copy 1", "copy 2", "gather 1", "gather 2"}
