"""The subcommands of `evenstride`."""

from __future__ import annotations

import io
import sys
import warnings
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenstride import __version__
from evenstride._tables import count
from evenstride.advice import MOST_SAMPLES_TO_REPLAN, advise, explain, flags_of
from evenstride.command_base import (
    BAD_INPUT,
    Failure,
    PlanBar,
    app,
    ask,
    planning,
    print_json,
    tracked,
)
from evenstride.command_options import as_flags, flag, option
from evenstride.command_outputs import Json, Plot, draw
from evenstride.commands_lengths import lengths_command
from evenstride.commands_scale import scale_command
from evenstride.compare import ORDERS, compare_orders, comparison_dict, comparison_tables
from evenstride.planner import plan_epoch
from evenstride.report_page import write_report
from evenstride.terminal import discard_output, print_blocks, print_note, print_out
from evenstride.tune import (
    CANDIDATES,
    MOST_SAMPLES,
    SEARCHED,
    reasons,
    recommended,
    tune,
    tuning_dict,
    tuning_tables,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenstride.bench import Bench, Measurement
    from evenstride.bench_data import BenchData
    from evenstride.lengths import LengthArray
    from evenstride.plan import EpochPlan
    from evenstride.stats import PlanStats
    from evenstride.tune import Candidate

__all__ = ["app", "run"]

_INTERRUPTED = 130

# Both of typer's lineages: click's own exceptions, and the copy that newer versions come with.
_UsageError: type[Exception] = typer.BadParameter.__mro__[2]


def run(arguments: Sequence[str]) -> int:
    """Run the command, and return its exit status: 0, 1 without an extra, 2 for bad input."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # File names may hold any character.
    try:
        status = app(list(arguments) or ["--help"], "evenstride", standalone_mode=False)
    except Failure as failure:
        print_note(f"evenstride: {failure}")
        return failure.status
    except _UsageError as error:
        message = error.format_message().rstrip(".")  # type: ignore[attr-defined]
        context = getattr(error, "ctx", None)
        command = "evenstride" if context is None else context.command_path
        then = " Try" if message.endswith("?") else "; try"
        print_note(f"evenstride: {message}{then} '{command} --help'.")
        return BAD_INPUT
    except typer.Abort:
        return _INTERRUPTED
    except OSError as error:
        if error.filename is not None:  # Of a file, and so not of the output.
            raise
        discard_output()
        print_note(f"evenstride: the output cannot be written: {error.strerror}.")
        return BAD_INPUT
    return status if isinstance(status, int) else 0


Save = Annotated[Path | None, option("Save the plan, for EpochPlan.load.", "Output", "FILE")]
Report = Annotated[
    Path | None,
    option("Write a page about the plan, in this order and all others.", "Output", "FILE.html"),
]
Quarters = Annotated[
    bool,
    flag(
        "--quarters",
        "Show the share of each bucket in each quarter, too: a long table, with a row for each "
        "bucket of each order.",
        "Output",
    ),
]
GiveUp = Annotated[
    float,
    typer.Option(
        help="Padding efficiency that may be given up for diversity, in points.",
        rich_help_panel="Choice",
        metavar="POINTS",
        min=0,
        max=100,
    ),
]
Seconds = Annotated[float, option("How long to measure each contender.", "Speed", "SECONDS")]


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


app.command("lengths")(lengths_command)


@app.command("plan")
@planning()
def _plan(
    lengths: LengthArray,
    options: dict[str, Any],
    *,
    as_json: Json = False,
    plot: Plot = None,
    save: Save = None,
    report: Report = None,
    path: str,
) -> None:
    """Plan an epoch, and show what is in it: a dry run."""
    with PlanBar() as bar:
        plan = ask(plan_epoch, lengths, progress=bar, **options)
    stats = plan.stats()
    if plot is not None:
        ask(draw, "plot_plan", plan, plot)
    if save is not None:
        ask(plan.save, save)
    if report is not None:
        ask(write_report, plan, report, lengths=lengths, name=Path(path).name)
    if as_json:
        print_json(stats.to_dict())
        return
    print_blocks(stats.table(), "\n".join(explain(stats, plan.options)))
    if len(lengths) > MOST_SAMPLES_TO_REPLAN:
        return

    def replan(change: dict[str, Any]) -> PlanStats:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return plan_epoch(lengths, **{**options, **change}).stats()

    for advice in advise(stats, plan.options, replan):
        print_blocks(str(advice))


@app.command("compare")
@planning(without=["order", "shuffle"])
def _compare(
    lengths: LengthArray,
    options: dict[str, Any],
    *,
    as_json: Json = False,
    plot: Plot = None,
    quarters: Quarters = False,
) -> None:
    """Plan an epoch in every order, and show how they differ."""
    plans, stats, left_out = ask(_collected, lengths, options, keep=plot is not None)
    if plot is not None:
        ask(draw, "plot_compare", plans, plot)
    if as_json:
        print_json(comparison_dict(stats, left_out, options))
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
    for order, plan in tracked(compare_orders(lengths, **options), "Planning", len(ORDERS)):
        if isinstance(plan, ValueError):
            left_out[order] = str(plan)
            continue
        stats[order] = plan.stats()
        if keep:
            plans[order] = plan
    return plans, stats, left_out


@app.command("tune")
@planning(without=list(SEARCHED))
def _tune(
    lengths: LengthArray,
    options: dict[str, Any],
    *,
    as_json: Json = False,
    plot: Plot = None,
    give_up: GiveUp = 1.0,
) -> None:
    """Search buckets, compositions and windows: what pads little, and still mixes well."""
    candidates, left_out = ask(_searched, lengths, options)
    choice = ask(recommended, candidates, give_up)
    if plot is not None:
        ask(draw, "plot_tuning", candidates, choice, plot)
    if as_json:
        print_json(tuning_dict(candidates, choice, left_out, len(lengths)))
        return
    notes = [f"Without {flags_of(change)}: {as_flags(why)}" for change, why in left_out]
    if len(lengths) > MOST_SAMPLES:
        notes.append(
            f"Planned with {count(MOST_SAMPLES)} samples, drawn from {count(len(lengths))}."
        )
    why = "\n".join(reasons(candidates, choice, len(lengths)))
    print_blocks(*tuning_tables(candidates, len(lengths)), *notes, why)


def _searched(
    lengths: LengthArray, options: dict[str, Any]
) -> tuple[list[Candidate], list[tuple[dict[str, Any], str]]]:
    """Return the candidates that can be had, and why others cannot."""
    candidates: list[Candidate] = []
    left_out: list[tuple[dict[str, Any], str]] = []
    for change, candidate in tracked(tune(lengths, **options), "Searching", len(CANDIDATES)):
        if isinstance(candidate, ValueError):
            left_out.append((change, str(candidate)))
        else:
            candidates.append(candidate)
    return candidates, left_out


app.command("scale")(scale_command)


def _open_data(path: str, **source: Any) -> BenchData:
    from evenstride.bench_data import open_data  # noqa: PLC0415 - It needs torch.

    return open_data(path, **source)


@app.command("bench")
@planning(read=_open_data)
def _bench(
    data: BenchData, options: dict[str, Any], *, seconds: Seconds = 3.0, as_json: Json = False
) -> None:
    """Measure how fast batches of these samples come out of a DataLoader and out of a Loader."""
    from evenstride import bench, bench_report  # noqa: PLC0415 - They need torch.

    _check_seconds(seconds)
    contest = ask(bench.Bench, data, options, seconds)
    try:
        done, left_out = ask(_measured, contest)
    except bench.UnequalBatchesError as error:
        raise Failure(str(error), 1) from error
    if as_json:
        print_json(bench_report.bench_dict(contest, done, left_out))
        return
    print_blocks(*bench_report.bench_tables(contest, done, left_out))


def _measured(contest: Bench) -> tuple[list[Measurement], dict[str, str]]:
    """Return what was measured, and why a contender is not there, by its name."""
    from evenstride.bench import CONTENDERS  # noqa: PLC0415 - As above.

    done: list[Measurement] = []
    left_out: dict[str, str] = {}
    for contender, result in tracked(contest.run(), "Measuring", len(CONTENDERS)):
        if isinstance(result, RuntimeError):
            left_out[contender.name] = str(result)
        else:
            done.append(result)
    return done, left_out


def _check_seconds(seconds: float) -> None:
    if not seconds > 0:
        msg = f"--seconds must be above 0, but is {seconds}."
        raise Failure(msg)


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
        raise Failure(msg, 1) from error
    _check_seconds(seconds)
    ask(output.mkdir, parents=True, exist_ok=True)  # Not after a minute of training.
    try:
        with redirect_stdout(sys.stderr) if as_json else nullcontext():
            result = run_demo(output, seconds)
    except BrokenPipeError:  # Nobody reads on, so that there is nothing more to say.
        discard_output()
        return
    if as_json:
        print_json(result)
