"""Lengths from files of many forms, and what is wrong with others."""

from __future__ import annotations

import io
import json
import sys

import numpy as np
import pytest

import evenstride as es
from command_support import KEYWORDS, LENGTHS, OPTIONS, command, fails
from evenstride.commands import run

pytestmark = pytest.mark.usefixtures("no_columns")


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


def test_an_npz_file_needs_a_key_if_it_has_several_arrays(capsys, tmp_path):
    one, two = tmp_path / "one.npz", tmp_path / "two.NPZ"
    np.savez(one, lengths=LENGTHS)
    with two.open("wb") as file:
        np.savez(file, lengths=LENGTHS, ids=LENGTHS[::-1])
    expected = es.plan_epoch(LENGTHS, **KEYWORDS).stats().to_dict()
    for arguments in ([str(one)], [str(two), "--key", "lengths"]):
        assert run(["plan", *arguments, *OPTIONS, "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == expected
    assert fails(capsys, "plan", str(two), *OPTIONS) == (
        f"--key must be one of 'lengths', 'ids' for `{two}`, but is not given."
    )


def test_a_histogram_read_as_lengths_is_noted(capsys, tmp_path):
    path = tmp_path / "histogram.csv"
    path.write_text("length,count\n5,1\n7,2\n")
    assert run(["plan", str(path), "--token-budget", "14", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["samples"] == 2
    assert err == (
        f"evenstride: `{path}` has a column 'count'; pass --counts if it says how many samples "
        "have the length.\n"
    )
    assert run(["plan", str(path), "--token-budget", "14", "--json", "--column", "length"]) == 0
    assert capsys.readouterr().err == ""


def test_text_comes_through_a_pipe():
    done = command("plan", "-", "--token-budget", "14", "--json", stdin="5\n7\n7\n0\n")
    assert json.loads(done.stdout)["samples"] == 4


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
        ("a,b\n1,2\n", [], "--column must be one of 'a', 'b' for `{}`, but is not given."),
        (
            f"{'a' * 99},b\n1,2\n",
            [],
            f"--column must be one of '{'a' * 40}...', 'b' for `{{}}`, but is not given.",
        ),
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
        (
            "a.npy",
            b"\x93NUMPY\x01\x00\x0b\x00{'descr': (",
            [],
            "`{}` must be an .npy file of numbers, but numpy cannot read it so.",
        ),
        ("a.npy", b"", ["--counts"], "--counts must be left out for `{}`, which is no text file."),
        (
            "a.npz",
            b"",
            ["--column", "1"],
            "--column must be left out for `{}`, which has no columns.",
        ),
    ],
)
def test_a_file_that_is_not_what_its_name_says_is_one_sentence(
    capsys, tmp_path, *, name, content, flags, message
):
    path = tmp_path / name
    path.write_bytes(content)
    assert fails(capsys, "plan", str(path), *OPTIONS, *flags) == message.format(path)


@pytest.mark.parametrize(
    "name", ["rows.json", "rows.jsonl", "ROWS.NDJSON", "rows.json.gz", "rows.jsonl.zst", "rows.txt"]
)
def test_json_is_not_read_and_what_to_do_is_said(capsys, tmp_path, name):
    path = tmp_path / name
    path.write_text('\n{"input_ids": [1, 2], "label": 0}\n')
    assert fails(capsys, "plan", str(path), *OPTIONS) == (
        f"`{path}` must not be JSON, which is not read: convert it to Parquet first, for example "
        "with datasets' `to_parquet` or pyarrow."
    )


def test_a_list_of_json_is_no_text_either(capsys, tmp_path):
    path = tmp_path / "rows"
    path.write_text("[3, 4]\n")
    assert fails(capsys, "tune", str(path), "--token-budget", "8").startswith(
        f"`{path}` must not be JSON, which is not read: "
    )


def test_lengths_of_another_kind_are_one_sentence(capsys, tmp_path):
    np.save(tmp_path / "floats.npy", np.ones(3))
    np.save(tmp_path / "square.npy", np.ones((2, 2), int))
    assert fails(capsys, "plan", str(tmp_path / "floats.npy"), *OPTIONS) == (
        "`lengths` must hold integers, but has dtype float64."
    )
    assert fails(capsys, "plan", str(tmp_path / "square.npy"), *OPTIONS) == (
        "`lengths` must be the number of tokens of each sample, e.g. `ds.lengths`, but it has "
        "shape (2, 2)."
    )


def test_a_file_that_is_not_there_is_one_sentence(capsys):
    assert fails(capsys, "plan", "nowhere.npy", *OPTIONS) == (
        "`nowhere.npy` cannot be read or written: No such file or directory."
    )
