"""Files that are whole or not there."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from evenstride.drafts import draft_of


def test_what_is_written_is_there_at_the_end_and_the_old_file_until_then(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("old")
    with draft_of(path) as draft:
        draft.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), draft_of(path) as draft:  # noqa: PT012
        draft.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there_is_named_and_not_the_draft(tmp_path):
    path = tmp_path / "no" / "page.html"
    with pytest.raises(FileNotFoundError) as caught, draft_of(path):
        pass
    assert caught.value.filename == str(path)


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="needs a device of Linux")
def test_a_device_stays_a_device():
    path = Path("/dev/full")
    with pytest.raises(OSError, match="No space left"), draft_of(path) as draft:  # noqa: PT012
        assert draft == path
        draft.write_text("whole")
    assert stat.S_ISCHR(path.stat().st_mode)
