"""The subcommand `evenstride lengths`."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - Typer reads it.
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from evenstride.command_base import ask, print_json
from evenstride.command_options import Column, Counts, Key, option
from evenstride.command_outputs import Json  # noqa: TC001 - Typer reads it.
from evenstride.terminal import print_blocks
from evenstride.write_lengths import write_lengths

if TYPE_CHECKING:
    from evenstride.write_lengths import WrittenLengths

__all__ = ["lengths_command"]


def lengths_command(
    source: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="Files as the other commands take them, folders of such files, or patterns. Their "
            "lengths come one after the other; the files of a folder or pattern are sorted by "
            "their paths.",
            show_default=False,
        ),
    ],
    *,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="Where to write the lengths; it must end in .npy.",
            rich_help_panel="Output",
            metavar="FILE.npy",
            show_default=False,
        ),
    ],
    key: Key = None,
    column: Column = None,
    counts: Counts = False,
    num_threads: Annotated[
        int | None, option("Threads to read with; by default up to 4.", "Speed", "N")
    ] = None,
    as_json: Json = False,
) -> None:
    """Read lengths from files of any size, into one .npy file of the narrowest type."""
    written: WrittenLengths = ask(
        _with_progress,
        source,
        str(output),
        key=key,
        column=column,
        counts=counts,
        num_threads=num_threads,
    )
    if as_json:
        print_json(written.to_dict())
    else:
        print_blocks(written.table())


def _with_progress(*args: Any, **options: Any) -> WrittenLengths:
    """Write lengths; meanwhile, show on a terminal how many there have been."""
    errors = Console(stderr=True)
    columns = (
        TextColumn("Reading"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    disable = not errors.is_terminal
    with Progress(*columns, console=errors, transient=True, disable=disable) as bar:
        task = bar.add_task("", total=None)

        def show(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        return write_lengths(*args, **options, progress=show)
