"""Every block of the documentation, page by page: it runs here, or another test runs it."""

from __future__ import annotations

import re
from importlib.util import find_spec

import pytest

import evenstride as es
from docs_calls import asked_for
from docs_support import PAGES, ROOT, blocks_of, run, runs_elsewhere

pytestmark = [
    # Pages speak to machines with more processors than the one that tests them may have.
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    # What Python thinks of forks of processes with threads, which torch's loader makes.
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]


@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_run(page, tmp_path, monkeypatch, request):
    if page == "docs/device.md":
        request.getfixturevalue("fake_cuda")
    if any(block.language == "" for block in blocks_of(page)):
        pytest.importorskip("typer")
    (tmp_path / "benchmarks").symlink_to(ROOT / "benchmarks")
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    for block in blocks_of(page):
        if block.name is None:
            run(block, namespace)


@pytest.mark.parametrize("page", PAGES)
def test_a_block_that_has_a_name_is_run_by_another_test(page):
    forgotten = [
        block.place for block in blocks_of(page) if block.name and not runs_elsewhere(block)
    ]
    assert forgotten == []


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("documented('p.md', 'a')", ["a"]),
        ("PAGE = 'p.md'\nparts(PAGE, 'a', 'b', at_step='c')", ["a", "b"]),
        ('script = f\'exec({documented("p.md", "a")!r})\'', ["a"]),
        ("WAYS = ['a', 'b']\n[documented('p.md', way) for way in WAYS]", ["a", "b"]),
        ("for i in ('a', 'b'):\n  documented('p.md', f'{i}-c')", ["a-c", "b-c"]),
        ("@mark.parametrize('i', ['a'])\ndef test(i): documented('p.md', i)", ["a"]),
        ("def names(block, *, of): documented('p.md', block)\nnames('a', of='b')", ["a"]),
        ("named('p.md', 'a', of='b')", ["a"]),
        ("name = f'{name}'\ndocumented('p.md', name)", []),
        ("page, name = 'p.md', 'a'\ndocument('p.md', 'a')", []),
        ("'documented(\"p.md\", \"a\")'  # documented('p.md', 'a')", []),
    ],
)
def test_a_block_is_run_where_code_asks_for_it(code, names):
    assert asked_for(code) == {("p.md", name) for name in names}


def test_the_reference_describes_every_public_name_and_module():
    pages = [page.read_text(encoding="utf-8") for page in ROOT.glob("docs/api/*.md")]
    described = set(re.findall(r"(?m)^\.\. auto\w+:: ([\w.]+)", "\n".join(pages)))
    names = {f"evenstride.{name}" for name in es.__all__ if name != "__version__"}
    modules = {f"evenstride.{name}" for name in es._SUBMODULES if find_spec(f"evenstride.{name}")}
    assert names - described == set()
    assert {name for name in modules if not any(d.startswith(name) for d in described)} == set()
