"""Lengths from text: an integer a line, or columns."""

from __future__ import annotations

import csv
import sys
import warnings
from contextlib import nullcontext
from typing import TYPE_CHECKING, TextIO

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from evenstride.lengths import LengthArray

__all__ = ["json_error", "listed", "read_text"]

_LENGTH_NAMES = ("length", "lengths")
_COUNT_NAMES = ("count", "counts")
_DELIMITERS = ",\t;"
_END = 2**63
_LONGEST_SHOWN = 40
_MOST_SHOWN = 20


def read_text(file: Path, column: str | None, *, counts: bool) -> LengthArray:
    """Return the lengths in a text file, or in the standard input for "-": see `read_lengths`."""
    name = "standard input" if str(file) == "-" else str(file)
    with _opened(file) as lines:
        try:
            table = _Table(name, lines)
            length_column, count_column = table.choose(column, counts=counts)
            if count_column is None:
                return np.fromiter(table.integers(length_column), np.int64)
            pairs = np.array(list(table.pairs(length_column, count_column)), np.int64)
        except csv.Error as error:
            msg = f"`{name}` must be text with an integer a line, but Python's csv says: {error}."
            raise ValueError(msg) from error
    return np.repeat(pairs[:, 0], pairs[:, 1]) if len(pairs) else pairs.reshape(-1)


def json_error(name: str) -> ValueError:
    """Return what says that a file of JSON is not read."""
    return ValueError(
        f"`{name}` must not be JSON, which is not read: convert it to Parquet first, for example "
        "with datasets' `to_parquet` or pyarrow."
    )


def _opened(file: Path) -> AbstractContextManager[TextIO]:
    if str(file) != "-":
        return file.open(encoding="utf-8-sig", errors="replace", newline="")
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="replace", newline="")
    return nullcontext(sys.stdin)


class _Table:
    """The rows of a text file, below its header if it has one."""

    def __init__(self, name: str, lines: Iterable[str]) -> None:
        self._name = name
        lines = iter(lines)
        skipped, first = 0, ""
        for line in lines:
            if not _is_empty(line):
                first = line
                break
            skipped += 1
        delimiter = next((mark for mark in _DELIMITERS if mark in first), ",")
        if first.lstrip().startswith(("{", "[")):
            raise json_error(name)
        self._skipped = skipped
        self._reader = csv.reader(_chain(first, lines), delimiter=delimiter)
        self._first = next(self._reader, [])
        self._header: list[str] | None = None
        if _is_header(self._first):
            self._header = [cell.strip() for cell in self._first]

    def choose(self, column: str | None, *, counts: bool) -> tuple[int, int | None]:
        """Return the numbers of the columns with lengths and with counts."""
        names = self._header or [str(i) for i in range(len(self._first))]
        if not names:
            msg = f"`{self._name}` must have at least 1 line, but has 0."
            raise ValueError(msg)
        length_column = self._length_column(names, column, counts=counts)
        count_column = _find(names, _COUNT_NAMES)
        if not counts:
            if column is None and count_column is not None:
                msg = (
                    f"`{self._name}` has a column {names[count_column]!r}; pass counts=True if it "
                    "says how many samples have the length."
                )
                warnings.warn(msg, stacklevel=4)
            return length_column, None
        if count_column is None:
            count_column = length_column + 1
        if count_column >= len(names):
            msg = (
                f"`{self._name}` must have a column of counts after that of lengths, but has "
                f"{listed(names)}."
            )
            raise ValueError(msg)
        return length_column, count_column

    def _length_column(self, names: list[str], column: str | None, *, counts: bool) -> int:
        if column is None:
            found = _find(names, _LENGTH_NAMES)
            if found is not None:
                return found
            if len(names) == 1 or (counts and self._header is None):
                return 0
        elif column in names:
            return names.index(column)
        elif column.isdecimal() and int(column) < len(names):
            return int(column)
        msg = f"`column` must be one of {listed(names)} for `{self._name}`, but is {column!r}."
        raise ValueError(msg)

    def integers(self, column: int) -> Iterator[int]:
        """Yield the integers of a column."""
        return (self._integer(row, column) for row in self._rows())

    def pairs(self, first: int, second: int) -> Iterator[tuple[int, int]]:
        """Yield the integers of two columns, none of them negative."""
        for row in self._rows():
            yield self._integer(row, first), self._integer(row, second)

    def _rows(self) -> Iterator[list[str]]:
        if self._header is None:
            yield self._first
        for row in self._reader:
            if row and not (len(row) == 1 and not row[0].strip()) and not row[0].startswith("#"):
                yield row

    def _integer(self, row: list[str], column: int) -> int:
        cell = row[column] if column < len(row) else ""
        try:
            value = int(cell)
        except ValueError:
            value = -1
        if not 0 <= value < _END:
            line = self._reader.line_num + self._skipped
            msg = (
                f"`{self._name}`, line {line}, must hold an integer in [0, 2**63), but holds "
                f"{_shortened(cell.strip())!r}."
            )
            raise ValueError(msg)
        return value


def _chain(first: str, rest: Iterable[str]) -> Iterator[str]:
    if first:
        yield first
    yield from rest


def _is_empty(line: str) -> bool:
    return not line.strip() or line.startswith("#")


def _is_header(cells: list[str]) -> bool:
    # A mistyped number must not pass for a name: that would lose a sample.
    starts = [cell.strip()[:1] for cell in cells]
    return any(starts) and not any(start.isdigit() or start in "+-." for start in starts if start)


def _find(names: list[str], wanted: tuple[str, ...]) -> int | None:
    return next((i for i, name in enumerate(names) if name.lower() in wanted), None)


def listed(names: Sequence[str]) -> str:
    """Return names for a sentence: not all of them, if they are many, nor all of a long one."""
    shown = [repr(_shortened(name)) for name in names[:_MOST_SHOWN]]
    return ", ".join(shown if len(names) <= _MOST_SHOWN else [*shown, "..."])


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "..."
