"""The command `evenstride`, in this process and as users start it."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import evenstride as es

pytest.importorskip("typer")
pytest.importorskip("rich")

from evenstride.commands import run
from evenstride.compare import ORDERS

OPTIONS = ["--token-budget", "2000", "--max-batch-size", "64", "--buckets", "60,150"]
KEYWORDS = {"token_budget": 2000, "max_batch_size": 64, "buckets": [60, 150]}
COMMAND = [sys.executable, "-m", "evenstride.cli"]


@pytest.fixture
def lengths():
    return np.random.default_rng(0).integers(1, 400, 3000)


@pytest.fixture
def npy(lengths, tmp_path):
    path = tmp_path / "lengths.npy"
    np.save(path, lengths)
    return str(path)


@pytest.fixture(autouse=True)
def _no_columns(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)


def command(*arguments, stdin="", **environment):
    inherited = {name: os.environ[name] for name in os.environ if name != "PYTHONIOENCODING"}
    return subprocess.run(
        [*COMMAND, *arguments],
        input=stdin,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def fails(capsys, *arguments):
    """Return the one line that a bad call says, after its name."""
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("evenstride: ")
    assert err.endswith("\n")
    assert err.count("\n") == 1
    return err[len("evenstride: ") : -1]


# ---- plan ----


def test_plan_prints_the_statistics_as_json_and_nothing_else(lengths, npy):
    done = command("plan", npy, *OPTIONS, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == es.plan_epoch(lengths, **KEYWORDS).stats().to_dict()


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
def test_every_option_reaches_the_plan(capsys, lengths, npy, flags, keywords):
    assert run(["plan", npy, *OPTIONS, *flags, "--json"]) == 0
    expected = es.plan_epoch(lengths, **{**KEYWORDS, **keywords}).stats().to_dict()
    assert json.loads(capsys.readouterr().out) == expected


def test_plan_without_json_prints_the_table_then_what_limits_the_buckets(capsys, lengths, npy):
    assert run(["plan", npy, *OPTIONS]) == 0
    out = capsys.readouterr().out
    stats = es.plan_epoch(lengths, **KEYWORDS).stats()
    assert out.startswith(stats.table() + "\n\n")
    sentences = out.removeprefix(stats.table()).strip().splitlines()
    assert sentences[0].startswith("The token budget of 2,000 limits ")
    assert "Nothing is left out." in sentences


def test_advice_comes_with_the_figures_of_a_plan_that_followed_it(capsys, lengths, npy):
    options = [*OPTIONS, "--max-batch-size", "4"]
    assert run(["plan", npy, *options]) == 0
    advice = re.search(r"--max-batch-size (\d+) would give (\d+) steps", capsys.readouterr().out)
    followed = es.plan_epoch(lengths, **{**KEYWORDS, "max_batch_size": int(advice[1])})
    assert followed.num_steps == int(advice[2])


def test_the_advised_batch_size_is_the_one_that_the_budget_admits(capsys, tmp_path):
    path = tmp_path / "lengths.txt"
    path.write_text("10\n" * 1000)
    assert run(["plan", str(path), "--token-budget", "505", "--max-batch-size", "4"]) == 0
    advice = capsys.readouterr().out.splitlines()[-1]
    assert advice == "--max-batch-size 50 would give 20 steps (92.0% fewer)."


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


def test_a_saved_plan_is_the_plan(lengths, npy, tmp_path):
    assert run(["plan", npy, *OPTIONS, "--json", "--save", str(tmp_path / "plan")]) == 0
    loaded = es.EpochPlan.load(tmp_path / "plan")
    np.testing.assert_array_equal(loaded.indices, es.plan_epoch(lengths, **KEYWORDS).indices)


# ---- compare ----


def test_compare_has_a_row_for_each_order_and_a_column_for_each_figure(capsys, lengths, npy):
    assert run(["compare", npy, *OPTIONS, "--json"]) == 0
    comparison = json.loads(capsys.readouterr().out)
    assert comparison["left_out"] == {}
    assert [row["order"] for row in comparison["orders"]] == list(ORDERS)
    for row in comparison["orders"]:
        stats = es.plan_epoch(lengths, order=row["order"], **KEYWORDS).stats().to_dict()
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


def test_edges_are_found_once_and_are_those_of_a_plan(capsys, lengths, npy):
    assert run(["compare", npy, "--token-budget", "2000", "--merge-buckets", "2", "--json"]) == 0
    plan = es.plan_epoch(lengths, token_budget=2000, merge_buckets=2)
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


# ---- lengths ----


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("5\n7\n7\n0\n", []),
        ("5\r\n7\r\n7\r\n0", []),
        ("\n# lengths\n5\n\n7\n 7 \n0\n\n", []),
        ("\ufefflength\n5\n7\n7\n0\n", []),
        ("id,length\na,5\nb,7\nc,7\nd,0\n", []),
        ("id\tlength\na\t5\nb\t7\nc\t7\nd\t0\n", []),
        ('text,tokens\n"a, b",5\nc,7\n"d\n",7\ne,0\n', ["--column", "tokens"]),
        ("a,5\nb,7\nc,7\nd,0\n", ["--column", "1"]),
        ("length,count\n5,1\n7,2\n0,1\n", ["--counts"]),
        ("count,length\n1,5\n2,7\n1,0\n", ["--counts"]),
        ("5,1\n7,2\n0,1\n", ["--counts"]),
        ("x;5;1\ny;7;2\nz;0;1\n", ["--counts", "--column", "1"]),
    ],
)
@pytest.mark.parametrize("stdin", [False, True])
def test_text_of_many_forms_gives_the_same_lengths(
    capsys, monkeypatch, tmp_path, *, text, flags, stdin
):
    path = tmp_path / "lengths.csv"
    path.write_bytes(text.encode())
    if stdin:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        path = "-"
    assert run(["plan", str(path), "--token-budget", "14", "--json", *flags]) == 0
    expected = es.plan_epoch([5, 7, 7, 0], token_budget=14).stats().to_dict()
    assert json.loads(capsys.readouterr().out) == expected


def test_an_npz_file_needs_a_key_if_it_has_several_arrays(capsys, lengths, tmp_path):
    one, two = tmp_path / "one.npz", tmp_path / "two.NPZ"
    np.savez(one, lengths=lengths)
    with two.open("wb") as file:
        np.savez(file, lengths=lengths, ids=lengths[::-1])
    expected = es.plan_epoch(lengths, **KEYWORDS).stats().to_dict()
    for arguments in ([str(one)], [str(two), "--key", "lengths"]):
        assert run(["plan", *arguments, *OPTIONS, "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == expected
    assert fails(capsys, "plan", str(two), *OPTIONS) == (
        f"--key must be one of 'lengths', 'ids' for `{two}`, but is None."
    )


def test_text_comes_through_a_pipe():
    done = command("plan", "-", "--token-budget", "14", "--json", stdin="5\n7\n7\n0\n")
    assert json.loads(done.stdout)["samples"] == 4


# ---- errors ----


@pytest.mark.parametrize(
    ("text", "flags", "message"),
    [
        ("5\nabc\n", [], "`{}`, line 2, must hold an integer in [0, 2**63), but holds 'abc'."),
        ("\n5\n\n-7\n", [], "`{}`, line 4, must hold an integer in [0, 2**63), but holds '-7'."),
        ("7.5\n5\n", [], "`{}`, line 1, must hold an integer in [0, 2**63), but holds '7.5'."),
        (
            "length,count\n5\n",
            ["--counts"],
            "`{}`, line 2, must hold an integer in [0, 2**63), but holds ''.",
        ),
        (
            f"{2**63}\n",
            [],
            f"`{{}}`, line 1, must hold an integer in [0, 2**63), but holds '{2**63}'.",
        ),
        ("", [], "`{}` must have at least 1 line, but has 0."),
        ("length\n", [], "`lengths` must have at least 1 sample, but has 0 samples."),
        (
            "length\n",
            ["--counts"],
            "`{}` must have a column of counts after that of lengths, but has 'length'.",
        ),
        ("a,b\n1,2\n", [], "--column must be one of 'a', 'b' for `{}`, but is None."),
        ("1,2\n", ["--column", "2"], "--column must be one of '0', '1' for `{}`, but is '2'."),
        ("5\n", ["--key", "a"], "--key must be left out for `{}`, which is no .npz file."),
        ("5\n", ["--order", "best"], None),
        (
            "5\n2001\n",
            [],
            (
                "`lengths[1]` must be in [0, 2000] for --token-budget 2000, but is 2001; pass "
                "--too-long drop to leave such samples out, or --too-long alone to give each a "
                "batch of its own."
            ),
        ),
        (
            "5\n",
            ["--buckets", "x"],
            "--buckets must be an integer or inner edges such as 770,1216, but is 'x'.",
        ),
        ("5\n", ["--num-replicas", "0"], "--num-replicas must be in [1, 2**63), but is 0."),
        (
            "5\n",
            ["--save", "/no/folder/plan"],
            "`/no/folder/plan` cannot be read or written: No such file or directory.",
        ),
    ],
)
def test_bad_input_is_one_sentence(capsys, tmp_path, text, flags, message):
    path = tmp_path / "lengths.txt"
    path.write_text(text)
    sentence = fails(capsys, "plan", str(path), *OPTIONS, *flags)
    if message is not None:
        assert sentence == message.format(path)


@pytest.mark.parametrize(
    ("name", "content", "flags", "message"),
    [
        (
            "a.npy",
            b"rubbish",
            [],
            "`{}` must be an .npy file of numbers, but numpy cannot read it so.",
        ),
        (
            "a.npz",
            b"rubbish",
            [],
            "`{}` must be an .npz file of numbers, but numpy cannot read it so.",
        ),
        ("a.npy", b"", ["--counts"], "--counts must be left out for `{}`, which is no text file."),
        (
            "a.npz",
            b"",
            ["--column", "1"],
            "--column must be left out for `{}`, which is no text file.",
        ),
    ],
)
def test_a_file_that_is_not_what_its_name_says_is_one_sentence(
    capsys, tmp_path, *, name, content, flags, message
):
    path = tmp_path / name
    path.write_bytes(content)
    assert fails(capsys, "plan", str(path), *OPTIONS, *flags) == message.format(path)


def test_lengths_of_another_kind_are_one_sentence(capsys, tmp_path):
    np.save(tmp_path / "floats.npy", np.ones(3))
    np.save(tmp_path / "square.npy", np.ones((2, 2), int))
    assert fails(capsys, "plan", str(tmp_path / "floats.npy"), *OPTIONS) == (
        "`lengths` must hold integers, but has dtype float64."
    )
    assert fails(capsys, "plan", str(tmp_path / "square.npy"), *OPTIONS) == (
        "`lengths` must be 1-dimensional, but has shape (2, 2)."
    )


def test_a_file_that_is_not_there_is_one_sentence(capsys):
    assert fails(capsys, "plan", "nowhere.npy", *OPTIONS) == (
        "`nowhere.npy` cannot be read or written: No such file or directory."
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan"],
        ["plan", "lengths.npy"],
        ["plan", "-", "--token-budget", "x"],
        ["no-such"],
        ["plan", "-", "--no-such"],
    ],
)
def test_a_wrong_call_is_one_sentence_that_points_to_the_help(capsys, arguments):
    assert re.fullmatch(r".+; try 'evenstride( plan)? --help'\.", fails(capsys, *arguments))


# ---- terminals ----


@pytest.mark.parametrize("name", [[], ["plan"], ["compare"], ["demo"]])
def test_each_command_has_help_and_json(name):
    done = command(*name, "--help", COLUMNS="120")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: evenstride" in done.stdout
    assert not name or "--json" in done.stdout


def test_no_arguments_show_the_help(capsys):
    assert run([]) == 0
    assert "compare" in capsys.readouterr().out


def test_the_version_is_the_package_s(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"evenstride {es.__version__}\n"


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("name", ["plan", "compare"])
def test_no_line_is_wider_than_the_terminal_and_no_column_is_lost(npy, name, columns):
    arguments = [name, npy, *OPTIONS]
    narrow = command(*arguments, COLUMNS=str(columns)).stdout
    assert max(map(len, narrow.splitlines())) <= columns
    full = command(*arguments).stdout
    assert sorted(set(full.split())) == sorted(set(narrow.split()))


def test_colour_is_for_terminals_only_and_never_with_no_color(npy):
    arguments = ["plan", npy, *OPTIONS]
    assert "\x1b" not in command(*arguments).stdout
    assert "\x1b[1m" in command(*arguments, FORCE_COLOR="1", TERM="xterm").stdout
    coloured = command(*arguments, FORCE_COLOR="1", NO_COLOR="1", TERM="xterm").stdout
    assert not re.search(r"\x1b\[(3|4|9)\d", coloured)


def test_an_ascii_terminal_takes_help_and_file_names(tmp_path):
    path = tmp_path / "l\u00e4ngen.txt"
    path.write_text("5\n")
    done = command("--help", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    done = command("plan", str(path), "--token-budget", "1", PYTHONIOENCODING="ascii")
    assert done.returncode == 2
    done = command("plan", str(path), "--token-budget", "5", PYTHONIOENCODING="ascii")
    assert done.returncode == 0


def test_a_reader_that_stops_early_is_no_error(npy):
    with subprocess.Popen(
        [*COMMAND, "compare", npy, *OPTIONS, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


# ---- extras ----

WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
sys.argv = ["evenstride", *{arguments!r}]
from evenstride.cli import main
main()
"""


def command_without(absent, arguments):
    code = WITHOUT.format(absent=absent, arguments=arguments)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("absent", ["rich", "typer"])
def test_without_the_extra_the_command_says_how_to_install_it(absent):
    done = command_without({absent}, ["plan"])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "evenstride: the command needs typer and rich; pip install 'evenstride[cli]'\n"
    )


def test_without_matplotlib_a_plot_says_how_to_install_it_and_the_rest_works(npy, tmp_path):
    picture = str(tmp_path / "plan.png")
    done = command_without({"matplotlib"}, ["plan", npy, *OPTIONS, "--plot", picture])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "evenstride: Pictures need matplotlib: pip install 'evenstride[plot]'.\n"
    done = command_without({"matplotlib", "torch"}, ["plan", npy, *OPTIONS])
    assert (done.returncode, done.stderr) == (0, "")


def test_the_installed_command_is_this_one():
    script = Path(sys.executable).with_name("evenstride")
    if not script.exists():
        pytest.skip("evenstride is not installed beside this interpreter")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=False)
    assert done.stdout == f"evenstride {es.__version__}\n"
