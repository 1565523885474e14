"""Text folded to the width of a terminal."""

from __future__ import annotations

import pytest

pytest.importorskip("rich")

from evenstride.terminal import fold_table

TABLE = """\
order    first  the second  third
stride       1           2      3
balanced    10          20     30
... 5 more ..."""


def folded(block, width):
    return [line.plain for line in fold_table(block, width)]


def test_a_table_that_fits_is_left_as_it_is():
    assert folded(TABLE, 33) == TABLE.splitlines()


def test_a_table_one_column_too_wide_is_folded_and_names_its_rows_again():
    assert folded(TABLE, 32) == [
        "order    first  the second",
        "stride       1           2",
        "balanced    10          20",
        "... 5 more ...",
        "",
        "order     third",
        "stride        3",
        "balanced     30",
        "... 5 more ...",
    ]


def test_each_part_has_at_least_one_column_however_narrow():
    assert [line for line in folded(TABLE, 1) if line.startswith("stride")] == [
        "stride       1",
        "stride             2",
        "stride        3",
    ]


def test_headers_are_bold_and_only_they():
    assert [str(line.style) for line in fold_table(TABLE, 100)] == ["bold", "", "", ""]


def test_prose_is_wrapped_and_facts_go_on_in_their_column():
    assert folded("One two three.\nFour.", 8) == ["One two", "three.", "Four."]
    assert folded("name  one two three", 13) == ["name  one two", "      three"]
