"""Files that a tool makes and that are committed: writes one, or checks that it is up to date."""

from __future__ import annotations

import argparse
import difflib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def write_or_check(path: Path, generate: Callable[[], str], description: str, command: str) -> int:
    """Write what `generate` returns, and return the exit status of the tool.

    With ``--check`` it writes nothing; where the file is out of date it shows the difference, says
    which command mends it, and returns 1.
    """
    parser = argparse.ArgumentParser(description=description.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    check = parser.parse_args().check

    fresh = generate()
    if not check:
        path.write_text(fresh, encoding="utf-8")
        return 0

    committed = path.read_text(encoding="utf-8") if path.exists() else ""
    if committed == fresh:
        return 0
    names = f"{path.name}, committed", f"{path.name}, generated"
    lines = difflib.unified_diff(
        committed.splitlines(keepends=True), fresh.splitlines(keepends=True), *names
    )
    sys.stdout.writelines(lines)
    print(f"{path.name} is out of date: run `{command}`.", file=sys.stderr)
    return 1
