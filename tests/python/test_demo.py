"""The demonstration: its corpus, its batches, its statistics, and all of it on a small library."""

from __future__ import annotations

import json
import math
import re
import sys
import time

import numpy as np
import pytest
import torch

import evenstride as es
from evenstride.demo import run, run_demo
from evenstride.demo.batches import IGNORED, as_dataset, new_collator
from evenstride.demo.corpus import functions_of, read_corpus, standard_library
from evenstride.demo.model import new_model
from evenstride.demo.noise import noise_of, running_mean
from evenstride.demo.training import StepLoss, new_loader, train


@pytest.fixture(autouse=True)
def one_thread():
    """Let torch compute with one thread, so that busy machines are not slower still."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


DECORATED = b"""\
@first
@second(
    1)
def decorated():
    return 1
"""

NESTED = b"""\
def outer():
    def inner():
        return 1
    return inner
"""

METHODS = b"""\
class A:
    def method(self): return 1

    class B:
        async def deep(self):
            return 2

if True:
    try:
        def tried(): pass
    except ImportError:
        def excepted(): pass
"""


def functions(tmp_path, source):
    path = tmp_path / "module.py"
    path.write_bytes(source)
    return list(functions_of(path))


def test_a_function_comes_with_its_decorators(tmp_path):
    assert functions(tmp_path, b"x = 1\n" + DECORATED + b"y = 2\n") == [DECORATED.rstrip()]


def test_a_function_inside_another_is_part_of_it(tmp_path):
    assert functions(tmp_path, NESTED) == [NESTED.rstrip()]


def test_methods_and_functions_in_any_statement_are_found_in_order(tmp_path):
    assert functions(tmp_path, METHODS) == [
        b"    def method(self): return 1",
        b"        async def deep(self):\n            return 2",
        b"        def tried(): pass",
        b"        def excepted(): pass",
    ]


def test_a_coding_cookie_is_heeded(tmp_path):
    source = "# -*- coding: latin-1 -*-\ndef f():\n    return 'é'\n".encode("latin-1")
    assert functions(tmp_path, source) == ["def f():\n    return 'é'".encode()]


def test_newlines_of_windows_become_plain_ones(tmp_path):
    assert functions(tmp_path, b"\r\ndef f():\r\n    return 1\r\n") == [b"def f():\n    return 1"]


def test_a_form_feed_ends_no_line(tmp_path):
    assert functions(tmp_path, b"x = '''\x0c'''\ndef f(): pass\n") == [b"def f(): pass"]


def test_a_doubtful_escape_warns_nobody(tmp_path):
    assert functions(tmp_path, b"def f(): return '\\d'\n") == [b"def f(): return '\\d'"]


def test_the_corpus_counts_what_it_leaves_out(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "z.py").write_bytes(b"def z(): pass\n")
    (tmp_path / "b.py").write_bytes(b"def b(): return 'longer than twenty bytes'\n")
    (tmp_path / "broken.py").write_bytes(b"def f(:\n")
    (tmp_path / "undecodable.py").write_bytes(b"def f(): return '\xff'\n")
    (tmp_path / "null.py").write_bytes(b"def f(): pass\0\n")
    (tmp_path / "unknown.py").write_bytes(b"# coding: no-such-code\n")
    (tmp_path / "a_folder.py").mkdir()
    for skipped in ("site-packages", "test", "tests"):
        (tmp_path / skipped).mkdir()
        (tmp_path / skipped / "module.py").write_bytes(b"def never(): pass\n")

    corpus = read_corpus(tmp_path, max_length=20)

    assert [bytes(sample) for sample in corpus.samples] == [
        b"def z(): pass",
        b"def b(): return 'lon",
    ]
    assert corpus.lengths.tolist() == [13, 20]
    assert (corpus.files, corpus.skipped_files) == (6, 4)
    assert (corpus.truncated, corpus.cut_tokens) == (1, 22)


def test_a_library_without_functions_is_an_error(tmp_path):
    message = f"`library` must hold Python files with functions, but `{tmp_path}` has none."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        read_corpus(tmp_path, max_length=20)


def test_a_batch_has_the_byte_before_each_place_and_no_target_in_the_padding():
    dataset = as_dataset([np.array([5, 6, 7], np.uint8), np.array([8], np.uint8)])
    batch = new_collator()(dataset[[1, 0]])
    assert {name: tensor.tolist() for name, tensor in batch.items()} == {
        "inputs": [[0, 0, 0], [0, 5, 6]],
        "targets": [[8, IGNORED, IGNORED], [5, 6, 7]],
    }


def test_the_model_does_not_see_padding_or_what_comes_later():
    model = new_model(seed=0)
    inputs = torch.tensor([[0, 3, 4, 5, 6, 7, 8]])
    with torch.no_grad():
        torch.testing.assert_close(model(inputs)[:, :4], model(inputs[:, :4]))


def test_a_model_is_its_seed_and_leaves_the_random_state_alone():
    before = torch.get_rng_state()
    first, second = new_model(seed=1).state_dict(), new_model(seed=1).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert torch.equal(torch.get_rng_state(), before)


def steps_of(losses, buckets=None):
    buckets = buckets or [0] * len(losses)
    return [StepLoss(bucket, 10, loss) for bucket, loss in zip(buckets, losses, strict=True)]


def test_a_smooth_curve_has_no_noise():
    noise = noise_of(steps_of([5 - 0.4 * math.log(i + 1) for i in range(120)]), 4)
    assert noise.batch == pytest.approx(0, abs=1e-9)
    assert noise.optimizer_step == pytest.approx(0, abs=1e-9)


def test_alternating_buckets_are_noise_between_batches_that_the_buckets_explain():
    losses = [3 + 0.1 * (-1) ** i for i in range(120)]
    noise = noise_of(steps_of(losses, [0, 1] * 60), 4)
    assert noise.batch == pytest.approx(0.1, rel=0.02)
    assert noise.optimizer_step == pytest.approx(0, abs=0.01)
    assert noise.explained == pytest.approx(1, rel=0.02)


def test_a_curve_too_short_has_no_known_noise():
    assert math.isnan(noise_of(steps_of([3.0] * 40), 4).batch)
    assert math.isnan(noise_of([], 4).explained)


def test_the_running_mean_weighs_tokens():
    steps = [StepLoss(0, 1, 1.0), StepLoss(0, 3, 2.0), StepLoss(0, 1, 4.0)]
    middles, means = running_mean(steps, 2)
    assert middles.tolist() == [0.5, 1.5]
    assert means.tolist() == [1.75, 2.5]
    assert running_mean(steps, 4)[0].tolist() == []


@pytest.fixture
def library(tmp_path):
    """Return a folder with a few files of the standard library, as the whole of one."""
    folder = tmp_path / "library"
    folder.mkdir()
    for name in ("argparse.py", "ast.py", "calendar.py", "textwrap.py"):
        (folder / name).write_bytes((standard_library() / name).read_bytes())
    (folder / "broken.py").write_bytes(b"def f(:\n")
    return folder


def test_the_demonstration_reports_what_its_plans_and_runs_are(tmp_path, library, capsys):
    random_state, threads = torch.get_rng_state(), torch.get_num_threads()
    output = tmp_path / "made" / "output"
    result = run_demo(output, seconds=2, library=library)

    assert sorted(path.name for path in output.iterdir()) == [
        "epoch.png",
        "lengths.png",
        "loss.png",
        "report.html",
        "report.json",
    ]
    assert torch.equal(torch.get_rng_state(), random_state)
    assert torch.get_num_threads() == threads

    written = json.loads((output / "report.json").read_text(encoding="utf-8"))
    steps = written.pop("steps")
    assert {**written, "report": str(output / "report.html")} == result
    assert result["facts"]["skipped_files"] == 1

    page = (output / "report.html").read_text(encoding="utf-8")
    printed = capsys.readouterr().out
    assert "http" not in page
    assert page.count("data:image/png;base64,") == 3
    assert list(result["runs"]) == ["stride", "shuffle", "mixed"]
    for order, facts in result["runs"].items():
        plan = facts["plan"]
        assert facts["steps_done"] == plan["steps"] == len(steps[order]["loss"])
        assert sum(steps[order]["tokens"]) == plan["tokens"] == result["facts"]["train_tokens"]
        shares = np.bincount(steps[order]["bucket"], minlength=len(plan["buckets"]))
        assert shares.tolist() == [bucket["steps"] for bucket in plan["buckets"]]
        for number in (
            f"{100 * plan['padding_efficiency']:.1f}%",
            f"{plan['longest_run']:,}",
            f"{facts['validation_loss']:.3f}",
            f"{100 * facts['worst_quarter']:.1f} points",
            f"{1e3 * facts['waited_s']:.1f} ms, {100 * facts['waited_s'] / facts['seconds']:.2f}%",
        ):
            assert f"<td>{number}</td>" in page
            assert number in printed
        wait = f"{1e3 * facts['waited_s']:.1f} ms of {facts['seconds']:.1f} s ({order})"
        assert wait in page
        assert f"{plan['tokens']:,}, padded {plan['padded_tokens']:,}" in page


def slow_loader(dataset, sampler):
    collate = new_collator()

    def slow(rows):
        time.sleep(0.02)
        return collate(rows)

    return es.Loader(dataset, sampler, slow)


def test_what_an_interrupted_demonstration_has_is_reported(tmp_path, library, capsys, monkeypatch):
    def interrupted(*args):
        for number, step in enumerate(train(*args)):
            if number == 2:
                raise KeyboardInterrupt
            yield step

    monkeypatch.setattr(run, "train", interrupted)
    monkeypatch.setattr(run, "new_loader", slow_loader)
    result = run_demo(tmp_path, seconds=2, library=library)

    assert list(result["runs"]) == ["stride"]
    assert result["runs"]["stride"]["steps_done"] == 2
    assert result["runs"]["stride"]["validation_loss"] is None
    assert 0.01 < result["runs"]["stride"]["waited_s"] < result["runs"]["stride"]["seconds"]
    assert "Stopped." in capsys.readouterr().out
    assert "The training was stopped" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_without_matplotlib_there_is_a_report_without_plots(tmp_path, library, capsys, monkeypatch):
    monkeypatch.delitem(sys.modules, "evenstride.demo.plots", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # Importing it fails.
    run_demo(tmp_path / "output", seconds=1, library=library)

    assert sorted(path.name for path in (tmp_path / "output").iterdir()) == [
        "report.html",
        "report.json",
    ]
    assert "pip install 'evenstride[plot]'" in capsys.readouterr().out


def test_two_trainings_from_the_same_seed_are_the_same(library):
    corpus = read_corpus(library, max_length=256)
    samples = as_dataset(corpus.samples[:60])
    sampler = run.BucketBatchSampler(samples.lengths, token_budget=1024, num_replicas=1, rank=0)
    loader = new_loader(samples, sampler)
    sampler.set_epoch(0)
    first = list(train(new_model(0), loader, sampler, 4))
    sampler.set_epoch(0)
    assert list(train(new_model(0), loader, sampler, 4)) == first


def test_no_time_is_an_error(tmp_path):
    with pytest.raises(ValueError, match=r"^`seconds` must be above 0, but is 0\.$"):
        run_demo(tmp_path, seconds=0)


def test_too_small_a_library_is_an_error(tmp_path):
    (tmp_path / "module.py").write_bytes(NESTED)
    message = "`library` must have at least 16 functions, but has 1."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        run_demo(tmp_path / "output", library=tmp_path)
