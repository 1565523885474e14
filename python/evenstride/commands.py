"""The subcommands of `evenstride`."""

from __future__ import annotations

import inspect
import io
import json
import sys
import warnings
from contextlib import nullcontext, redirect_stdout
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.progress import track

from evenstride import __version__
from evenstride.advice import advise, explain
from evenstride.command_options import (
    INPUT_NAMES,
    as_flags,
    chosen_options,
    flag,
    input_parameters,
    option,
    plan_parameters,
)
from evenstride.compare import ORDERS, compare_orders, comparison_dict, comparison_tables
from evenstride.planner import plan_epoch
from evenstride.read_lengths import read_lengths
from evenstride.terminal import discard_output, print_blocks, print_note, print_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from evenstride.bench import Bench, Measurement
    from evenstride.bench_data import BenchData
    from evenstride.lengths import LengthArray
    from evenstride.plan import EpochPlan
    from evenstride.stats import PlanStats

__all__ = ["app", "run"]

_T = TypeVar("_T")

_BAD_INPUT = 2
_INTERRUPTED = 130
_MOST_SAMPLES_TO_ADVISE = 20_000_000

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Length-aware batches: plan an epoch, compare orders, measure loaders, see a "
    "demonstration.",
    context_settings={"help_option_names": ["-h", "--help"]},
)

# Both of typer's lineages: click's own exceptions, and the copy that newer versions come with.
_UsageError: type[Exception] = typer.BadParameter.__mro__[2]


class _Failure(Exception):  # noqa: N818 - Not an error of the program.
    def __init__(self, sentence: str, status: int = _BAD_INPUT) -> None:
        super().__init__(sentence)
        self.status = status


def run(arguments: Sequence[str]) -> int:
    """Run the command, and return its exit status: 0, 1 without an extra, 2 for bad input."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # File names may hold any character.
    try:
        status = app(list(arguments) or ["--help"], "evenstride", standalone_mode=False)
    except _Failure as failure:
        print_note(f"evenstride: {failure}")
        return failure.status
    except _UsageError as error:
        message = error.format_message().rstrip(".")  # type: ignore[attr-defined]
        context = getattr(error, "ctx", None)
        command = "evenstride" if context is None else context.command_path
        then = " Try" if message.endswith("?") else "; try"
        print_note(f"evenstride: {message}{then} '{command} --help'.")
        return _BAD_INPUT
    except typer.Abort:
        return _INTERRUPTED
    return status if isinstance(status, int) else 0


def _ask(function: Callable[..., _T], *args: Any, **kwargs: Any) -> _T:
    """Call what may find fault with the input, and make one sentence of it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default", UserWarning)
        try:
            result = function(*args, **kwargs)
        except OSError as error:
            # What is written goes by another name at first.
            name = next((arg for arg in args if isinstance(arg, Path)), error.filename)
            file = "a file" if name is None else f"`{name}`"
            msg = f"{file} cannot be read or written: {error.strerror or error}."
            raise _Failure(msg) from error
        except ImportError as error:
            raise _Failure(str(error), 1) from error
        except MemoryError as error:
            msg = "there is not enough memory for this many samples."
            raise _Failure(msg) from error
        except (TypeError, ValueError) as error:
            raise _Failure(as_flags(str(error))) from error
    for warning in {str(warning.message): None for warning in caught}:
        print_note(f"evenstride: {as_flags(warning)}")
    return result


Json = Annotated[bool, flag("--json", "Print JSON, and nothing else.", "Output")]
Plot = Annotated[
    Path | None, option("Save a picture; its suffix says the format.", "Output", "FILE")
]
Save = Annotated[Path | None, option("Save the plan, for EpochPlan.load.", "Output", "FILE")]
Quarters = Annotated[
    bool, flag("--quarters", "Show the share of each bucket in each quarter, too.", "Output")
]
Seconds = Annotated[float, option("How long to measure each contender.", "Speed", "SECONDS")]


def _planning(
    *, without: Sequence[str] = (), read: Callable[..., Any] = read_lengths
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a command its lengths, and the options of `plan_epoch`.

    ``command(lengths, options, **own)`` becomes a command whose arguments say which lengths and
    which options these are.

    Parameters
    ----------
    without : sequence of str
        Options of `plan_epoch` that the command is not to have.
    read : callable, default `read_lengths`
        What makes the first argument of the path and its options.

    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        _, _, *own = inspect.signature(command).parameters.values()
        # One by one, since what the first two are is known to type checkers alone.
        own = [p.replace(annotation=globals()[p.annotation]) for p in own]

        @wraps(command)
        def decorated(**given: Any) -> None:
            its_own = {parameter.name: given.pop(parameter.name) for parameter in own}
            source = {name: given.pop(name) for name in INPUT_NAMES}
            options = _ask(chosen_options, given)
            command(_ask(read, source.pop("path"), **source), options, **its_own)

        parameters = [*input_parameters(), *own, *plan_parameters(without=without)]
        decorated.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        decorated.__annotations__ = {p.name: p.annotation for p in parameters}
        return decorated

    return decorate


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - As typer calls it.
    if wanted:
        print_out(f"evenstride {__version__}\n")
        raise typer.Exit


@app.callback()
def _evenstride(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Show the version and exit.",
            metavar="",
        ),
    ] = False,
) -> None:
    pass


