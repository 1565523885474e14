"""Where a command's lengths come from, and the options of `plan_epoch`, as options of a command."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenstride.compare import ORDERS
from evenstride.planner import plan_epoch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "INPUT_NAMES",
    "Column",
    "Counts",
    "Key",
    "as_flags",
    "chosen_options",
    "flag",
    "input_parameters",
    "option",
    "plan_parameters",
]


def option(help_text: str, panel: str, metavar: str) -> Any:
    """Return an option with a value, in a panel of the help."""
    return typer.Option(help=help_text, rich_help_panel=panel, metavar=metavar)


def flag(declaration: str, help_text: str, panel: str) -> Any:
    """Return an option without a value; ``--yes/--no`` declares both of its forms."""
    return typer.Option(declaration, help=help_text, rich_help_panel=panel, metavar="")


_PATH = Annotated[
    str,
    typer.Argument(
        metavar="PATH",
        help="Lengths, or samples that have them: a .npy or .npz file; text, an integer a line or "
        "columns (- is standard input); a .parquet, .arrow, .feather or .ipc file, or a folder "
        "that save_to_disk wrote; a folder that RaggedDataset.save wrote; an .idx file of "
        "Megatron, or its prefix. JSON is not read: convert it to Parquet.",
        show_default=False,
    ),
]
Key = Annotated[str | None, option("Which array of an .npz file.", "Input", "NAME")]
Column = Annotated[
    str | None,
    option(
        "Which column of a text file, by its name or its number from 0; which column of a "
        "Parquet or Arrow file, of lists or of lengths; which field of a saved folder.",
        "Input",
        "NAME|N",
    ),
]
Counts = Annotated[
    bool,
    flag(
        "--counts",
        "The text file is a histogram: its column count, or else the one after the "
        "lengths, says how many samples have the length.",
        "Input",
    ),
]

_INPUT: dict[str, tuple[Any, Any]] = {
    "key": (Key, None),
    "column": (Column, None),
    "counts": (Counts, False),
}
INPUT_NAMES = ("path", *_INPUT)
"""What :func:`read_lengths` takes, as :func:`input_parameters` names it."""

_BATCHES, _ORDER, _LEFT_OUT = "Batches", "Order", "What may be left out"

_OPTIONS: dict[str, Any] = {
    "token_budget": Annotated[
        int, option("Most padded tokens of a batch, on each rank.", _BATCHES, "TOKENS")
    ],
    "max_batch_size": Annotated[
        int | None, option("Most samples of a batch.", _BATCHES, "SAMPLES")
    ],
    "batch_size_multiple": Annotated[
        int, option("Samples of a batch are a multiple of it, where possible.", _BATCHES, "SAMPLES")
    ],
    "pad_to_multiple_of": Annotated[
        int, option("Widths are rounded up to a multiple of it.", _BATCHES, "TOKENS")
    ],
    "buckets": Annotated[
        str,
        option(
            "How many buckets, whose edges are then found; or the inner edges, as in 770,1216,1728 "
            "(one edge: 770,).",
            _BATCHES,
            "N|EDGES",
        ),
    ],
    "merge_buckets": Annotated[
        int, option("Make every N adjacent buckets one, before anything else.", _BATCHES, "N")
    ],
    "composition": Annotated[
        str,
        option("How samples come together: shuffle, window or frozen.", _BATCHES, "NAME"),
    ],
    "window": Annotated[
        int, option("Samples sorted together, for --composition window.", _BATCHES, "SAMPLES")
    ],
    "order": Annotated[str, option(f"One of {', '.join(ORDERS)}.", _ORDER, "NAME")],
    "jitter": Annotated[
        float, option("For stride: random displacement, in strides.", _ORDER, "[0, 0.5)")
    ],
    "accumulation_steps": Annotated[
        int, option("For stratified and mixed: steps of an optimizer step.", _ORDER, "STEPS")
    ],
    "shuffle": Annotated[
        bool,
        flag(
            "--shuffle/--no-shuffle",
            "With --no-shuffle, for validation: sorted, longest first.",
            _ORDER,
        ),
    ],
    "seed": Annotated[int, option("Fixes the plan, together with the epoch.", _ORDER, "SEED")],
    "epoch": Annotated[int, option("Which epoch, from 0.", _ORDER, "EPOCH")],
    "num_replicas": Annotated[int, option("Ranks, hence batches of a step.", _ORDER, "RANKS")],
    "steps_per_epoch": Annotated[int | None, option("Exactly this many steps.", _ORDER, "STEPS")],
    "max_length": Annotated[
        int | None, option("Longer samples are too long, whatever the budget.", _LEFT_OUT, "TOKENS")
    ],
    "too_long": Annotated[
        str,
        option(
            "Samples that are too long, or above the budget: error, drop, or alone, each a batch "
            "of its own.",
            _LEFT_OUT,
            "NAME",
        ),
    ],
    "empty": Annotated[str, option("Samples of length 0: keep, drop or error.", _LEFT_OUT, "NAME")],
    "drop_last": Annotated[
        bool,
        flag(
            "--drop-last/--no-drop-last",
            "Leave out what makes no whole step, instead of making smaller batches.",
            _LEFT_OUT,
        ),
    ],
    "num_threads": Annotated[
        int | None, option("Threads to plan with; by default up to 4.", "Speed", "N")
    ],
}


def input_parameters() -> list[inspect.Parameter]:
    """Return the parameters of a command that say where its lengths come from."""
    positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return [
        inspect.Parameter("path", positional, annotation=_PATH),
        *(_keyword(name, annotation, default) for name, (annotation, default) in _INPUT.items()),
    ]


def plan_parameters(
    *, without: Sequence[str], defaults: Mapping[str, Any]
) -> list[inspect.Parameter]:
    """Return the parameters of a command that are options of :func:`plan_epoch`.

    Parameters
    ----------
    without : sequence of str
        Options that the command is not to have.
    defaults : mapping of str to Any
        What options are that are not given, where `plan_epoch` has others.

    """
    known = inspect.signature(plan_epoch).parameters
    parameters = []
    for name, annotation in _OPTIONS.items():
        if name not in without:
            default = defaults.get(name, known[name].default)
            parameters.append(
                _keyword(name, annotation, str(default) if name == "buckets" else default)
            )
    return parameters


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def chosen_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return a command's options as :func:`plan_epoch` takes them."""
    if "buckets" not in options:
        return options
    return {**options, "buckets": _as_buckets(options["buckets"])}


def _as_buckets(text: str) -> int | list[int]:
    try:
        if "," not in text:
            return int(text)
        return [int(edge) for edge in text.removesuffix(",").split(",")]
    except ValueError:
        msg = f"`buckets` must be an integer or inner edges such as 770,1216, but is {text!r}."
        raise ValueError(msg) from None


def as_flags(sentence: str) -> str:
    """Return a sentence about options with their names as they are on the command line.

    Examples
    --------
    >>> as_flags("`token_budget` must be at least 1; pass too_long='drop'.")
    '--token-budget must be at least 1; pass --too-long drop.'

    """
    names = "|".join((*_OPTIONS, *_INPUT, "output", "quadratic"))
    sentence = re.sub(rf"\b({names})='(\w+)'", lambda m: f"{_flag(m[1])} {m[2]}", sentence)
    sentence = re.sub(rf"\b({names})=True\b", lambda m: _flag(m[1]), sentence)
    sentence = sentence.replace(", but is None.", ", but is not given.")
    sentence = re.sub(rf"\b({names}) = (\d+)", lambda m: f"{_flag(m[1])} {m[2]}", sentence)
    return re.sub(rf"`({names})(\[\d+\])?`", lambda m: _flag(m[1]) + (m[2] or ""), sentence)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
