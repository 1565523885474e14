"""Files that a tool makes and that are committed: writes one, or checks that it is up to date."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
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


def with_tables(page: Path, tables: Mapping[str, Callable[[], str]]) -> str:
    """Return a page with each table between ``<!-- table: NAME -->`` and ``<!-- end -->``.

    Raises
    ------
    ValueError
        If the page does not have a place for each.

    """

    def table(found: re.Match[str]) -> str:
        return f"{found[1]}\n{tables[found[2]]()}\n{found[3]}"

    places = r"(?s)(<!-- table: (\w+) -->)\n.*?(<!-- end -->)"
    text, count = re.subn(places, table, page.read_text(encoding="utf-8"))
    if count != len(tables):
        msg = f"{page.name} must have {len(tables)} tables, but has {count}."
        raise ValueError(msg)
    return text


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]], left: int) -> str:
    """Return a table, right-aligned but for the first `left` columns."""
    rule = ["---" if column < left else "---:" for column in range(len(header))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *rows))