@app.command("plan")
@_planning()
def _plan(
    lengths: LengthArray,
    options: dict[str, Any],
    *,
    as_json: Json = False,
    plot: Plot = None,
    save: Save = None,
) -> None:
    """Plan an epoch, and show what is in it: a dry run."""
    plan = _ask(plan_epoch, lengths, **options)
    stats = plan.stats()
    if plot is not None:
        _ask(plan.plot, plot)
    if save is not None:
        _ask(plan.save, save)
    if as_json:
        _print_json(stats.to_dict())
        return
    print_blocks(stats.table(), "\n".join(explain(stats, plan.options)))
    if len(lengths) > _MOST_SAMPLES_TO_ADVISE:
        return

    def replan(change: dict[str, Any]) -> PlanStats:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return plan_epoch(lengths, **{**options, **change}).stats()

    for sentence in advise(stats, plan.options, replan):
        print_blocks(sentence)


@app.command("compare")
@_planning(without=["order", "shuffle"])
def _compare(
    lengths: LengthArray,
    options: dict[str, Any],
    *,
    as_json: Json = False,
    plot: Plot = None,
    quarters: Quarters = False,
) -> None:
    """Plan an epoch in every order, and show how they differ."""
    plans, stats, left_out = _ask(_collected, lengths, options, keep=plot is not None)
    if plot is not None:
        from evenstride.report import plot_compare  # noqa: PLC0415 - matplotlib is an extra.

        _ask(plot_compare, plans, plot)
    if as_json:
        _print_json(comparison_dict(stats, left_out, options))
        return
    notes = [f"Without {order}: {as_flags(reason)}" for order, reason in left_out.items()]
    if "mixed" in stats and options["num_replicas"] * options["accumulation_steps"] == 1:
        notes.append(
            "mixed and stratified order whole optimizer steps, which have 1 batch here: see "
            "--accumulation-steps and --num-replicas."
        )
    print_blocks(*comparison_tables(stats, quarters=quarters), *notes)


def _collected(
    lengths: LengthArray, options: dict[str, Any], *, keep: bool
) -> tuple[dict[str, EpochPlan], dict[str, PlanStats], dict[str, str]]:
    """Return plans if they are to be kept, statistics, and why an order is not there: by order."""
    plans: dict[str, EpochPlan] = {}
    stats: dict[str, PlanStats] = {}
    left_out: dict[str, str] = {}
    for order, plan in _tracked(compare_orders(lengths, **options), "Planning", len(ORDERS)):
        if isinstance(plan, ValueError):
            left_out[order] = str(plan)
            continue
        stats[order] = plan.stats()
        if keep:
            plans[order] = plan
    return plans, stats, left_out


def _open_data(path: str, **source: Any) -> BenchData:
    from evenstride.bench_data import open_data  # noqa: PLC0415 - It needs torch.

    return open_data(path, **source)


@app.command("bench")
@_planning(read=_open_data)
def _bench(
    data: BenchData, options: dict[str, Any], *, seconds: Seconds = 3.0, as_json: Json = False
) -> None:
    """Measure how fast batches of these samples come out of a DataLoader and out of a Loader."""
    from evenstride import bench, bench_report  # noqa: PLC0415 - They need torch.

    _check_seconds(seconds)
    contest = _ask(bench.Bench, data, options, seconds)
    try:
        done, left_out = _ask(_measured, contest)
    except bench.UnequalBatchesError as error:
        raise _Failure(str(error), 1) from error
    if as_json:
        _print_json(bench_report.bench_dict(contest, done, left_out))
        return
    print_blocks(*bench_report.bench_tables(contest, done, left_out))


def _measured(contest: Bench) -> tuple[list[Measurement], dict[str, str]]:
    """Return what was measured, and why a contender is not there, by its name."""
    from evenstride.bench import CONTENDERS  # noqa: PLC0415 - As above.

    done: list[Measurement] = []
    left_out: dict[str, str] = {}
    for contender, result in _tracked(contest.run(), "Measuring", len(CONTENDERS)):
        if isinstance(result, RuntimeError):
            left_out[contender.name] = str(result)
        else:
            done.append(result)
    return done, left_out


def _tracked(items: Iterable[_T], text: str, total: int) -> Iterable[_T]:
    """Yield the items; meanwhile, show on a terminal how many of them there have been."""
    errors = Console(stderr=True)
    return track(items, text, total, console=errors, transient=True, disable=not errors.is_terminal)


def _check_seconds(seconds: float) -> None:
    if not seconds > 0:
        msg = f"--seconds must be above 0, but is {seconds}."
        raise _Failure(msg)


@app.command("demo")
def _demo(
    *,
    output: Annotated[Path, option("Where to write the report.", "Output", "FOLDER")] = Path(
        "evenstride-demo"
    ),
    seconds: Annotated[float, typer.Option(help="How long to train.", metavar="SECONDS")] = 60.0,
    as_json: Json = False,
) -> None:
    """Plan a corpus that every machine has, train a small model on it, and write a report."""
    try:
        from evenstride.demo import run_demo  # noqa: PLC0415 - It needs torch and matplotlib.
    except ImportError as error:
        if (error.name or "").startswith("evenstride"):
            raise
        msg = f"the demonstration needs {error.name}; pip install 'evenstride[cli,plot]'"
        raise _Failure(msg, 1) from error
    _check_seconds(seconds)
    _ask(output.mkdir, parents=True, exist_ok=True)  # Not after a minute of training.
    try:
        with redirect_stdout(sys.stderr) if as_json else nullcontext():
            result = run_demo(output, seconds)
    except BrokenPipeError:  # Nobody reads on, so that there is nothing more to say.
        discard_output()
        return
    if as_json:
        _print_json(result)


def _print_json(value: dict[str, Any]) -> None:
    print_out(json.dumps(value, indent=2, allow_nan=False) + "\n")
