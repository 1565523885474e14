"""`evenstride lengths`: what it prints, and what is left of it when it is interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from command_support import COMMAND, LENGTHS, command, fails
from evenstride.commands import run
from evenstride.write_lengths import write_lengths

pytestmark = pytest.mark.usefixtures("no_columns")


def test_it_prints_a_summary_and_what_may_come_next(capsys, tmp_path):
    np.save(tmp_path / "a.npy", LENGTHS)
    output = tmp_path / "all.npy"
    assert (
        run(["lengths", str(tmp_path / "a.npy"), str(tmp_path / "a.npy"), "-o", str(output)]) == 0
    )
    assert np.load(output).tolist() == [*LENGTHS, *LENGTHS]
    facts, following = capsys.readouterr().out.split("\n\n")
    cells = dict(line.split("  ", 1) for line in facts.splitlines())
    expected = {
        "samples": f"{2 * len(LENGTHS):,}",
        "tokens": f"{2 * LENGTHS.sum():,}",
        "shortest": str(LENGTHS.min()),
        "longest": str(LENGTHS.max()),
        "type": "uint16",
        "files": "2",
    }
    assert {name: cells[name].strip() for name in expected} == expected
    assert following.startswith("Next: evenstride tune ")
    assert run([*following.split()[2:], "--json"]) == 0


def test_json_is_all_there_is(tmp_path):
    np.save(tmp_path / "a.npy", LENGTHS)
    output = str(tmp_path / "b.npy")
    done = command("lengths", str(tmp_path / "a.npy"), "--output", output, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    summary = json.loads(done.stdout)
    assert (summary["output"], summary["samples"]) == (output, len(LENGTHS))
    assert summary["tokens"] == LENGTHS.sum()


def test_no_samples_have_no_shortest_and_nothing_next(capsys, tmp_path):
    np.save(tmp_path / "a.npy", np.empty(0, np.int64))
    assert run(["lengths", str(tmp_path / "a.npy"), "-o", str(tmp_path / "b.npy")]) == 0
    out = capsys.readouterr().out
    assert "shortest       -\n" in out
    assert "Next" not in out
    assert np.load(tmp_path / "b.npy").shape == (0,)


def test_no_budget_is_suggested_that_no_command_would_take(tmp_path):
    path = tmp_path / "a.npy"
    for longest, is_there in ((2**59, True), (2**59 + 1, False), (2**63 - 1, False)):
        np.save(path, [longest])
        table = write_lengths(path, tmp_path / "lengths.npy").table()
        assert table.endswith(f" --token-budget {2**62}") == is_there
        assert ("Next:" in table) == is_there


def test_lengths_of_a_pipe_and_a_histogram(tmp_path):
    output = str(tmp_path / "a.npy")
    done = command("lengths", "-", "-o", output, "--counts", stdin="length,count\n5,2\n7,1\n")
    assert done.returncode == 0
    assert np.load(output).tolist() == [5, 5, 7]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["-o", "{}/a.npy"], "--output must be another file than the samples', but is `{}/a.npy`."),
        (["-o", "{}/b.txt"], "--output must end in .npy, but is `{}/b.txt`."),
        (
            ["-o", "{}/none/b.npy"],
            "`{}/none/b.npy` cannot be read or written: No such file or directory.",
        ),
        (
            ["{}/none.txt", "-o", "{}/b.npy"],
            "`{}/none.txt` cannot be read or written: No such file or directory.",
        ),
        (
            ["-o", "{}/b.npy", "--num-threads", "0"],
            "--num-threads must be in [1, 2**63), but is 0.",
        ),
        (
            ["-o", "{}/b.npy", "--column", "x"],
            "--column must be left out for `{}/a.npy`, which has no columns.",
        ),
    ],
)
def test_what_is_wrong_is_one_sentence(capsys, tmp_path, flags, message):
    np.save(tmp_path / "a.npy", LENGTHS)
    flags = [flag.format(tmp_path) for flag in flags]
    assert fails(capsys, "lengths", str(tmp_path / "a.npy"), *flags) == message.format(tmp_path)
    assert os.listdir(tmp_path) == ["a.npy"]  # noqa: PTH208


@pytest.mark.skipif(sys.platform == "win32", reason="sends a signal")
def test_ctrl_c_ends_it_with_130_and_leaves_no_draft(tmp_path):
    for number in range(20):
        (tmp_path / "in").mkdir(exist_ok=True)
        file = np.lib.format.open_memmap(
            tmp_path / "in" / f"{number}.npy", "w+", np.uint8, shape=(1 << 30,)
        )
        del file  # It takes no room, since nothing has been written.
    (tmp_path / "out").mkdir()
    output = tmp_path / "out" / "lengths.npy"
    process = subprocess.Popen(
        [*COMMAND, "lengths", str(tmp_path / "in"), "-o", str(output)], stderr=subprocess.PIPE
    )
    end = time.monotonic() + 60
    while not any(file.stat().st_size > 1 << 20 for file in output.parent.iterdir()):
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in errors
    assert os.listdir(output.parent) == []  # noqa: PTH208
