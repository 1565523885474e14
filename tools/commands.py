"""Writes docs/api/commands.md, or checks that it is up to date.

`python tools/commands.py` writes what the commands say of themselves with `--help`, as tables. With
`--check` it writes nothing; where the page is out of date it shows the difference and exits with 1.
"""

from __future__ import annotations

import inspect
import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from evenstride.command_options import INPUT_NAMES
from evenstride.commands import app
from evenstride.planner import plan_epoch
from generated import write_or_check

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PAGE = Path(__file__).resolve().parents[1] / "docs" / "api" / "commands.md"
PLANNING = {*INPUT_NAMES, *inspect.signature(plan_epoch).parameters}
START = """# Commands

<!-- Written by tools/commands.py. -->

`pip install 'evenstride[cli]'` brings what the commands need. Results go to the standard output,
notes and errors to the standard error. The exit status is 0, 1 where an extra is missing, or 2 for
bad input. [The guide to evidence](../guides/evidence.md) shows the commands at work.
"""


def page() -> str:
    """Return the page as it is now."""
    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    shared: dict[str, Any] = {}
    for command in commands.values():
        for parameter in command.params:
            if parameter.name in PLANNING and plans(command):
                shared.setdefault(parameter.name, parameter)
    lines = [START]
    for name, command in commands.items():
        lines += section(name, command, shared)
    lines += ["## What a plan is made of", "", *listed(shared.values())]
    return "\n".join(lines).rstrip() + "\n"


def plans(command: Any) -> bool:
    """Return whether a command takes what a plan is made of."""
    return any(parameter.name == "token_budget" for parameter in command.params)


def section(name: str, command: Any, shared: dict[str, Any]) -> Iterator[str]:
    """Yield what there is to say of one command."""
    flags = {parameter.opts[0] for parameter in command.params}
    yield from (f"## evenstride {name}", "", command.help, "")
    if not plans(command):
        shared = {}
    if shared:
        left_out = [
            f"`{shared[name].opts[0]}`" for name in shared if shared[name].opts[0] not in flags
        ]
        but = f", but not {', '.join(left_out)}" if left_out else ""
        yield from (f"It takes [what a plan is made of](#what-a-plan-is-made-of){but}.", "")
    yield from listed(
        parameter
        for parameter in command.params
        if parameter.name not in shared or parameter.default != shared[parameter.name].default
    )


def listed(parameters: Iterable[Any]) -> Iterator[str]:
    """Yield a table for each panel of the help, in the order of their titles."""
    for title, members in groupby(sorted(parameters, key=panel_of), panel_of):
        yield from (f"| {title} | | default |", "| --- | --- | --- |")
        yield from map(row_of, members)
        yield ""


def panel_of(parameter: Any) -> str:
    """Return the title under which the help shows a parameter."""
    if parameter.param_type_name == "argument":
        return "Argument"
    return parameter.rich_help_panel or "Options"


def row_of(parameter: Any) -> str:
    """Return the row of a parameter."""
    value = f" `{parameter.metavar}`".replace("|", r"\|") if parameter.metavar else ""
    if parameter.param_type_name == "argument":
        return f"|{value} | {parameter.help} | required |"
    return f"| {names_of(parameter)}{value} | {parameter.help} | {default_of(parameter)} |"


def names_of(option: Any) -> str:
    """Return the names of an option."""
    return ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])


def default_of(option: Any) -> str:
    """Return what an option is that is not given, or nothing where that goes without saying."""
    if option.required:
        return "required"
    if option.secondary_opts:
        return f"`{(option.opts if option.default else option.secondary_opts)[0]}`"
    return "" if option.default is None or option.is_flag else f"`{option.default}`"


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page, __doc__, "python tools/commands.py"))
