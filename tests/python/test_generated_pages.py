"""The pages that tools write, against what the tools would write today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.mark.parametrize("tool", ["choosing", "commands", "orders"])
def test_a_page_is_what_its_tool_writes(tool):
    if tool == "commands":
        pytest.importorskip("typer")
    check = [sys.executable, TOOLS / f"{tool}.py", "--check"]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
