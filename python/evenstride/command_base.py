"""What the subcommands share: the command itself, lengths, options, errors, progress and JSON."""

from __future__ import annotations

import inspect
import json
import sys
import time
import warnings
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from rich.console import Console
from rich.progress import Progress, track

from evenstride.command_options import (
    INPUT_NAMES,
    as_flags,
    chosen_options,
    input_parameters,
    plan_parameters,
)
from evenstride.read_lengths import read_lengths
from evenstride.terminal import print_note, print_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from typing_extensions import Self

__all__ = ["BAD_INPUT", "Failure", "PlanBar", "app", "ask", "planning", "print_json", "tracked"]

_T = TypeVar("_T")

BAD_INPUT = 2
_PATIENCE_S = 2.0

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Length-aware batches: read lengths, plan an epoch, search options, compare orders, "
    "simulate many ranks, measure loaders, see a demonstration.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Failure(Exception):  # noqa: N818 - Not an error of the program.
    """A sentence that ends the command, and its exit status."""

    def __init__(self, sentence: str, status: int = BAD_INPUT) -> None:
        super().__init__(sentence)
        self.status = status


def ask(function: Callable[..., _T], *args: Any, **kwargs: Any) -> _T:
    """Call what may find fault with the input, and make one sentence of it, a :class:`Failure`."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default", UserWarning)
        try:
            result = function(*args, **kwargs)
        except OSError as error:
            # What is written goes by another name at first.
            name = next((arg for arg in args if isinstance(arg, Path)), error.filename)
            file = "a file" if name is None else f"`{name}`"
            msg = f"{file} cannot be read or written: {error.strerror or error}."
            raise Failure(msg) from error
        except ImportError as error:
            raise Failure(str(error), 1) from error
        except MemoryError as error:
            msg = "there is not enough memory for this many samples."
            raise Failure(msg) from error
        except (TypeError, ValueError) as error:
            raise Failure(as_flags(str(error))) from error
    for warning in {str(warning.message): None for warning in caught}:
        print_note(f"evenstride: {as_flags(warning)}")
    return result


def planning(
    *,
    without: Sequence[str] = (),
    read: Callable[..., Any] = read_lengths,
    defaults: Mapping[str, Any] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a command its lengths, and the options of `plan_epoch`.

    ``command(lengths, options, **own)`` becomes a command whose arguments say which lengths and
    which options these are. One that has a parameter `path` is told where the lengths are from.

    Parameters
    ----------
    without : sequence of str
        Options of `plan_epoch` that the command is not to have.
    read : callable, default `read_lengths`
        What makes the first argument of the path and its options.
    defaults : mapping of str to Any, optional
        What options are that are not given, where `plan_epoch` has others.

    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        names = inspect.signature(command).parameters
        _, _, *own = (names[name] for name in names if name != "path")
        # One by one, since what the others are is known to type checkers alone.
        known = sys.modules[command.__module__].__dict__
        own = [p.replace(annotation=known[p.annotation]) for p in own]

        @wraps(command)
        def decorated(**given: Any) -> None:
            its_own = {parameter.name: given.pop(parameter.name) for parameter in own}
            source = {name: given.pop(name) for name in INPUT_NAMES}
            path = source.pop("path")
            _check_outputs(path, its_own)
            options = ask(chosen_options, given)
            if "path" in names:
                its_own["path"] = path
            command(ask(read, path, **source), options, **its_own)

        parameters = [
            *input_parameters(),
            *own,
            *plan_parameters(without=without, defaults=defaults or {}),
        ]
        decorated.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        decorated.__annotations__ = {p.name: p.annotation for p in parameters}
        return decorated

    return decorate


def _check_outputs(path: str, own: dict[str, Any]) -> None:
    """Say which output would take the place of the input, from which it may still be read."""
    for name, output in own.items():
        if (
            isinstance(output, Path)
            and output.exists()
            and output.resolve() == Path(path).resolve()
        ):
            flag = f"--{name.replace('_', '-')}"
            msg = f"{flag} must be another file than the samples', but is `{output}`."
            raise Failure(msg)


def tracked(items: Iterable[_T], text: str, total: int) -> Iterable[_T]:
    """Yield the items; meanwhile, show on a terminal how many of them there have been."""
    errors = Console(stderr=True)
    return track(items, text, total, console=errors, transient=True, disable=not errors.is_terminal)


class PlanBar:
    """Shows on a terminal how far a plan is that takes more than two seconds: a `progress`."""

    def __init__(self, text: str = "Planning") -> None:
        self._text = text
        self._errors = Console(stderr=True)
        self._shown_at_s = time.monotonic() + _PATIENCE_S
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __call__(self, fraction: float) -> None:
        """Show a fraction in [0, 1]."""
        if self._bar is None:
            if not self._errors.is_terminal or time.monotonic() < self._shown_at_s:
                return
            self._bar = Progress(console=self._errors, transient=True)
            self._bar.add_task(self._text, total=1.0)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=fraction)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()


def print_json(value: dict[str, Any]) -> None:
    """Print plain values as JSON, without NaN."""
    print_out(json.dumps(value, indent=2, allow_nan=False) + "\n")
