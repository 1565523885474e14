"""`evenstride bench`: the batches of its contenders, its samples, and what it prints."""

from __future__ import annotations

import json
import re
import time

import numpy as np
import pytest
import torch

import evenstride as es
from command_support import command, fails
from data_support import flat, write_megatron
from evenstride import bench
from evenstride.bench import Bench, Contender, Measurement, PadRows
from evenstride.bench_data import BenchData, open_data, random_data
from evenstride.bench_report import bench_tables
from evenstride.commands import run

pytestmark = pytest.mark.usefixtures("no_columns")

LENGTHS = np.random.default_rng(0).integers(0, 30, 200)
ROWS = [np.arange(length) % 97 + 1 for length in LENGTHS.tolist()]
OPTIONS = ["--token-budget", "240", "--max-batch-size", "16"]
IN_PROCESS = (
    Contender("DataLoader", "pad_sequence", 0),
    Contender("DataLoader", "PadCollator", 0),
    Contender("Loader", "PadCollator", 1),
)


@pytest.fixture
def saved(tmp_path):
    es.RaggedDataset({"input_ids": flat(ROWS, "uint16")}).save(tmp_path / "saved")
    return str(tmp_path / "saved")


@pytest.fixture
def few(monkeypatch):
    """Leave out the contenders that start processes."""
    monkeypatch.setattr(bench, "CONTENDERS", IN_PROCESS)


# ---- all of it ----


