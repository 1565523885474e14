"""`benchmarks/training_effect.py`: its statistics by definition, a short run, and its page."""

from __future__ import annotations

import json
import math
import re
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from evenstride.demo.model import new_model
from evenstride.demo.noise import without_trend

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "training_effect.py"
TABLES = ROOT / "tools" / "experiment.py"


@pytest.fixture(autouse=True)
def on_path(monkeypatch):
    """Let modules of the benchmarks and the tools be imported."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.syspath_prepend(str(ROOT / "tools"))


@pytest.fixture
def one_thread():
    """Let torch compute with one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def call(script, *options):
    command = [sys.executable, script, *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


# ---- The statistics ----


@pytest.mark.parametrize(
    ("degrees", "critical"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (30, 2.042), (1000, 1.962)],
)
def test_critical_values_are_those_of_the_tables(degrees, critical):
    from intervals import critical_t  # noqa: PLC0415 - Not a package.

    assert round(critical_t(degrees), 3) == critical


def test_an_interval_holds_the_true_mean_in_95_of_100_samples():
    from intervals import Interval  # noqa: PLC0415

    samples = np.random.default_rng(0).normal(3.0, 2.0, (4000, 4)).tolist()
    intervals = [Interval.of(sample) for sample in samples]
    held = statistics.fmean(abs(one.mean - 3.0) <= one.half for one in intervals)
    assert held == pytest.approx(0.95, abs=0.01)


def shares_by_definition(norms, tokens, buckets, accumulation_steps):
    """Transcribe the docstring of `NormShares`."""
    begin = math.ceil(len(norms) / 3 / accumulation_steps) * accumulation_steps
    rest = without_trend(norms, begin).tolist()
    tokens, buckets = tokens[begin:].tolist(), buckets[begin:].tolist()

    of_bucket = {k: [r for r, b in zip(rest, buckets, strict=True) if b == k] for k in buckets}
    total = statistics.pvariance(rest)
    within = statistics.fmean(statistics.pvariance(of_bucket[b]) for b in buckets)

    mixes, rests = [], []
    for first in range(0, len(rest) // accumulation_steps * accumulation_steps, accumulation_steps):
        places = range(first, first + accumulation_steps)
        weight = sum(tokens[i] for i in places)
        means = {i: statistics.fmean(of_bucket[buckets[i]]) for i in places}
        mixes.append(sum(tokens[i] * means[i] for i in places) / weight)
        rests.append(sum(tokens[i] * (rest[i] - means[i]) for i in places) / weight)
    of_mix, of_rest = statistics.pvariance(mixes), statistics.pvariance(rests)
    return 1 - within / total, of_mix / (of_mix + of_rest)


@pytest.mark.parametrize("seed", range(5))
def test_shares_of_variance_match_their_definition(seed):
    from effect.gradients import shares_of  # noqa: PLC0415

    rng = np.random.default_rng(seed)
    buckets = rng.integers(0, 3, 150)
    norms = buckets + rng.normal(0, 0.5, 150) + np.linspace(2, 0, 150)
    tokens = rng.integers(1, 100, 150).astype(float)
    shares = shares_of(norms, tokens, buckets, 4)
    by_definition = shares_by_definition(norms, tokens, buckets, 4)
    assert (shares.batch, shares.optimizer_step) == pytest.approx(by_definition, rel=1e-9)


def test_optimizer_steps_of_one_mix_leave_nothing_between_the_buckets():
    from effect.gradients import shares_of  # noqa: PLC0415

    buckets = np.tile([0, 1, 2, 3], 40)
    norms = buckets + np.random.default_rng(0).normal(0, 0.1, 160)
    shares = shares_of(norms, np.ones(160), buckets, 4)
    assert shares.batch > 0.9
    assert shares.optimizer_step == pytest.approx(0, abs=1e-12)


def test_a_short_epoch_has_no_shares():
    from effect.gradients import shares_of  # noqa: PLC0415

    shares = shares_of(np.ones(40), np.ones(40), np.zeros(40, int), 4)
    assert math.isnan(shares.batch)
    assert math.isnan(shares.optimizer_step)


def test_a_norm_is_of_one_batch_alone():
    from effect.gradients import GradientNorms  # noqa: PLC0415

    model, alone = new_model(0), new_model(0)
    norms = GradientNorms(model)
    for seed in range(3):
        inputs = torch.randint(0, 256, (2, 9), generator=torch.Generator().manual_seed(seed))
        model(inputs).square().sum().backward()  # Adds up over the batches.
        alone.zero_grad()
        alone(inputs).square().sum().backward()
        gradient = torch.cat([weights.grad.flatten() for weights in alone.parameters()])
        assert norms.take() == pytest.approx(gradient.norm().item(), rel=1e-5)


# ---- The runs ----


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """Where a short run wrote its results."""
    path = tmp_path_factory.mktemp("effect") / "quick.json"
    options = ["--quick", "--json", path, "--settings", "stride", "mixed_time", "--seeds", 1]
    done = call(SCRIPT, *options, "--steps", path.with_name("steps.jsonl"))
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["stride", "mixed_time"]
    return path


def runs_of(path):
    """Return the runs by setting and seed."""
    runs = json.loads(path.read_text(encoding="utf-8"))["runs"]
    return {(run["setting"], run["seed"]): run for run in runs}


def test_it_goes_on_where_it_was_and_repeats_exactly(quick, tmp_path, one_thread, capsys):
    from training_effect import main  # noqa: PLC0415

    more = tmp_path / "more.json"
    results = json.loads(quick.read_text(encoding="utf-8"))
    results["runs"] = results["runs"][1:]
    more.write_text(json.dumps(results), encoding="utf-8")
    steps = quick.with_name("steps.jsonl"), tmp_path / "steps.jsonl"
    options = ["--quick", "--json", str(more), "--settings", "stride", "mixed_time"]
    assert main([*options, "--seeds", "1", "--steps", str(steps[1])]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["stride"]
    assert runs_of(more).keys() == runs_of(quick).keys()
    texts = [path.read_text(encoding="utf-8") for path in steps]
    ran, again = (json.loads(text.splitlines()[0]) for text in texts)
    assert (ran["setting"], again) == ("stride", ran)
    measured = runs_of(more)["stride", 0], runs_of(quick)["stride", 0]
    ours, theirs = ({**run, "processor_s": 0, "commit": ""} for run in measured)
    assert ours == theirs


def test_other_facts_are_refused(quick):
    from training_effect import load  # noqa: PLC0415

    facts = json.loads(quick.read_text(encoding="utf-8"))["facts"]
    assert load(quick, facts)["facts"] == facts
    message = (
        f"`{quick}` must be of the same experiment, but its `threads` is 1, not 2; give --json "
        "another path."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        load(quick, {**facts, "threads": 2})


def test_each_seed_is_done_with_before_the_next():
    from training_effect import schedule  # noqa: PLC0415

    assert list(schedule("abcd", 2)) == [
        *(("a", 0), ("b", 0), ("c", 0), ("d", 0)),
        *(("c", 1), ("d", 1), ("a", 1), ("b", 1)),
    ]


def test_a_setting_of_equal_time_has_as_many_padded_tokens(quick):
    runs = runs_of(quick)
    ours, theirs = runs["mixed_time", 0], runs["stride", 0]
    assert ours["padded_tokens"] == pytest.approx(theirs["padded_tokens"], rel=0.02)
    assert ours["tokens"] < theirs["tokens"]


# ---- The page ----


def document(settings, seeds=3):
    """Results as the experiment writes them, of numbers that are easy to know again."""
    runs = []
    for place, setting in enumerate(settings):
        for seed in range(seeds):
            loss = 2.0 + 0.01 * place + 0.1 * seed
            runs.append(
                {
                    "setting": setting,
                    "seed": seed,
                    "samples": 10,
                    "batches": 20,
                    "tokens": 900,
                    "padded_tokens": 1000,
                    "longest_run": 3 + place,
                    "norm_share": {"batch": 0.3, "optimizer_step": 0.1},
                    "loss_noise": {
                        "batch": 0.4,
                        "optimizer_step": 0.2,
                        "running_mean": 0.1,
                        "explained": 0.5,
                    },
                    "validation": [4.0, 3.0, 2.5, loss],
                    "validation_by_bucket": [loss, None],
                    "processor_s": 5.0,
                    "commit": "0123456789ab",
                }
            )
    facts = {"edges": [7]}
    return {"facts": facts, "runs": runs}


def test_differences_are_of_pairs_with_the_same_seed():
    from experiment import Experiment, validation  # noqa: PLC0415

    experiment = Experiment(document(["stride", "shuffle"]))
    assert experiment.of("stride", validation).half == pytest.approx(4.303 * 0.1 / 3**0.5, rel=1e-3)
    difference = experiment.against("shuffle", "stride", validation)
    assert difference.mean == pytest.approx(0.01)
    assert difference.half == pytest.approx(0, abs=1e-9)


def test_a_seed_that_a_setting_lacks_is_left_out():
    from experiment import Experiment  # noqa: PLC0415

    results = document(["stride", "shuffle"])
    del results["runs"][-1]
    assert Experiment(results).seeds == [0, 1]
    del results["runs"][-1]
    with pytest.raises(
        ValueError, match=r"^Every setting must have two seeds at least, but all have 1\.$"
    ):
        Experiment(results)


def test_a_table_has_a_row_for_each_order():
    from evenstride.compare import ORDERS  # noqa: PLC0415
    from experiment import Experiment, buckets, losses  # noqa: PLC0415

    experiment = Experiment(document(ORDERS))
    lines = losses(experiment).splitlines()
    assert len(lines) == 2 + len(ORDERS)
    assert lines[2] == "| `stride` | 2.1000 ± 0.2484 | - | **-0.0400 ± 0.0000** |"
    assert lines[3].startswith("| `balanced` | 2.1100 ± 0.2484 | **+0.0100 ± 0.0000** |")
    assert buckets(experiment).splitlines()[0] == "| order, less `stride` | [0, 7) |"


def test_the_tables_of_the_page_are_of_the_committed_results():
    done = call(TABLES, "--check")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_chart_of_the_page_is_of_the_committed_results():
    pytest.importorskip("matplotlib")
    from experiment_chart import CHART, RESULTS, digest  # noqa: PLC0415

    assert digest(RESULTS).encode() in CHART.read_bytes()


def test_a_chart_names_its_results(tmp_path):
    pytest.importorskip("matplotlib")
    from evenstride.compare import ORDERS  # noqa: PLC0415
    from experiment_chart import digest, draw  # noqa: PLC0415

    results, chart = tmp_path / "results.json", tmp_path / "images" / "chart.png"
    results.write_text(json.dumps(document(ORDERS)), encoding="utf-8")
    draw(results, chart)
    assert digest(results).encode() in chart.read_bytes()
    assert chart.stat().st_size < 200_000
