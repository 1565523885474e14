"""What each subcommand does with right input."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import evenstride as es
from command_support import KEYWORDS, LENGTHS, OPTIONS, command, fails
from evenstride.commands import run
from evenstride.compare import ORDERS

pytestmark = pytest.mark.usefixtures("no_columns")


# ---- plan ----


def test_plan_prints_the_statistics_as_json_and_nothing_else(npy):
    done = command("plan", npy, *OPTIONS, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == es.plan_epoch(LENGTHS, **KEYWORDS).stats().to_dict()


@pytest.mark.parametrize(
    ("flags", "keywords"),
    [
        (["--order", "balanced", "--seed", "7"], {"order": "balanced", "seed": 7}),
        (["--epoch", "3", "--num-replicas", "4"], {"epoch": 3, "num_replicas": 4}),
        (["--drop-last", "--num-replicas", "8"], {"drop_last": True, "num_replicas": 8}),
        (["--composition", "window", "--window", "64"], {"composition": "window", "window": 64}),
        (["--no-shuffle", "--empty", "drop"], {"shuffle": False, "empty": "drop"}),
        (["--jitter", "0.1", "--accumulation-steps", "2"], {"jitter": 0.1}),
        (["--batch-size-multiple", "8"], {"batch_size_multiple": 8}),
        (["--pad-to-multiple-of", "16"], {"pad_to_multiple_of": 16}),
        (["--max-length", "399", "--too-long", "alone"], {"max_length": 399, "too_long": "alone"}),
        (["--merge-buckets", "2"], {"merge_buckets": 2}),
        (["--steps-per-epoch", "400"], {"steps_per_epoch": 400}),
        (["--buckets", "4"], {"buckets": 4}),
        (["--buckets", "100,"], {"buckets": [100]}),
        (["--token-budget", "1_000"], {"token_budget": 1000}),
        (["--num-threads", "1"], {"num_threads": 1}),
    ],
)
def test_every_option_reaches_the_plan(capsys, npy, flags, keywords):
    assert run(["plan", npy, *OPTIONS, *flags, "--json"]) == 0
    expected = es.plan_epoch(LENGTHS, **{**KEYWORDS, **keywords}).stats().to_dict()
    assert json.loads(capsys.readouterr().out) == expected


def test_a_saved_plan_is_the_plan(npy, tmp_path):
    assert run(["plan", npy, *OPTIONS, "--json", "--save", str(tmp_path / "plan")]) == 0
    loaded = es.EpochPlan.load(tmp_path / "plan")
    np.testing.assert_array_equal(loaded.indices, es.plan_epoch(LENGTHS, **KEYWORDS).indices)


def test_a_report_is_of_the_plan_and_names_what_it_is_of(capsys, npy, tmp_path):
    page = tmp_path / "report.html"
    assert run(["plan", npy, *OPTIONS, "--json", "--report", str(page)]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] > 0
    text = page.read_text(encoding="utf-8")
    assert "<h1>lengths.npy</h1>" in text
    assert text.count('<figure class="order">') == len(ORDERS)


@pytest.mark.parametrize("option", ["--save", "--report", "--plot"])
def test_an_output_never_takes_the_place_of_the_lengths(capsys, npy, tmp_path, option):
    before = Path(npy).read_bytes()
    link = tmp_path / "link.npy"
    link.symlink_to(npy)
    for output in (npy, str(link)):
        assert fails(capsys, "plan", npy, *OPTIONS, option, output) == (
            f"{option} must be another file than the samples', but is `{output}`."
        )
    assert Path(npy).read_bytes() == before


def test_a_report_that_cannot_be_written_is_one_sentence(capsys, npy, tmp_path):
    (tmp_path / "folder").mkdir()
    page = str(tmp_path / "folder")
    assert fails(capsys, "plan", npy, *OPTIONS, "--report", page) == (
        f"`{page}` cannot be read or written: Is a directory."
    )


@pytest.mark.parametrize("arguments", [["plan"], ["compare"], ["tune"]])
def test_a_picture_of_no_known_format_is_one_sentence(capsys, npy, arguments):
    pytest.importorskip("matplotlib")
    assert fails(capsys, *arguments, npy, *OPTIONS[:2], "--plot", "picture.foo") == (
        "--plot must end in .png, .svg, .pdf or another format that matplotlib knows, but is "
        "`picture.foo`."
    )


# ---- compare ----


def test_compare_has_a_row_for_each_order_and_a_column_for_each_figure(capsys, npy):
    assert run(["compare", npy, *OPTIONS, "--json"]) == 0
    comparison = json.loads(capsys.readouterr().out)
    assert comparison["left_out"] == {}
    assert [row["order"] for row in comparison["orders"]] == list(ORDERS)
    for row in comparison["orders"]:
        stats = es.plan_epoch(LENGTHS, order=row["order"], **KEYWORDS).stats().to_dict()
        own = {"order", "quarter_deviation", "buckets"}
        assert {name: row[name] for name in row if name not in own} == {
            name: stats[name] for name in row if name not in own
        }
        assert row["quarter_deviation"] == max(
            abs(quarter - bucket["share"])
            for bucket in stats["buckets"]
            for quarter in bucket["quarters"]
        )
        assert [bucket["quarters"] for bucket in row["buckets"]] == [
            bucket["quarters"] for bucket in stats["buckets"]
        ]


def test_json_says_how_many_batches_an_optimizer_step_has(capsys, npy):
    options = [*OPTIONS, "--num-replicas", "2", "--accumulation-steps", "4"]
    assert run(["compare", npy, *options, "--json"]) == 0
    comparison = json.loads(capsys.readouterr().out)
    assert (comparison["num_replicas"], comparison["accumulation_steps"]) == (2, 4)


def test_the_orders_are_those_that_a_plan_knows():
    with pytest.raises(ValueError, match="`order` must be one of") as error:
        es.plan_epoch([1], token_budget=1, order="no order")
    known = re.findall(r"'(\w+)'", str(error.value))
    assert [name for name in known if name != "weighted"] == list(ORDERS)


def test_compare_prints_rows_and_with_quarters_shares(capsys, npy):
    assert run(["compare", npy, *OPTIONS]) == 0
    plain = capsys.readouterr().out
    rows = plain.split("\n\n")[0].splitlines()
    assert rows[0].split("  ")[0] == "order"
    assert [row.split()[0] for row in rows[1:]] == list(ORDERS)
    assert run(["compare", npy, *OPTIONS, "--quarters"]) == 0
    shares = capsys.readouterr().out.split("\n\n")[2].splitlines()
    assert len(shares) == 1 + 3 * len(ORDERS)


def test_edges_are_found_once_and_are_those_of_a_plan(capsys, npy):
    assert run(["compare", npy, "--token-budget", "2000", "--merge-buckets", "2", "--json"]) == 0
    plan = es.plan_epoch(LENGTHS, token_budget=2000, merge_buckets=2)
    for row in json.loads(capsys.readouterr().out)["orders"]:
        starts = [bucket["start"] for bucket in row["buckets"]]
        assert [*starts, row["buckets"][-1]["stop"]] == plan.edges.tolist()


def test_an_order_that_cannot_be_had_is_left_out_with_its_reason(capsys, npy):
    options = [*OPTIONS, "--composition", "window"]
    assert run(["compare", npy, *options]) == 0
    assert capsys.readouterr().out.endswith(
        "\n\nWithout mixed: --composition must be 'shuffle' for --order mixed, but is 'window'.\n"
    )
    assert run(["compare", npy, *options, "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["left_out"]) == ["mixed"]


# ---- demo ----


def run_demo(output, seconds):
    sys.stdout.write("on the way\n")
    return {"output": str(output), "seconds": seconds}


def test_the_demonstration_is_run_with_its_options(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "evenstride.demo", SimpleNamespace(run_demo=run_demo))
    assert run(["demo", "--output", "there", "--seconds", "2"]) == 0
    assert capsys.readouterr() == ("on the way\n", "")


def test_the_demonstration_prints_json_and_nothing_else(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "evenstride.demo", SimpleNamespace(run_demo=run_demo))
    assert run(["demo", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == {"output": "evenstride-demo", "seconds": 60.0}
    assert err == "on the way\n"


def test_the_demonstration_checks_its_options_before_it_begins(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "evenstride.demo", SimpleNamespace(run_demo=run_demo))
    assert fails(capsys, "demo", "--seconds", "0") == "--seconds must be above 0, but is 0.0."
    Path("file").touch()
    assert fails(capsys, "demo", "--output", "file") == (
        "`file` cannot be read or written: File exists."
    )
