"""The tables of docs/orders.md against plans of today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "orders.py"


def test_the_tables_of_the_page_are_what_is_planned():
    check = [sys.executable, TOOL, "--check"]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
