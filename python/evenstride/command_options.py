"""The options of `plan_epoch`, as options of a command."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenstride.compare import ORDERS
from evenstride.planner import plan_epoch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["as_flags", "chosen_options", "with_plan_options"]


def _option(help_text: str, panel: str, metavar: str | None = None) -> Any:
    return typer.Option(help=help_text, rich_help_panel=panel, metavar=metavar)


_BATCHES, _ORDER, _LEFT_OUT = "Batches", "Order", "What may be left out"

_OPTIONS: dict[str, Any] = {
    "token_budget": Annotated[
        int, _option("Most padded tokens of a batch, on each rank.", _BATCHES, "TOKENS")
    ],
    "max_batch_size": Annotated[
        int | None, _option("Most samples of a batch.", _BATCHES, "SAMPLES")
    ],
    "batch_size_multiple": Annotated[
        int, _option("Samples of a batch are a multiple of it where possible.", _BATCHES, "SAMPLES")
    ],
    "pad_to_multiple_of": Annotated[
        int, _option("Widths are rounded up to a multiple of it.", _BATCHES, "TOKENS")
    ],
    "buckets": Annotated[
        str,
        _option(
            "How many buckets, whose edges are then found; or the inner edges, as in 770,1216,1728 "
            "(one edge: 770,).",
            _BATCHES,
            "N|EDGES",
        ),
    ],
    "merge_buckets": Annotated[
        int, _option("So many adjacent buckets become one, before anything else.", _BATCHES, "N")
    ],
    "composition": Annotated[
        str,
        _option("How samples come together: shuffle, window or frozen.", _BATCHES, "NAME"),
    ],
    "window": Annotated[
        int, _option("Samples sorted together, for --composition window.", _BATCHES, "SAMPLES")
    ],
    "order": Annotated[str, _option(f"One of {', '.join(ORDERS)}.", _ORDER, "NAME")],
    "jitter": Annotated[
        float, _option("Random displacement, as a fraction of the stride.", _ORDER, "[0, 0.5)")
    ],
    "accumulation_steps": Annotated[int, _option("Steps of an optimizer step.", _ORDER, "STEPS")],
    "shuffle": Annotated[
        bool, typer.Option(help="Off: sorted, longest first.", rich_help_panel=_ORDER)
    ],
    "seed": Annotated[int, _option("Fixes the plan, together with the epoch.", _ORDER, "SEED")],
    "epoch": Annotated[int, _option("Which epoch, from 0.", _ORDER, "EPOCH")],
    "num_replicas": Annotated[int, _option("Ranks: batches of a step.", _ORDER, "RANKS")],
    "steps_per_epoch": Annotated[int | None, _option("Exactly so many steps.", _ORDER, "STEPS")],
    "max_length": Annotated[
        int | None, _option("Samples above it are too long.", _LEFT_OUT, "TOKENS")
    ],
    "too_long": Annotated[
        str,
        _option(
            "Samples above it or above the budget: error, drop, or alone, each a batch of its own.",
            _LEFT_OUT,
            "NAME",
        ),
    ],
    "empty": Annotated[
        str, _option("Samples of length 0: keep, drop or error.", _LEFT_OUT, "NAME")
    ],
    "drop_last": Annotated[
        bool,
        typer.Option(
            help="Drop fewer batches than ranks instead of splitting.", rich_help_panel=_LEFT_OUT
        ),
    ],
    "num_threads": Annotated[int | None, _option("Threads to plan with.", "Output", "N")],
}


def with_plan_options(
    *, without: Sequence[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that replaces a command's ``**options`` by those of :func:`plan_epoch`.

    Parameters
    ----------
    without : sequence of str
        Options that the command is not to have.

    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True).parameters.values()
        defaults = inspect.signature(plan_epoch).parameters
        parameters = [p for p in own if p.kind is not inspect.Parameter.VAR_KEYWORD]
        for name, annotation in _OPTIONS.items():
            if name in without:
                continue
            default = defaults[name].default
            parameters.append(
                inspect.Parameter(
                    name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=str(default) if name == "buckets" else default,
                    annotation=annotation,
                )
            )
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        return command

    return decorate


def chosen_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return a command's options as :func:`plan_epoch` takes them."""
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
    names = "|".join((*_OPTIONS, "key", "column", "counts"))
    sentence = re.sub(rf"\b({names})='(\w+)'", lambda m: f"{_flag(m[1])} {m[2]}", sentence)
    sentence = re.sub(rf"\b({names}) = (\d+)", lambda m: f"{_flag(m[1])} {m[2]}", sentence)
    return re.sub(rf"`({names})(\[\d+\])?`", lambda m: _flag(m[1]) + (m[2] or ""), sentence)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
