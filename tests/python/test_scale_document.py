"""What docs/guides/scale.md shows, done anew."""

from __future__ import annotations

import re
import shlex

from command_support import command
from framework_support import DOCS, documented

PAGE = DOCS / "guides" / "scale.md"


def shown(name):
    """Return the blocks of an output on the page, by their first lines."""
    text = PAGE.read_text(encoding="utf-8")
    output = re.search(rf"<!-- output: {name} -->\n```text\n(.*?)```", text, re.DOTALL)[1]
    return blocks_of(output)


def blocks_of(output):
    return {block.split("\n")[0]: block for block in output.rstrip("\n").split("\n\n")}


def measured(blocks):
    """Return the first line of the one block that differs from machine to machine."""
    (first,) = (line for line in blocks if "seconds" in line)
    return first


def test_the_simulation_prints_what_the_page_shows(monkeypatch):
    monkeypatch.chdir(DOCS.parent)
    line = documented("guides/scale.md", "scale", language="").replace("\\\n", "")
    program, *arguments = shlex.split(line)
    assert program == "evenstride"
    printed, page = blocks_of(command(*arguments, COLUMNS="100").stdout), shown("scale")
    assert list(printed) == list(page)
    assert printed.pop(measured(printed)).count("\n") == page.pop(measured(page)).count("\n")
    assert printed == page


def test_what_the_page_shows_of_100_million_samples_has_the_same_columns():
    columns = [{tuple(line.split()) for line in shown(name)} for name in ("large", "scale")]
    assert columns[0] <= columns[1]
