"""What docs/reports.md shows, done anew."""

from __future__ import annotations

import re
import shlex

import pytest

from command_support import command, run
from framework_support import DOCS, documented

PAGE = DOCS / "reports.md"
ROOT = DOCS.parent


def arguments_of(name):
    """Return what the page gives to our command, in a block of this name."""
    line = documented("reports.md", name, language="").replace("\\\n", "")
    program, *arguments = shlex.split(line)
    assert program == "evenstride"
    return arguments


def test_the_report_is_as_large_as_the_page_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    sizes = []
    for ranks in ("4", "1"):
        plan = [ranks if argument == "4" else argument for argument in arguments_of("plan")]
        plan[1] = str(ROOT / plan[1])
        assert run(plan) == 0
        sizes.append((tmp_path / "report.html").stat().st_size / 1000)
    assert "45,210 of 1 batch each" in capsys.readouterr().out
    said = [int(size) for size in re.findall(r"(\d+) kB", PAGE.read_text(encoding="utf-8"))][:2]
    assert sizes == pytest.approx(said, rel=0.1)


def test_the_search_prints_what_the_page_shows(monkeypatch):
    monkeypatch.chdir(ROOT)
    printed = command(*arguments_of("tune"), COLUMNS="100").stdout
    shown = re.search(
        r"<!-- output: tune -->\n```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL
    )
    assert printed == shown[1]


def test_the_report_is_written_from_python(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(documented("reports.md", "report"), {})  # noqa: S102 - It is our own.
    assert "<h1>my corpus</h1>" in (tmp_path / "report.html").read_text(encoding="utf-8")
