"""What the command says about a plan below its table."""

from __future__ import annotations

import re

import pytest

import evenstride as es
from command_support import KEYWORDS, LENGTHS, OPTIONS
from evenstride.commands import run

pytestmark = pytest.mark.usefixtures("no_columns")


def test_plan_without_json_prints_the_table_then_what_limits_the_buckets(capsys, npy):
    assert run(["plan", npy, *OPTIONS]) == 0
    out = capsys.readouterr().out
    stats = es.plan_epoch(LENGTHS, **KEYWORDS).stats()
    assert out.startswith(stats.table() + "\n\n")
    sentences = out.removeprefix(stats.table()).strip().splitlines()
    assert sentences[0].startswith("The token budget of 2,000 limits ")
    assert "Nothing is left out." in sentences


def test_advice_comes_with_the_figures_of_a_plan_that_followed_it(capsys, npy):
    options = [*OPTIONS, "--max-batch-size", "4"]
    assert run(["plan", npy, *options]) == 0
    advice = re.search(
        r"\nWith --max-batch-size (\d+) there would be (\d+) steps \(\d+\.\d% fewer\)\.\n",
        capsys.readouterr().out,
    )
    followed = es.plan_epoch(LENGTHS, **{**KEYWORDS, "max_batch_size": int(advice[1])})
    assert followed.num_steps == int(advice[2])


def test_the_advised_batch_size_is_the_one_that_the_budget_admits(capsys, tmp_path):
    path = tmp_path / "lengths.txt"
    path.write_text("10\n" * 1000)
    assert run(["plan", str(path), "--token-budget", "505", "--max-batch-size", "4"]) == 0
    advice = capsys.readouterr().out.splitlines()[-1]
    assert advice == "With --max-batch-size 50 there would be 20 steps (92.0% fewer)."


def test_there_is_no_advice_where_nothing_helps(capsys, tmp_path):
    path = tmp_path / "lengths.txt"
    path.write_text("10\n" * 100)
    assert run(["plan", str(path), "--token-budget", "100"]) == 0
    assert capsys.readouterr().out.endswith(
        "\n\nThe token budget of 100 limits 100.0% of the batches of bucket 0; they fill 100.0% of "
        "the budget.\nNothing is left out.\n"
    )


def test_what_is_left_out_is_said_and_warned_of(capsys, tmp_path):
    path = tmp_path / "lengths.txt"
    path.write_text("10\n10\n5000\n0\n")
    options = ["--token-budget", "100", "--too-long", "drop", "--empty", "drop"]
    assert run(["plan", str(path), *options]) == 0
    out, err = capsys.readouterr()
    assert (
        "Left out: 1 sample (99.6% of the tokens) as too long, and 1 sample (0.0% of the tokens) "
        "as empty.\n"
    ) in out
    assert err == (
        "evenstride: 5,000 of 5,020 tokens are in no epoch: --too-long drop leaves out 1 sample.\n"
    )
