"""The command `evenstride` as users start it: its calls, terminals, pipes and extras."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import evenstride as es
from command_support import COMMAND, OPTIONS, command, command_without, fails
from evenstride.commands import run

pytestmark = pytest.mark.usefixtures("no_columns")


# ---- calls ----


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


def test_a_mistyped_command_is_answered_with_the_one_meant(capsys):
    answer = r"No such command 'plna'(\. Did you mean 'plan'\? Try|; try) 'evenstride --help'\."
    assert re.fullmatch(answer, fails(capsys, "plna"))


# ---- terminals ----


@pytest.mark.parametrize(
    "name", [[], ["plan"], ["tune"], ["compare"], ["scale"], ["bench"], ["demo"]]
)
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


@pytest.mark.parametrize("name", ["compare", "demo"])
def test_a_reader_that_stops_early_is_no_error(npy, tmp_path, name):
    arguments = {"compare": [npy, *OPTIONS, "--json"], "demo": ["--output", tmp_path]}[name]
    with subprocess.Popen(
        [*COMMAND, name, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


@pytest.mark.parametrize(
    ("output", "fault"),
    [(">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")],
)
@pytest.mark.parametrize("arguments", [["plan"], ["plan", "--json"]])
def test_an_output_that_cannot_be_written_is_one_sentence(npy, arguments, output, fault):
    if output == ">/dev/full" and not Path("/dev/full").exists():
        pytest.skip("there is no device that is always full")
    line = [*COMMAND, *arguments, npy, *OPTIONS]
    done = subprocess.run(
        ["/bin/sh", "-c", f'"$@" {output}', "sh", *line],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"evenstride: the output cannot be written: {fault}.\n"


# ---- extras ----


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
