"""Trains a small model in every order and composition, for several seeds, and measures each run.

The samples are functions of Python's standard library, a byte a token. Each run is one epoch. Runs
with the same seed begin with the same weights; the seed also draws the plan. Results are written
after every run, and an experiment that was stopped goes on where it was.

`python tools/experiment.py` makes docs/experiment.md of them.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from effect.settings import FULL, QUICK, SETTINGS, Data, Setting
from effect.training import first_losses, run
from python.harness import RESULTS, environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

REPEATED_STEPS = 12
"""Of a run that is begun twice, to see that it is the same both times."""


def load(path: Path | None, facts: dict[str, Any]) -> dict[str, Any]:
    """Return the results so far: those of the file, if there is one.

    Raises
    ------
    ValueError
        If they are of an experiment with other facts.

    """
    if path is None or not path.exists():
        return {
            "name": "training_effect",
            **environment(["numpy", "torch"]),
            "facts": facts,
            "runs": [],
        }
    document = json.loads(path.read_text(encoding="utf-8"))
    for name, value in facts.items():
        if document["facts"].get(name) != value:
            msg = (
                f"`{path}` must be of the same experiment, but its `{name}` is "
                f"{document['facts'].get(name)}, not {value}; give --json another path."
            )
            raise ValueError(msg)
    return document


def save(path: Path, document: dict[str, Any]) -> None:
    """Write the results; whoever interrupts it finds the ones of before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    draft.replace(path)


def schedule(settings: Sequence[Setting], seeds: int) -> Iterator[tuple[Setting, int]]:
    """Yield the runs: seed by seed, each from another setting on.

    So that what else the machine does hits all alike, and that a seed is done with before the next.
    """
    for seed in range(seeds):
        first = seed * len(settings) // seeds
        for setting in (*settings[first:], *settings[:first]):
            yield setting, seed


def check_repeats(data: Data) -> None:
    """Begin a run twice.

    Raises
    ------
    RuntimeError
        If the losses are not the same, to the last bit.

    """
    first, second = (first_losses(data, SETTINGS["stride"], 0, REPEATED_STEPS) for _ in range(2))
    if first != second:
        msg = f"A run must repeat exactly, but its losses are {first}, then {second}."
        raise RuntimeError(msg)


def show(result: dict[str, Any]) -> None:
    noise = result["loss_noise"]["optimizer_step"]
    print(
        f"{result['setting']:12} seed {result['seed']}  {result['tokens']:,} tokens in "
        f"{result['batches']:,} batches  {result['processor_s']:.1f} s  "
        f"noise {noise or float('nan'):.4f}  validation {result['validation'][-1]:.4f}",
        flush=True,
    )


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a smoke test; it shows nothing")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each setting (default: 5)")
    parser.add_argument(
        "--settings",
        nargs="+",
        choices=SETTINGS,
        default=list(SETTINGS),
        metavar="NAME",
        help=f"which to run (default: {' '.join(SETTINGS)})",
    )
    parser.add_argument("--threads", type=int, default=1, help="that torch uses (default: 1)")
    parser.add_argument(
        "--json",
        type=Path,
        metavar="PATH",
        help="where the results are and go (default: benchmarks/results/training_effect.json; "
        "with --quick: nowhere)",
    )
    parser.add_argument(
        "--steps",
        type=Path,
        metavar="PATH",
        help="where each run's steps are added, as a line of JSON (default: nowhere)",
    )
    options = parser.parse_args(arguments)
    if options.json is None and not options.quick:
        options.json = RESULTS / "training_effect.json"
    return options


def main(given: Sequence[str] | None = None) -> int:
    arguments = parse_arguments(given)
    torch.set_num_threads(arguments.threads)
    data = Data(QUICK if arguments.quick else FULL)
    try:
        document = load(arguments.json, {**data.facts(), "threads": arguments.threads})
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    check_repeats(data)
    commit = environment()["commit"]
    done = {(result["setting"], result["seed"]) for result in document["runs"]}
    settings = [SETTINGS[name] for name in arguments.settings]
    for setting, seed in schedule(settings, arguments.seeds):
        if (setting.name, seed) in done:
            continue
        result, record = run(data, setting, seed)
        show(result)
        document["runs"].append({**result, "commit": commit})
        if arguments.steps is not None:
            line = {"setting": setting.name, "seed": seed, **record.columns()}
            with arguments.steps.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        if arguments.json is not None:
            save(arguments.json, document)
    return 0


if __name__ == "__main__":
    sys.exit(main())
