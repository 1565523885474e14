"""What the tests of the command share. Importing it skips them where typer or rich are missing."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")

from evenstride.commands import run

LENGTHS = np.random.default_rng(0).integers(1, 400, 3000)
LENGTHS.flags.writeable = False

OPTIONS = ["--token-budget", "2000", "--max-batch-size", "64", "--buckets", "60,150"]
KEYWORDS = {"token_budget": 2000, "max_batch_size": 64, "buckets": [60, 150]}
COMMAND = [sys.executable, "-m", "evenstride.cli"]

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


def command_without(absent, arguments):
    """Run the command in a Python that has not these modules."""
    code = WITHOUT.format(absent=absent, arguments=arguments)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def fails(capsys, *arguments):
    """Return the one line that a bad call says, after its name."""
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("evenstride: ")
    assert err.endswith("\n")
    assert err.count("\n") == 1
    return err[len("evenstride: ") : -1]
