"""Text for terminals of any width, and for what is not a terminal."""

from __future__ import annotations

import errno
import os
import re
import sys
import textwrap
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["discard_output", "fold_table", "folded", "print_blocks", "print_note", "print_out"]

_CELL = re.compile(r"\S+(?: \S+)*")
_FEWEST_COLUMNS = 3


def print_blocks(*blocks: str) -> None:
    """Print blocks of text to the standard output, as :func:`folded` returns them."""
    print_out(folded(*blocks))


def folded(*blocks: str) -> str:
    """Return blocks of text as they are to be printed, with an empty line between two of them.

    What an empty line divides already are blocks of their own. One whose first line is the header
    of an aligned table is folded to the width of the terminal, or to ``COLUMNS``. Where neither is
    known, lines stay as long as they are.
    """
    console = Console(highlight=False, soft_wrap=True)
    known = console.is_terminal or os.environ.get("COLUMNS", "").isdecimal()
    width = console.width if known else sys.maxsize
    with console.capture() as captured:
        for number, block in enumerate("\n\n".join(blocks).split("\n\n")):
            if number > 0:
                console.print()
            for line in fold_table(block, width):
                console.print(line)
    return captured.get()


def print_out(text: str) -> None:
    """Write text to the standard output. That its reader has seen enough is no error.

    Raises
    ------
    OSError
        If it is closed, or its device is full.

    """
    if sys.stdout is None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()


def discard_output() -> None:
    """Send the rest of the standard output nowhere, where its reader has gone or its device failed.

    Or else the interpreter would try once more, and complain, at its end.
    """
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_note(text: str) -> None:
    """Print a line to the standard error output."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(Text(text))


def fold_table(block: str, width: int) -> list[Text]:
    """Return the lines of a block, with the columns of a table below each other if need be.

    A table has three columns or more, at least two spaces apart. The cells of its header end where
    the columns end, but for the first column, which may be aligned to the left. Each part of a
    folded table begins with the first column. A line with fewer cells is no row, and comes with
    each part as it is.
    """
    header, *rows = block.split("\n")
    cells = _CELL.findall(header)
    if len(cells) < _FEWEST_COLUMNS:
        return [Text(line) for row in (header, *rows) for line in _wrapped(row, width)]
    full = [row for row in (header, *rows) if len(_CELL.findall(row)) == len(cells)]
    ends = [cell.end() for cell in _CELL.finditer(header)]
    ends[0] = max(next(_CELL.finditer(row)).end() for row in full)
    folded: list[Text] = []
    for begin, end in _parts(ends, width):
        for row in (header, *rows):
            line = row
            if row in full:
                line = row[: ends[0]].ljust(ends[0]) + row[ends[begin] : ends[end]]
            folded.append(Text(line.rstrip(), style="bold" if row is header else ""))
        folded.append(Text())
    return folded[:-1]


def _parts(ends: Sequence[int], width: int) -> list[tuple[int, int]]:
    """Return which columns come together: those after `begin`, up to `end`."""
    parts: list[tuple[int, int]] = []
    begin = 0
    for column in range(1, len(ends)):
        if column > begin + 1 and ends[0] + ends[column] - ends[begin] > width:
            parts.append((begin, column - 1))
            begin = column - 1
    return [*parts, (begin, len(ends) - 1)]


def _wrapped(line: str, width: int) -> list[str]:
    # What stands in a second column goes on where it began.
    name = re.match(r"\S+(?: \S+)*  +", line)
    return textwrap.wrap(
        line,
        width,
        subsequent_indent=" " * (name.end() if name else 0),
        break_long_words=False,
        break_on_hyphens=False,
    )
