"""The command `evenstride scale`: what it prints, and what it says of bad calls."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import evenstride as es
from command_support import LENGTHS, command, command_without, fails
from evenstride.commands import run
from evenstride.scaling import scale
from evenstride.scaling_report import scaling_notes
from evenstride.step_costs import COSTS

pytestmark = pytest.mark.usefixtures("no_columns")

FLAGS = ["--token-budget", "2000", "--max-batch-size", "64", "--buckets", "60,150"]
OPTIONS = {"token_budget": 2000, "max_batch_size": 64, "buckets": [60, 150]}
RANKS = ["--num-replicas", "2", "--num-replicas", "16"]
MEASURED = ("seconds", "peak_bytes")


def cells_of(block):
    return [re.split(" {2,}", line.strip()) for line in block.splitlines()]


def test_tables_have_a_row_for_each_number_of_ranks_and_explain_their_columns(capsys, npy):
    assert run(["scale", npy, *FLAGS, *RANKS]) == 0
    steps, imbalance, planning, meanings, why = capsys.readouterr().out.rstrip("\n").split("\n\n")
    results = [result for _, result in scale(LENGTHS, num_replicas=[2, 16], **OPTIONS)]
    header, *rows = cells_of(steps)
    for row, result in zip(rows, results, strict=True):
        cells = dict(zip(header, row, strict=True))
        assert int(cells["ranks"]) == result.num_replicas
        assert int(cells["steps"]) == result.steps
        assert float(cells["real"].rstrip("%")) == pytest.approx(
            100 * result.padding_efficiency, abs=0.0051
        )
        assert float(cells["more"].rstrip("%")) == pytest.approx(
            100 * result.more_batches, abs=0.0051
        )
    names, *rows = cells_of(imbalance)
    assert names[1:] == [name.replace("_", " ") for name in COSTS]
    for row, result in zip(rows, results, strict=True):
        figures = [f for name in COSTS for f in vars(result.imbalance[name]).values()]
        told = [float(number) for cell in row[1:] for number in cell.split(", ")]
        assert told == pytest.approx(figures, abs=0.000051)
    columns, *rows = cells_of(planning)
    assert [row[0] for row in rows] == ["1", "2", "16"]
    for row, result in zip(rows, results, strict=True):
        assert int(row[2].replace(",", "")) == result.plan_bytes
    explained = {line[0] for line in cells_of(meanings)}
    assert {*header[2:], *names[1:], *columns[1:]} <= explained
    assert why.splitlines() == list(scaling_notes(results, OPTIONS))


def test_json_has_the_same_and_nothing_else(capsys, npy):
    assert run(["scale", npy, *FLAGS, *RANKS, "--quadratic", "100", "--json"]) == 0
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert err == ""
    results = [r for _, r in scale(LENGTHS, num_replicas=[2, 16], quadratic=100, **OPTIONS)]
    assert told["quadratic"] == 100
    assert told["left_out"] == {}
    assert told["notes"] == list(scaling_notes(results, OPTIONS))
    for row, result in zip(told["ranks"], results, strict=True):
        for name, value in row.items():
            wanted = getattr(result, name)
            if name == "imbalance":
                wanted = {cost: vars(figures) for cost, figures in wanted.items()}
            assert name in MEASURED or value == wanted


def test_the_default_is_up_to_4096_ranks_and_64_buckets(capsys, npy):
    assert run(["scale", npy, "--token-budget", "2000", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["ranks"]
    assert [row["num_replicas"] for row in rows] == [1, 8, 64, 512, 4096]
    plan = es.plan_epoch(LENGTHS, token_budget=2000, buckets=64)
    assert rows[0]["num_buckets"] == len(plan.edges) - 1 > 6


def test_that_samples_were_drawn_is_said(capsys, npy):
    assert run(["scale", npy, *FLAGS, *RANKS, "--samples", "20000"]) == 0
    out = capsys.readouterr().out
    assert "\n\nPlanned with 20,000 samples, drawn from 3,000 lengths.\n\n" in out
    assert "20,000 samples are enough for 16 ranks" in out


def test_a_number_of_ranks_that_cannot_be_had_is_left_out_with_its_reason(capsys, npy):
    flags = [*FLAGS, "--num-replicas", "5000", "--drop-last"]
    assert run(["scale", npy, *flags]) == 0
    assert re.search(
        r"\n\nWithout 5,000 ranks: --drop-last must leave at least 1 step, but leaves 0: .*\.\n$",
        capsys.readouterr().out,
    )
    assert run(["scale", npy, *flags, "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["left_out"]) == ["5000"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--quadratic", "0"], "--quadratic must be in [1, 2**53], but is 0.0."),
        (["--quadratic", "nan"], "--quadratic must be in [1, 2**53], but is nan."),
        (["--quadratic", "inf"], "--quadratic must be in [1, 2**53], but is inf."),
        (["--token-budget", "0"], "--token-budget must be in [1, 2**63), but is 0."),
        (["--max-length", "9"], "`lengths["),
        (["--num-replicas", "0"], "Invalid value for '--num-replicas': "),
        (["--samples", "0"], "Invalid value for '--samples': "),
        (["--order", "mixed"], "No such option"),
        (["--plot", "picture.foo"], "--plot must end in .png, .svg, .pdf or another format"),
    ],
)
def test_a_bad_call_is_one_sentence(capsys, npy, flags, message):
    if flags[0] == "--plot":
        pytest.importorskip("matplotlib")
    assert fails(capsys, "scale", npy, *FLAGS, *flags).startswith(message)


def test_a_picture_holds_a_line_for_each_loss(capsys, npy, tmp_path):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "scale.svg"
    assert run(["scale", npy, *FLAGS, *RANKS, "--plot", str(picture), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ranks"]
    from evenstride.plot_scaling import plot_scaling  # noqa: PLC0415 - matplotlib is an extra.

    results = [result for _, result in scale(LENGTHS, num_replicas=[2, 16], **OPTIONS)]
    (ax,) = plot_scaling(results).axes
    more, waiting, small, percent = ax.get_lines()
    for line, losses in (
        (more, [result.more_batches for result in results]),
        (waiting, [result.waiting for result in results]),
        (small, [result.small_samples / result.samples for result in results]),
    ):
        assert line.get_xdata().tolist() == [1, 2, 16]
        np.testing.assert_array_equal(line.get_ydata(), [x if x > 0 else np.nan for x in losses])
    assert list(percent.get_ydata()) == [0.01, 0.01]
    assert "<svg" in picture.read_text(encoding="utf-8")


def test_without_matplotlib_a_picture_says_how_to_install_it(npy, tmp_path):
    flags = [*FLAGS, *RANKS, "--plot", str(tmp_path / "picture.png")]
    done = command_without({"matplotlib", "torch"}, ["scale", npy, *flags])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "evenstride: Pictures need matplotlib: pip install 'evenstride[plot]'.\n"


def test_no_line_of_the_tables_is_wider_than_the_terminal(npy):
    narrow = command("scale", npy, *FLAGS, *RANKS, COLUMNS="70").stdout
    assert max(map(len, narrow.splitlines())) <= 70
