"""The subcommand `evenstride scale`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenstride._tables import counted
from evenstride.command_base import ask, planning, print_json, tracked
from evenstride.command_options import as_flags
from evenstride.command_outputs import Json, Plot, draw
from evenstride.scaling import (
    DEFAULT_BUCKETS,
    DEFAULT_QUADRATIC,
    DEFAULT_RANKS,
    SIMULATED,
    scale,
)
from evenstride.scaling_report import scaling_dict, scaling_notes, scaling_tables
from evenstride.terminal import print_blocks

if TYPE_CHECKING:
    from evenstride.lengths import LengthArray
    from evenstride.scaling import Scaling

__all__ = ["scale_command"]

Ranks = Annotated[
    list[int],
    typer.Option(
        "--num-replicas",
        help="Ranks, hence batches of a step; once for each number of them.",
        rich_help_panel="Simulation",
        metavar="RANKS",
        min=1,
    ),
]
Samples = Annotated[
    int | None,
    typer.Option(
        help="Draw this many of the lengths, with replacement, and plan with those. Another "
        "version of numpy may draw others by the same seed.",
        rich_help_panel="Simulation",
        metavar="N",
        min=1,
    ),
]
Quadratic = Annotated[
    float,
    typer.Option(
        help="The length with which attention costs as much as all the rest: about 6 times the "
        "hidden size of a transformer, 12 times where attention is causal.",
        rich_help_panel="Simulation",
        metavar="TOKENS",
    ),
]


@planning(without=list(SIMULATED), defaults={"buckets": str(DEFAULT_BUCKETS)})
def scale_command(
    lengths: LengthArray,
    options: dict[str, Any],
    *,
    ranks: Ranks = list(DEFAULT_RANKS),  # noqa: B006 - It is read alone.
    samples: Samples = None,
    quadratic: Quadratic = DEFAULT_QUADRATIC,
    as_json: Json = False,
    plot: Plot = None,
) -> None:
    """Plan an epoch for more and more ranks, and show where its steps become uneven or too few."""
    results, left_out = ask(_simulated, lengths, ranks, samples, quadratic, options)
    if plot is not None:
        ask(draw, "plot_scaling", results, plot, module="plot_scaling")
    if as_json:
        print_json(scaling_dict(results, left_out, quadratic, options))
        return
    notes = [
        f"Without {counted(number, 'rank')}: {as_flags(why)}" for number, why in left_out.items()
    ]
    if samples is not None:
        notes.append(
            f"Planned with {counted(samples, 'sample')}, drawn from "
            f"{counted(len(lengths), 'length')}."
        )
    why = "\n".join(scaling_notes(results, options))
    print_blocks(*scaling_tables(results, quadratic), *notes, *([why] if why else []))


def _simulated(
    lengths: LengthArray,
    ranks: list[int],
    samples: int | None,
    quadratic: float,
    options: dict[str, Any],
) -> tuple[list[Scaling], dict[int, str]]:
    """Return what an epoch is on each number of ranks, and why it cannot be had on others."""
    results: list[Scaling] = []
    left_out: dict[int, str] = {}
    found = scale(lengths, num_replicas=ranks, samples=samples, quadratic=quadratic, **options)
    for number, result in tracked(found, "Planning", len({1, *ranks})):
        if isinstance(result, ValueError):
            left_out[number] = str(result)
        else:
            results.append(result)
    return results, left_out
