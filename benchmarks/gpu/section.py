"""A section of the check of a GPU: what it claims, what it measures, and the file of its results.

Every section is a process of its own, so that one that hangs or loses the device takes no other
with it. Its results are written after each step, and stay if it is stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class Section:
    """The results of one section, which is given so many seconds."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.device = torch.device(arguments.device)
        self.is_cuda = self.device.type == "cuda"
        self.quick = bool(arguments.quick)
        self._out: Path = arguments.out
        self._began_s = time.monotonic()
        self._seconds = float(arguments.seconds)
        self._results: dict[str, Any] = {
            "checks": [],
            "requirements": [],
            "tables": [],
            "notes": [],
            "details": {},
        }

    @property
    def seconds_left(self) -> float:
        """What is left of the time that was given."""
        return self._began_s + self._seconds - time.monotonic()

    def check(self, claim: str, passed: object, detail: str = "") -> None:
        """State whether something is right."""
        found = {"claim": claim, "passed": bool(passed), "detail": detail}
        self._results["checks"].append(found)
        self._write()

    def require(
        self, what: str, value: float, reach: float, unit: str, *, at_least: bool = False
    ) -> None:
        """State a number that was to be reached, and whether it was."""
        met = value >= reach if at_least else value <= reach
        bound = "at least" if at_least else "at most"
        self._results["requirements"].append(
            {"what": what, "value": value, "reach": reach, "bound": bound, "unit": unit, "met": met}
        )
        self._write()

    def table(self, title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Add a table of what was measured."""
        table = {"title": title, "head": list(head), "rows": [list(row) for row in rows]}
        self._results["tables"].append(table)
        self._write()

    def note(self, text: str) -> None:
        """Add a sentence."""
        self._results["notes"].append(text)
        self._write()

    def keep(self, name: str, value: Any) -> None:
        """Add numbers that no table shows."""
        self._results["details"][name] = value
        self._write()

    @contextlib.contextmanager
    def attempt(self, what: str, *, must: bool = True) -> Iterator[None]:
        """Go on after an error in a block: a check that failed, or a note if it was optional."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - A machine that nobody has tried.
            traceback.print_exc()
            text = f"{type(error).__name__}: {_first_line(error)}"
            if must:
                self.check(f"{what}: ran to its end", passed=False, detail=text)
            else:
                self.note(f"{what} could not be measured here: {text}")

    def _write(self) -> None:
        draft = self._out.with_suffix(".draft")
        draft.write_text(json.dumps(self._results, indent=1) + "\n", encoding="utf-8")
        draft.replace(self._out)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else "no message"


def synchronize(device: torch.device) -> None:
    """Wait for all work of a device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def run_section(run: Callable[[Section], None], description: str | None) -> int:
    """Run a section as the command line says."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--out", type=Path, required=True)
    section = Section(parser.parse_args())
    if not section.is_cuda:
        torch.set_num_threads(1)  # Sections of a dry run are many at once.
    # A dry run goes the way over the host, and knows it; others would check nothing there.
    action: Literal["error", "ignore"] = "error" if section.is_cuda else "ignore"
    warnings.filterwarnings(action, message="Batches for .* are collated on the host")
    with section.attempt("the section"):
        run(section)
        section.keep("ended", value=True)
    sys.stdout.flush()
    return 0
