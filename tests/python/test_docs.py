"""Every block of the documentation, page by page: it runs, or the test of a framework runs it."""

from __future__ import annotations

import pytest

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
def test_a_block_that_is_named_is_run_by_the_test_of_a_framework(page):
    forgotten = [
        block.place for block in blocks_of(page) if block.name and not runs_elsewhere(block)
    ]
    assert forgotten == []
