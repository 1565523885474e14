"""What the demonstration shows while it runs: lines, and a bar where there is a terminal."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

try:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
except ImportError:
    _HAVE_RICH = False
else:
    from evenstride.terminal import folded

    _HAVE_RICH = True

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Show = Callable[[int, float], None]

__all__ = ["progress", "say", "say_tables"]


def say(text: str = "") -> None:
    """Print text to the standard output, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def say_tables(text: str) -> None:
    """Print aligned tables, with rich folded to the width of the terminal."""
    say(folded(text).removesuffix("\n") if _HAVE_RICH else text)


@contextmanager
def progress(name: str, total: int, every: float) -> Iterator[Show]:
    """Show how far `name` has come: give ``show(done, loss)`` out of `total`, after each step.

    On a terminal, with rich, that is a bar, which vanishes at the end. Else it is a line now and
    then, at least `every` seconds apart.
    """
    if _HAVE_RICH and sys.stdout.isatty() and "CI" not in os.environ:
        with _bar(name, total) as show:
            yield show
    else:
        yield _lines(name, total, every)


@contextmanager
def _bar(name: str, total: int) -> Iterator[Show]:
    columns = (
        TextColumn("  {task.description:8}"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %   loss {task.fields[loss]:.3f}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, transient=True) as bars:
        task = bars.add_task(name, total=total, loss=float("nan"))
        yield lambda done, loss: bars.update(task, completed=done, loss=loss)


def _lines(name: str, total: int, every: float) -> Show:
    last = time.monotonic()

    def show(done: int, loss: float) -> None:
        nonlocal last
        if time.monotonic() - last >= every:
            last = time.monotonic()
            say(f"  {name:8} {100 * done / total:3.0f} %   loss {loss:.3f}")

    return show