@pytest.mark.parametrize("kind", ["saved", "parquet", "megatron"])
def test_all_contenders_are_measured_on_the_samples_of_a_user(tmp_path, saved, kind):
    path = saved
    if kind == "megatron":
        path = str(write_megatron(tmp_path / "corpus", ROWS, "uint16"))
    if kind == "parquet":
        pa = pytest.importorskip("pyarrow")
        pq = pytest.importorskip("pyarrow.parquet")
        path = str(tmp_path / "corpus.parquet")
        pq.write_table(pa.table({"n": range(200), "tokens": [row.tolist() for row in ROWS]}), path)
    options = [*OPTIONS, "--seconds", "0.05", "--pad-to-multiple-of", "8"]
    done = command("bench", path, *options, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    plan = es.plan_epoch(LENGTHS, token_budget=240, max_batch_size=16, pad_to_multiple_of=8)
    assert {name: result[name] for name in result if name != "contenders"} == {
        "field": "tokens" if kind == "parquet" else "input_ids",
        "random_tokens": False,
        "samples": 200,
        "tokens": int(LENGTHS.sum()),
        "batches": len(plan),
        "checked_batches": 16,
        "left_out": {},
    }
    names = [Contender(c["loader"], c["collate"], c["num_workers"]) for c in result["contenders"]]
    assert names == list(bench.CONTENDERS)
    assert {(c.loader, c.num_workers) for c in names} >= {
        *(("DataLoader", workers) for workers in (0, 1, 2, 4)),
        *(("Loader", threads) for threads in (1, 2)),
    }
    for contender in result["contenders"]:
        places = np.arange(1, 1 + contender["batches"]) % len(plan)
        assert contender["tokens"] == plan.tokens[places].sum()
        assert contender["seconds"] >= 0.05
        assert contender["tokens_per_second"] == contender["tokens"] / contender["seconds"]
        assert 0 < contender["median_wait_ms"] <= contender["p99_wait_ms"]
        assert contender["first_wait_ms"] > 0


def test_the_table_has_a_row_for_each_contender_and_fits_the_terminal(saved):
    done = command("bench", saved, *OPTIONS, "--seconds", "0.05", COLUMNS="80")
    assert (done.returncode, done.stderr) == (0, "")
    facts, table, *_ = done.stdout.split("\n\n")
    steps = len(es.plan_epoch(LENGTHS, token_budget=240, max_batch_size=16))
    assert facts.splitlines() == [
        "samples  `input_ids` of",
        f"         `{saved}`",
        f"size     200 samples, {LENGTHS.sum():,} tokens",
        f"batches  {steps} an epoch",
        "checked  the first 16 batches are equal in all of these",
    ]
    header, *rows = table.splitlines()
    assert header.split() == ["contender", "batches", "tokens/s", "first", "p50", "p99"]
    assert [re.split(" {2,}", row)[0] for row in rows] == [c.name for c in bench.CONTENDERS]
    assert max(map(len, done.stdout.splitlines())) <= 80


# ---- contenders ----


@pytest.mark.parametrize("multiple", [1, 8])
@pytest.mark.parametrize(
    "values",
    [
        np.arange(40, dtype=np.uint16),
        np.arange(40, dtype=np.int64) - 20,
        np.linspace(0, 1, 40, dtype=np.float32),
        np.arange(40) % 2 == 0,
        np.arange(120, dtype=np.int32).reshape(40, 3),
    ],
)
@pytest.mark.parametrize("rows", [[0, 1, 2, 3], [1], [2, 2]])
@pytest.mark.parametrize("field", ["input_ids", "attention_mask"])
def test_the_collator_that_people_write_is_ours(multiple, values, rows, field):
    dataset = es.RaggedDataset({field: (values, [0, 7, 7, 24, 40])})
    ours = es.PadCollator({field: es.Field()}, pad_to_multiple_of=multiple)(dataset[rows])
    theirs = PadRows(field, multiple)(dataset[rows])
    assert theirs.keys() == ours.keys()
    for key, tensor in ours.items():
        assert theirs[key].dtype == tensor.dtype
        assert torch.equal(theirs[key], tensor)


@pytest.mark.usefixtures("few")
def test_contenders_with_other_batches_are_not_measured(capsys, monkeypatch, saved):
    pad = PadRows.__call__
    steps = iter(range(10**6))

    def padded(self, rows):
        batch = pad(self, rows)
        if next(steps) == 3:
            batch["input_ids"][0, 0] += 1
        return batch

    monkeypatch.setattr(PadRows, "__call__", padded)
    assert run(["bench", saved, *OPTIONS]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "evenstride: Batch 3 of DataLoader, 0 workers, pad_sequence must be that of DataLoader, 0 "
        "workers, pad_sequence, but differs from it.\n"
    )


@pytest.mark.usefixtures("few")
def test_a_contender_with_fewer_batches_is_not_measured(capsys, monkeypatch, saved):
    class Short(es.Loader):
        def __iter__(self):
            return iter([next(super().__iter__())])

    monkeypatch.setattr(bench, "Loader", Short)
    assert run(["bench", saved, *OPTIONS]) == 1
    assert capsys.readouterr().err == (
        "evenstride: Batch 1 of Loader, 1 thread, PadCollator must be that of DataLoader, 0 "
        "workers, pad_sequence, but differs from it.\n"
    )


@pytest.mark.usefixtures("few")
def test_a_contender_that_cannot_work_here_is_left_out_with_its_reason(capsys, monkeypatch, saved):
    class Failing(es.Loader):
        def __iter__(self):
            msg = "No thread can be started."
            raise RuntimeError(msg)

    monkeypatch.setattr(bench, "Loader", Failing)
    options = [*OPTIONS, "--seconds", "0.01"]
    assert run(["bench", saved, *options]) == 0
    assert "\n\nWithout Loader, 1 thread, PadCollator: No thread can be started.\n\n" in (
        capsys.readouterr().out
    )
    assert run(["bench", saved, *options, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["left_out"] == {"Loader, 1 thread, PadCollator": "No thread can be started."}
    assert len(result["contenders"]) == 2


@pytest.mark.usefixtures("few")
def test_every_option_reaches_the_batches(saved):
    options = {"token_budget": 240, "epoch": 3, "num_replicas": 2, "order": "balanced", "seed": 5}
    contest = Bench(open_data(saved), options, 0.01)
    plan = es.plan_epoch(LENGTHS, **options)
    assert len(contest.sampler) == plan.num_steps
    (_, first), *_ = contest.run()
    tokens = plan.tokens[::2]
    assert first.tokens == tokens[np.arange(1, 1 + first.batches) % len(tokens)].sum()


@pytest.mark.usefixtures("few")
def test_waits_are_times_in_next(monkeypatch, saved):
    pad = PadRows.__call__

    def slow(self, rows):
        time.sleep(0.01)
        return pad(self, rows)

    monkeypatch.setattr(PadRows, "__call__", slow)
    (_, first), *_ = Bench(open_data(saved), {"token_budget": 240}, 0.1).run()
    assert first.median_wait_ms >= 10
    assert first.first_wait_ms >= 10
    assert first.batches <= 11


# ---- samples ----


def test_lengths_alone_get_random_tokens_and_say_so(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "CONTENDERS", IN_PROCESS)
    path = tmp_path / "lengths.npy"
    np.save(path, LENGTHS)
    assert run(["bench", str(path), *OPTIONS, "--seconds", "0.01"]) == 0
    assert capsys.readouterr().out.startswith(
        f"samples  `{path}` has lengths alone: random tokens in memory, for each of them\n"
        f"size     200 samples, {LENGTHS.sum():,} tokens\n"
    )
    assert run(["bench", str(path), *OPTIONS, "--seconds", "0.01", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["random_tokens"] is True


@pytest.mark.parametrize(
    ("lengths", "most_tokens", "taken", "origin"),
    [
        ([3, 0, 4], 7, [3, 0, 4], "for each of them"),
        ([3, 0, 4], 6, [3], "for 1 in 2 of them"),
        ([1] * 9, 3, [1, 1, 1], "for 1 in 3 of them"),
        ([1] * 9, 4, [1, 1, 1], "for 1 in 3 of them"),
        ([2**62, 1, 2**62], 9, [], "for 1 in 3 of them"),
        (np.array([7, 250], np.uint8), 512, [7, 250], "for each of them"),
    ],
)
def test_random_tokens_are_capped_evenly(lengths, most_tokens, taken, origin):
    data = random_data(lengths, "x", most_tokens)
    assert data.dataset.lengths.tolist() == taken
    assert data.origin == f"x has lengths alone: random tokens in memory, {origin}"
    assert data.is_random


def test_a_column_of_integers_has_lengths_alone(tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"input_ids": [[1, 2], [3]], "size": [5, 6]}), path)
    data = open_data(path, column="size")
    assert (data.dataset.lengths.tolist(), data.is_random) == ([5, 6], True)
    data = open_data(path)
    assert (data.dataset[0]["input_ids"].tolist(), data.is_random) == ([1, 2], False)


def test_rows_of_a_fixed_length_are_refused(capsys, tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": pa.array([[1, 2], [3, 4]], pa.list_(pa.int8(), 2))}), path)
    assert fails(capsys, "bench", str(path), *OPTIONS) == (
        f"`x` of `{path}` must have rows of any length, but all have 2."
    )


def test_bad_input_is_one_sentence(capsys, tmp_path, saved):
    np.save(tmp_path / "lengths.npy", [3, -1])
    assert fails(capsys, "bench", str(tmp_path / "lengths.npy"), *OPTIONS) == (
        "`lengths[1]` must be at least 0, but is -1."
    )
    assert fails(capsys, "bench", saved, *OPTIONS, "--seconds", "0") == (
        "--seconds must be above 0, but is 0.0."
    )
    assert fails(capsys, "bench", saved, *OPTIONS, "--key", "a") == (
        f"--key must be left out for `{saved}`, which is no .npz file."
    )
    assert fails(capsys, "bench", saved, "--token-budget", "20") == (
        f"`lengths[{(LENGTHS > 20).argmax()}]` must be in [0, 20] for --token-budget 20, but is "
        f"{LENGTHS[(LENGTHS > 20).argmax()]}; pass --too-long drop to leave such samples out, or "
        "--too-long alone to give each a batch of its own."
    )


# ---- what it says ----


def test_the_verdict_compares_the_fastest_of_each_kind():
    dataset = es.RaggedDataset({"input_ids": flat(ROWS, "uint16")})
    contest = Bench(BenchData(dataset, "input_ids", "x"), {"token_budget": 240}, 1)
    speeds = {
        Contender("DataLoader", "pad_sequence", 0): 100,
        Contender("DataLoader", "pad_sequence", 2): 200,
        Contender("DataLoader", "PadCollator", 0): 1000,
        Contender("Loader", "PadCollator", 1): 900,
        Contender("Loader", "PadCollator", 2): 500,
    }
    done = [Measurement(one, 1, tokens, 1.0, 1.0, 1.0, 1.0) for one, tokens in speeds.items()]
    *_, verdict, _ = bench_tables(contest, done, {})
    assert verdict == (
        "Real tokens a second of Loader, 1 thread, PadCollator: 4.50 times those of DataLoader, 2 "
        "workers, pad_sequence; 0.90 times those of DataLoader, 0 workers, PadCollator."
    )
